"""Warnings about matching, clocks, sizes and links."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from analyzers.collectives.bandwidth import find_unsized
from analyzers.collectives.measured import Exchange
from analyzers.notices import Code, Notice
from analyzers.rank import Purpose
from analyzers.run import Manifest
from analyzers.texts import listed
from analyzers.trace import Collective, library_kernel, may_only_post
from analyzers.units import duration, ms, percent

# From this share of communication on, what is in no instance is worth a warning.
MUCH_UNMATCHED = 0.005
# GPUs that are sold on boards with NVLink alone, as they call themselves; their cards with PCIe have other names.
HAS_NVLINK = re.compile(r"SXM|H100 80GB HBM3|H200(?! NVL)|B[23]00")
# What NCCL goes over within a host where it does not use NVLink, and what keeps it from that.
BELOW_NVLINK, AGAINST_NVLINK = ("SHM", "NET"), "NCCL_P2P_DISABLE"
OTHERS_LACK_IT = "another member of its group has no kernel for it"


def exchange_warnings(exchange: Exchange) -> list[Notice]:
    """Say what of the communication is null or doubtful, and why."""
    return [
        *_clock_warnings(exchange),
        *_numbering_warnings(exchange),
        *_unknown_clock_warnings(exchange),
        *_partial_warnings(exchange),
        *_apart_warnings(exchange),
        *_profile_notes(exchange),
        *_unmatched_warnings(exchange),
        *_posting_warnings(exchange),
        *_size_warnings(exchange),
        *_replay_warnings(exchange),
        *_traffic_warnings(exchange),
        *_link_warnings(exchange),
        *_beside_nvlink(exchange.run.manifest),
    ]


def _replay_warnings(exchange: Exchange) -> list[Notice]:
    """Say that nothing tells what the collectives inside CUDA graphs carry."""
    of_ranks = [measured.communication for measured in exchange.run.measured]
    count = sum(int((comm.replayed & (comm.purpose == Purpose.OTHER)).sum()) for comm in of_ranks if len(comm.replayed))
    if not count:
        return []
    text = (
        f"what {count} communication kernels carry is not known, since CUDA graphs replay them: their purpose is other"
    )
    return [Notice(Code.PURPOSE_OF_REPLAYS, text, Code.PURPOSE_OF_REPLAYS.facts.do)]


def _clock_warnings(exchange: Exchange) -> list[Notice]:
    applied = {rank: clock for rank, clock in exchange.clocks.by_rank.items() if clock.applied}
    if not applied:
        return []
    farthest = max(applied, key=lambda rank: abs(applied[rank].offset_ns))
    clock = applied[farthest]
    which = f"rank {farthest}'s clock is {ms(clock.offset_ns)} off rank {exchange.clocks.reference}'s"
    shifted = f"{len(applied)} of {len(exchange.run.ranks)}"
    message = f"clocks differ: {which} (spread {ms(clock.spread_ns)}); times of {shifted} ranks are shifted accordingly"
    return [Notice(Code.CLOCKS_DIFFER, message)]


def _numbering_warnings(exchange: Exchange) -> list[Notice]:
    therefore = "its collectives are matched by their ends, and its windows keep its numbers"
    messages = [
        f"rank {rank}'s steps have numbers {abs(by)} {'higher' if by > 0 else 'lower'} than others': {therefore}"
        for rank, by in exchange.matching.renumbered_by.items()
    ]
    renumbered = defaultdict[int, list[int]](list)
    for summary in exchange.run.ranks:
        renumbered[summary.renumbered_by].append(summary.rank)
    messages += [
        f"steps of rank {listed(ranks, 8)}, which nothing marks, are renumbered by {by:+d}, as its collectives say"
        for by, ranks in renumbered.items()
        if by
    ]
    return [Notice(Code.STEPS_NUMBERED_APART, message) for message in messages]


def _unknown_clock_warnings(exchange: Exchange) -> list[Notice]:
    """Name ranks whose clocks are not known: no collective ties them to the reference, and no host."""
    clocks = exchange.clocks
    here = clocks.hosts.get(clocks.reference, "")
    apart = [summary.rank for summary in exchange.run.ranks if summary.rank not in clocks.by_rank]
    unknown = [rank for rank in apart if not here or clocks.hosts.get(rank) != here]
    if not unknown:
        return []
    message = f"the clock of rank {listed(unknown, 8)} is not known: no synchronizing collective links it to rank "
    return [Notice(Code.CLOCK_IS_UNKNOWN, f"{message}{exchange.clocks.reference}")]


def _partial_warnings(exchange: Exchange) -> list[Notice]:
    """Name collectives some of whose members are not in the run."""
    partial = exchange.matching.instances.partial
    if not partial.any():
        return []
    message = (
        f"{int(partial.sum())} of {len(partial)} collectives have ranks that are not in the run: their time may be "
        "waiting or transfer, and counts as unresolved"
    )
    return [Notice(Code.MEMBERS_MISSING, message)]


def _apart_warnings(exchange: Exchange) -> list[Notice]:
    """Count collectives whose ends do not agree on one clock."""
    apart_ns = exchange.transfers.apart_ns
    if not apart_ns.any():
        return []
    message = (
        f"{int((apart_ns > 0).sum())} of {len(apart_ns)} collectives end up to {duration(int(apart_ns.max()))} apart "
        "on one clock: their time counts as unresolved"
    )
    return [Notice(Code.ENDS_LIE_APART, message)]


def _profile_notes(exchange: Exchange) -> list[Notice]:
    """Name the rank for whose profile others waited longest before it began."""
    waited_ns, instances = exchange.transfers.unprofiled_ns, exchange.matching.instances
    if not waited_ns.any():
        return []
    longest = int(instances.of_member[waited_ns.argmax()])
    rows = instances.members[instances.first[longest] : instances.first[longest + 1]]
    last = max(set(exchange.matching.table.rank[rows].tolist()), key=exchange.begun_ns.__getitem__)
    message = (
        f"rank {last}'s profile began while others already waited, {duration(int(waited_ns.max()))} before it: "
        "that is the profile's start, nobody's fault, and counts as unresolved"
    )
    return [Notice(Code.PROFILES_BEGIN_APART, message)]


def _unmatched_warnings(exchange: Exchange) -> list[Notice]:
    share = exchange.unmatched_share or 0.0
    rows = np.flatnonzero(exchange.matching.instance < 0)
    if share < MUCH_UNMATCHED or not len(rows):
        return []
    reasons = Counter(exchange.matching.why.get(row, OTHERS_LACK_IT) for row in rows.tolist())
    most = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common(3))
    message = (
        f"{len(rows)} of {len(exchange.matching.table)} communication kernels ({percent(share)} of communication time) "
    )
    message += f"fit no kernel of another rank: their time counts as unresolved ({most})"
    return [Notice(Code.UNMATCHED_COMMUNICATION, message)]


def _posting_warnings(exchange: Exchange) -> list[Notice]:
    """Name kernels that may end before their transfer does: a share hidden of theirs is not the communication's."""
    parts = [measured.communication for measured in exchange.run.measured]
    posting = {name for name in {name for part in parts for name in part.names} if may_only_post(name)}
    if not posting:
        return []
    masks = [np.array([name in posting for name in part.names], dtype=bool)[part.name] for part in parts]
    count, total = sum(int(mask.sum()) for mask in masks), sum(map(len, parts))
    kernels = sorted({library_kernel(name) for name in posting})
    message = (
        f"{count} of {total} communication kernels ({listed(kernels, 3)}) may end while what they sent is still in "
        "flight, which no trace shows: how much of their transfer is hidden is not known, and overlap counts kernels "
        "alone"
    )
    return [Notice(Code.TRANSFER_NOT_SHOWN, message)]


def _size_warnings(exchange: Exchange) -> list[Notice]:
    with_bytes = exchange.matching.instances.kind != Collective.BARRIER
    sizeless = (exchange.transfers.nbytes < 0) & with_bytes
    timeless = (exchange.transfers.transfer_ns == 0) & with_bytes & ~sizeless
    measured = (exchange.transfers.transfer_ns > 0) & with_bytes & ~sizeless & ~exchange.matching.instances.partial
    reasons = {
        "no trace gives their bytes": sizeless,
        "their transfer takes 0 ns": timeless,
        "it would be above the link's own rate": measured & np.isnan(exchange.transfers.algbw_gbps),
    }
    return [
        Notice(Code.BANDWIDTH_IS_NULL, f"{int(which.sum())} of {len(which)} collectives have no bandwidth: {reason}")
        for reason, which in reasons.items()
        if which.any()
    ]


def _traffic_warnings(exchange: Exchange) -> list[Notice]:
    splits = "; an uneven all_to_all needs its splits"
    messages = [
        f"traffic.{purpose.label} is not known: no trace gives the bytes of {unknown} of its {count} collectives, "
        f"counted on each rank ({', '.join(kinds)}{splits if 'all_to_all' in kinds else ''})"
        for purpose, (unknown, count, kinds) in find_unsized(exchange.matching, exchange.transfers).items()
    ]
    return [Notice(Code.TRAFFIC_IS_NULL, message) for message in messages]


def _link_warnings(exchange: Exchange) -> list[Notice]:
    if not len(exchange.matching.instances):
        return []
    if exchange.calibration is None and any(
        warning.code == Code.CALIBRATION_UNREADABLE for warning in exchange.run.warnings
    ):
        return []  # the run's own file is broken, and that is said
    if exchange.calibration is None:
        text = "the links are not calibrated: what share of their bandwidth was reached is not known"
        return [Notice(Code.LINKS_NOT_CALIBRATED, text, Code.LINKS_NOT_CALIBRATED.facts.do)]
    links = exchange.calibration.links
    notices = _other_links(exchange)
    if exchange.limit_gbps is None:
        source = links.source if links is not None and not exchange.is_of_other_links else None
        reason = source or "its own rate is not known"
        notices.append(Notice(Code.UTILIZATION_IS_NULL, f"utilization of the link is not known: {reason}"))
    return notices


def _beside_nvlink(manifest: Manifest | None) -> Iterator[Notice]:
    """Warn where NCCL goes over host memory or sockets within a host whose GPUs NVLink joins.

    What NVLink would bring is not said: exposed transfer is no bound (1.1 ms of VGG16's on two H200s, and it brought
    2.8), since compute beside transfers over host memory is slower, too.
    """
    if manifest is None or len(manifest.hosts) != 1:
        return
    is_below = (manifest.transport or "").startswith(BELOW_NVLINK)
    if is_below and manifest.devices and all(map(HAS_NVLINK.search, manifest.devices)):
        text = f"NCCL goes over {manifest.transport}, though NVLink joins these GPUs"
        value = manifest.environment.get(AGAINST_NVLINK, "0")
        if value in ("", "0"):
            yield Notice(Code.NVLINK_NOT_USED, text, Code.NVLINK_NOT_USED.facts.do)
        else:
            yield Notice(Code.NVLINK_NOT_USED, f"{text}: {AGAINST_NVLINK}={value}", f"unset {AGAINST_NVLINK}")


def _other_links(exchange: Exchange) -> list[Notice]:
    """Name links that were measured between other devices than the run's, or over another transport."""
    links = exchange.calibration.links if exchange.calibration is not None else None
    measured = set(links.devices) if links is not None else set()
    devices = {name for summary in exchange.run.ranks for name in summary.header.device_names}
    devices |= set(exchange.run.manifest.devices) if exchange.run.manifest is not None else set()
    notices = []
    if measured and devices and not measured & devices:
        message = f"the links were calibrated between {', '.join(sorted(measured))}, and this run's are "
        notices.append(Notice(Code.LINKS_OF_OTHER_DEVICES, f"{message}{', '.join(sorted(devices))}"))
    if exchange.is_of_other_links and links is not None and exchange.run.manifest is not None:
        over = f"over {links.transport}, and this run went over {exchange.run.manifest.transport}"
        message = f"the links were calibrated {over}: utilization compares with other links than this run's"
        notices.append(Notice(Code.LINKS_OF_OTHER_TRANSPORT, message))
    return notices
