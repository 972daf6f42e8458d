"""Event arguments by Kineto's keys, and collectives' metadata."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, values_at
from analyzers.trace.collective_calls import SYNCHRONIZING, Call, Group, Inputs, kind_of_call
from analyzers.trace.libraries import RANGES, SIZED_BY, SPANS
from analyzers.trace.libraries import Collective as Kind
from analyzers.trace.operator_flops import COUNTED
from analyzers.trace.range_names import ACCUMULATE, C10D, DP_FORWARD

_NOTHING = msgspec.Raw(b"")
# Operators whose inputs' shapes are kept in every trace: those that take a parameter's gradient, and those whose FLOPs
# are counted.
_ALWAYS_SHAPED = COUNTED | {ACCUMULATE}
# What a process group's libraries run on the host, and the ranges and calls in which they are launched.
_SPANS, _CALLS = "|".join(SPANS), "|".join((C10D, *RANGES))
# And where no metadata tell: those that say what a message holds. Views count inside of a flattening.
_SHAPED = re.compile(rf"{_SPANS}|{_CALLS}|aten::flatten_dense_tensors$|aten::view$|{SIZED_BY}")
# What runs use these: gloo's, nn.DataParallel's, other libraries'. Decoding dtypes takes time that all others save, and
# so does what only CUDA's synchronizations say.
_NEEDS_MORE = re.compile(
    rf"{_SPANS}|{re.escape(DP_FORWARD)}$|Broadcast$|ReduceAddCoalesced$"
    rf"|{SIZED_BY}|Stream Wait Event$|(?:Event|Stream|Context|Device) Sync$"
)
# And so do those on NCCL before metadata (PyTorch 2.2), where these rows alone say a collective's kind and size.
_CALLING = re.compile(_CALLS)
_LONGEST_RANKS_LIST = 1 << 20
# As PyTorch writes it, and no larger than a column holds.
Number = Annotated[int, msgspec.Meta(ge=UNKNOWN, lt=1 << 62)]


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that are read, as Kineto orders those of most rows.

    What differs between writers (text or number or list) is taken as it comes.

    Shapes and grids are looked at for few rows, and stay text.
    """

    external: int | str = msgspec.field(default=UNKNOWN, name="External id")
    forward: Number = msgspec.field(default=UNKNOWN, name="Sequence number")
    forward_thread: Number = msgspec.field(default=UNKNOWN, name="Fwd thread id")
    concrete: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")
    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    device: int = UNKNOWN
    stream: int | str = UNKNOWN  # ROCm writes a pointer, as text, on its host rows
    correlation: int = UNKNOWN
    bytes: int = UNKNOWN
    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    graph: int | str = msgspec.field(default=UNKNOWN, name="graph id")  # of CUDA graphs, whose rows alone have one
    from_device: int = msgspec.field(default=UNKNOWN, name="fromDevice")
    in_device: int = msgspec.field(default=UNKNOWN, name="inDevice")
    to_device: int = msgspec.field(default=UNKNOWN, name="toDevice")
    collective: str = msgspec.field(default="", name="Collective name")
    elements_in: Any = msgspec.field(default=UNKNOWN, name="In msg nelems")
    elements_out: Any = msgspec.field(default=UNKNOWN, name="Out msg nelems")
    dtype: Any = ""
    group_size: Any = msgspec.field(default=UNKNOWN, name="Group size")
    group_name: Any = msgspec.field(default="", name="Process Group Name")
    group_description: Any = msgspec.field(default="", name="Process Group Description")
    group_ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    sequence: Any = msgspec.field(default=UNKNOWN, name="Seq")
    source: Any = msgspec.field(default=UNKNOWN, name="Src Rank")
    target: Any = msgspec.field(default=UNKNOWN, name="Dst Rank")
    root: Any = msgspec.field(default=UNKNOWN, name="Rank")  # of collectives without a root the caller itself
    split_in: Any = msgspec.field(default="", name="In split size")
    split_out: Any = msgspec.field(default="", name="Out split size")
    held: Number = msgspec.field(default=UNKNOWN, name="held_ns")  # of samples: how long Python had been held up
    label: Any = msgspec.field(default="", name="name")  # a process's, on rows that name one


class TypedArgs(Args, gc=False, frozen=True):
    """Arguments with what a synchronization waits for."""

    wait_on_stream: Any = UNKNOWN
    wait_on_record: Any = msgspec.field(default=UNKNOWN, name="wait_on_cuda_event_record_corr_id")


NO_ARGS = Args()
# Calls whose root takes part in every message.
_ROOTED = ("gather", "scatter")
_TEXTS = ("dims", "types", "concrete", "grid", "block")
_KEPT_AS_TEXT = ("Input Dims", "Input type", "Concrete Inputs", "grid", "block")


def with_raw(args: Mapping[str, Any]) -> dict[str, Any]:
    """Build arguments from parsed JSON, with those that are kept as text put into text again."""
    texts = {key: msgspec.Raw(json.dumps(args[key], default=float).encode()) for key in _KEPT_AS_TEXT if key in args}
    return dict(args) | texts


def needs_more(names: Iterable[str]) -> bool:
    """Whether a trace with such rows has arguments that only TypedArgs keep."""
    return any(map(_NEEDS_MORE.match, names))


def call_collectives(names: Iterable[str]) -> bool:
    """Whether such rows call collectives: they are needed where PyTorch's metadata are missing."""
    return any(map(_CALLING.match, names))


def call_key(args: Args) -> Hashable:
    """Return what tells different calls apart, without `Seq`; as text, since any value may have any type."""
    root = args.root if args.collective in _ROOTED else UNKNOWN
    numbers_said = (args.elements_in, args.elements_out, args.group_size, args.source, args.target, root)
    texts = (args.collective, args.dtype, args.group_name, args.group_ranks, args.split_in, args.split_out)
    return tuple(map(str, (*texts, *numbers_said)))


def call_of(args: Args) -> Call | None:
    """Return the collective that arguments describe, None where their call is none (`wait`)."""
    kind = kind_of_call(args.collective)
    if kind is None:
        return None
    elements_in, elements_out = whole(args.elements_in), whole(args.elements_out)
    if kind == Kind.ALL_REDUCE and elements_in == elements_out == 0:
        kind = Kind.BARRIER  # PyTorch's barrier is an all-reduce of nothing
    group = _parse_group(args)
    return Call(
        kind=kind,
        elements_in=elements_in,
        elements_out=elements_out,
        dtype=args.dtype if isinstance(args.dtype, str) else "",
        group=group,
        sent_to=_find_peer(args.target, group) if kind == Kind.SEND_RECV else (),
        received_from=_find_peer(args.source, group) if kind == Kind.SEND_RECV else (),
        split_in=numbers(args.split_in),
        split_out=numbers(args.split_out),
        root=_find_peer(args.root, group) if args.collective in _ROOTED else (),
        # Of all others it is a root or a peer.
        caller=whole(args.root) if kind in SYNCHRONIZING else UNKNOWN,
    )


def _parse_group(args: Args) -> Group | None:
    name = str(args.group_name) if isinstance(args.group_name, str | int) else ""
    size = whole(args.group_size)
    ranks: tuple[int, ...] | None = numbers(args.group_ranks)
    if not name and not ranks:
        return None
    # Long lists are written shortened, with dots.
    ranks = ranks if ranks and (len(ranks) == size or size == UNKNOWN) else None
    description = args.group_description if isinstance(args.group_description, str) else ""
    return Group(name, size if size > 0 else len(ranks or ()), ranks, description)


def _find_peer(written: Any, group: Group | None) -> tuple[int, ...]:
    """The other rank of a message, or a root, said by its place in the group, as a rank of the run."""
    index = whole(written)
    if index < 0:
        return ()
    return (index,) if group is None else group.rank_at(index)


def inputs_of(dims: bytes, types: bytes, concrete: bytes = b"") -> Inputs:
    """Return shapes, dtypes and values from their JSON; empty where they do not have the form that PyTorch writes."""
    try:
        shapes = msgspec.json.decode(dims, type=list[list[int | list[int]]]) if dims else []
        dtypes = msgspec.json.decode(types, type=list[str]) if types else []
    except (ValueError, msgspec.DecodeError):
        return Inputs((), ())
    return Inputs(tuple(shapes), tuple(dtypes), tuple(_parse_values(concrete)))


def _parse_values(concrete: bytes) -> list[str]:
    """The values of inputs that are no tensors; none where they are not written as PyTorch does: shapes still count."""
    try:
        return msgspec.json.decode(concrete, type=list[str]) if concrete else []
    except (ValueError, msgspec.DecodeError):
        return []


K = TypeVar("K", bound=Hashable)
# An entry of a dictionary, beside its key.
_ENTRY_BYTES = 128
# Lists become so much larger than their text: `[],` is a list of 56 bytes, and a place of 8 in another.
_PARSED_BYTES = 24


class Codes(dict[K, int]):
    """Dictionary encoding: what is new gets the next code. `nbytes` is about what the keys take."""

    nbytes = 0

    def __missing__(self, key: K) -> int:
        self[key] = code = len(self)
        nbytes = sum(map(sys.getsizeof, key)) if isinstance(key, tuple) else sys.getsizeof(key)
        self.nbytes += _ENTRY_BYTES + nbytes
        return code


class ByCode(Generic[K]):
    """A number for each key of a dictionary encoding, found out once for each key."""

    def __init__(self, codes: Codes[K], number: Callable[[K], int]) -> None:
        self._codes, self._number = codes, number
        self._numbers = np.zeros(0, dtype=np.int8)

    def of(self, codes: NDArray[Any]) -> NDArray[np.int8]:
        """Return the numbers for some codes."""
        if len(self._numbers) < len(self._codes):
            new = [self._number(key) for key in islice(self._codes, len(self._numbers), None)]
            self._numbers = np.r_[self._numbers, np.array(new, dtype=np.int8)]
        numbers: NDArray[np.int8] = self._numbers[codes]
        return numbers


def has_shapes(name: str) -> bool:
    """Whether the shapes of an operator's inputs are kept in every trace."""
    return name in _ALWAYS_SHAPED


def has_typed_shapes(name: str) -> bool:
    """Whether the shapes of an operator's inputs are kept where TypedArgs are."""
    return has_shapes(name) or _SHAPED.match(name) is not None


class CallColumns:
    """What rows say of collectives, and operators' shapes: few rows have any, and few of those differ."""

    def __init__(self) -> None:
        self._calls = Codes[Hashable]()
        self._said: list[Args] = []
        self._shapes = Codes[tuple[bytes, bytes, bytes]]()
        self._grids = Codes[tuple[bytes, bytes]]()

    @property
    def nbytes(self) -> int:
        """About what they will take once they are parsed, in bytes."""
        return (self._calls.nbytes + self._shapes.nbytes + self._grids.nbytes) * _PARSED_BYTES

    @property
    def has_any(self) -> bool:
        """Whether any row described a collective."""
        return bool(self._said)

    def calls_and_nodes(self, rows: Sequence[Args]) -> dict[str, Int64]:
        """Return sparse columns: which events describe a collective, or belong to autograd's nodes, and to which."""
        telling = [(row, args) for row, args in enumerate(rows) if args.collective or args.forward != UNKNOWN]
        calling = [(row, args) for row, args in telling if args.collective]
        nodes = [(row, args) for row, args in telling if args.forward != UNKNOWN]
        return _columns({
            "call_row": [row for row, _ in calling],
            "call": [self._code(args) for _, args in calling],
            "sequence": [whole(args.sequence) for _, args in calling],
            "call_external": [whole(args.external) for _, args in calling],
            "forward_row": [row for row, _ in nodes],
            "forward": [args.forward for _, args in nodes],
            "forward_thread": [args.forward_thread for _, args in nodes],
        })  # fmt: skip

    def inputs(self, names: Sequence[str], args: Sequence[Args], rows: NDArray[np.intp]) -> dict[str, Int64]:
        """Return sparse columns: which events have inputs whose shapes are kept, and these shapes."""
        texts = [_input_texts(names[row], args[row]) for row in rows.tolist()]
        return {"inputs_row": rows, **_columns({"inputs": [self._shapes[shape] for shape in texts]})}

    def grids(self, rows: Sequence[Args]) -> Int64:
        """Return for each device row the code for its kernel's grid and block; -1 for none."""
        codes = (
            self._grids[bytes(args.grid), bytes(args.block)] if args.grid is not _NOTHING else UNKNOWN for args in rows
        )
        return np.fromiter(codes, np.int64, len(rows))

    def renumbered(self, other: CallColumns, columns: Mapping[str, Int64]) -> dict[str, Int64]:
        """Return columns of another process's codes with the codes that they have here."""
        codes = {
            "call": [self._code(args) for args in other._said],
            "inputs": [self._shapes[texts] for texts in other._shapes],
            "grid": [self._grids[texts] for texts in other._grids],
        }
        return {name: values_at(np.array(of, dtype=np.int64), columns[name]) for name, of in codes.items()}

    def same_grids(self, code: Int64) -> Int64:
        """Return one code for one grid and block, however their numbers are spaced."""
        codes = Codes[tuple[bytes, ...]]()
        renumbered = [codes[tuple(text.translate(None, b" \t\r\n") for text in texts)] for texts in self._grids]
        return values_at(np.array(renumbered, dtype=np.int64), code)

    def _code(self, args: Args) -> int:
        code = self._calls[call_key(args)]
        if code == len(self._said):
            self._said.append(_without_shapes(args))
        return code

    def resolved(self, code: Int64) -> tuple[NDArray[np.int32], tuple[Call, ...]]:
        """Return the column of calls and the calls; what is no operation (`wait`) is -1, as if it said nothing."""
        calls = [call_of(args) for args in self._said]
        kept = [call for call in calls if call is not None]
        renumbered = np.cumsum([call is not None for call in calls], dtype=np.int64) - 1
        renumbered[[call is None for call in calls]] = UNKNOWN
        return values_at(renumbered, code).astype(np.int32), tuple(kept)

    @property
    def shapes(self) -> tuple[Inputs, ...]:
        """Return the distinct inputs of operators, by code."""
        return tuple(inputs_of(*texts) for texts in self._shapes)


def _input_texts(name: str, args: Args) -> tuple[bytes, bytes, bytes]:
    """What an operator's inputs are told apart by: values only where they are needed, since they differ more often."""
    return bytes(args.dims), bytes(args.types), bytes(args.concrete) if name in COUNTED else b""


def _columns(values: Mapping[str, Sequence[int]]) -> dict[str, Int64]:
    return {name: np.array(column, dtype=np.int64) for name, column in values.items()}


def _without_shapes(args: Args) -> Args:
    """The arguments without their texts, which hold on to what they were read from."""
    return Args(**{name: getattr(args, name) for name in Args.__struct_fields__ if name not in _TEXTS})


def whole(value: Any) -> int:
    """Return a non-negative whole number, written as a number or as text; -1 for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else UNKNOWN


def numbers(value: Any) -> tuple[int, ...]:
    """Return whole numbers, written as a list or as text (`"[0, 1]"`); empty for anything else."""
    if isinstance(value, str):
        match = re.fullmatch(r"\[?\s*(\d{1,18}(?:\s*,\s*\d{1,18})*)\s*\]?", value)
        value = [int(digits) for digits in match[1].split(",")] if match else []
    if not isinstance(value, Sequence) or len(value) > _LONGEST_RANKS_LIST:
        return ()
    found_all = tuple(map(whole, value))
    return () if UNKNOWN in found_all else found_all
