"""Reader of Kineto traces into columns, where Kineto's keys are named.

Kineto writes microseconds with three decimals; they arrive as exact integer nanoseconds, on the epoch
(`baseTimeNanoseconds` added). The file is streamed: what is kept of it is the columns of the rows that were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64
from analyzers.errors import UnreadableTrace
from analyzers.memory import Budget, budget_of, cores
from analyzers.notices import Code, Notice
from analyzers.paths import Place
from analyzers.trace.arguments import (
    NO_ARGS,
    Args,
    CallColumns,
    Codes,
    TypedArgs,
    call_collectives,
    needs_more,
    with_raw,
)
from analyzers.trace.categories import CATEGORIES, Marks
from analyzers.trace.copy_collectives import with_copy_collectives
from analyzers.trace.decompress import Blocks
from analyzers.trace.event_stream import CannotDecode, EventStream, NoEvents
from analyzers.trace.events import SAID, Events, Syncs, launch_times, said
from analyzers.trace.header import Header, convert, outside
from analyzers.trace.integer_columns import int64_column, spread
from analyzers.trace.kernel_names import DEVICE_CATEGORIES, Category, is_waiting, kinds
from analyzers.trace.lenient_json import Oddity, first_at, is_utf8, loads, with_escaped_name
from analyzers.trace.range_names import PREFIX as MODULE
from analyzers.trace.range_names import STEP
from analyzers.trace.timestamps import NEVER, NO_TIME, nanoseconds

# What analyses read. Python stacks (but for modules) and flow arrows have to be asked for.
ANALYZED = frozenset(Category) - {Category.PYTHON, Category.FLOW}
# Of torch before 1.9, whose steps are such rows too.
_OLD_OPERATOR = "Operator"
# Of Python's functions, a profile `with_modules` has the modules: these are always read, and are ranges to analyses.
_PYTHON = "python_function"
_FLOW_PHASES = ("s", "t", "f")

_LAST_DEVICE = np.iinfo(np.int32).max
_LAST_DEVICE_CATEGORY = max(DEVICE_CATEGORIES)
_DIGITS = 19  # that an int64 holds in any case, plus one

# What a row takes until its rank is summarized, and what each piece takes that rows are read in; see docs/decisions.
ROW_BYTES = 640
_PART_BYTES = 4_096
# What JSON becomes at most while it is decoded, for each byte of its text.
_TEXT_BYTES = 26


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = NO_TIME
    dur: float = NO_TIME
    pid: int | str = UNKNOWN
    tid: int | str = UNKNOWN
    id: int | str = UNKNOWN
    args: Args = NO_ARGS


class _TypedEvent(_Event, gc=False):
    args: TypedArgs = TypedArgs()


class _DecimalEvent(_TypedEvent, gc=False):
    ts: Decimal = Decimal(NO_TIME)  # type: ignore[assignment]  # the same key, read digit by digit
    dur: Decimal = Decimal(NO_TIME)  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Trace:
    """One file: its header, its rows, what of it could not be read, and categories that no rule knows.

    `refusal` says why it is nobody's to analyse: another program's, or of a device without rules.
    """

    header: Header
    events: Events
    lost: tuple[Notice, ...]
    unknown: tuple[str, ...] = ()
    refusal: str | None = None
    nbytes: int = 0  # about what its rows take until they are summarized
    peak_bytes: int = 0  # the least budget of memory with which it reads the same


def read_trace(
    path: Place,
    categories: Iterable[Category] = ANALYZED,
    on_bytes: Callable[[int], None] | None = None,
    memory: int | None = None,
) -> Trace:
    """Read one trace file, gzip or plain, an object with `traceEvents` or a bare array of events.

    Only rows of the categories asked for are kept. What a damaged file still holds is read, and the rest said in
    `lost`. `on_bytes` hears of each block of bytes that was read. `memory` is what its rows may take until they
    are summarized, in bytes; by default the share of one core in half of the machine's.

    Raises UnreadableTrace where the file cannot be opened, is no trace, or cannot be trusted, and TooLarge.
    """
    blocks = Blocks(path, on_bytes)
    limit = budget_of(memory, cores() if memory is None else 1)
    budget = Budget(path, limit)
    columns = _Columns(categories, budget)
    stream = EventStream(iter(blocks), columns.take, columns.take_one, columns.repair)
    try:
        stream.run()
    except NoEvents as error:
        raise UnreadableTrace(f"{path} is not a trace ({error}): give a file that torch.profiler exported") from error
    refusal = columns.marks.refusal(stream.header + stream.tail)
    around = outside(stream.header, stream.tail)
    events = with_copy_collectives(columns.build(around.header.base_time_ns))
    counts = {
        "events that make no sense": stream.lost_events + columns.lost_events,
        "events without a time": columns.untimed,
        "places that are no JSON, where any number of events may be missing": stream.damaged,
    }
    behind = [f"{around.behind:,} bytes of text behind the document"] if around.behind else []
    ends = [*blocks.lost, *stream.lost, *behind]
    lost = [*ends, *around.lost, *(f"{count} {what}" for what, count in counts.items() if count)]
    is_open_ended = bool(ends or stream.damaged)
    said = _said(path.name, lost, is_open_ended, columns.oddities | around.oddities, columns.endless)
    unknown = tuple(columns.marks.unknown)
    return Trace(around.header, events, tuple(said), unknown, refusal, columns.nbytes, budget.peak)


def _said(
    name: str, lost: Sequence[str], is_open_ended: bool, oddities: AbstractSet[Oddity], endless: int
) -> Iterator[Notice]:
    """Yield what a reader must know of a file: what was lost or guessed of it, and how many events have no end.

    An open-ended loss is of all that follows a place, or of any number of events: no one knows what else is kept.
    """
    if lost:
        kept = "" if is_open_ended else "; all else is kept"
        yield Notice(Code.TRACE_INCOMPLETE, f"{name}: not read: {'; '.join(lost)}{kept}")
    if oddities:
        words = ", ".join(oddity.value for oddity in Oddity if oddity in oddities)
        yield Notice(Code.TRACE_IS_NO_JSON, f"{name}: no valid JSON, but all of it was read: {words}")
    if endless:
        yield Notice(Code.EVENTS_WITHOUT_DURATION, f"{name}: {endless} events have no duration, and count as empty")


class _Columns:
    """Columns in the making: texts of events go in, arrays come out. What is not wanted leaves no trace."""

    def __init__(self, categories: Iterable[Category], budget: Budget) -> None:
        self._budget = budget
        wanted = frozenset(categories)
        self._categories = {cat: category for cat, category in CATEGORIES.items() if category in wanted}
        self._phases = ("X", *_FLOW_PHASES) if Category.FLOW in wanted else ("X",)
        self._codes = Codes[str]()
        self._calls = CallColumns()
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._count = self._seen = 0
        self._needs_more = False
        self.marks = Marks()
        self.lost_events = self.untimed = self.endless = 0
        self.oddities: set[Oddity] = set()
        self._fast: Callable[[memoryview], Sequence[_Event]] = msgspec.json.Decoder(list[_Event]).decode
        self._typed: Callable[[memoryview], Sequence[_Event]] = msgspec.json.Decoder(list[_TypedEvent]).decode
        self._exact: Callable[[memoryview], Sequence[_Event]] = msgspec.json.Decoder(list[_DecimalEvent]).decode

    def take(self, text: memoryview, lenient: bool) -> None:
        """Take the events of a JSON array. Raises CannotDecode, TooLarge."""
        self._budget.check(self.nbytes + len(text) * _TEXT_BYTES, "its events")
        try:
            # Of its own, since what is kept as text points into it, for as long as an error may keep it.
            data = bytes(text)
            if lenient:
                rows, oddities = loads(data)
                self._take_rows(rows)
                self.oddities |= oddities
                return
            # The decoder does not look into texts that nobody reads.
            if not is_utf8(data):
                raise CannotDecode
            text = memoryview(data)
            if not self._needs_more:
                events = self._fast(text)
                self._needs_more = self._lacks(events)
            if self._needs_more:
                events = self._typed(text)
            if not self._append(events):
                self._append(self._exact(text))
        except (ValueError, RecursionError, msgspec.DecodeError) as error:
            raise CannotDecode from error

    def _lacks(self, events: Sequence[_Event]) -> bool:
        """Whether rows of names not seen before need arguments that were not decoded."""
        new = {event.name for event in events} - self._codes.keys()
        if needs_more(new) or self._calls.has_any or not call_collectives(new):
            return needs_more(new)
        # Metadata stand right behind the first call, in the same chunk but by rare chance.
        return not any(event.args.collective for event in events)

    def take_one(self, text: str, begin: int) -> int | None:
        """Take the event that begins at a place; where it ends, None where it is not JSON."""
        parsed = first_at(text, begin)
        if parsed is None:
            return None
        row, end = parsed
        self._take_rows([row])
        return end

    def repair(self, text: str) -> bool:
        """Take an event whose name has quotes or backslashes that are not escaped; False if that is not its fault."""
        row = with_escaped_name(text)
        if row is None:
            return False
        self._take_rows([row])
        return True

    def _take_rows(self, rows: Sequence[Any]) -> None:
        events = [_event(row) for row in rows]
        sensible = [event for event in events if event is not None]
        self._append(sensible)
        self.lost_events += len(events) - len(sensible)

    def _append(self, events: Sequence[_Event]) -> bool:
        """Make columns of the events that are wanted; False, and none made, where floats do not hold their times."""
        self.marks.see(events)
        categories, phases = self._categories, self._phases
        wanted = bytes([
            event.ph in phases
            and (event.cat in categories or (event.cat == _PYTHON and event.name.startswith(MODULE)))
            for event in events
        ])  # fmt: skip
        kept = list(compress(events, wanted))
        if not kept:
            self._seen += len(events)
            return True
        start_ns, dur_ns = nanoseconds([event.ts for event in kept]), nanoseconds([event.dur for event in kept])
        if start_ns is None or dur_ns is None:
            return False
        count, args, names = len(kept), [event.args for event in kept], [event.name for event in kept]
        category = np.fromiter([CATEGORIES[event.cat] for event in kept], np.int8, count)
        on_device = category <= _LAST_DEVICE_CATEGORY
        self._parts.append({
            "category": category,
            "name": np.fromiter(map(self._codes.__getitem__, names), np.int32, count),
            "start_ns": start_ns,
            "dur_ns": dur_ns,
            "position": np.flatnonzero(np.frombuffer(wanted, dtype=bool)) + self._seen,
            "thread": int64_column([event.tid for event in kept]),
            "correlation": int64_column([arg.correlation for arg in args]),
            **self._calls.calls(args, self._count),
            **self._calls.inputs(names, args, self._count),
            **self._calls.autograd(args, self._count),
            # What only device rows have is kept for them alone.
            **self._device_columns([event for event, chosen in zip(kept, on_device.tolist(), strict=True) if chosen]),
            **self._sync_columns(kept, np.flatnonzero(category == Category.SYNC)),
        })  # fmt: skip
        self._count += count
        self._seen += len(events)
        self._budget.check(self.nbytes, f"{self._count:,} or more rows of it")
        return True

    @property
    def nbytes(self) -> int:
        """About what these rows take until they are summarized."""
        names = 2 * self._codes.nbytes
        return self._count * ROW_BYTES + len(self._parts) * _PART_BYTES + names + self._calls.nbytes

    def _device_columns(self, events: Sequence[_Event]) -> dict[str, Int64]:
        args = [event.args for event in events]
        return {
            "process": int64_column([event.pid for event in events]),
            "device": int64_column([arg.device for arg in args]),
            "in_device": int64_column([arg.in_device for arg in args]),
            "from_device": int64_column([arg.from_device for arg in args]),
            "to_device": int64_column([arg.to_device for arg in args]),
            "stream": int64_column([arg.stream for arg in args]),
            "bytes": int64_column([arg.bytes for arg in args]),
            "external": int64_column([arg.external for arg in args]),
            "grid": self._calls.grids(args),
        }

    def _sync_columns(self, events: Sequence[_Event], rows: NDArray[np.intp]) -> dict[str, Int64]:
        chosen = [events[row] for row in rows.tolist()]
        columns = said([event.args for event in chosen], int64_column([event.pid for event in chosen]))
        return {"sync_row": rows + self._count} | {f"sync_{name}": column for name, column in columns.items()}

    def _syncs(self, kept: NDArray[np.bool_], start_ns: Int64, dur_ns: Int64) -> Syncs:
        """Synchronizations that have a time."""
        rows = self._whole("sync_row")
        timed = kept[rows]
        rows = rows[timed]
        shared = {name: self._whole(name)[rows] for name in ("position", "name", "thread", "correlation")}
        alone = {name: self._whole(f"sync_{name}")[timed] for name in SAID}
        return Syncs(start_ns=start_ns[rows], dur_ns=dur_ns[rows], **shared, **alone)

    def build(self, base_time_ns: int) -> Events:
        """All rows, in the file's order, without those that have no time or only tell of waiting."""
        names = tuple(self._codes)
        category, name, start_ns = self._category(names), self._whole("name"), self._whole("start_ns")
        dur_ns = self._whole("dur_ns")
        correlation = self._whole("correlation")
        waiting = np.array([is_waiting(name) for name in names], dtype=bool)
        kept = start_ns != NEVER
        start_ns = np.where(kept, start_ns + base_time_ns, UNKNOWN)
        self.untimed = int((~kept).sum())
        self.endless = int((kept & (dur_ns < 0) & (category != Category.FLOW)).sum())
        dur_ns = np.maximum(dur_ns, 0)
        syncs = self._syncs(kept, start_ns, dur_ns)
        if waiting.any():
            kept &= ~waiting[name]
        if len(syncs):
            kept &= category != Category.SYNC
        on_device = category <= _LAST_DEVICE_CATEGORY
        device, peer, crosses = self._places(category, name, names)
        call, calls = self._calls.resolved(self._sparse("call", "call_row"))
        events = Events(
            category=category,
            kind=kinds(category, name, names, crosses),
            name=name,
            names=names,
            start_ns=start_ns,
            dur_ns=dur_ns,
            thread=self._whole("thread"),
            device=device,
            peer=peer,
            stream=spread(self._whole("stream"), on_device),
            correlation=correlation,
            nbytes=spread(self._whole("bytes"), on_device),
            external=self._externals(on_device),
            sequence=self._sparse("sequence", "call_row"),
            call=call,
            calls=calls,
            inputs=self._sparse("inputs", "inputs_row").astype(np.int32),
            shapes=self._calls.shapes,
            forward=self._sparse("forward", "forward_row"),
            forward_thread=self._sparse("forward_thread", "forward_row"),
            grid=spread(self._calls.same_grids(self._whole("grid")), on_device),
            launched_ns=launch_times(category, correlation, start_ns),
            position=self._whole("position"),
            syncs=syncs,
        )
        return events if kept.all() else events.take(kept)

    def _category(self, names: Sequence[str]) -> NDArray[np.int8]:
        """The category of every row; steps, which torch before 1.9 writes as operators, are annotations."""
        category = self._whole("category")
        if _OLD_OPERATOR not in self.marks.categories:
            return category
        is_step = np.array([name.startswith(STEP) for name in names], dtype=bool)[self._whole("name")]
        return np.where(is_step & (category == Category.OPERATOR), Category.ANNOTATION, category).astype(np.int8)

    def _places(
        self, category: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """The device of every row, the other device of a copy between two, and which rows are such copies."""
        on_device = category <= _LAST_DEVICE_CATEGORY
        device = self._whole("device")
        # What a row says, else where it ran, else its process, which Kineto numbers by device.
        for fallback in ("in_device", "process"):
            device = np.where(device < 0, self._whole(fallback), device)
        source, target = self._whole("from_device"), self._whole("to_device")
        copies = category[on_device] == Category.MEMCPY
        between = copies & (source >= 0) & (target >= 0) & (source != target)
        unsaid = copies & ((source < 0) | (target < 0))
        peer_to_peer = np.array([name.startswith("Memcpy PtoP") for name in names], dtype=bool)
        crosses = np.zeros(len(category), dtype=bool)
        crosses[on_device] = between | (unsaid & peer_to_peer[name[on_device]])
        device = np.where(between, source, np.maximum(device, 0)).clip(max=_LAST_DEVICE)
        peer = np.where(between, target, UNKNOWN).clip(max=_LAST_DEVICE)
        return spread(device, on_device).astype(np.int32), spread(peer, on_device).astype(np.int32), crosses

    def _externals(self, on_device: NDArray[np.bool_]) -> Int64:
        """What joins kernels and the operators that tell of their collectives."""
        column = spread(self._whole("external"), on_device)
        column[self._whole("call_row")] = self._whole("call_external")
        return column

    def _sparse(self, name: str, rows: str) -> Int64:
        """A column of all rows from the values that few have."""
        column = np.full(self._count, UNKNOWN, dtype=np.int64)
        column[self._whole(rows)] = self._whole(name)
        return column

    def _whole(self, name: str) -> NDArray[Any]:
        """One column."""
        parts = [part[name] for part in self._parts]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int8 if name == "category" else np.int64)


def _event(row: Any) -> _Event | None:
    """An event as far as it makes sense; None where it has no times that can be read, or is no event at all."""
    if isinstance(row, dict) and isinstance(row.get("args"), dict):
        row = row | {"args": with_raw(row["args"])}
    return convert(row, _DecimalEvent) or convert(_without_odd_values(row), _DecimalEvent)


def _without_odd_values(row: Any) -> Any:
    """The event without those values and arguments that are not of their type, if it still has its times."""
    if not isinstance(row, dict):
        return row
    args = row.get("args")
    args = (
        {key: value for key, value in args.items() if convert({key: value}, TypedArgs)}
        if isinstance(args, dict)
        else {}
    )
    return {key: value for key, value in row.items() if key == "ts" or convert({key: value}, _Event)} | {"args": args}
