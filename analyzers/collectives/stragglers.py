"""Stragglers: who arrived last at each instance, and why.

rank 0   wwwwww####      rank 2 came last: the 6 and the 3 that others waited are its doing,
rank 1   ...www####      and what ended last before its kernel began says why
rank 2   ......####
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, distinct
from analyzers.collectives.matching import Matching
from analyzers.collectives.transfer import Transfers

if TYPE_CHECKING:
    import pandas as pd

# A rank is named that causes so many times as much waiting as its even share.
STANDS_OUT = 1.5
# A kernel that starts so soon after its launch waited for nothing else.
LAUNCH_LATENCY_NS = 20_000


class Reason(IntEnum):
    """What kept a rank from arriving earlier."""

    UNKNOWN = 0
    LAUNCH = 1  # its host launched late
    COMPUTE = 2  # its compute ran longer
    COLLECTIVE = 3  # its collective before this one ended late
    INPUT = 4  # its host was fetching input

    @property
    def label(self) -> str:
        """Return the name that every output uses."""
        return self.name.lower()


@dataclass(frozen=True, eq=False)
class Waiting:
    """A row for each rank, device and step (-1: outside of steps), times in ns.

    `waited_ns` is when the device's communication only waited, as a union. `caused_by_ns`, a line for each Reason, is
    what all others waited for it, added over them.
    """

    rank: Int64
    device: Int64
    step: Int64
    waited_ns: Int64
    caused_by_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def caused_ns(self) -> Int64:
        """Return what all others waited for each, whatever kept it."""
        caused: Int64 = self.caused_by_ns.sum(axis=0)
        return caused

    def to_frame(self) -> pd.DataFrame:
        """Return a row each; a column for each reason."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("rank", "device", "step", "waited_ns", "caused_ns")}
        by = {f"caused_by_{reason.label}_ns": self.caused_by_ns[reason] for reason in Reason}
        return pd.DataFrame(columns | by)


def waiting(matching: Matching, transfers: Transfers, ahead: Collection[int] = ()) -> Waiting:
    """Return what each device waited and caused in each step. Partial instances count among the members present.

    Both are one arithmetic: each instant at which a device waited is charged to the member that it waited for then, of
    several the one whose collective began first, so that in a step what all caused is what all waited. `ahead` are
    ranks whose hosts are known to launch nothing late.
    """
    table, rows = matching.table, matching.instances.members
    keys = np.stack([table.rank, table.device, table.window])
    alike = distinct(*keys)
    cells, cell = alike.lines, alike.index
    # Until another's profile began nobody is known to have waited for anybody.
    wait = np.maximum(transfers.wait_ns, 0) - transfers.unprofiled_ns
    charge = _apart(table.start_ns[rows] + transfers.unprofiled_ns, wait, cell[rows])
    waited = np.zeros(cells.shape[1], dtype=np.int64)
    np.add.at(waited, cell[rows], charge)
    caused = np.zeros((len(Reason), cells.shape[1]), dtype=np.int64)
    np.add.at(caused, (late_because(matching, transfers, ahead), cell[rows[transfers.waits_for]]), charge)
    return Waiting(rank=cells[0], device=cells[1], step=cells[2], waited_ns=waited, caused_by_ns=caused)


def late_because(matching: Matching, transfers: Transfers, ahead: Collection[int] = ()) -> Int64:
    """Return for each of the instances' members the Reason that kept the member for which it waited."""
    return _reasons(matching, transfers.waits_for, np.maximum(transfers.wait_ns, 0), ahead)


def _apart(start: Int64, wait: Int64, cell: Int64) -> Int64:
    """Return for each wait the time in which none that began earlier in its cell goes on: they add up to the union."""
    order = np.lexsort((start, cell))
    start, end, cell = start[order], (start + wait)[order], cell[order]
    own = np.zeros(len(order), dtype=np.int64)
    for low, high in pairwise(np.searchsorted(cell, np.arange(int(cell.max(initial=-1)) + 2)).tolist()):
        if high > low:
            before = np.r_[start[low], np.maximum.accumulate(end[low:high])[:-1]]
            own[low:high] = np.maximum(end[low:high] - np.maximum(start[low:high], before), 0)
    apart = np.empty(len(order), dtype=np.int64)
    apart[order] = own
    return apart


def _reasons(matching: Matching, culprit: Int64, wait: Int64, ahead: Collection[int]) -> Int64:
    """Return why the member that each entry waited for, `culprit`, came no earlier."""
    rows = matching.instances.members[culprit]
    last = _came_last(matching, rows)
    computed_longer = _computed_longer(matching, culprit, wait)
    reason = np.where((last == Reason.COMPUTE) & ~computed_longer, Reason.LAUNCH, last)
    input_ns = matching.table.input_ns[rows]
    fetching = (reason == Reason.LAUNCH) & (input_ns > 0) & (2 * input_ns >= wait)
    reason = np.where(fetching, Reason.INPUT, reason)
    # Where its compute came last and its host cannot be why, it is the compute; else nothing tells.
    excluded = (reason == Reason.LAUNCH) & np.isin(matching.table.rank[rows], [*ahead])
    return np.where(excluded, np.where(last == Reason.COMPUTE, Reason.COMPUTE, Reason.UNKNOWN), reason)


def _came_last(matching: Matching, rows: Int64) -> Int64:
    """Return why each row began no earlier: whichever of its launch, its compute, its collective came last."""
    table = matching.table
    start = table.start_ns[rows]
    launched, computed = table.launched_ns[rows], table.computed_ns[rows]
    before = _ended_before(matching)[rows]
    at_once = (launched != UNKNOWN) & (start - launched <= LAUNCH_LATENCY_NS)
    latest = np.maximum(computed, before)
    reason = np.where(computed >= before, Reason.COMPUTE, Reason.COLLECTIVE)
    reason = np.where((launched != UNKNOWN) & (at_once | (launched >= latest)), Reason.LAUNCH, reason)
    return np.where((latest == UNKNOWN) & (launched == UNKNOWN), Reason.UNKNOWN, reason).astype(np.int64)


def _computed_longer(matching: Matching, culprit: Int64, wait: Int64) -> NDArray[np.bool_]:
    """Whether each entry's culprit computed longer than the entry's own device, by half the wait.

    Since their group's first collective of the step: a rank that lagged behind there and caught up computed no longer.
    """
    instances, table = matching.instances, matching.table
    if not len(instances):
        return np.zeros(0, dtype=bool)
    rows, number = instances.members, instances.of_member
    keys = np.stack([instances.group[number], table.rank[rows], table.device[rows]])
    order = np.lexsort((number, *keys[::-1]))
    busy, step = table.busy_ns[rows[order]], instances.step[number[order]]
    member = np.r_[True, (np.diff(keys[:, order]) != 0).any(axis=0)]
    begins = member | np.r_[True, np.diff(step) != 0]
    # The first of a step is compared with the first of the step before.
    start = np.flatnonzero(begins)
    which = np.cumsum(begins) - 1
    since = np.where(begins, np.where(member, -1, start[np.maximum(which - 1, 0)]), start[which])
    length = np.full(len(rows), np.nan)
    length[order] = np.where(since >= 0, busy - busy[since], np.nan)
    longer: NDArray[np.bool_] = length[culprit] - length >= 0.5 * wait
    return longer


def _ended_before(matching: Matching) -> Int64:
    """Return when the previous communication on each row's device ended, at most the row's start; -1 for none."""
    table = matching.table
    order = np.lexsort((table.start_ns, table.device, table.rank))
    same = (np.diff(table.rank[order]) == 0) & (np.diff(table.device[order]) == 0)
    before = np.full(len(table), UNKNOWN, dtype=np.int64)
    ended = np.minimum(table.end_ns[order[:-1]], table.start_ns[order[1:]])
    before[order[1:]] = np.where(same, ended, UNKNOWN)
    return before
