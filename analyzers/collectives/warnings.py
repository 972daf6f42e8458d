"""Warnings about matching, clocks, sizes and links."""

from __future__ import annotations

from collections import Counter

import numpy as np

from analyzers.collectives.bandwidth import unsized
from analyzers.collectives.measured import Exchange
from analyzers.run import UTILIZATION_IS_NULL
from analyzers.trace import Collective
from analyzers.units import ms, percent

# From this share of communication on, what is in no instance is worth a warning.
MUCH_UNMATCHED = 0.005
OTHERS_LACK_IT = "another member of its group has no kernel for it"


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
