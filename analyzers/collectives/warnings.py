"""Warnings about matching, clocks, sizes and links."""

from __future__ import annotations

from collections import Counter

import numpy as np

from analyzers.collectives.bandwidth import unsized
from analyzers.collectives.measured import Exchange
from analyzers.notices import Code, Notice
from analyzers.trace import Collective
from analyzers.units import ms, percent

# From this share of communication on, what is in no instance is worth a warning.
MUCH_UNMATCHED = 0.005
OTHERS_LACK_IT = "another member of its group has no kernel for it"


def exchange_warnings(found: Exchange) -> list[Notice]:
    """Say what of the communication is null or doubtful, and why."""
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


def _clock_warnings(found: Exchange) -> list[Notice]:
    applied = {rank: clock for rank, clock in found.clocks.by_rank.items() if clock.applied}
    if not applied:
        return []
    farthest = max(applied, key=lambda rank: abs(applied[rank].offset_ns))
    clock = applied[farthest]
    which = f"rank {farthest}'s clock is {ms(clock.offset_ns)} off rank {found.clocks.reference}'s"
    shifted = f"{len(applied)} of {len(found.run.ranks)}"
    words = f"clocks differ: {which} (spread {ms(clock.spread_ns)}); times of {shifted} ranks are shifted by theirs"
    return [Notice(Code.CLOCKS_DIFFER, words)]


def _numbering_warnings(found: Exchange) -> list[Notice]:
    therefore = "its collectives are matched by their ends, its windows have its own numbers"
    words = [
        f"rank {rank} numbers its steps {abs(by)} {'higher' if by > 0 else 'lower'} than the other ranks: {therefore}"
        for rank, by in found.matching.renumbered_by.items()
    ]
    return [Notice(Code.STEPS_NUMBERED_APART, each) for each in words]


def _blurred_warnings(found: Exchange) -> list[Notice]:
    """Name transfers that clocks do not tell, and ranks whose clocks are not known."""
    unknown = [summary.rank for summary in found.run.ranks if summary.rank not in found.clocks.by_rank]
    blurred = found.transfers.transfer_ns < 0
    notices = []
    if unknown:
        which = ", ".join(map(str, unknown[:8])) + (", ..." if len(unknown) > 8 else "")
        words = f"the clock of rank {which} is unknown: no synchronizing collective leads to rank "
        notices.append(Notice(Code.CLOCK_IS_UNKNOWN, f"{words}{found.clocks.reference}"))
    if blurred.any():
        kinds = sorted({Collective(kind).label for kind in found.matching.instances.kind[blurred].tolist()})
        words = f"{int(blurred.sum())} collectives ({', '.join(kinds)}) have no transfer: ranks' clocks are not "
        notices.append(
            Notice(Code.TRANSFER_IS_NULL, f"{words}known to a tenth of it; in windows their time counts as transfer")
        )
    return notices


def _partial_warnings(found: Exchange) -> list[Notice]:
    """Collectives some of whose members are not in the run."""
    partial = found.matching.instances.partial
    if not partial.any():
        return []
    words = f"{int(partial.sum())} of {len(partial)} collectives have members that are not in the run: their "
    return [Notice(Code.MEMBERS_MISSING, f"{words}transfer is an upper bound, and waiting a lower one")]


def _unmatched_warnings(found: Exchange) -> list[Notice]:
    share = found.unmatched_share or 0.0
    rows = np.flatnonzero(found.matching.instance < 0)
    if share < MUCH_UNMATCHED or not len(rows):
        return []
    reasons = Counter(found.matching.why.get(row, OTHERS_LACK_IT) for row in rows.tolist())
    most = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common(3))
    words = f"{len(rows)} of {len(found.matching.table)} kernels of communication ({percent(share)} of its time) are "
    words += f"matched with none on other ranks, and count as transfer ({most})"
    return [Notice(Code.UNMATCHED_COMMUNICATION, words)]


def _size_warnings(found: Exchange) -> list[Notice]:
    with_bytes = found.matching.instances.kind != Collective.BARRIER
    sizeless = (found.transfers.nbytes < 0) & with_bytes
    timeless = (found.transfers.transfer_ns == 0) & with_bytes & ~sizeless
    reasons = {"no trace says how many bytes": sizeless, "their transfer takes 0 ns": timeless}
    return [
        Notice(Code.BANDWIDTH_IS_NULL, f"{int(which.sum())} of {len(which)} collectives have no bandwidth: {reason}")
        for reason, which in reasons.items()
        if which.any()
    ]


def _traffic_warnings(found: Exchange) -> list[Notice]:
    splits = "; uneven ones of all_to_all have to say their splits"
    words = [
        f"traffic.{purpose.label} is null: no trace says how many bytes {unknown} of its {count} collectives, counted "
        f"rank by rank, have ({', '.join(kinds)}{splits if 'all_to_all' in kinds else ''})"
        for purpose, (unknown, count, kinds) in unsized(found.matching, found.transfers).items()
    ]
    return [Notice(Code.TRAFFIC_IS_NULL, each) for each in words]


def _link_warnings(found: Exchange) -> list[Notice]:
    if not len(found.matching.instances):
        return []
    if found.calibration is None and any(warning.code == Code.CALIBRATION_UNREADABLE for warning in found.run.warnings):
        return []  # the run's own file is broken, and that is said
    if found.calibration is None:
        remedy = "give one with --links (`tracer calibrate` makes it)"
        return [Notice(Code.LINKS_NOT_CALIBRATED, "no calibration of the links: utilization is null", remedy)]
    links = found.calibration.links
    notices = _other_links(found)
    if found.limit_gbps is None:
        source = links.source if links is not None and not found.is_of_other_links else None
        reason = source or "its own rate is not known"
        notices.append(Notice(Code.UTILIZATION_IS_NULL, f"utilization of the link is null: {reason}"))
    return notices


def _other_links(found: Exchange) -> list[Notice]:
    """Name links that were measured between other devices than the run's, or over another transport."""
    links = found.calibration.links if found.calibration is not None else None
    measured = set(links.devices) if links is not None else set()
    own = {name for summary in found.run.ranks for name in summary.header.device_names}
    own |= set(found.run.manifest.devices) if found.run.manifest is not None else set()
    notices = []
    if measured and own and not measured & own:
        words = f"the links were calibrated between {', '.join(sorted(measured))}, and this run's are "
        notices.append(Notice(Code.LINKS_OF_OTHER_DEVICES, f"{words}{', '.join(sorted(own))}"))
    if found.is_of_other_links and links is not None and found.run.manifest is not None:
        over = f"over {links.transport}, and this run went over {found.run.manifest.transport}"
        words = f"the links were calibrated {over}: utilization is against other links than its own"
        notices.append(Notice(Code.LINKS_OF_OTHER_TRANSPORT, words))
    return notices
