"""Row types of collectives in the report, with their builders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, begins, labels, typed_rows
from analyzers.collectives.bandwidth import bandwidth, copies, purposes
from analyzers.collectives.measured import Exchange
from analyzers.collectives.waits import waiting
from analyzers.collectives.warnings import OTHERS_LACK_IT
from analyzers.rank import Purpose, device_labels
from analyzers.statistics import whole
from analyzers.trace import Collective
from analyzers.units import count, us


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
    instances, measured, order = exchange.matching.instances, exchange.transfers, exchange.order
    of_instance = _build_members(exchange)
    members = [of_instance[number] for number in order.tolist()]
    groups = [
        _group_of(exchange, group, listed)
        for group, listed in zip(instances.group[order].tolist(), members, strict=True)
    ]
    calls = [instances.call[number] for number in order.tolist()]
    busbw_gbps, size = measured.busbw_gbps[order], measured.group_size[order]
    # A part of the run may have other links than calibration looked at.
    limit_gbps = np.where(size == exchange.world_size, exchange.limit_gbps or np.nan, np.nan)
    return typed_rows(
        CollectiveRow,
        index=np.arange(len(order)),
        kind=labels(Collective, instances.kind[order]),
        group=[ranks for ranks, _ in groups],
        group_name=[name for _, name in groups],
        group_size=size,
        dtype=[call.dtype or None if call is not None else None for call in calls],
        bytes=measured.nbytes[order],
        purpose=labels(Purpose, purposes(exchange.matching)[order]),
        step=instances.window[order],
        bucket=[bucket_of.get(index) for index in range(len(order))],
        transfer_ns=measured.transfer_ns[order],
        bound=measured.bound[order],
        partial=instances.partial[order],
        algbw_gbps=measured.algbw_gbps[order],
        busbw_gbps=busbw_gbps,
        utilization_at_size=busbw_gbps / exchange.peak_gbps[order],
        utilization_of_link=busbw_gbps / limit_gbps,
        why=[_unresolved_because(exchange, number) for number in order.tolist()],
        members=members,
    )


def _unresolved_because(exchange: Exchange, number: int) -> str | None:
    """Return why time of an instance is unresolved, None where none is."""
    instances, measured = exchange.matching.instances, exchange.transfers
    if measured.apart_ns[number]:
        return f"the ends of its members lie {us(int(measured.apart_ns[number]))} apart on one clock"
    if instances.partial[number]:
        key = exchange.matching.table.groups[instances.group[number]]
        return f"{key.size - len(key.members)} of its {count(key.size, 'member')} are not in the run"
    unprofiled_ns = int(measured.unprofiled_ns[instances.first[number] : instances.first[number + 1]].max())
    return f"a member waited {us(unprofiled_ns)} before another's profile began" if unprofiled_ns else None


def _build_members(exchange: Exchange) -> list[list[MemberRow]]:
    """Return each instance's members; a copy's two devices share its one row."""
    instances, table, measured = exchange.matching.instances, exchange.matching.table, exchange.transfers
    entry = np.repeat(np.arange(len(instances.members)), 1 + (table.peer[instances.members] != UNKNOWN))
    row, is_peer = instances.members[entry], ~begins(entry)
    # A copy waits for nobody on either device.
    exposed_transfer_ns = np.where(is_peer, table.peer_exposed_ns[row], exchange.exposed_transfer_ns[row])
    rows = typed_rows(
        MemberRow,
        rank=table.rank[row],
        device=device_labels(np.where(is_peer, table.peer[row], table.device[row])),
        start_ns=measured.start_ns[entry] - exchange.origin_ns,
        dur_ns=measured.end_ns[entry] - measured.start_ns[entry],
        wait_ns=measured.wait_ns[entry],
        exposed_ns=np.where(is_peer, table.peer_exposed_ns[row], table.exposed_ns[row]),
        exposed_wait_ns=np.where(exposed_transfer_ns >= 0, exchange.exposed_wait_ns[row], UNKNOWN),
        exposed_transfer_ns=exposed_transfer_ns,
    )
    return [rows[begin:end] for begin, end in pairwise(np.searchsorted(entry, instances.first).tolist())]


def _group_of(exchange: Exchange, group: int, members: list[MemberRow]) -> tuple[list[int], str]:
    """Return ranks and name of a group; for a copy the rank whose devices it joins."""
    if group < 0:
        return sorted({member.rank for member in members}), ""
    key = exchange.matching.table.groups[group]
    return list(key.ranks), key.name


def unmatched_rows(exchange: Exchange) -> list[UnmatchedRow]:
    """Return every kernel that is in no instance, by start, and why."""
    table, matching = exchange.matching.table, exchange.matching
    start_ns = table.start_ns - exchange.clocks.shift_ns(table.rank) - exchange.origin_ns
    rows = np.flatnonzero(matching.instance < 0)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    return typed_rows(
        UnmatchedRow,
        rank=table.rank[rows],
        device=device_labels(table.device[rows]),
        kind=labels(Collective, table.kind[rows]),
        name=table.names[rows],
        start_ns=start_ns[rows],
        dur_ns=table.end_ns[rows] - table.start_ns[rows],
        step=table.window[rows],
        why=[matching.why.get(row, OTHERS_LACK_IT) for row in rows.tolist()],
    )


def waiting_rows(exchange: Exchange) -> list[WaitingRow]:
    """Return what each device waited and caused, by step."""
    waits = waiting(exchange.matching, exchange.transfers)
    return typed_rows(WaitingRow, waits, device=device_labels(waits.device))


def bandwidth_rows(exchange: Exchange) -> list[BandwidthRow]:
    """Return instances by kind, group, size and purpose."""
    table = bandwidth(exchange.matching, exchange.transfers, exchange.peak_gbps)
    groups = [_group_of(exchange, group, []) for group in table.group.tolist()]
    return typed_rows(
        BandwidthRow,
        table,
        kind=labels(Collective, table.kind),
        group=[ranks for ranks, _ in groups],
        group_name=[name for _, name in groups],
        bytes=table.nbytes,
        purpose=labels(Purpose, table.purpose),
        busbw_low_gbps=table.low_gbps,
        busbw_high_gbps=table.high_gbps,
        calibrated_gbps=table.peak_gbps,
        utilization_at_size=table.busbw_gbps / np.where(table.peak_gbps == 0, np.nan, table.peak_gbps),
    )


def copy_rows(exchange: Exchange) -> list[CopyRow]:
    """Return copies that cross no two devices, by direction and size."""
    table = copies(exchange.run.measured)
    return typed_rows(CopyRow, table, direction=[*table.direction], bytes=table.nbytes)


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [*values]
    return None if None in known else sum(value for value in known if value is not None)


class MemberRow(msgspec.Struct, frozen=True):
    """One member's kernel.

    `exposed_ns`: waiting, then transfer. `exposed_wait_ns`, `exposed_transfer_ns`: null where some is unresolved.
    """

    rank: int
    device: int | str
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    exposed_ns: int
    # Of documents that were written before these keys were: not known.
    exposed_wait_ns: int | None = None
    exposed_transfer_ns: int | None = None


class CollectiveRow(msgspec.Struct, frozen=True):
    """One collective operation: docs/measuring.md, One collective, seen from all ranks.

    `kind`: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `dispatch`, `combine`, `broadcast`, `reduce`,
    `gather`, `scatter`, `send_recv`, `barrier`, `other`. `group`: ranks, of nn.DataParallel devices. `group_size`: with
    ranks that are not in the run. `purpose`: `gradients`, `buffers`, `parameters`, `inputs`, `activations`, `messages`,
    `attention`, `tokens`, `norms`, `other`. `why`: it is unresolved.
    """

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
    why: str | None
    members: list[MemberRow]

    @property
    def calibrated_gbps(self) -> float | None:
        """Return what calibration measured for its kind, group size and bytes."""
        return whole(self.busbw_gbps, self.utilization_at_size)

    @property
    def link_gbps(self) -> float | None:
        """Return the own rate of the link that it is known to use."""
        return whole(self.busbw_gbps, self.utilization_of_link)

    @property
    def exposed_ns(self) -> int:
        """Return the exposed time of all members."""
        return sum(member.exposed_ns for member in self.members)

    @property
    def waited_ns(self) -> int | None:
        """Return what all members waited; None where that of one is not known."""
        return _sum_known(member.wait_ns for member in self.members)

    @property
    def exposed_wait_ns(self) -> int | None:
        """Return the exposed waiting of all members; None where that of one is not known."""
        return _sum_known(member.exposed_wait_ns for member in self.members)

    @property
    def exposed_transfer_ns(self) -> int | None:
        """Return the exposed transfer of all members; None where that of one is not known."""
        return _sum_known(member.exposed_transfer_ns for member in self.members)


class UnmatchedRow(msgspec.Struct, frozen=True):
    """A communication kernel in no instance."""

    rank: int
    device: int | str
    kind: str
    name: str
    start_ns: int
    dur_ns: int
    step: int | None
    why: str


class BandwidthRow(msgspec.Struct, frozen=True):
    """Instances of one kind, group, size and purpose: medians, busbw with quartiles."""

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
    """How long one device waited in a step, and how long all others waited for it.

    `caused_ns`: what others waited for it.
    """

    rank: int
    device: int | str
    step: int | None
    waited_ns: int
    caused_ns: int


class CopyRow(msgspec.Struct, frozen=True):
    """Copies of one direction, such as `HtoD (Pinned -> Device)`, and size."""

    direction: str
    bytes: int
    count: int
    gbps: float
    low_gbps: float
    high_gbps: float


class ClockRow(msgspec.Struct, frozen=True):
    """How far ranks' clocks are ahead of the lowest rank's.

    `offsets_ns`: ahead of the lowest rank; null if no collective ties them.
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
