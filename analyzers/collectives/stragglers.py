"""Stragglers: who arrived last at each instance, and why.

rank 0   wwwwww####      rank 2 came last: the 6 and the 3 that others waited are its doing,
rank 1   ...www####      and what ended last before its kernel began says why
rank 2   ......####
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64
from analyzers.collectives.matching import Matching
from analyzers.collectives.transfer import Transfers
from analyzers.intervals import union_of

if TYPE_CHECKING:
    import pandas as pd

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


def waiting(matching: Matching, transfers: Transfers) -> Waiting:
    """Return what each device waited and caused in each step. Partial instances count among the members present."""
    table, instances = matching.table, matching.instances
    rows, number = instances.members, instances.of_member
    is_known = transfers.wait_ns >= 0
    wait = np.where(is_known, transfers.wait_ns, 0)
    last = _last_arrivers(matching, transfers)
    total = np.bincount(number, weights=wait, minlength=len(instances)).astype(np.int64)
    # What the last arriver itself waited is nobody's doing: a small rest, by its ring's progress.
    charge = total - wait[last]
    culprit = rows[last]
    reason = _reasons(matching, culprit)
    reason = np.where((reason == Reason.COMPUTE) & ~_computed_longer(matching, last, charge), Reason.LAUNCH, reason)
    input_ns = table.input_ns[culprit]
    fetching = (reason == Reason.LAUNCH) & (input_ns > 0) & (2 * input_ns >= charge)
    reason = np.where(fetching, Reason.INPUT, reason)
    keys = np.stack([table.rank, table.device, table.window])
    cells, cell = np.unique(keys, axis=1, return_inverse=True)
    caused = np.zeros((len(Reason), cells.shape[1]), dtype=np.int64)
    np.add.at(caused, (reason, cell[culprit]), charge)
    return Waiting(
        rank=cells[0],
        device=cells[1],
        step=cells[2],
        waited_ns=_waited(matching, wait, cell, cells.shape[1]),
        caused_by_ns=caused,
    )


def _last_arrivers(matching: Matching, transfers: Transfers) -> Int64:
    """Return for each instance the member entry that waited least: among equals the latest to start."""
    number = matching.instances.of_member
    order = np.lexsort((-transfers.start_ns, transfers.wait_ns, number))
    return order[matching.instances.first[:-1]]


def _waited(matching: Matching, wait: Int64, cell: Int64, count: int) -> Int64:
    rows = matching.instances.members
    start = matching.table.start_ns[rows]
    waited = np.zeros(count, dtype=np.int64)
    order = np.argsort(cell[rows], kind="stable")
    bounds = np.searchsorted(cell[rows][order], np.arange(count + 1))
    for code in range(count):
        entries = order[bounds[code] : bounds[code + 1]]
        waited[code] = union_of(start[entries], start[entries] + wait[entries]).length_ns()
    return waited


def _reasons(matching: Matching, rows: Int64) -> Int64:
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


def _computed_longer(matching: Matching, last: Int64, charge: Int64) -> NDArray[np.bool_]:
    """Whether each last arriver computed longer than the others, by half its lateness.

    Since its group's first collective of the step: a rank that lagged behind there and caught up computed no longer.
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
    others = np.maximum(np.diff(instances.first) - 1, 1)
    rest = (np.bincount(number, weights=length, minlength=len(instances)) - length[last]) / others
    longer: NDArray[np.bool_] = length[last] - rest >= 0.5 * charge / others
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
