"""What the report says of communication: rows and warnings, from `analyzers.exchange`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from analyzers.activity import device_label
from analyzers.bandwidth import bandwidth, copies, purposes, unsized
from analyzers.calls import Collective
from analyzers.communication import Purpose
from analyzers.document import Clock
from analyzers.entries import BandwidthRow, CollectiveRow, CopyRow, MemberRow, UnmatchedRow, WaitingRow
from analyzers.events import UNKNOWN
from analyzers.exchange import Exchange
from analyzers.recording import UTILIZATION_IS_NULL
from analyzers.units import ms, percent
from analyzers.waiting import Reason, waiting

# From this share of communication on, what is in no instance is worth a warning.
MUCH_UNMATCHED = 0.005
OTHERS_LACK_IT = "another member of its group has no kernel for it"


def clock_row(found: Exchange) -> Clock:
    """The clocks as the report has them."""
    ranks = [summary.rank for summary in found.run.ranks]
    known = found.clocks.by_rank
    applied = [rank for rank in ranks if rank in known and known[rank].applied]
    return Clock(
        offsets_ns={str(rank): known[rank].offset_ns if rank in known else None for rank in ranks},
        spread_ns={str(rank): known[rank].spread_ns if rank in known else None for rank in ranks},
        applied=bool(applied),
        applied_to=applied,
    )


def collective_rows(found: Exchange, bucket_of: Mapping[int, int]) -> list[CollectiveRow]:
    """Every instance, by start; `bucket_of` instances (by index) that reduce DDP's buckets."""
    if not len(found.matching.instances):
        return []
    purpose = purposes(found.matching)
    return [
        _collective(found, index, int(purpose[number]), bucket_of.get(index))
        for index, number in enumerate(found.order.tolist())
    ]


def _collective(found: Exchange, index: int, purpose: int, bucket: int | None) -> CollectiveRow:
    instances, measured, limit = found.matching.instances, found.transfers, found.limit_gbps
    number = int(found.order[index])
    call, busbw, members = instances.call[number], _known(measured.busbw_gbps[number]), _members(found, number)
    group, name = _group(found, int(instances.group[number]), members)
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
        utilization_at_size=_known(busbw / found.peak_gbps[number]) if busbw is not None else None,
        utilization_of_link=busbw / limit if busbw is not None and limit and _is_whole(found, number) else None,
        members=members,
    )


def _members(found: Exchange, number: int) -> list[MemberRow]:
    """An instance's members; a copy's two devices share its one row."""
    instances, table, measured = found.matching.instances, found.matching.table, found.transfers
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
                start_ns=int(measured.start_ns[entry] - found.origin_ns),
                dur_ns=int(measured.end_ns[entry] - measured.start_ns[entry]),
                wait_ns=natural(measured.wait_ns[entry]),
                exposed_ns=exposed_ns,
            )
            for device, exposed_ns in devices
        ]
    return members


def _group(found: Exchange, group: int, members: list[MemberRow]) -> tuple[list[int], str]:
    """Ranks and name of a group; of a copy the rank whose devices it joins."""
    if group < 0:
        return sorted({member.rank for member in members}), ""
    key = found.matching.table.groups[group]
    return list(key.ranks), key.name


def _is_whole(found: Exchange, number: int) -> bool:
    """Whether an instance is of the whole run: a part of it may have other links than calibration looked at."""
    return int(found.transfers.group_size[number]) == found.world_size


def unmatched_rows(found: Exchange) -> list[UnmatchedRow]:
    """Every kernel that is in no instance, by start, and why."""
    table, matching = found.matching.table, found.matching
    start = table.start_ns - found.clocks.shift_ns(table.rank) - found.origin_ns
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


def waiting_rows(found: Exchange) -> list[WaitingRow]:
    """What each device waited and caused, by step."""
    waits = waiting(found.matching, found.transfers)
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


def bandwidth_rows(found: Exchange) -> list[BandwidthRow]:
    """Instances by kind, group, size and purpose."""
    table = bandwidth(found.matching, found.transfers, found.peak_gbps)
    rows = []
    for k in range(len(table)):
        group, name = _group(found, int(table.group[k]), [])
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


def copy_rows(found: Exchange) -> list[CopyRow]:
    """Copies that cross no two devices, by direction and size."""
    table = copies(found.run.measured)
    columns = (table.nbytes, table.count, table.gbps, table.low_gbps, table.high_gbps)
    values: list[tuple[Any, ...]] = list(zip(*(column.tolist() for column in columns), strict=True))
    return [CopyRow(direction, *row) for direction, row in zip(table.direction, values, strict=True)]


def exchange_warnings(found: Exchange) -> list[str]:
    """What of the communication is null or doubtful, and why."""
    return [
        *_clock_warnings(found),
        *_numbering_warnings(found),
        *_blurred_warnings(found),
        *_partial_warnings(found),
        *_unmatched_warnings(found),
        *_size_warnings(found),
        *_traffic_warnings(found),
        *_link_warnings(found),
    ]


def _clock_warnings(found: Exchange) -> list[str]:
    applied = {rank: clock for rank, clock in found.clocks.by_rank.items() if clock.applied}
    if not applied:
        return []
    farthest = max(applied, key=lambda rank: abs(applied[rank].offset_ns))
    clock = applied[farthest]
    which = f"rank {farthest}'s clock is {ms(clock.offset_ns)} off rank {found.clocks.reference}'s"
    shifted = f"{len(applied)} of {len(found.run.ranks)}"
    return [f"clocks differ: {which} (spread {ms(clock.spread_ns)}); times of {shifted} ranks are shifted by theirs"]


def _numbering_warnings(found: Exchange) -> list[str]:
    return [
        f"rank {rank} numbers its steps {abs(by)} {'higher' if by > 0 else 'lower'} than the other ranks: "
        "its collectives are matched by their ends, its windows have its own numbers"
        for rank, by in found.matching.renumbered_by.items()
    ]


def _blurred_warnings(found: Exchange) -> list[str]:
    """Transfers that clocks do not tell, and ranks whose clocks are not known."""
    unknown = [summary.rank for summary in found.run.ranks if summary.rank not in found.clocks.by_rank]
    blurred = found.transfers.transfer_ns < 0
    words = []
    if unknown:
        which = ", ".join(map(str, unknown[:8])) + (", ..." if len(unknown) > 8 else "")
        words.append(
            f"the clock of rank {which} is unknown: no synchronizing collective leads to rank {found.clocks.reference}"
        )
    if blurred.any():
        kinds = sorted({Collective(kind).label for kind in found.matching.instances.kind[blurred].tolist()})
        words.append(
            f"{int(blurred.sum())} collectives ({', '.join(kinds)}) have no transfer: ranks' clocks are not known to a "
            "tenth of it; in windows their time counts as transfer"
        )
    return words


def _partial_warnings(found: Exchange) -> list[str]:
    """Collectives some of whose members are not in the run."""
    partial = found.matching.instances.partial
    if not partial.any():
        return []
    return [
        f"{int(partial.sum())} of {len(partial)} collectives have members that are not in the run: their transfer is "
        "an upper bound, and waiting a lower one"
    ]


def _unmatched_warnings(found: Exchange) -> list[str]:
    share = found.unmatched_share or 0.0
    rows = np.flatnonzero(found.matching.instance < 0)
    if share < MUCH_UNMATCHED or not len(rows):
        return []
    reasons = Counter(found.matching.why.get(row, OTHERS_LACK_IT) for row in rows.tolist())
    most = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common(3))
    return [
        f"{len(rows)} of {len(found.matching.table)} kernels of communication ({percent(share)} of its time) are "
        f"matched with none on other ranks, and count as transfer ({most})"
    ]


def _size_warnings(found: Exchange) -> list[str]:
    with_bytes = found.matching.instances.kind != Collective.BARRIER
    sizeless = (found.transfers.nbytes < 0) & with_bytes
    timeless = (found.transfers.transfer_ns == 0) & with_bytes & ~sizeless
    reasons = {"no trace says how many bytes": sizeless, "their transfer takes 0 ns": timeless}
    return [
        f"{int(which.sum())} of {len(which)} collectives have no bandwidth: {reason}"
        for reason, which in reasons.items()
        if which.any()
    ]


def _traffic_warnings(found: Exchange) -> list[str]:
    splits = "; uneven ones of all_to_all have to say their splits"
    return [
        f"traffic.{purpose.label} is null: no trace says how many bytes {unknown} of its {count} collectives, counted "
        f"rank by rank, have ({', '.join(kinds)}{splits if 'all_to_all' in kinds else ''})"
        for purpose, (unknown, count, kinds) in unsized(found.matching, found.transfers).items()
    ]


def _link_warnings(found: Exchange) -> list[str]:
    if not len(found.matching.instances):
        return []
    if found.calibration is None and any(UTILIZATION_IS_NULL in warning for warning in found.run.warnings):
        return []  # the run's own file is broken, and that is said
    if found.calibration is None:
        return ["no calibration of the links: utilization is null; give one with --links (`tracer calibrate` makes it)"]
    links = found.calibration.links
    words = _other_links(found)
    if found.limit_gbps is None:
        source = links.source if links is not None and not found.is_of_other_links else None
        reason = source or "its own rate is not known"
        words.append(f"utilization of the link is null: {reason}")
    return words


def _other_links(found: Exchange) -> list[str]:
    """Links that were measured between other devices than the run's, or over another transport."""
    links = found.calibration.links if found.calibration is not None else None
    measured = set(links.devices) if links is not None else set()
    own = {name for summary in found.run.ranks for name in summary.header.device_names}
    own |= set(found.run.manifest.devices) if found.run.manifest is not None else set()
    words = []
    if measured and own and not measured & own:
        words.append(
            f"the links were calibrated between {', '.join(sorted(measured))}, and this run's are "
            f"{', '.join(sorted(own))}"
        )
    if found.is_of_other_links and links is not None and found.run.manifest is not None:
        words.append(
            f"the links were calibrated over {links.transport}, and this run went over {found.run.manifest.transport}: "
            "utilization is against other links than its own"
        )
    return words


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def natural(value: int | np.int64) -> int | None:
    """A length, number or instant, null where it is -1."""
    return None if value < 0 else int(value)
