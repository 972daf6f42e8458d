"""Reader of Kineto traces into columns, where Kineto's keys are named.

Kineto writes microseconds with three decimals; they arrive as exact integer nanoseconds, on the epoch
(`baseTimeNanoseconds` added). The file is streamed: what is kept of it is the columns of the rows that were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from analyzers.errors import UnreadableTrace
from analyzers.memory import Budget, budget_of, cores
from analyzers.notices import Code, Notice
from analyzers.paths import Place
from analyzers.trace.assembly import Assembled, ProcessRows, assemble
from analyzers.trace.columns import EventColumns
from analyzers.trace.copy_collectives import with_copy_collectives
from analyzers.trace.decoding import Blocks, NoEvents, Oddity
from analyzers.trace.event_stream import EventStream, explain_behind
from analyzers.trace.events import Events
from analyzers.trace.header import Header, Outside, Remedies, outside
from analyzers.trace.kernel_names import Category
from analyzers.trace.pieces import CannotSplit, Helpers, Split, take_pieces

# A row of the host in text that is no JSON, by what Kineto writes first of it.
_OF_HOST = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|(?:cuda|hip)_(?:runtime|driver)|python_function)"'
    rb'[^{}]{0,400}?"pid"\s*:\s*("[^"]{0,40}"|\d{1,19})'
)
_LISTED = 8
# Most cuts leave no row; where processes' rows alternate by time, damage stands beside few of their many turns.
_CUT = 0.25

# What analyses read. Python stacks (but for modules) and flow arrows have to be asked for.
ANALYZED = frozenset(Category) - {Category.PYTHON, Category.FLOW}


@dataclass(frozen=True, eq=False)
class Trace:
    """One file: its header, the rows of each process, what of it could not be read, and categories that no rule knows.

    `refusal` says why it is nobody's to analyse: another program's, or of a device without rules. What reads rows only
    when a process is asked for says of each what is `lost` of it.
    """

    header: Header
    processes: Sequence[ProcessRows]
    lost: tuple[Notice, ...]
    unknown: tuple[str, ...] = ()
    refusal: str | None = None
    nbytes: int = 0  # about what its rows take until they are summarized
    peak_bytes: int = 0  # a budget with which it reads the same; the least where no helpers did

    @property
    def events(self) -> Events:
        """Return the rows of the first process, which nearly always is the only one."""
        return self.processes[0].events


def read_trace(
    path: Place,
    categories: Iterable[Category] = ANALYZED,
    on_bytes: Callable[[int], None] | None = None,
    memory: int | None = None,
    helpers: Helpers | None = None,
    *,
    piped: bool = False,
) -> Trace:
    """Read one trace file, gzip or plain, an object with `traceEvents` or a bare array of events.

    Only rows of the categories asked for are kept. What a damaged file still holds is read, and the rest said in
    `lost`. `on_bytes` hears of each block of bytes that was read. `memory` is what its rows may take until they
    are summarized, in bytes; by default the share of one core in half of the machine's. `helpers` decode parts of it,
    with the same result. With `piped` it may be a FIFO, which is read once.

    Raises UnreadableTrace where the file cannot be opened, is no trace, or cannot be trusted, TooLarge, and
    BrokenProcessPool where a helper is lost.
    """
    limit = budget_of(memory, cores() if memory is None else 1)
    budget = Budget(path, limit)
    try:
        blocks, stream, columns = _read_blocks(path, EventColumns(categories, budget), on_bytes, helpers, piped)
    except NoEvents as error:
        raise UnreadableTrace(f"{path} is not a trace ({error}): give a file that torch.profiler exported") from error
    around, damage = outside(stream.header, stream.tail), stream.damage
    built = assemble(columns.decoded(), around.header.base_time_ns)
    refusal = columns.marks.refusal(stream.header + stream.tail) or _mixed(built, around, stream, columns)
    oddities = columns.oddities | around.oddities | ({Oddity.QUOTES} if damage.repaired else set())
    counts = {
        "events that make no sense": damage.lost_events + columns.sense()[1],
        "events without a time": built.untimed,
        "values that are not of their type": columns.odd_values,
        "streams that are no numbers": built.unplaced,
        "places that are no JSON, where any number of events may be missing": damage.places,
        "bytes of text in these": damage.lost_bytes,
    }
    behind = [f"{len(around.behind):,} bytes of text behind the document{explain_behind(around.behind)}"]
    ends = [*blocks.lost, *damage.lost, *(behind if around.behind else [])]
    lost = [*ends, *around.lost, *(f"{count:,} {what}" for what, count in counts.items() if count)]
    is_open_ended = bool(ends or around.torn or damage.places)
    notices = [
        *yield_notices(path.name, lost, built.endless, is_open_ended, oddities),
        *_unused(path.name, damage.unused),
    ]
    processes = tuple(replace(one, events=with_copy_collectives(one.events)) for one in built.processes)
    unknown = tuple(columns.marks.unknown)
    return Trace(around.header, processes, tuple(notices), unknown, refusal, columns.nbytes, budget.peak)


@dataclass(frozen=True)
class Input:
    """A kind of file that ranks are read from, told by its content: a file and a process are a rank.

    `suffixes` are those of such files' names in a folder, `begins` matches the first bytes of any. `read` takes what
    `read_trace` takes, but for the categories. `remedy` says by the name of a file that is not read what makes one of
    it that is, `remedies` what brings into such files what one of them lacks.
    """

    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes]
    read: Callable[..., Trace]
    remedy: Callable[[str], str | None] = lambda name: None
    remedies: Remedies = Header.remedies


KINETO = Input(
    suffixes=(".json", ".json.gz", ".json.zst", ".json.zip"),
    begins=re.compile(rb'(?s).*"(?:traceEvents|schemaVersion|ph)"'),
    read=read_trace,
)


def _mixed(built: Assembled, around: Outside, stream: EventStream, columns: EventColumns) -> str | None:
    """Return why a file into which several processes wrote at once is refused, None for any other.

    Where one's block ends and another's begins a row is cut, so that rows of theirs meet where the text is damaged.
    """
    breaks = np.sort([*stream.damage.breaks, *columns.breaks])
    before, behind = built.turns
    cut = np.searchsorted(breaks, behind + 1, "right") > np.searchsorted(breaks, before, "left")
    torn = {pid.strip(b'"').decode(errors="replace") for pid in _OF_HOST.findall(stream.tail if around.torn else b"")}
    pids = sorted({*built.pids, *torn})
    if len(pids) < 2 or not (torn or (len(cut) and cut.sum() >= _CUT * len(cut))):
        return None
    nbytes = stream.damage.lost_bytes + stream.damage.unread + columns.unread + around.torn
    listed = ", ".join(pid[:20] for pid in pids[:_LISTED])
    text = f"the text of several processes ({listed}) is mixed in blocks: they wrote one file at once"
    return f"{text}, and {nbytes:,} bytes of it could not be read; record again, with a file for each rank"


def _read_blocks(
    path: Place, empty: EventColumns, on_bytes: Callable[[int], None] | None, helpers: Helpers | None, piped: bool
) -> tuple[Blocks, EventStream, EventColumns]:
    """Run through the file: its blocks, what is outside of its events, and the columns of those."""
    counter = None if on_bytes is None else _ByteCounter(on_bytes)
    split = Split.NOWHERE if helpers is None or piped else Split.EARLY
    while True:
        blocks, columns = Blocks(path, counter, piped), EventColumns(empty.categories, empty.budget)
        stream = EventStream(iter(blocks), columns)
        text = stream.start()
        try:
            if helpers is not None and split is not Split.NOWHERE:
                take_pieces(stream, text, columns, helpers, split)
        except CannotSplit as error:
            split = error.instead if error.instead is not split else Split.NOWHERE
            empty.budget.peak = 0  # all of it is let go of
            if counter is not None:
                counter.begin_again()
            continue
        stream.go_on(text, stream.blocks)
        stream.end(text)
        return blocks, stream, columns


class _ByteCounter:
    """Passes on how many bytes were read, those of a file that is read again once."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self._on_bytes = on_bytes
        self._read = self._passed_on = 0

    def begin_again(self) -> None:
        """Count the same bytes once more."""
        self._read = 0

    def __call__(self, count: int) -> None:
        self._read += count
        if self._read > self._passed_on:
            self._on_bytes(self._read - self._passed_on)
            self._passed_on = self._read


def _unused(name: str, count: int) -> Iterator[Notice]:
    """Yield what is said of damaged events that no figure is made of."""
    if count:
        text = f"{count} damaged rows are not read, of kinds that no figure is made of (Python's functions, arrows)"
        yield Notice(Code.TRACE_IS_NO_JSON, f"{name}: {text}")


def yield_notices(
    name: str,
    lost: Sequence[str],
    endless: int,
    is_open_ended: bool = False,
    oddities: AbstractSet[Oddity] = frozenset(),
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
