"""Columns in the making: texts of events go in, parts come out.

    chunk  ->  events of msgspec  ->  part: a few columns of the rows that are wanted
    part   +   part               ->  part: numbers of rows counted from its own first one

What is not wanted leaves no trace. Parts of several processes become those of one: see `add`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress, islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.memory import Budget
from analyzers.trace.arguments import (
    NO_ARGS,
    Args,
    ByCode,
    CallColumns,
    Codes,
    TypedArgs,
    call_collectives,
    has_shapes,
    has_typed_shapes,
    needs_more,
    with_raw,
)
from analyzers.trace.categories import CATEGORIES, MOMENT, NAMING, Marks
from analyzers.trace.decoding import (
    NO_TIME,
    CannotDecode,
    Oddity,
    first_at,
    int64_column,
    is_utf8,
    loads,
    nanoseconds,
    narrow,
    sparse_column,
    with_escaped_texts,
)
from analyzers.trace.events import sync_columns
from analyzers.trace.header import convert
from analyzers.trace.kernel_names import LAST_DEVICE_CATEGORY, Category
from analyzers.trace.range_names import PREFIX as MODULE

# Of Python's functions, a profile `with_modules` has the modules: these are always read, and are ranges to analyses.
_PYTHON = "python_function"
_FLOW_PHASES = ("s", "t", "f")
# Without these, as far as it writes them, an event does not say what it is, or when.
_NEEDED = ("ph", "cat", "ts")
# Events without these are lost, or said to be without a duration.
_SAID_APART = {*_NEEDED, "dur"}
# Stand in a column of categories for rows that are not wanted, and for those whose name decides.
_UNWANTED, _BY_NAME = -1, -2

# What a row takes until its rank is summarized, and what each piece takes that rows are read in:
# docs/dev/decisions/trace.md.
ROW_BYTES = 640
_PART_BYTES = 4_096
# So many parts are made one before more follow: most numbers take half of their width then.
_JOINED = 64
# So many events that were read one by one become columns at once, which takes as long for one as for hundreds.
_WAITING = 1 << 12
# What JSON becomes at most while its brackets are found or it is decoded, for each byte of its text.
TEXT_BYTES = 26


class Event(msgspec.Struct, gc=False):
    """An event's keys that are read, as Kineto orders them: a key is looked for behind the one before it first."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = UNKNOWN
    tid: int | str = UNKNOWN
    ts: float = NO_TIME
    dur: float = NO_TIME
    args: Args = NO_ARGS
    id: int | str = UNKNOWN


class _TypedEvent(Event, gc=False):
    args: TypedArgs = TypedArgs()


class _DecimalEvent(_TypedEvent, gc=False):
    ts: Decimal = Decimal(NO_TIME)  # type: ignore[assignment]  # the same key, read digit by digit
    dur: Decimal = Decimal(NO_TIME)  # type: ignore[assignment]


@dataclass
class EventPart:
    """Columns of successive rows, of so many events; what names rows or places counts from the part's first one."""

    rows: int
    events: int
    columns: dict[str, NDArray[Any]]

    def column(self, name: str) -> NDArray[Any]:
        """Return one column as wide as it is worked with, and let go of it; an empty one where there are no rows."""
        return self.columns.pop(name, np.zeros(0)).astype(_TYPES.get(name, np.int64), copy=False)


_TYPES: dict[str, type[np.integer[Any]]] = {"category": np.int8, "name": np.int32}
# Of the columns, those that count rows, and the one that counts events.
_OF_ROWS = ("call_row", "inputs_row", "forward_row", "sync_row", "sample_row")
_OF_EVENTS = "position"


def join_parts(parts: list[EventPart]) -> EventPart:
    """Return successive parts as one; each column is let go of as it is joined."""
    if not parts:
        return EventPart(0, 0, {})
    rows = np.cumsum([0, *(part.rows for part in parts)])
    events = np.cumsum([0, *(part.events for part in parts)])
    columns = {}
    for name in tuple(parts[0].columns):
        pieces = [part.columns.pop(name) for part in parts]
        if name in _OF_ROWS or name == _OF_EVENTS:
            first = events if name == _OF_EVENTS else rows
            pieces = [piece + begin for piece, begin in zip(pieces, first[:-1], strict=True)]
        columns[name] = narrow(np.concatenate(pieces) if len(pieces) > 1 else pieces[0])
    return EventPart(int(rows[-1]), int(events[-1]), columns)


def joined_by_id(category: NDArray[np.int8]) -> Mask:
    """Whether rows are device rows or launch calls, which operators' numbers join."""
    return category <= Category.LAUNCH


@dataclass
class Decoded:
    """What another process made of a piece of a file: one part, and what the codes in it stand for."""

    part: EventPart
    pieces: int
    names: tuple[str, ...]
    processes: dict[int, str]
    calls: CallColumns
    marks: Marks
    phaseless: int


class EventColumns:
    """Takes the events of a file. `needs_more` says whether its rows have arguments that few files have."""

    def __init__(
        self, categories: Iterable[Category], budget: Budget, *, needs_more: bool = False, has_calls: bool = False
    ) -> None:
        self.budget, self.categories = budget, frozenset(categories)
        self._kinds = _Kinds(self.categories)
        self._codes = Codes[str]()
        # Processes that are no numbers, by the number that stands for each.
        self.processes: dict[int, str] = {}
        self._shaped, self._typed_shaped = ByCode(self._codes, has_shapes), ByCode(self._codes, has_typed_shapes)
        self.calls = CallColumns()
        self._parts: list[EventPart] = []
        self._recent: list[EventPart] = []
        self._waiting: list[Event] = []
        self._count = self._pieces = self._skipped = self._taken = 0
        self.needs_more = needs_more
        self._has_calls = has_calls
        # Events that could not be taken, and those that do not say what they are.
        self.lost_events = self.phaseless = 0
        # Values of others that are not of their type.
        self.odd_values = 0
        # How many events were taken before each that makes no sense, and the bytes of those.
        self.breaks: list[int] = []
        self.unread = 0
        self.oddities: set[Oddity] = set()
        self._fast: Callable[[memoryview], Sequence[Event]] = msgspec.json.Decoder(list[Event]).decode
        self._typed: Callable[[memoryview], Sequence[Event]] = msgspec.json.Decoder(list[_TypedEvent]).decode
        self._exact: Callable[[memoryview], Sequence[Event]] = msgspec.json.Decoder(list[_DecimalEvent]).decode

    @property
    def marks(self) -> Marks:
        """Return what tells who wrote the file."""
        return self._kinds.marks

    @property
    def names(self) -> tuple[str, ...]:
        """Return the distinct names, by code."""
        return tuple(self._codes)

    def taken(self) -> int:
        """Return how many events were taken."""
        return self._taken + len(self._waiting)

    def sense(self) -> tuple[int, int]:
        """Return how many events make sense, and how many do not: those have no phase, or could not be taken."""
        return self.taken() - self.phaseless, self.lost_events + self.phaseless

    def hold(self, nbytes: int) -> None:
        """Raise TooLarge where so many bytes of text, which are not read yet, take too much."""
        self.budget.check(self.nbytes + nbytes * TEXT_BYTES, "what of it is no whole event yet")

    @property
    def has_calls(self) -> bool:
        """Whether any row described a collective, here or before."""
        return self._has_calls or self.calls.has_any

    @property
    def nbytes(self) -> int:
        """About what these rows take until they are summarized."""
        texts = 2 * self._codes.nbytes + len(self.processes) * _PART_BYTES
        return self._count * ROW_BYTES + self._pieces * _PART_BYTES + texts + self.calls.nbytes

    def take(self, text: memoryview, lenient: bool) -> None:
        """Take the events of a JSON array. Raises CannotDecode, TooLarge."""
        self.budget.check(self.nbytes + len(text) * TEXT_BYTES, "its events")
        self._append_waiting()
        try:
            # Of its own, since what is kept as text points into it, for as long as an error may keep it.
            data = bytes(text)
            if lenient:
                rows, oddities = loads(data)
                self._take_rows(rows)
                self._append_waiting()
                self.oddities |= oddities
                return
            # The decoder does not look into texts that nobody reads.
            if not is_utf8(data):
                raise CannotDecode
            text = memoryview(data)
            if not self.needs_more:
                events = self._fast(text)
                self.needs_more = self._lacks(events)
            if self.needs_more:
                events = self._typed(text)
            if not self._append(events):
                self._append(self._exact(text))
        except (ValueError, RecursionError, msgspec.DecodeError) as error:
            raise CannotDecode from error

    def _lacks(self, events: Sequence[Event]) -> bool:
        """Whether rows of names not seen before need arguments that were not decoded."""
        new = [name for name in {event.name for event in events} if name not in self._codes]
        if needs_more(new) or self.has_calls or not call_collectives(new):
            return needs_more(new)
        # Metadata stand right behind the first call, in the same chunk but by rare chance.
        return not any(event.args.collective for event in events)

    def take_one(self, text: str, begin: int) -> int | None:
        """Take the event that begins at a place; where it ends, None where it is not JSON."""
        parsed = first_at(text, begin)
        if parsed is None:
            return None
        row, end = parsed
        lost = self.lost_events
        self._take_rows([row])
        self.unread += (end - begin) * (self.lost_events - lost)
        return end

    def repair(self, text: str) -> int | None:
        """Take an event whose texts are not escaped; how many quotes in it were not, None if that is not its fault."""
        repaired = with_escaped_texts(text)
        if repaired is None:
            return None
        row, quotes = repaired
        self._take_rows([row])
        return quotes

    def _take_rows(self, rows: Sequence[Any]) -> None:
        parsed = [_parse_event(row) for row in rows]
        sensible = [event for event, _ in parsed if event is not None]
        self._waiting += sensible
        self.lost_events += len(parsed) - len(sensible)
        self.odd_values += sum(odd for event, odd in parsed if event is not None)
        self.breaks += [self.taken()] * (len(parsed) > len(sensible))
        if len(self._waiting) >= _WAITING:
            self._append_waiting()

    def _append_waiting(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._append(waiting)

    def _append(self, events: Sequence[Event]) -> bool:
        """Make columns of the events that are wanted; False, and none made, where floats do not hold their times."""
        of_events, phaseless = self._kinds.of(events)
        wanted = of_events > 0
        kept = events if wanted.all() else list(compress(events, wanted.tobytes()))
        if not len(kept):
            self._keep(EventPart(0, len(events), {}))
            self.phaseless += phaseless
            return True
        start_ns, dur_ns = nanoseconds([event.ts for event in kept]), nanoseconds([event.dur for event in kept])
        if start_ns is None or dur_ns is None:
            return False
        category = of_events[wanted]
        args, names = [event.args for event in kept], [event.name for event in kept]
        on_device = category <= LAST_DEVICE_CATEGORY
        name = np.fromiter(map(self._codes.__getitem__, names), np.int32, len(kept))
        shaped = (self._typed_shaped if isinstance(args[0], TypedArgs) else self._shaped).of(name)
        columns: dict[str, NDArray[Any]] = {
            "category": category,
            "name": name,
            "start_ns": start_ns,
            "dur_ns": dur_ns,
            "position": np.flatnonzero(wanted),
            "thread": int64_column([event.tid for event in kept]),
            "process": self._process([event.pid for event in kept]),
            "correlation": int64_column([arg.correlation for arg in args]),
            **self.calls.calls_and_nodes(args),
            **self.calls.inputs(names, args, np.flatnonzero(shaped)),
            # What only device rows have is kept for them alone.
            **self._device_columns(list(compress(kept, on_device.tobytes()))),
            # Launch calls have it for rows without a correlation.
            "external": int64_column([arg.external for arg in compress(args, joined_by_id(category).tobytes())]),
            **_sync_columns(kept, np.flatnonzero(category == Category.SYNC)),
            **_sample_columns(args, np.flatnonzero(category == Category.SAMPLE)),
        }
        self._keep(EventPart(len(kept), len(events), columns))
        self.phaseless += phaseless
        self.budget.check(self.nbytes, f"{self._count:,} or more rows of it")
        return True

    def _keep(self, part: EventPart, pieces: int = 1) -> None:
        """Keep a part behind the others; one without rows only moves the places of those behind it."""
        self._skipped += part.events
        self._taken += part.events
        if not part.rows:
            return
        part.columns[_OF_EVENTS] = part.columns[_OF_EVENTS] + (self._skipped - part.events)
        self._recent.append(EventPart(part.rows, self._skipped, part.columns))
        self._skipped = 0
        if len(self._recent) == _JOINED:
            self._join()
        self._count += part.rows
        self._pieces += pieces

    def _join(self) -> None:
        """Make one of the last parts, whose columns are narrower then."""
        if self._recent:
            self._parts.append(join_parts(self._recent))
            self._recent = []

    def _process(self, said: Sequence[int | str]) -> Int64:
        """Return processes as numbers, and note the texts that some stand for."""
        numbers = int64_column(said)
        if isinstance(said[0], str) or isinstance(said[-1], str) or numbers.min() < UNKNOWN:
            named = ((number, text) for number, text in zip(numbers.tolist(), said, strict=True))
            self.processes |= {number: text for number, text in named if isinstance(text, str)}
        return numbers

    def _device_columns(self, events: Sequence[Event]) -> dict[str, NDArray[Any]]:
        args = [event.args for event in events]
        return {
            "device": int64_column([arg.device for arg in args]),
            "in_device": sparse_column([arg.in_device for arg in args]),
            "from_device": sparse_column([arg.from_device for arg in args]),
            "to_device": sparse_column([arg.to_device for arg in args]),
            "stream": int64_column([arg.stream for arg in args]),
            "bytes": int64_column([arg.bytes for arg in args]),
            "grid": self.calls.grids(args),
            "graph": sparse_column([arg.graph for arg in args]),
        }

    def decoded(self) -> Decoded:
        """Return what was taken as one part, for the process that adds up those of all."""
        return Decoded(
            self.whole(), self._pieces, self.names, self.processes, self.calls, self._kinds.marks, self.phaseless
        )

    def add(self, decoded: Decoded) -> None:
        """Take what another process decoded behind all that was taken, under the codes that one process gives."""
        columns = decoded.part.columns
        if columns:
            codes = np.fromiter(map(self._codes.__getitem__, decoded.names), np.int32, len(decoded.names))
            columns["name"] = codes[columns["name"]]
            self.processes |= decoded.processes
            columns |= self.calls.renumbered(decoded.calls, columns)
        self._keep(decoded.part, decoded.pieces)
        self._kinds.marks.add(decoded.marks)
        self.phaseless += decoded.phaseless

    def whole(self) -> EventPart:
        """Return all rows, and let go of them."""
        self._append_waiting()
        self._join()
        part = join_parts(self._parts)
        part.events += self._skipped
        self._parts = []
        return part


class _Kinds:
    """The categories of events, by what is wanted of them; and the marks of all. Phases and categories are few."""

    def __init__(self, wanted: frozenset[Category]) -> None:
        self._numbers: dict[str, int] = {_PYTHON: _BY_NAME} | {
            cat: code for cat, code in CATEGORIES.items() if code in wanted
        }
        self._phases = ("X", *_FLOW_PHASES) if Category.FLOW in wanted else ("X",)
        self.marks = Marks()
        self._codes = Codes[tuple[str, str]]()
        self._number = ByCode(self._codes, self._number_of)
        self._is_naming = ByCode(self._codes, lambda said: said[0] == NAMING)
        self._has_no_phase = ByCode(self._codes, lambda said: not said[0])

    def of(self, events: Sequence[Event]) -> tuple[NDArray[np.int8], int]:
        """Return the category of every event, _UNWANTED where it is not wanted, and how many have no phase."""
        before, said = (
            len(self._codes),
            zip([event.ph for event in events], [event.cat for event in events], strict=True),
        )
        code = np.fromiter(map(self._codes.__getitem__, said), np.int64, len(events))
        for phase, category in islice(self._codes, before, None):
            self.marks.see(phase, category)
        if self._is_naming.of(code).any():
            self.marks.see_names(events)
        number = self._number.of(code)
        for place in np.flatnonzero(number == _BY_NAME).tolist():
            number[place] = Category.PYTHON if events[place].name.startswith(MODULE) else _UNWANTED
        return number, int(np.count_nonzero(self._has_no_phase.of(code)))

    def _number_of(self, said: tuple[str, str]) -> int:
        phase, number = said[0], self._numbers.get(said[1], _UNWANTED)
        is_row = phase == MOMENT if number == Category.SAMPLE else phase in self._phases
        return number if is_row else _UNWANTED


def _sync_columns(events: Sequence[Event], rows: NDArray[np.intp]) -> dict[str, Int64]:
    chosen = [events[row] for row in rows.tolist()]
    columns = sync_columns([event.args for event in chosen], int64_column([event.pid for event in chosen]))
    return {"sync_row": rows} | {f"sync_{name}": column for name, column in columns.items()}


def _sample_columns(args: Sequence[Args], rows: NDArray[np.intp]) -> dict[str, Int64]:
    return {"sample_row": rows, "sample_held_ns": int64_column([args[row].held for row in rows.tolist()])}


def _parse_event(row: Any) -> tuple[Event | None, int]:
    """An event as far as it makes sense, and how many values of it do not.

    None where it is no event at all, or a value is not of its type that it needs.
    """
    if not isinstance(row, dict):
        return None, 0
    if isinstance(row.get("args"), dict):
        row = row | {"args": with_raw(row["args"])}
    event = convert(row, _DecimalEvent)
    if event is not None:
        return event, 0
    args = row.get("args")
    sound_args = _sound_values(args, TypedArgs) if isinstance(args, dict) else args
    sound = _sound_values(row | {"args": sound_args}, Event)
    odd = len(row.keys() - sound.keys() - _SAID_APART)
    odd += len(args) - len(sound_args) if isinstance(args, dict) else 0
    return convert(sound | {key: row[key] for key in _NEEDED if key in row}, _DecimalEvent), odd


def _sound_values(row: dict[str, Any], of: type[msgspec.Struct]) -> dict[str, Any]:
    """The values that are of their type."""
    return {key: value for key, value in row.items() if convert({key: value}, of)}
