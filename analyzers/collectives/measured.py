"""`Exchange`: a run's instances, clocks, transfers, bandwidths and waiting.

matching -> clocks -> transfers -> what calibration says of such sizes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Int64
from analyzers.collectives.bandwidth import peaks, sizes
from analyzers.collectives.clocks import Clocks, clocks
from analyzers.collectives.matching import Matching, match_run
from analyzers.collectives.transfer import Transfers, in_transfer, transfers
from analyzers.intervals import Intervals, union_of
from analyzers.rank import Breakdown, Measured, RunSummary
from analyzers.ranks import RankIndex
from analyzers.run import Calibration, world_size


@dataclass(frozen=True, eq=False)
class Exchange:
    """The communication of a run, matched, on one clock, and measured."""

    run: RunSummary
    calibration: Calibration | None
    matching: Matching
    clocks: Clocks
    transfers: Transfers
    peak_gbps: NDArray[np.float64]

    @cached_property
    def origin_ns(self) -> int:
        """Return the run's earliest event on the common clock."""
        ranks = np.array([summary.rank for summary in self.run.ranks])
        earliest = np.array([measured.earliest_ns for measured in self.run.measured])
        return int((earliest - self.clocks.shift_ns(ranks)).min())

    @cached_property
    def order(self) -> Int64:
        """Return instances by start on the common clock: the order in which the report counts them."""
        instances = self.matching.instances
        if not len(instances):
            return np.zeros(0, dtype=np.int64)
        return np.argsort(np.minimum.reduceat(self.transfers.start_ns, instances.first[:-1]), kind="stable")

    @cached_property
    def index(self) -> Int64:
        """Return each instance's number in that order."""
        index = np.empty(len(self.order), dtype=np.int64)
        index[self.order] = np.arange(len(self.order))
        return index

    @cached_property
    def entry(self) -> Int64:
        """Return each table row's entry among all instances' members, -1 for what is in none."""
        entry = np.full(len(self.matching.table), -1, dtype=np.int64)
        entry[self.matching.instances.members] = np.arange(len(self.matching.instances.members))
        return entry

    @cached_property
    def first_row(self) -> Int64:
        """Return for each rank the row of the table where its communication begins."""
        counts = [len(measured.communication) for measured in self.run.measured]
        return np.cumsum([0, *counts])[:-1].astype(np.int64)

    @cached_property
    def sizes(self) -> Int64:
        """Return bytes for each row of the table, as any member says them; -1 where none does."""
        return sizes(self.matching, self.transfers)

    def nbytes(self, index: RankIndex) -> Int64:
        """Return bytes for each row of a rank's communication, -1 where unknown."""
        first = int(self.first_row[index])
        return self.sizes[first : first + len(self.run.measured[index].communication)]

    def wait_ns(self, index: RankIndex) -> Int64:
        """Return for each row of a rank's communication how long it waited, -1 where unknown."""
        first = int(self.first_row[index])
        entry = self.entry[first : first + len(self.run.measured[index].communication)]
        wait_ns: Int64 = np.r_[self.transfers.wait_ns, -1][entry]
        return wait_ns

    @cached_property
    def begun_ns(self) -> Int64:
        """Return for each row of the table when its transfer began, on its rank's own clock."""
        return in_transfer(self.matching, self.transfers)

    def rows_of(self, index: RankIndex, device: int) -> Int64:
        """Return the table rows that one device of a rank takes part in."""
        table, low = self.matching.table, int(self.first_row[index])
        high = low + len(self.run.measured[index].communication)
        rows: Int64 = low + np.flatnonzero((table.device[low:high] == device) | (table.peer[low:high] == device))
        return rows

    def exposed_transfer(self, index: RankIndex, device: int) -> Intervals:
        """Return when a device of a rank transferred and did not compute; on its own clock."""
        rows = self.rows_of(index, device)
        moving = union_of(self.begun_ns[rows], self.matching.table.end_ns[rows])
        return moving & _exposed(self.run.measured[index], device)

    @cached_property
    def world_size(self) -> int:
        """Return the number of processes in the run."""
        return world_size(self.run.manifest, self.run.ranks)

    @property
    def limit_gbps(self) -> float | None:
        """Return the link's own rate, where calibration says it and the transport is known."""
        links = self.calibration.links if self.calibration is not None else None
        is_known = links is not None and links.transport and links.limit_gbps is not None and links.limit_gbps > 0
        return links.limit_gbps if links is not None and is_known and not self.is_of_other_links else None

    @property
    def is_of_other_links(self) -> bool:
        """Whether calibration went over another transport than the run's (`P2P/CUMEM` and `P2P/IPC` are one)."""
        links, manifest = self.calibration.links if self.calibration is not None else None, self.run.manifest
        transports = (
            links.transport if links is not None else None,
            manifest.transport if manifest is not None else None,
        )
        families = {transport.partition("/")[0] for transport in transports if transport}
        return len(families) > 1

    @property
    def unmatched_share(self) -> float | None:
        """Return the time of kernels in no instance over the time of all, added; None without communication."""
        table = self.matching.table
        dur_ns = table.end_ns - table.start_ns
        return float(dur_ns[self.matching.instance < 0].sum() / dur_ns.sum()) if dur_ns.sum() else None

    def in_windows(self, rows: Breakdown) -> tuple[Int64, Int64]:
        """Return for each window exposed transfer and communication in no instance, lengths of unions in ns."""
        table = self.matching.table
        alone = self.matching.instance < 0
        exposed_ns, unmatched_ns = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
        index_of = {number: index for index, number, _ in self.run.numbered()}
        for (number, device), windows in rows.by_device():
            index, start = index_of[number], rows.start_ns[windows]
            kernels, end = self.rows_of(index, device), start + rows.span_ns[windows]
            exposed_ns[windows] = self.exposed_transfer(index, device).length_within(start, end)
            lost = kernels[alone[kernels]]
            unmatched_ns[windows] = union_of(table.start_ns[lost], table.end_ns[lost]).length_within(start, end)
        return exposed_ns, unmatched_ns


def _exposed(measured: Measured, device: int) -> Intervals:
    return measured.exposed.get(device, union_of([], []))


def exchange(run: RunSummary, calibration: Calibration | None = None) -> Exchange:
    """Match and measure the communication of a run; `calibration` says what its links can do."""
    matching = match_run(run)
    clock = clocks(run, matching)
    transferred = transfers(matching, clock)
    return Exchange(run, calibration, matching, clock, transferred, peaks(matching, transferred, calibration))
