"""Health of a profile: corrupt times, launches that are lost, drifting clocks.

launch    ^     ^     ^         ^
device       ##  ##        ##  #      the last begins before its own launch, and nothing came of the third
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.notices import Code, Notice
from analyzers.trace import KERNEL_LAUNCH, Category, Events
from analyzers.units import NS_PER_MS, ms

# The error of the clocks that host and device are put on one by: what begins earlier before its launch is corrupt.
CLOCK_ERROR_NS = NS_PER_MS
# A device event without a launch record may be older than all that the host did in the profile, but not so much older:
# records of a later session have been seen 1e14 ns early (pytorch#192021).
_OLDEST_NS = 60_000 * NS_PER_MS
# Of the parts of a profile, in order of launches, each begins more before its launches than the one before.
_PARTS = 4
_NAMED = 3


def healthy(events: Events, file: str) -> tuple[Events, tuple[Notice, ...]]:
    """Return the rows without device events whose times are corrupt, and what a reader must know of the profile."""
    corrupt = _is_corrupt(events)
    notices = [*_corrupt(events, corrupt, file), *_lost(events, file), *_drifting(events, corrupt, file)]
    return (events.take(~corrupt) if corrupt.any() else events), tuple(notices)


def _is_corrupt(events: Events) -> Mask:
    """Whether rows are device events that begin before their own launch, or long before the profile."""
    has_launch = events.launched_ns != UNKNOWN
    early = has_launch & (events.start_ns < events.launched_ns - CLOCK_ERROR_NS)
    on_host = ~events.on_device
    earliest = int(events.start_ns[on_host].min(initial=np.iinfo(np.int64).max // 2))
    ancient = ~has_launch & (events.start_ns < earliest - _OLDEST_NS) & bool(on_host.any())
    is_corrupt: Mask = events.on_device & (early | ancient)
    return is_corrupt


def _corrupt(events: Events, corrupt: Mask, file: str) -> list[Notice]:
    rows = np.flatnonzero(corrupt)
    if not len(rows):
        return []
    launched = np.where(events.launched_ns == UNKNOWN, events.start_ns, events.launched_ns)
    most = int((launched - events.start_ns)[rows].max())
    by = f"before their own launch, by up to {ms(most)}" if most else "long before the profile"
    what = f"{len(rows)} of {int(events.on_device.sum())} device events begin {by}"
    text = f"{file}: {what}, and are left out ({_listed(events, rows)}): their times are corrupt"
    return [Notice(Code.TIMES_ARE_CORRUPT, text, Code.TIMES_ARE_CORRUPT.facts.do)]


def _lost(events: Events, file: str) -> list[Notice]:
    """Warn of launches that the device should have carried out within the profile, and that left no event there."""
    rows = lost_launches(events)
    if not len(rows):
        return []
    what = f"{len(rows)} launches of kernels in the midst of the profile have no event on the device"
    text = f"{file}: {what} ({_listed(events, rows)}): kernels are missing from its windows, which show them as idle"
    return [Notice(Code.LAUNCHES_ARE_LOST, text, Code.LAUNCHES_ARE_LOST.facts.do)]


def lost_launches(events: Events) -> Int64:
    """Return the launches of kernels without a device event, between launches that have theirs.

    What is captured into a CUDA graph runs when the graph does.
    """
    on_device = np.flatnonzero(events.on_device & (events.launched_ns != UNKNOWN))
    if not len(on_device):
        return np.zeros(0, dtype=np.int64)
    launches_kernel = np.array([KERNEL_LAUNCH.match(name) is not None for name in events.names], dtype=bool)
    begun = events.start_ns
    since, until = events.launched_ns[on_device].min(), events.launched_ns[on_device].max()
    until = min(until, int(begun[on_device].max()) - CLOCK_ERROR_NS)
    launches = (events.category == Category.LAUNCH) & launches_kernel[events.name]
    launches &= (events.correlation != UNKNOWN) & (begun > since) & (begun < until)
    rows = np.flatnonzero(launches)
    rows = rows[~np.isin(events.correlation[rows], events.correlation[events.on_device])]
    return rows[~_is_captured(events, begun[rows])] if len(rows) else rows


def _is_captured(events: Events, instant: Int64) -> Mask:
    """Whether instants lie between a stream capture's begin and end, or before a graph is made of what was captured."""

    def times(word: str) -> Int64:
        named = np.array([word in name for name in events.names], dtype=bool)[events.name]
        return np.sort(events.start_ns[named & (events.category == Category.LAUNCH)])

    begun, ended = (np.searchsorted(times(word), instant) for word in ("BeginCapture", "EndCapture"))
    made = times("GraphInstantiate").max(initial=np.iinfo(np.int64).min)
    captured: Mask = (begun > ended) | (instant < made)
    return captured


def _drifting(events: Events, corrupt: Mask, file: str) -> list[Notice]:
    """Warn where the device's clock moves against the host's, by what cause and effect allow."""
    rows = np.flatnonzero(events.on_device & (events.launched_ns != UNKNOWN))
    if len(rows) < _PARTS:
        return []
    rows = rows[np.argsort(events.launched_ns[rows], kind="stable")]
    early = (events.launched_ns - events.start_ns)[rows]
    parts = [int(part.max()) for part in np.array_split(early, _PARTS)]
    grows = bool((np.diff(parts) > 0).all()) and bool(corrupt[rows[-(len(rows) // _PARTS) :]].mean() > 0.5)
    behind = _behind(events, rows[~corrupt[rows]])
    if not grows and behind <= CLOCK_ERROR_NS:
        return []
    by = f"{ms(parts[-1])} early" if grows else f"{ms(behind)} late"
    text = f"{file}: the device's clock drifts against the CPU's, and is {by} by the end of this profile"
    return [Notice(Code.PROFILE_DRIFTS, f"{text}: idle time and its causes are doubtful")]


def _behind(events: Events, rows: Int64) -> int:
    """Return how far the device's clock has fallen behind, at least; `rows` are its events in order of launch.

    A synchronization of the device returns when all that was launched before has ended; what ends later on the
    device's clock shows that it is late, and the soonest start after a launch shows how late it was at the least.
    """
    if not len(rows) or len(np.unique(events.device[rows])) > 1:
        return 0  # a synchronization is of one device
    waits = np.array([name.endswith("DeviceSynchronize") for name in events.names], dtype=bool)[events.name]
    waits = np.flatnonzero(waits & (events.category == Category.LAUNCH))
    before = np.searchsorted(events.launched_ns[rows], events.start_ns[waits])
    waits, before = waits[before > 0], before[before > 0]
    if not len(waits):
        return 0
    ends = np.maximum.accumulate(events.end_ns[rows])
    late = (ends[before - 1] - events.end_ns[waits]).max()
    return int(late - max(0, (events.start_ns - events.launched_ns)[rows].min()))


def _listed(events: Events, rows: Int64) -> str:
    """Return the names of rows, the most frequent first, with how often each occurs."""
    counts = Counter(events.names[code][:60] for code in events.name[rows].tolist())
    named = ", ".join(f"{name!r} {count} times" for name, count in counts.most_common(_NAMED))
    return named + (", ..." if len(counts) > _NAMED else "")
