"""`Exchange`: a run's instances, clocks, transfers, bandwidths and waiting.

matching -> clocks -> transfers -> what calibration says of such sizes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, WIDEST, Columns, Int64, Mask, find, joint, values_at
from analyzers.collectives.bandwidth import peaks, sizes
from analyzers.collectives.clocks import Clocks, clocks
from analyzers.collectives.matching import Matching, match_run
from analyzers.collectives.transfer import Transfers, is_resolved, moving_since, moving_until, transfers
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.rank import Breakdown, RunSummary
from analyzers.ranks import RankIndex, RankNumber
from analyzers.run import Calibration, world_size
from analyzers.texts import brief


@dataclass(frozen=True, eq=False)
class Exchange:
    """The communication of a run, matched, on one clock, and measured."""

    run: RunSummary
    calibration: Calibration | None
    matching: Matching
    clocks: Clocks
    transfers: Transfers
    peak_gbps: NDArray[np.float64]

    __repr__ = brief

    @cached_property
    def begun_ns(self) -> dict[int, int]:
        """Return each rank's earliest event on the common clock."""
        return began(self.run, self.clocks)

    @cached_property
    def origin_ns(self) -> int:
        """Return the run's earliest event on the common clock."""
        return min(self.begun_ns.values())

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
        return values_at(self.transfers.wait_ns, entry)

    @cached_property
    def _moving_since(self) -> Int64:
        return moving_since(self.matching, self.transfers)

    @cached_property
    def _moving_until(self) -> Int64:
        return moving_until(self.matching, self.transfers)

    @cached_property
    def is_resolved(self) -> Mask:
        """Whether what each row of the table takes after its waiting is transfer, rather than unresolved."""
        return is_resolved(self.matching, self.transfers)

    @cached_property
    def exposed_wait_ns(self) -> Int64:
        """Return what no compute hides of each table row before its last member came; 0 where no wait is known."""
        table, waited = self.matching.table, np.zeros(len(self.matching.table), dtype=np.int64)
        until = np.minimum(self._moving_since, table.end_ns)
        for index, _, measured in self.run.numbered():
            for device, exposed in measured.exposed.items():
                rows = self.rows_of(index, device)
                waited[rows] = exposed.length_within(table.start_ns[rows], until[rows])
        return waited

    @cached_property
    def exposed_transfer_ns(self) -> Int64:
        """Return what no compute hides of each table row behind its waiting; -1 where some of it is unresolved."""
        table = self.matching.table
        is_whole = (self._moving_until >= table.end_ns) & (self._profiled_since <= table.start_ns)
        return np.where(self.is_resolved & is_whole, table.exposed_ns - self.exposed_wait_ns, UNKNOWN)

    @cached_property
    def _profiled_since(self) -> Int64:
        """Return for each row of the table when all its members' profiles had begun, at its start at the earliest."""
        begun = self.matching.table.start_ns.copy()
        begun[self.matching.instances.members] += self.transfers.unprofiled_ns
        return begun

    def rows_of(self, index: RankIndex, device: int) -> Int64:
        """Return the table rows that one device of a rank takes part in."""
        table, low = self.matching.table, int(self.first_row[index])
        high = low + len(self.run.measured[index].communication)
        rows: Int64 = low + np.flatnonzero((table.device[low:high] == device) | (table.peer[low:high] == device))
        return rows

    def exposed(self, index: RankIndex, device: int) -> Exposed:
        """Return when a device of a rank communicated and did not compute, in its three parts, on its own clock.

        comm         wwwwttttuuuu    what is left of waiting and unresolved time begins where a transfer beside it
        transfer     ....tttt....    ends
        """
        rows = self.rows_of(index, device)
        comm = self.run.measured[index].exposed.get(device, EMPTY)
        return _divide_exposed(comm, *self._moved(rows)[1:])

    def _moved(self, rows: Int64) -> tuple[Int64, Int64, Int64, Mask]:
        """Return what rows of the table do but wait: whose, since when, until when, if it is transfer.

        `whose` is a place among the rows. What was cut may go on when its instance has ended, and what a member waited
        before another's profile had begun is nobody's: both are unresolved.
        """
        table = self.matching.table
        start_ns, end_ns, until, profiled = (
            column[rows] for column in (table.start_ns, table.end_ns, self._moving_until, self._profiled_since)
        )
        beyond, before = np.flatnonzero(until < end_ns), np.flatnonzero(profiled > start_ns)
        whose = np.r_[np.arange(len(rows)), beyond, before]
        resolved = np.r_[self.is_resolved[rows], np.zeros(len(beyond) + len(before), dtype=bool)]
        since = np.r_[self._moving_since[rows], until[beyond], start_ns[before]]
        return whose, since, np.r_[until, end_ns[beyond], profiled[before]], resolved

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

    @cached_property
    def transfer_is_bound(self) -> bool:
        """Whether some exposed transfer is a bound: of a one-way kind, all of whose members are in the run."""
        instances, table = self.matching.instances, self.matching.table
        shown = ~self.matching.synchronizes & ~instances.partial & (instances.group >= 0) & (instances.window >= 0)
        rows = instances.members[shown[instances.of_member]]
        return bool((table.exposed_ns[rows] > 0).any())

    @property
    def unmatched_share(self) -> float | None:
        """Return the time of kernels in no instance over the time of all, added; None without communication."""
        table = self.matching.table
        dur_ns = table.end_ns - table.start_ns
        return float(dur_ns[self.matching.instance < 0].sum() / dur_ns.sum()) if dur_ns.sum() else None

    def in_windows(self, rows: Breakdown) -> ExposedParts:
        """Return for each window the parts of its exposed communication, and communication in no instance."""
        parts = np.zeros((len(fields(ExposedParts)), len(rows)), dtype=np.int64)
        for devices in _side_by_side([*rows.by_device()], rows):
            windows, of_window = devices.windows, devices.of_window
            start = devices.moved(rows.start_ns[windows], of_window)
            times = self._on_one_axis(devices)
            parts[:, windows] = [time.length_within(start, start + rows.span_ns[windows]) for time in times]
        return ExposedParts(*parts)

    def _on_one_axis(self, devices: _SideBySide) -> tuple[Intervals, Intervals, Intervals, Intervals]:
        """Return waiting, transfer, unresolved and unmatched time of devices one behind another."""
        table = self.matching.table
        peers = np.flatnonzero(table.peer != UNKNOWN)
        rows = np.r_[np.arange(len(table)), peers]
        device = devices.of(table.rank[rows], np.r_[table.device, table.peer[peers]])
        rows, device = rows[device >= 0], device[device >= 0]
        index_of = {number: index for index, number, _ in self.run.numbered()}
        exposed = [self.run.measured[index_of[number]].exposed.get(which, EMPTY) for number, which in devices.places]
        of_comm = np.repeat(np.arange(len(exposed)), [len(one) for one in exposed])
        comm = union_of(
            devices.moved(np.concatenate([one.start for one in exposed]), of_comm),
            devices.moved(np.concatenate([one.end for one in exposed]), of_comm),
        )
        start, end = (devices.moved(instants[rows], device) for instants in (table.start_ns, table.end_ns))
        whose, since, until, resolved = self._moved(rows)
        since, until = (devices.moved(instants, device[whose]) for instants in (since, until))
        parts = _divide_exposed(comm, since, until, resolved)
        lost = self.matching.instance[rows] < 0
        return parts.waiting, parts.transfer, parts.unresolved, union_of(start[lost], end[lost])


@dataclass(frozen=True, eq=False)
class _SideBySide:
    """Devices whose times are put one behind another on one axis, so that all are looked at together.

        device 0    ..##.#
        device 1           .##..#

    `windows` are theirs, device by device, and `of_window` says whose each is. Each device's time from `low_ns` to
    `high_ns`, in which its windows are, begins at `begin_ns`; what is before or after is left out.
    """

    places: list[tuple[RankNumber, int]]
    windows: Int64
    of_window: Int64
    low_ns: Int64
    high_ns: Int64
    begin_ns: Int64

    def moved(self, instants: Int64, device: Int64) -> Int64:
        """Return instants of devices, by their places, on the axis."""
        low_ns = self.low_ns[device]
        moved: Int64 = np.clip(instants, low_ns, self.high_ns[device]) - low_ns + self.begin_ns[device]
        return moved

    def of(self, rank: Int64, device: Int64) -> Int64:
        """Return the place of each rank's device, -1 where it is not here."""
        keys = joint(
            *(np.r_[column, more] for column, more in zip(np.array(self.places).T, (rank, device), strict=True))
        )
        return find(keys[: len(self.places)], keys[len(self.places) :])


def _side_by_side(devices: Sequence[tuple[tuple[RankNumber, int], Int64]], rows: Breakdown) -> Iterator[_SideBySide]:
    """Yield devices with their windows, as many at once as there is room for on the axis."""
    low_ns = [int(rows.start_ns[windows].min()) for _, windows in devices]
    high_ns = [int((rows.start_ns[windows] + rows.span_ns[windows]).max()) for _, windows in devices]
    # Between two devices lies a nanosecond, so that nothing of theirs touches.
    ends = [*accumulate(high - low + 1 for low, high in zip(low_ns, high_ns, strict=True))]
    for _, places in groupby(range(len(devices)), key=lambda place: ends[place] // WIDEST):
        some = [*places]
        windows = [devices[place][1] for place in some]
        low, high = (np.array([edges[place] for place in some], dtype=np.int64) for edges in (low_ns, high_ns))
        extent = high - low + 1
        yield _SideBySide(
            [devices[place][0] for place in some],
            np.concatenate(windows),
            np.repeat(np.arange(len(some)), [len(one) for one in windows]),
            low,
            high,
            np.cumsum(extent) - extent,
        )


def _divide_exposed(comm: Intervals, since: Int64, end: Int64, resolved: Mask) -> Exposed:
    """Divide exposed communication by when each of its kernels moved data, and whether that is known."""
    transfer = union_of(since[resolved], end[resolved]) & comm
    unresolved = (union_of(since[~resolved], end[~resolved]) & comm) - transfer
    return Exposed(comm - (transfer | unresolved), transfer, unresolved)


@dataclass(frozen=True, eq=False)
class Exposed:
    """Exposed communication of one device in three parts that add up to it; disjoint."""

    waiting: Intervals
    transfer: Intervals
    unresolved: Intervals


@dataclass(frozen=True, eq=False)
class ExposedParts(Columns):
    """For each window, in ns: waiting, transfer and unresolved, which add up to exposed communication.

    `unmatched_comm_ns` is all communication in no instance, exposed or not, as a union.
    """

    exposed_wait_ns: Int64
    exposed_transfer_ns: Int64
    exposed_unresolved_ns: Int64
    unmatched_comm_ns: Int64


def began(run: RunSummary, clock: Clocks) -> dict[int, int]:
    """Return each rank's earliest event on the common clock."""
    return {number: measured.earliest_ns - clock.shift_of(number) for _, number, measured in run.numbered()}


def exchange(run: RunSummary, calibration: Calibration | None = None) -> Exchange:
    """Match and measure the communication of a run; `calibration` says what its links can do.

    Its `run` has one number for a step on all ranks where steps were inferred.
    """
    matching = match_run(run)
    higher_by = _find_numbering(run, matching.renumbered_by)
    if higher_by:
        run = replace(run, ranks=tuple(rank.renumbered(higher_by.get(rank.rank, 0)) for rank in run.ranks))
        matching = match_run(run)
    clock = clocks(run, matching)
    transferred = transfers(matching, clock, began(run, clock))
    found = Exchange(run, calibration, matching, clock, transferred, peaks(matching, transferred, calibration))
    return replace(found, transfers=_within(transferred, found.limit_gbps, found.world_size))


def _find_numbering(run: RunSummary, renumbered_by: Mapping[int, int]) -> dict[RankNumber, int]:
    """Return how much higher inferred steps' numbers have to be, by rank, for a step to have one number on all ranks.

    Numbers that are marked stay. Where none are, the step in which the first rank begins is 0. None becomes lower: each
    rank's first is 0.
    """
    marked = Counter(renumbered_by.get(rank.rank, 0) for rank in run.ranks if rank.inferred is None)
    usual = marked.most_common(1)[0][0] if marked else max([0, *renumbered_by.values()])
    higher_by = {rank.rank: usual - renumbered_by.get(rank.rank, 0) for rank in run.ranks if rank.inferred is not None}
    return {rank: by for rank, by in higher_by.items() if by > 0} if renumbered_by else {}


def _within(transferred: Transfers, limit_gbps: float | None, world_size: int) -> Transfers:
    """Leave out bandwidths above the link's own rate: no link gave them. A part of the run may have other links."""
    of_all = transferred.group_size == world_size
    too_much = of_all & (transferred.busbw_gbps > (np.inf if limit_gbps is None else limit_gbps))
    algbw_gbps, busbw_gbps = (np.where(too_much, np.nan, of) for of in (transferred.algbw_gbps, transferred.busbw_gbps))
    return replace(transferred, algbw_gbps=algbw_gbps, busbw_gbps=busbw_gbps)
