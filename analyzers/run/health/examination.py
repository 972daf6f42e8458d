"""Examination: what is left out, cut, marked, and said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.notices import Notice
from analyzers.run.health.corrupt_times import corrupt_times, drifting, without_lost_times
from analyzers.run.health.launch_joins import with_launches
from analyzers.run.health.lost_launches import lost_launches
from analyzers.run.health.relations import Relations
from analyzers.run.health.step_marks import with_distinct_steps
from analyzers.run.health.stream_order import disorder, too_long
from analyzers.trace import Events, Health


def healthy(events: Events, file: str, base_time_ns: int = 0) -> tuple[Events, tuple[Notice, ...]]:
    """Return the rows as far as they can be true, and what a reader must know of the profile.

    `base_time_ns` is the epoch that the file's times count from.
    """
    events, lost_steps, lost_times = without_lost_times(events, file, base_time_ns)
    events = with_launches(events)
    events, cycles = with_distinct_steps(events, lost_steps, file)
    rows = Relations(events)
    corrupt, impossible = corrupt_times(rows, file)
    queues = rows.in_order(~corrupt)
    long, too_long_rows = too_long(rows, queues, file)
    lost, missing = lost_launches(rows, queues, file)
    disordered = disorder(rows, queues, file)
    if len(long.row) or len(lost):
        dur_ns, health = events.dur_ns.copy(), events.health.copy()
        dur_ns[long.row] = long.dur_ns
        health[long.row] |= np.where(long.is_last, Health.ENDLESS, Health.CUT).astype(health.dtype)
        health[lost] |= Health.LOST
        events = replace(events, dur_ns=dur_ns, health=health)
    drifts = drifting(events, corrupt, file)
    said = (*lost_times, *cycles, *impossible, *too_long_rows, *disordered, *missing, *drifts)
    return (events.take(~corrupt) if corrupt.any() else events), said
