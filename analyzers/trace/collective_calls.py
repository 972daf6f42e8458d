"""Kinds, sizes, groups and bus factors of collectives, named here alone.

PyTorch's metadata names the call (`_allgather_base`), NCCL's kernel the algorithm (`ncclDevKernel_AllGather_RING_LL`);
both are spelled here as docs/formats.md spells them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from analyzers.arrays import UNKNOWN
from analyzers.trace.kernel_names import path_of
from analyzers.trace.libraries import SPANS, Collective, kind_in, kind_in_call, letters_of, library_of, shows_transfer

_MOST_ELEMENTS = 2**60

# Nobody leaves before all have come, so that the ends agree.
SYNCHRONIZING = (
    *(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    *(Collective.ALL_TO_ALL, Collective.BARRIER, Collective.DISPATCH, Collective.COMBINE),
)
# What these say of elements differs between the root and the others, or between any two ranks.
UNEVEN_MEMBERS = (
    *(Collective.GATHER, Collective.SCATTER, Collective.ALL_TO_ALL, Collective.SEND_RECV),
    *(Collective.DISPATCH, Collective.COMBINE),
)

_CALLS = {"send": Collective.SEND_RECV, "recv": Collective.SEND_RECV, "recvanysource": Collective.SEND_RECV}
# Names that leave the kind open: NCCL sends gathers, scatters and all-to-alls as messages; SendRecv has been seen to
# run all-reduces and all-gathers (traces of PyTorch 2.0).
OPEN = (Collective.SEND_RECV, Collective.OTHER)
# Of these a rank holds a part of what counts.
RECORDED_IN_PART = (Collective.ALL_GATHER, Collective.GATHER, Collective.SCATTER)
# Calls that record no communication of their own.
_NO_OPERATION = ("wait", "init", "coalesced", "startcoalescing", "endcoalescing")

# Bytes of an element, by ATen's names of dtypes, and by PyTorch's, which run.json has.
_ITEMSIZE = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    **dict.fromkeys(("ComplexDouble",), 16),
    **dict.fromkeys(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "float64", "complex64"), 8),
    **dict.fromkeys(("complex128",), 16),
    # Where sizes are said and types are not.
    "bytes": 1,
}
INTEGRAL = ("Byte", "Char", "Bool", "Short", "Int", "Long")
# Operators' inputs have C++'s names.
_ATEN_DTYPE = {
    "unsigned char": "Byte",
    "signed char": "Char",
    "char": "Char",
    "bool": "Bool",
    "short": "Short",
    "short int": "Short",
    "c10::Half": "Half",
    "c10::BFloat16": "BFloat16",
    "c10::Float8_e4m3fn": "Float8_e4m3fn",
    "c10::Float8_e5m2": "Float8_e5m2",
    "c10::Float8_e4m3fnuz": "Float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "Float8_e5m2fnuz",
    "int": "Int",
    "float": "Float",
    "long int": "Long",
    "long": "Long",
    "double": "Double",
    "c10::complex<float>": "ComplexFloat",
    "c10::complex<double>": "ComplexDouble",
}


# What PyTorch writes where nobody described a group.
_NO_DESCRIPTIONS = ("", "default_pg", "undefined")


@dataclass(frozen=True)
class Group:
    """A process group: its name, which all its members share, its size, and its ranks in order where they are known.

    `description` is what its maker called it (`mesh_tp`), and no part of what it is.
    """

    name: str
    size: int
    ranks: tuple[int, ...] | None
    description: str = field(default="", compare=False)

    def rank_at(self, place: int) -> tuple[int, ...]:
        """Return the rank at a place in the group, the place itself where ranks are not known; empty for none."""
        return (place,) if self.ranks is None else self.ranks[place : place + 1]


def is_description(text: str) -> bool:
    """Whether a process group's description tells of it: the default group's, and new_group's own, do not."""
    return text not in _NO_DESCRIPTIONS


@dataclass(frozen=True)
class Call:
    """One collective as a rank called it. Elements are -1, peers None, splits empty where nothing is said.

    `sent_to` and `received_from` are ranks of the run, for messages alone; `root` is one, for gather and scatter where
    it is said. `is_part`: elements are those of one rank's part, and all members' together count. `caller` is the place
    in its group of who called it, where a synchronizing kind's host row says it.
    """

    kind: Collective
    elements_in: int
    elements_out: int
    dtype: str
    group: Group | None
    sent_to: tuple[int, ...] = ()
    received_from: tuple[int, ...] = ()
    split_in: tuple[int, ...] = ()
    split_out: tuple[int, ...] = ()
    is_part: bool = False
    root: tuple[int, ...] = ()
    caller: int = field(default=UNKNOWN, compare=False)

    @property
    def elements(self) -> int:
        """Return what counts (docs/measuring.md): the larger of both sides, -1 where neither is known."""
        return max(self.elements_in, self.elements_out)

    @property
    def nbytes(self) -> int:
        """Return the bytes that count, -1 where elements, dtype or members are unknown; a barrier has none."""
        return UNKNOWN if self.is_part else self.nbytes_among(1)

    def nbytes_among(self, members: int) -> int:
        """Return the same for a given number of members."""
        if self.kind == Collective.BARRIER or self._keeps_unsaid or self.elements < 0 or not itemsize(self.dtype):
            return UNKNOWN
        return plausible_count(self.elements * itemsize(self.dtype) * (members if self.is_part else 1))

    @property
    def _keeps_unsaid(self) -> bool:
        """Whether this is an uneven all-to-all whose splits are unknown, so that the rank's own share is not known."""
        sides = {self.elements_in, self.elements_out} - {UNKNOWN}
        return self.kind == Collective.ALL_TO_ALL and len(sides) > 1 and not (self.split_in or self.split_out)

    @property
    def is_even(self) -> bool:
        """Whether an all-to-all sends the same to all and receives the same from all."""
        shares = {*self.split_in, *self.split_out}
        return len(shares) <= 1 and self.elements_in == self.elements_out

    def sends_both_ways(self, rank: int) -> bool:
        """Whether in an all-to-all a rank sends something to every other and receives something from every other."""
        if self.is_even:
            return self.elements != 0
        if self.group is None or self.group.ranks is None or rank not in self.group.ranks:
            return False
        index, size = self.group.ranks.index(rank), len(self.group.ranks)
        sides = (split[:index] + split[index + 1 :] for split in (self.split_in, self.split_out))
        return all(len(side) == size - 1 and min(side) > 0 for side in sides)

    def moved(self, rank: int) -> int:
        """Return the elements that leave or reach a rank in an uneven all-to-all, the larger; -1 if unsaid.

        Splits count rows of the tensor's first dimension; how long a row is, its elements say.
        """
        if self.group is None or self.group.ranks is None or rank not in self.group.ranks:
            return UNKNOWN
        index = self.group.ranks.index(rank)
        sides = ((self.split_in, self.elements_in), (self.split_out, self.elements_out))
        moved = [_elements_of(split, elements, index) for split, elements in sides if len(split) > index]
        return UNKNOWN if UNKNOWN in moved else plausible_count(max(moved, default=UNKNOWN))


def _elements_of(split: tuple[int, ...], elements: int, index: int) -> int:
    """Return what of so many elements goes to others than `index`; -1 where rows are not alike, or not counted."""
    rows = sum(split)
    if elements < 0 or (elements % rows if rows else elements):
        return UNKNOWN
    return (rows - split[index]) * (elements // rows) if rows else 0


def plausible_count(count: int) -> int:
    """Return a number of bytes or elements, UNKNOWN where it is larger than any can be."""
    return count if count < _MOST_ELEMENTS else UNKNOWN


def itemsize(dtype: str) -> int:
    """Return the bytes per element for a dtype (`Float`, `float32`, `torch.float32`), 0 where it is not known."""
    return _ITEMSIZE.get(dtype.removeprefix("torch."), 0)


def kind_of_kernel(name: str) -> Collective:
    """Return the kind in a kernel's name; SEND_RECV may be anything sent as messages, OTHER anything."""
    return kind_in(path_of(name))


def leaves_kind_open(name: str) -> bool:
    """Whether a kernel's name does not say which collective it is of."""
    return kind_of_kernel(name) in OPEN


def library_kernel(name: str) -> str:
    """Return the path of a kernel of another library than those of process groups (NCCL, RCCL, gloo), else empty.

    Such libraries keep communicators of their own, and PyTorch says nothing of these on their kernels.
    """
    path = path_of(name)
    library = library_of(path)
    is_of_process_groups = name.startswith(SPANS) or (library is not None and library.is_of_process_groups)
    return "" if is_of_process_groups else path


def may_only_post(name: str) -> bool:
    """Whether a kernel may return while what it sends is still on its way, so that its transfer does not show."""
    return not shows_transfer(path_of(name))


def kind_of_call(name: str) -> Collective | None:
    """Return the kind for a call that PyTorch recorded, None for what is no operation (`wait`)."""
    letters = letters_of(name)
    if letters in _NO_OPERATION or not letters:
        return None
    return _CALLS.get(letters, kind_in_call(name))


@dataclass(frozen=True)
class Inputs:
    """Shapes and dtypes of a host operator's inputs; a list of tensors is one input with a list of shapes.

    `concrete` are the values of inputs that are no tensors, as text, empty for tensors; only where FLOPs need them.
    """

    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    concrete: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """Return the first input's dtype by ATen's name, empty where none is said."""
        first = self.dtypes[0] if self.dtypes else ""
        return _ATEN_DTYPE.get(first, first)

    def elements(self, index: int = 0) -> int:
        """Return the elements in one input, tensor or list of tensors; -1 where it has no shape."""
        shape = self.shapes[index] if index < len(self.shapes) else ()
        if not shape:
            return UNKNOWN
        if isinstance(shape[0], int):
            return plausible_count(math.prod(shape))
        return plausible_count(sum(math.prod(dims) for dims in shape))

    @property
    def largest(self) -> Inputs:
        """Return the input with most elements alone, none where no input has a shape."""
        known = range(min(len(self.shapes), len(self.dtypes)))
        index = max(known, key=self.elements, default=UNKNOWN)
        if index == UNKNOWN or self.elements(index) < 0:
            return Inputs((), ())
        return Inputs((self.shapes[index],), (self.dtypes[index],))

    @property
    def tensors(self) -> int:
        """Return the elements in all inputs where each is a tensor of one dtype, else -1. A scalar's shape is empty."""
        one = {*self.dtypes[: len(self.shapes)]}
        if not self.shapes or len(one) != 1 or not itemsize(self.dtype):
            return UNKNOWN
        return plausible_count(sum(self.elements(index) if shape else 1 for index, shape in enumerate(self.shapes)))


# Collectives of which a rank keeps its own part, and those of which everything travels.
ALL_BUT_OWN_PART = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
WHOLE = ("broadcast", "reduce", "send_recv")
KINDS = ("all_reduce", *ALL_BUT_OWN_PART, *WHOLE)


def bus_factor(collective: str, group_size: int) -> float:
    """Return bus bandwidth over algorithm bandwidth for a group's size (nccl-tests, doc/PERFORMANCE.md).

    Raises ValueError for a kind that has none (barrier, other).
    """
    if collective == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if collective in ALL_BUT_OWN_PART:
        return (group_size - 1) / group_size
    if collective in WHOLE:
        return 1.0
    raise ValueError(f"{collective} has no bus bandwidth")
