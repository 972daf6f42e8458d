"""Rows that the order of their stream contradicts.

A stream runs what is launched on it in order, one after the other:

stream 7    aaaaaaaaaaaaaaaaaaa          `a` cannot last as long as it says: it ends where `b` begins, at the latest
                 bbb  cc  ddd

Kernels that are launched early (programmatic dependent launches) overlap the one before; none encloses another.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, distinct, keys_by_part, medians
from analyzers.notices import Code, Notice
from analyzers.run.health.relations import Queues, Relations, listed
from analyzers.trace import Kind
from analyzers.units import NS_PER_US, ms

# A row that ends so much after a later one of its stream encloses it.
_MARGIN_NS = NS_PER_US
# The last row of a stream that lasts so many times the median of its like, of which there are so many at least, has no
# known end.
_TIMES, _LIKE = 1_000, 4


@dataclass(frozen=True, eq=False)
class TooLong:
    """Rows that last longer than they can, how long they last at most, and which are the last of their stream."""

    row: Int64
    dur_ns: Int64
    is_last: Mask


def too_long(rows: Relations, queues: Queues, file: str) -> tuple[TooLong, list[Notice]]:
    """Return the rows that last too long, and what is said of them."""
    row, queue = rows.device[queues.place], queues.stream
    end_ns = _cut(rows.events.start_ns[row], rows.events.end_ns[row], queue)
    cut = np.flatnonzero(end_ns < rows.events.end_ns[row])
    dur_ns = end_ns - rows.events.start_ns[row]
    last, usual_ns = _endless(rows, row, dur_ns, queue)
    is_last = np.r_[np.zeros(len(cut), dtype=bool), np.ones(len(last), dtype=bool)]
    found = TooLong(np.r_[row[cut], row[last]], np.r_[dur_ns[cut], usual_ns], is_last)
    return found, _said(rows, found, file)


def _said(rows: Relations, found: TooLong, file: str) -> list[Notice]:
    if not len(found.row):
        return []
    events = rows.events
    most = int(events.dur_ns[found.row].max())
    what = (
        f"{len(found.row)} of {len(rows.device)} device events last longer than their stream allows, up to {ms(most)}"
    )
    cut, last = int((~found.is_last).sum()), int(found.is_last.sum())
    done = (
        [f"{cut} end{'s' if cut == 1 else ''} where the next one of their stream begins, at the latest"] if cut else []
    )
    if last:
        done.append(f"of {last}, the last of a stream, no end is known: the window is left out")
    text = f"{file}: {what} ({listed(events, found.row)}); {'; '.join(done)}"
    return [Notice(Code.ROWS_TOO_LONG, text, Code.ROWS_TOO_LONG.facts.do)]


def _cut(start_ns: Int64, end_ns: Int64, queue: Int64) -> Int64:
    """Return when rows end, those that enclose a later one of their stream where the first such begins."""
    if ((np.diff(end_ns) >= 0) | (np.diff(queue) != 0)).all():
        return end_ns
    end, limit = keys_by_part((queue, end_ns), (queue, end_ns - _MARGIN_NS))
    # Streams stand behind one another: the least key of all that follow is the stream's own if it is less than this.
    soonest = np.minimum.accumulate(np.r_[end, np.iinfo(np.int64).max][::-1])[::-1]
    ill = np.unique(queue[soonest[1:] < limit])
    cut_ns = end_ns.copy()
    for low, high in zip(np.searchsorted(queue, ill), np.searchsorted(queue, ill, side="right"), strict=True):
        cut_ns[low:high] = _cut_one(start_ns[low:high].tolist(), end_ns[low:high].tolist())
    return cut_ns


def _cut_one(start_ns: list[int], end_ns: list[int]) -> list[int]:
    """Return when the rows of one stream end; from the last to the first, since those behind may be cut too."""
    cut_ns = [*end_ns]
    # Of the rows behind, those that end before all that stand between: ends in order, the nearest last.
    ends: list[int] = []
    starts: list[int] = []
    for place in range(len(start_ns) - 1, -1, -1):
        first = bisect_left(ends, end_ns[place] - _MARGIN_NS) - 1
        if first >= 0 and starts[first] > start_ns[place]:
            cut_ns[place] = starts[first]
        while ends and ends[-1] >= cut_ns[place]:
            ends.pop()
            starts.pop()
        ends.append(cut_ns[place])
        starts.append(start_ns[place])
    return cut_ns


def _endless(rows: Relations, row: Int64, dur_ns: Int64, queue: Int64) -> tuple[Int64, Int64]:
    """Return the places of last rows of streams without a known end, and the median length of their like."""
    events = rows.events
    last = np.flatnonzero(np.r_[begins(queue)[1:], True][: len(queue)])
    # No median is less than the least of all.
    least_ns = max(1, int(dur_ns.min(initial=np.iinfo(np.int64).max // _TIMES)))
    last = last[(events.kind[row[last]] != Kind.COMM) & (dur_ns[last] >= _TIMES * least_ns)]
    if not len(last):
        return last, dur_ns[last]
    alike = np.flatnonzero(np.isin(events.name[row], events.name[row[last]]))
    like = distinct(events.name[row[alike]], events.grid[row[alike]], events.nbytes[row[alike]])
    usual_ns = medians(dur_ns[alike], like.index, len(like))[like.index]
    is_endless = (like.count[like.index] >= _LIKE) & (usual_ns > 0) & (dur_ns[alike] >= _TIMES * usual_ns)
    found = is_endless & np.isin(alike, last)
    return alike[found], usual_ns[found].astype(np.int64)


def disorder(rows: Relations, queues: Queues, file: str) -> list[Notice]:
    """Warn of rows that begin on their stream before one begins that was launched there earlier: that is no queue."""
    known = rows.launched_ns[queues.place] != UNKNOWN
    places, queue = queues.place[known], queues.stream[known]
    called_ns = rows.launched_ns[places]
    if ((np.diff(called_ns) >= 0) | (np.diff(queue) != 0)).all():
        return []
    returned_ns = rows.returned_ns[places]
    start_ns = rows.events.start_ns[rows.device[places]]
    # Calls of two threads may overlap, and then either may be first.
    returned, called = keys_by_part((queue, returned_ns), (queue, called_ns))
    (start,) = keys_by_part((queue, start_ns))
    by_return = np.argsort(returned, kind="stable")
    latest = np.maximum.accumulate(start[by_return])
    before = np.searchsorted(returned[by_return], called, side="right") - 1
    early = (before >= 0) & (latest[before] > start)
    if not early.any():
        return []
    events, found = rows.events, rows.device[places[early]]
    what = (
        f"{len(found)} of {len(rows.device)} device events begin before one that was launched on their stream earlier"
    )
    streams = ", ".join(map(str, np.unique(events.stream[found])[:_LIKE].tolist()))
    text = f"{file}: {what} (stream {streams}: {listed(events, found)}): times or streams of this profile are wrong"
    return [Notice(Code.STREAM_OUT_OF_ORDER, text, Code.STREAM_OUT_OF_ORDER.facts.do)]
