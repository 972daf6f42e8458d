"""Rows at time 0, far from all others: their times are lost.

Torch 2.12 has been seen to write half of a file's rows so (pytorch#188481).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.notices import Code, Notice
from analyzers.run.health.relations import shown_numbers, step_numbers
from analyzers.trace import STEP, Events, launch_times
from analyzers.units import NS_PER_MS

# A file's own times begin so long after 0, and later than it is long, where a row at 0 is none of them.
_FAR_NS = 1_000 * NS_PER_MS


def without_lost_times(events: Events, file: str, base_time_ns: int) -> tuple[Events, Int64, list[Notice]]:
    """Return the rows without those that have lost their times, which steps these mark, and what is said of them."""
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
