"""Times of DDP's reductions on all ranks, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, values_at
from analyzers.collectives import Exchange
from analyzers.layers.ddp_buckets import Buckets


@dataclass(frozen=True, eq=False)
class BucketTimes(Columns):
    """A row for each reduction, by rank, step and order; -1 is unknown, `start_ns` is on the rank's own clock.

    `row` is its kernel in the table of all ranks' communication, `instance` the collective that it is a member of.
    """

    row: Int64
    instance: Int64
    rank: Int64
    device: Int64
    step: Int64
    bucket: Int64
    nbytes: Int64
    start_ns: Int64
    dur_ns: Int64
    wait_ns: Int64
    transfer_ns: Int64
    bound: Mask
    queued_ns: Int64
    late_launch_ns: Int64
    exposed_ns: Int64

    def by_start(self) -> BucketTimes:
        """Return the same by the start of their kernels in each step of each rank."""
        return self.take(np.lexsort((self.start_ns, self.step, self.rank)))

    @property
    def window(self) -> Int64:
        """Return a number for the window that each reduction is in."""
        return distinct(self.rank, self.device, self.step).index

    @property
    def overlapped_ns(self) -> Int64:
        """Return how much of each reduction compute hid."""
        return self.dur_ns - self.exposed_ns


def bucket_times(exchanged: Exchange, buckets: Buckets) -> BucketTimes:
    """Return the times of every reduction on every rank."""
    reduced = [measured.reductions for measured in exchanged.run.measured]
    table, instances = exchanged.matching.table, exchanged.matching.instance
    row = np.concatenate([one.kernel + first for one, first in zip(reduced, exchanged.first_row.tolist(), strict=True)])
    ready_ns, launched_ns, step = (
        np.concatenate([getattr(one, name) for one in reduced]) for name in ("ready_ns", "launched_ns", "step")
    )
    instance, start_ns = instances[row], table.start_ns[row]
    is_known = (ready_ns != UNKNOWN) & (launched_ns != UNKNOWN)
    said = values_at(np.array([call.nbytes for call in table.calls], dtype=np.int64), table.call[row])
    transferred = exchanged.transfers
    return BucketTimes(
        row=row,
        instance=instance,
        rank=table.rank[row],
        device=table.device[row],
        step=step,
        bucket=np.concatenate(buckets.number),
        nbytes=np.where(said < 0, values_at(transferred.nbytes, instance), said),
        start_ns=start_ns,
        dur_ns=table.end_ns[row] - start_ns,
        wait_ns=values_at(transferred.wait_ns, exchanged.entry[row]),
        transfer_ns=values_at(transferred.transfer_ns, instance),
        bound=values_at(transferred.bound, instance, False),
        queued_ns=np.where(is_known, np.maximum(start_ns - np.maximum(ready_ns, launched_ns), 0), UNKNOWN),
        late_launch_ns=np.where(is_known, np.maximum(launched_ns - ready_ns, 0), UNKNOWN),
        exposed_ns=table.exposed_ns[row],
    )
