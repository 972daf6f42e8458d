"""Row types of collectives in the report, with their builders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, natural
from analyzers.collectives.bandwidth import bandwidth, copies, purposes
from analyzers.collectives.measured import Exchange
from analyzers.collectives.stragglers import STANDS_OUT, Reason, waiting
from analyzers.collectives.warnings import OTHERS_LACK_IT
from analyzers.rank import Purpose, device_label
from analyzers.ranks import RankNumber
from analyzers.trace import Collective


def clock_row(exchange: Exchange) -> ClockRow:
    """Return the clocks as the report has them."""
    ranks = [summary.rank for summary in exchange.run.ranks]
    by_rank = exchange.clocks.by_rank
    applied: list[int] = [rank for rank in ranks if rank in by_rank and by_rank[rank].applied]
    return ClockRow(
        offsets_ns={str(rank): by_rank[rank].offset_ns if rank in by_rank else None for rank in ranks},
        spread_ns={str(rank): by_rank[rank].spread_ns if rank in by_rank else None for rank in ranks},
        applied=bool(applied),
        applied_to=applied,
    )


def collective_rows(exchange: Exchange, bucket_of: Mapping[int, int]) -> list[CollectiveRow]:
    """Return every instance, by start; `bucket_of` instances (by index) that reduce DDP's buckets."""
    if not len(exchange.matching.instances):
        return []
    purpose = purposes(exchange.matching)
    return [
        _collective(exchange, index, int(purpose[number]), bucket_of.get(index))
        for index, number in enumerate(exchange.order.tolist())
    ]


def _collective(exchange: Exchange, index: int, purpose: int, bucket: int | None) -> CollectiveRow:
    instances, measured, limit = exchange.matching.instances, exchange.transfers, exchange.limit_gbps
    number = int(exchange.order[index])
    call, busbw, members = instances.call[number], _known(measured.busbw_gbps[number]), _members(exchange, number)
    group, name = _group(exchange, int(instances.group[number]), members)
    return CollectiveRow(
        index=index,
        kind=Collective(int(instances.kind[number])).label,
        group=group,
        group_name=name,
        group_size=int(measured.group_size[number]),
        dtype=call.dtype or None if call is not None else None,
        bytes=natural(measured.nbytes[number]),
        purpose=Purpose(purpose).label,
        step=natural(instances.window[number]),
        bucket=bucket,
        transfer_ns=natural(measured.transfer_ns[number]),
        bound=bool(measured.bound[number]),
        partial=bool(instances.partial[number]),
        algbw_gbps=_known(measured.algbw_gbps[number]),
        busbw_gbps=busbw,
        utilization_at_size=_known(busbw / exchange.peak_gbps[number]) if busbw is not None else None,
        utilization_of_link=busbw / limit if busbw is not None and limit and _is_whole(exchange, number) else None,
        members=members,
    )


def _members(exchange: Exchange, number: int) -> list[MemberRow]:
    """Return an instance's members; a copy's two devices share its one row."""
    instances, table, measured = exchange.matching.instances, exchange.matching.table, exchange.transfers
    entries = range(int(instances.first[number]), int(instances.first[number + 1]))
    members = []
    for entry in entries:
        row = instances.members[entry]
        devices = [(int(table.device[row]), int(table.exposed_ns[row]))]
        if table.peer[row] != UNKNOWN:
            devices.append((int(table.peer[row]), int(table.peer_exposed_ns[row])))
        members += [
            MemberRow(
                rank=int(table.rank[row]),
                device=device_label(device),
                start_ns=int(measured.start_ns[entry] - exchange.origin_ns),
                dur_ns=int(measured.end_ns[entry] - measured.start_ns[entry]),
                wait_ns=natural(measured.wait_ns[entry]),
                exposed_ns=exposed_ns,
            )
            for device, exposed_ns in devices
        ]
    return members


def _group(exchange: Exchange, group: int, members: list[MemberRow]) -> tuple[list[int], str]:
    """Return ranks and name of a group; for a copy the rank whose devices it joins."""
    if group < 0:
        return sorted({member.rank for member in members}), ""
    key = exchange.matching.table.groups[group]
    return list(key.ranks), key.name


def _is_whole(exchange: Exchange, number: int) -> bool:
    """Whether an instance is of the whole run: a part of it may have other links than calibration looked at."""
    return int(exchange.transfers.group_size[number]) == exchange.world_size


def unmatched_rows(exchange: Exchange) -> list[UnmatchedRow]:
    """Return every kernel that is in no instance, by start, and why."""
    table, matching = exchange.matching.table, exchange.matching
    start = table.start_ns - exchange.clocks.shift_ns(table.rank) - exchange.origin_ns
    rows = np.flatnonzero(matching.instance < 0)
    return [
        UnmatchedRow(
            rank=int(table.rank[row]),
            device=device_label(int(table.device[row])),
            kind=Collective(int(table.kind[row])).label,
            name=str(table.names[row]),
            start_ns=int(start[row]),
            dur_ns=int(table.end_ns[row] - table.start_ns[row]),
            step=natural(table.window[row]),
            why=matching.why.get(row, OTHERS_LACK_IT),
        )
        for row in rows[np.argsort(start[rows], kind="stable")].tolist()
    ]


def late_rank(exchange: Exchange) -> RankNumber | None:
    """Return the rank that the others wait for more than for any other, None where none stands out."""
    waits = waiting(exchange.matching, exchange.transfers, exchange.hosts_ahead)
    in_steps = waits.step != UNKNOWN
    numbers = np.array([summary.rank for summary in exchange.run.ranks])
    of_rank = np.searchsorted(numbers, waits.rank[in_steps])
    caused_ns = np.bincount(of_rank, waits.caused_ns[in_steps], len(numbers))
    stands_out = caused_ns.max() * len(numbers) >= STANDS_OUT * caused_ns.sum() > 0
    return RankNumber(int(numbers[caused_ns.argmax()])) if stands_out else None


def waiting_rows(exchange: Exchange) -> list[WaitingRow]:
    """Return what each device waited and caused, by step."""
    waits = waiting(exchange.matching, exchange.transfers, exchange.hosts_ahead)
    return [
        WaitingRow(
            rank=rank,
            device=device_label(device),
            step=natural(step),
            waited_ns=waited,
            caused_ns=caused,
            caused_by={reason.label: by for reason, by in zip(Reason, reasons, strict=True) if by},
        )
        for rank, device, step, waited, caused, reasons in zip(
            waits.rank.tolist(),
            waits.device.tolist(),
            waits.step.tolist(),
            waits.waited_ns.tolist(),
            waits.caused_ns.tolist(),
            waits.caused_by_ns.T.tolist(),
            strict=True,
        )
    ]


def bandwidth_rows(exchange: Exchange) -> list[BandwidthRow]:
    """Return instances by kind, group, size and purpose."""
    table = bandwidth(exchange.matching, exchange.transfers, exchange.peak_gbps)
    rows = []
    for k in range(len(table)):
        group, name = _group(exchange, int(table.group[k]), [])
        busbw, peak = _known(table.busbw_gbps[k]), _known(table.peak_gbps[k])
        rows.append(
            BandwidthRow(
                kind=Collective(int(table.kind[k])).label,
                group=group,
                group_name=name,
                group_size=int(table.group_size[k]),
                bytes=natural(table.nbytes[k]),
                purpose=Purpose(int(table.purpose[k])).label,
                count=int(table.count[k]),
                bound=bool(table.bound[k]),
                transfer_ns=_known(table.transfer_ns[k]),
                wait_ns=_known(table.wait_ns[k]),
                busbw_gbps=busbw,
                busbw_low_gbps=_known(table.low_gbps[k]),
                busbw_high_gbps=_known(table.high_gbps[k]),
                calibrated_gbps=peak,
                utilization_at_size=busbw / peak if busbw is not None and peak else None,
            )
        )
    return rows


def copy_rows(exchange: Exchange) -> list[CopyRow]:
    """Return copies that cross no two devices, by direction and size."""
    table = copies(exchange.run.measured)
    columns = (table.nbytes, table.count, table.gbps, table.low_gbps, table.high_gbps)
    values: list[tuple[Any, ...]] = list(zip(*(column.tolist() for column in columns), strict=True))
    return [CopyRow(direction, *row) for direction, row in zip(table.direction, values, strict=True)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


class MemberRow(msgspec.Struct, frozen=True):
    """One member's kernel in an instance, on the common clock."""

    rank: int
    device: int | str
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    exposed_ns: int

    @property
    def exposed_wait_ns(self) -> int:
        """Return the exposed waiting at most; 0 where the waiting is not known."""
        return min(self.wait_ns or 0, self.exposed_ns)

    @property
    def exposed_transfer_ns(self) -> int:
        """Return the exposed time beyond the waiting; 0 where the waiting is not known."""
        return 0 if self.wait_ns is None else max(self.exposed_ns - self.wait_ns, 0)


class CollectiveRow(msgspec.Struct, frozen=True):
    """One collective operation, seen from all its members. See docs/measuring.md; unknown is null."""

    index: int
    kind: str
    group: list[int]
    group_name: str
    group_size: int
    dtype: str | None
    bytes: int | None
    purpose: str
    step: int | None
    bucket: int | None
    transfer_ns: int | None
    bound: bool
    partial: bool
    algbw_gbps: float | None
    busbw_gbps: float | None
    utilization_at_size: float | None
    utilization_of_link: float | None
    members: list[MemberRow]

    @property
    def exposed_ns(self) -> int:
        """Return the exposed time of all members."""
        return sum(member.exposed_ns for member in self.members)

    @property
    def exposed_wait_ns(self) -> int:
        """Return the exposed waiting of all members."""
        return sum(member.exposed_wait_ns for member in self.members)

    @property
    def exposed_transfer_ns(self) -> int:
        """Return the exposed time of all members beyond their waiting."""
        return sum(member.exposed_transfer_ns for member in self.members)


class UnmatchedRow(msgspec.Struct, frozen=True):
    """A kernel that is in no instance, on the common clock, and why."""

    rank: int
    device: int | str
    kind: str
    name: str
    start_ns: int
    dur_ns: int
    step: int | None
    why: str


class BandwidthRow(msgspec.Struct, frozen=True):
    """Instances of one kind, group, size and purpose: medians over them, busbw with its quartiles."""

    kind: str
    group: list[int]
    group_name: str
    group_size: int
    bytes: int | None
    purpose: str
    count: int
    bound: bool
    transfer_ns: float | None
    wait_ns: float | None
    busbw_gbps: float | None
    busbw_low_gbps: float | None
    busbw_high_gbps: float | None
    calibrated_gbps: float | None
    utilization_at_size: float | None


class WaitingRow(msgspec.Struct, frozen=True):
    """What one device waited for others in a step, and what all others waited for it, by what kept it."""

    rank: int
    device: int | str
    step: int | None
    waited_ns: int
    caused_ns: int
    caused_by: dict[str, int]


class CopyRow(msgspec.Struct, frozen=True):
    """Copies of one direction and size."""

    direction: str
    bytes: int
    count: int
    gbps: float
    low_gbps: float
    high_gbps: float


class ClockRow(msgspec.Struct, frozen=True):
    """Ranks' clocks against the lowest rank's, by rank; null where ranks share no synchronizing collective.

    `applied` says whether any offset was taken off the rank's times, `applied_to` which.
    """

    offsets_ns: dict[str, int | None]
    spread_ns: dict[str, int | None]
    applied: bool
    applied_to: list[int]

    @property
    def apart_ns(self) -> int | None:
        """Return how far apart comparable ranks' clocks are at most; None for fewer than two."""
        offsets = [offset for offset in self.offsets_ns.values() if offset is not None]
        return max(offsets) - min(offsets) if len(offsets) > 1 else None

    @property
    def widest_spread_ns(self) -> int:
        """Return the widest spread of those clocks."""
        return max((spread for spread in self.spread_ns.values() if spread is not None), default=0)
