"""Causes of exposed communication: waiting, queued, late, slow.

    compute        cccccc....................ccc
    launch               ..l
    before it      PPPPPPPPPPPPPP                   another on its communicator or stream, which it began right behind
    kernel                        wwttttttttt
    exposed                       wwssslllqqq       of its transfer the last 3 would be none, had it not been queued,
                                                    and 3 more, had it been launched when the device ran out of compute

What is exposed before the last rank came is waiting. Of the transfer behind it, no more is laid to a queue than the
kernel stood in it, and no more to its launch than the device had stood without compute by then; the rest is the
transfer's own length. Where the transfer is not known, or when it was launched, that is unknown, and said so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, values_at
from analyzers.rank import Communication

# A kernel that starts so soon behind another stood behind it. Between such kernels lie 2 to 4 us in the sample runs.
BEHIND_NS = 20_000


@dataclass(frozen=True, eq=False)
class Queued:
    """For each row of a rank's communication: how long it was launched and others held it (-1 unknown), ns.

    `behind` is the row that ended last before it, -1 where it was not queued.
    """

    ns: Int64
    behind: Int64


@dataclass(frozen=True, eq=False)
class Causes(Columns):
    """Exposed time of each row of a rank's communication in five parts that add up to it, ns."""

    exposed_wait_ns: Int64
    exposed_queued_ns: Int64
    exposed_late_ns: Int64
    exposed_slow_ns: Int64
    exposed_unknown_ns: Int64


def queued(comm: Communication) -> Queued:
    """Return how long each row stood behind others of its communicator, or of its stream where that is longer."""
    ns, behind = np.zeros(len(comm), dtype=np.int64), np.full(len(comm), UNKNOWN, dtype=np.int64)
    streams = np.where(comm.stream >= 0, comm.stream, UNKNOWN)
    for key in (_communicators(comm), streams):
        for lane in np.unique(np.stack([comm.device, key])[:, key >= 0], axis=1).T.tolist():
            rows = np.flatnonzero((comm.device == lane[0]) & (key == lane[1]))
            stood, held_by = _in_lane(comm, rows)
            longer = stood > ns[rows]
            ns[rows[longer]], behind[rows[longer]] = stood[longer], held_by[longer]
    return Queued(np.where(comm.launched_ns == UNKNOWN, UNKNOWN, ns), behind)


def _communicators(comm: Communication) -> Int64:
    """Return a number for each row's communicator, -1 where no group is known."""
    groups = [call.group for call in comm.calls]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(filter(None, groups)))}
    codes = np.array([UNKNOWN if group is None else numbers[group] for group in groups], dtype=np.int64)
    return values_at(codes, comm.call)


def _in_lane(comm: Communication, rows: Int64) -> tuple[Int64, Int64]:
    """Return for rows of one lane, by start, how long each stood behind a run of others without pause, and which last.

    others    ....aaaa.bbbbb           a and b are one run
    launch       ^                     it stood from here to the end of b
    kernel                  kkkk
    """
    start_ns, end_ns = comm.start_ns[rows], comm.end_ns[rows]
    latest = np.maximum.accumulate(end_ns)
    at_latest = np.maximum.accumulate(np.where(end_ns == latest, np.arange(len(rows)), 0))
    reach = np.r_[np.iinfo(np.int64).min // 2, latest[:-1]]
    pause_ns = start_ns - reach
    opens = pause_ns > BEHIND_NS
    begun = start_ns[np.maximum.accumulate(np.where(opens, np.arange(len(rows)), 0))]
    # The run before a row began where that of its predecessor did.
    since = np.maximum(comm.launched_ns[rows], np.r_[start_ns[:1], begun[:-1]])
    held = ~opens & (pause_ns >= 0) & (comm.launched_ns[rows] != UNKNOWN)
    stood = np.where(held, np.maximum(reach - since, 0), 0)
    return stood, np.where(stood > 0, np.r_[UNKNOWN, rows[at_latest[:-1]]], UNKNOWN)


def late_launch_ns(comm: Communication) -> Int64:
    """Return how long each row's device had stood without compute when the host launched it; -1 unknown, ns."""
    is_known = (comm.launched_ns != UNKNOWN) & (comm.computed_ns != UNKNOWN)
    return np.where(is_known, np.maximum(comm.launched_ns - comm.computed_ns, 0), UNKNOWN)


def causes(exposed_ns: Int64, waited_ns: Int64, resolved: Mask, stood_ns: Int64, late_ns: Int64) -> Causes:
    """Divide exposed time by cause.

    `waited_ns` of it was waiting, and `resolved` tells where the rest is transfer.
    """
    left_ns = exposed_ns - waited_ns
    is_known = resolved & (stood_ns != UNKNOWN) & (late_ns != UNKNOWN)
    known_ns = np.where(is_known, left_ns, 0)
    queued_ns = np.minimum(known_ns, np.maximum(stood_ns, 0))
    since_ns = np.minimum(known_ns - queued_ns, np.maximum(late_ns, 0))
    slow_ns = known_ns - queued_ns - since_ns
    return Causes(waited_ns, queued_ns, since_ns, slow_ns, left_ns - known_ns)
