"""Device rows at impossible times, rows that lost theirs, drifting clocks.

launch    ^     ^     ^         ^
device       ##  ##        ##  #      the last begins before its own launch
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, rows_by
from analyzers.notices import Code, Notice
from analyzers.run.health.relations import Relations, listed, shown_numbers, step_numbers
from analyzers.trace import STEP, Category, Events, launch_times
from analyzers.units import NS_PER_MS, ms

# A file's own times begin so long after 0, and later than it is long, where a row at 0 is none of them.
_FAR_NS = 1_000 * NS_PER_MS


def without_lost_times(events: Events, file: str, base_time_ns: int) -> tuple[Events, Int64, list[Notice]]:
    """Return the rows without those that have lost their times, which steps these mark, and what is said of them.

    They are at time 0, far from all others: torch 2.12 has been seen to write half of a file's rows so
    (pytorch#188481).
    """
    at_zero = events.start_ns == base_time_ns
    none = np.zeros(0, dtype=np.int64)
    if not at_zero.any() or at_zero.all():
        return events, none, []
    others = events.start_ns[~at_zero] - base_time_ns
    if others.min() < max(_FAR_NS, int(others.max() - others.min())):
        return events, none, []
    marks = events.steps[at_zero[events.steps]]
    marked = [events.names[code].removeprefix(STEP) for code in events.name[marks].tolist()]
    of_device = int((at_zero & events.on_device).sum())
    kept = events.take(~at_zero)
    # The launch of a row that is left out is not lost itself.
    gone = np.setdiff1d(events.correlation[at_zero & events.on_device], kept.correlation[kept.on_device])
    correlation = np.where(np.isin(kept.correlation, gone), UNKNOWN, kept.correlation)
    launched_ns = launch_times(kept.category, correlation, kept.start_ns)
    kept = replace(kept, correlation=correlation, launched_ns=launched_ns)
    what = f"{int(at_zero.sum())} of {len(events)} rows are at time 0, where all others are far from it"
    steps = f"; the marks of steps {shown_numbers(marked)} are among them" if marked else ""
    text = f"{file}: {what}, and are left out: they have lost their times{steps}"
    notices = [Notice(Code.TIMES_ARE_LOST, text, Code.TIMES_ARE_LOST.facts.do)]
    if of_device:
        text = f"{file}: {of_device} of {int(events.on_device.sum())} device events begin long before the profile"
        text = f"{text}, at time 0, and are left out: kernels are missing from its windows"
        notices.append(Notice(Code.TIMES_ARE_CORRUPT, text, Code.TIMES_ARE_CORRUPT.facts.do))
    return kept, step_numbers(events.take(at_zero))[1], notices


# The error of the clocks that host and device are put on one by: what begins earlier before its launch is corrupt.
CLOCK_ERROR_NS = NS_PER_MS
# A device event without a launch record may be older than all that the host did in the profile, but not so much older:
# records of a later session have been seen 1e14 ns early (pytorch#192021).
_OLDEST_NS = 60_000 * NS_PER_MS
# An idle device carries out what is queued within microseconds.
_LATEST_NS = 1_000 * NS_PER_MS
# Of the parts of a profile, in order of launches, each begins more before its launches than the one before.
_PARTS = 4
_NEVER = np.iinfo(np.int64).min // 4


def corrupt_times(rows: Relations, file: str) -> tuple[Mask, list[Notice]]:
    """Return which rows are device events at times that cannot be theirs, and what is said of them."""
    events = rows.events
    early, late = _is_early(rows), _is_late(rows)
    what = []
    if early.any():
        launched = np.where(events.launched_ns == UNKNOWN, events.start_ns, events.launched_ns)
        most = int((launched - events.start_ns)[early].max())
        by = f"before their own launch, by up to {ms(most)}" if most else "long before the profile"
        what.append((early, f"begin {by}"))
    if late.any():
        most = int((events.start_ns - events.launched_ns)[late].max())
        what.append((late, f"begin up to {ms(most)} after their own launch, while the device had nothing to run"))
    count, notices = int(events.on_device.sum()), []
    for mask, how in what:
        named = listed(events, np.flatnonzero(mask))
        text = f"{file}: {int(mask.sum())} of {count} device events {how}, and are left out ({named}): "
        notices.append(
            Notice(Code.TIMES_ARE_CORRUPT, f"{text}their times are corrupt", Code.TIMES_ARE_CORRUPT.facts.do)
        )
    return early | late, notices


def _is_early(rows: Relations) -> Mask:
    """Whether rows are device events that begin before their own launch, or long before the profile."""
    events, is_early = rows.events, np.zeros(len(rows.events), dtype=bool)
    start, has_launch = events.start_ns[rows.device], rows.launched_ns != UNKNOWN
    early = has_launch & (start < rows.launched_ns - CLOCK_ERROR_NS)
    if not has_launch.all() and not events.on_device.all():
        early |= ~has_launch & (start < int(events.start_ns[~events.on_device].min()) - _OLDEST_NS)
    is_early[rows.device] = early
    return is_early


def _is_late(rows: Relations) -> Mask:
    """Whether rows begin more than a second after their launch and after all that ran before them on their device."""
    events, late = rows.events, np.zeros(len(rows.events), dtype=bool)
    start = events.start_ns[rows.device]
    waited = (rows.launched_ns != UNKNOWN) & (start - rows.launched_ns > _LATEST_NS)
    if not waited.any():
        return late
    waited &= start - rows.returned_ns > _LATEST_NS
    for places in rows_by(events.device[rows.device]).values():
        places = places[np.argsort(start[places], kind="stable")]
        busy_until = np.r_[_NEVER, np.maximum.accumulate(events.end_ns[rows.device[places]])[:-1]]
        waited_idle = waited[places] & (start[places] - np.maximum(busy_until, rows.returned_ns[places]) > _LATEST_NS)
        idle_since = _NEVER
        # What follows a late row may be late as well.
        for place in places.tolist() if waited_idle.any() else ():
            row = rows.device[place]
            if waited[place] and start[place] - max(idle_since, rows.returned_ns[place]) > _LATEST_NS:
                late[row] = True
            else:
                idle_since = max(idle_since, int(events.end_ns[row]))
    return late


def drifting(events: Events, corrupt: Mask, file: str) -> list[Notice]:
    """Warn where the device's clock moves against the host's, by what cause and effect allow."""
    launched = np.flatnonzero(events.on_device & (events.launched_ns != UNKNOWN))
    if len(launched) < _PARTS:
        return []
    launched = launched[np.argsort(events.launched_ns[launched], kind="stable")]
    early = events.launched_ns[launched] - events.start_ns[launched]
    parts = [int(part.max()) for part in np.array_split(early, _PARTS)]
    grows = bool((np.diff(parts) > 0).all()) and bool(corrupt[launched[-(len(launched) // _PARTS) :]].mean() > 0.5)
    behind = _behind(events, launched[~corrupt[launched]])
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
    if not len(rows) or np.ptp(events.device[rows]):
        return 0  # a synchronization is of one device
    waits = events.called(Category.LAUNCH, lambda name: name.endswith("DeviceSynchronize"))
    before = np.searchsorted(events.launched_ns[rows], events.start_ns[waits])
    waits, before = waits[before > 0], before[before > 0]
    if not len(waits):
        return 0
    ends = np.maximum.accumulate(events.end_ns[rows])
    late = (ends[before - 1] - events.end_ns[waits]).max()
    return int(late - max(0, (events.start_ns[rows] - events.launched_ns[rows]).min()))
