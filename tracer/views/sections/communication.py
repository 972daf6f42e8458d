"""Sections on communication: bandwidth, stragglers, every instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from analyzers.collectives import BandwidthRow, CollectiveRow, WaitingRow
from analyzers.reporting import Report
from analyzers.units import ms, percent, us
from tracer.views import (
    Column,
    Heading,
    Paragraph,
    Place,
    Section,
    Table,
    count,
    gbps,
    milliseconds,
    numbers,
    size,
    texts,
)

MOST_KINDS = 12
MOST_WAITING_RANKS = 16
LONGEST_NAME = 48
REASONS = ("launch", "compute", "collective", "input", "unknown")


def communication_section(report: Report, most: int = MOST_KINDS) -> Section:
    """List bandwidth by kind, group and size against calibration, `most` rows; the clocks; what is unmatched."""
    rows = report.summary.communication
    if not rows:
        return _unmatched(report, most)
    shown = sorted(rows, key=_total_ns, reverse=True)[:most]
    left_out = len(rows) - len(shown)
    fewer = f"and {left_out} more kinds and sizes, which take less time: --by collective, --json"
    rest = [Paragraph(fewer, is_faint=True)] if left_out else []
    title = "Communication by kind and size: median transfer and bus bandwidth; waited: the mean over ranks"
    notes = [Paragraph(note) for note in (*_bounds(shown), *_clocks(report), *_copies(report))]
    return [Heading(title), _bandwidths(report, shown, _twins(rows)), *rest, *notes, *_unmatched(report, most)]


def _unmatched(report: Report, most: int) -> Section:
    """List the communication that is in no collective, by kernel name: how many, how long, and why."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in report.unmatched:
        found.setdefault((row.name, row.kind, row.why), []).append(row.dur_ns)
    if not found:
        return []
    ordered = sorted(found.items(), key=lambda item: -sum(item[1]))
    heads: list[Column] = [*texts("kernel", "kind"), *numbers("times", "total\nms", "median\nms"), *texts("why")]
    lines = [
        [
            *(_short(name), kind, str(len(durations)), milliseconds(sum(durations))),
            *(milliseconds(float(np.median(durations))), why),
        ]
        for (name, kind, why), durations in ordered[:most]
    ]
    names = [name for (name, *_), _ in ordered[:most]]
    places = [Place(kernel=name) for name in names]
    fewer = f"and {count(len(found) - most, 'more name')}, which take less time: --json"
    rest = [Paragraph(fewer, is_faint=True)] if len(found) > most else []
    title = "Unmatched communication: kernels that fit no kernel of another rank, all ranks together"
    return [Heading(title), Table(heads, [lines], places=places, whole_names=names), *rest]


def _short(name: str) -> str:
    """Write a kernel's name without what it was called with; a long one shortened."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _bandwidths(report: Report, rows: Sequence[BandwidthRow], names: Mapping[str, str]) -> Table:
    heads: list[Column] = [*texts("kind"), *numbers("ranks"), *texts("for", wide=True), *numbers("size", "times")]
    heads += numbers("transfer\nms", "waited\nms", "busbw\nGB/s")
    heads += [*numbers("(quartiles)", wide=True), *numbers("calibrated\nGB/s", "of cali-\nbrated")]
    lines = [
        [
            *(row.kind, ranks_in_words(row.group, row.group_size) + names.get(row.group_name, ""), row.purpose),
            *(size(row.bytes), str(row.count), _transfer(row), milliseconds(row.wait_ns)),
            *(_busbw(row), _quartiles(row), gbps(row.calibrated_gbps), percent(row.utilization_at_size)),
        ]
        for row in rows
    ]
    return Table(heads, [lines], places=_examples(report, rows))


def _examples(report: Report, rows: Sequence[BandwidthRow]) -> list[Place | None]:
    """Return one collective of each row, of the representative step where it has one, else of the first step."""
    instances: dict[tuple[object, ...], list[CollectiveRow]] = {}
    for row in report.collectives:
        instances.setdefault(_alike(row), []).append(row)
    step = report.summary.representative.step
    found = (min(instances.get(_alike(row), []), key=lambda one: one.step != step, default=None) for row in rows)
    return [None if one is None else Place(step=one.step, collective=one.index) for one in found]


def _alike(row: BandwidthRow | CollectiveRow) -> tuple[object, ...]:
    return row.kind, tuple(row.group), row.group_name, row.bytes, row.purpose


def _twins(rows: Sequence[BandwidthRow]) -> dict[str, str]:
    """Name groups whose ranks are also another group's, to tell them apart."""
    groups = {(row.group_name, tuple(row.group)) for row in rows if row.group_name and row.kind != "send_recv"}
    members = Counter(ranks for _, ranks in groups)
    return {name: f" (group {name})" for name, ranks in groups if members[ranks] > 1}


def _total_ns(row: BandwidthRow) -> float:
    return row.count * ((row.transfer_ns or 0) + (row.wait_ns or 0))


AT_MOST, AT_LEAST = "\N{LESS-THAN OR EQUAL TO}", "\N{GREATER-THAN OR EQUAL TO}"


def _transfer(row: BandwidthRow | CollectiveRow) -> str:
    """Write the transfer, with a mark where it is only a bound."""
    return (AT_MOST if row.bound and row.transfer_ns is not None else "") + milliseconds(row.transfer_ns)


def _busbw(row: BandwidthRow | CollectiveRow) -> str:
    """Write the bandwidth, with a mark where its transfer is only a bound."""
    return (AT_LEAST if row.bound and row.busbw_gbps is not None else "") + gbps(row.busbw_gbps)


def _quartiles(row: BandwidthRow) -> str:
    return "-" if row.busbw_gbps is None else f"{gbps(row.busbw_low_gbps)} - {gbps(row.busbw_high_gbps)}"


def _bounds(rows: Sequence[BandwidthRow]) -> list[str]:
    if not any(row.bound and row.transfer_ns is not None for row in rows):
        return []
    return [
        f"{AT_MOST} at most, {AT_LEAST} at least: part of this transfer may be waiting, since ranks need not wait for "
        "one another in these collectives, or some of their ranks are missing."
    ]


def ranks_in_words(group: Sequence[int], group_size: int) -> str:
    """Write `0-3`, `0,2`; the size alone where the group is long."""
    if len(group) < 2 <= group_size:
        return f"{group_size} devices"
    runs = [list(run) for _, run in groupby(enumerate(group), key=lambda item: item[1] - item[0])]
    extents = [f"{run[0][1]}-{run[-1][1]}" if len(run) > 2 else ",".join(str(rank) for _, rank in run) for run in runs]
    return ",".join(extents) if len(extents) <= 4 else f"{group_size} ranks"


def _clocks(report: Report) -> list[str]:
    """Describe the ranks' clocks in one line, where there are several ranks."""
    clock = report.run.clock
    if len(clock.offsets_ns) < 2:
        return []
    if clock.apart_ns is None:
        return ["Clocks: no two ranks share a synchronizing collective; their offsets are not known."]
    done = (
        f"taken off the times of {count(len(clock.applied_to), 'rank')}" if clock.applied else "times are as recorded"
    )
    return [f"Clocks: at most {us(clock.apart_ns)} apart (spread up to {us(clock.widest_spread_ns)}); {done}."]


def _copies(report: Report) -> list[str]:
    """Describe the largest copies between host and device, in one line."""
    rows = [row for row in report.summary.copies if "HtoD" in row.direction or "DtoH" in row.direction]
    if not rows:
        return []
    most = max(rows, key=lambda row: row.bytes)
    return [f"Copies {most.direction} of {size(most.bytes)}: {gbps(most.gbps)} GB/s (median of {most.count})."]


def waiting(report: Report, most: int = MOST_WAITING_RANKS) -> Section:
    """List what each rank waited and what it made the others wait, a mean over steps, and what kept it."""
    rows = [row for row in report.waiting if row.step is not None]
    if not any(row.waited_ns for row in rows):
        return []
    means = [_mean(list(device_rows)) for _, device_rows in groupby(rows, key=lambda row: (row.rank, str(row.device)))]
    shown = sorted(means, key=lambda row: row.caused_ns, reverse=True)[:most]
    if len(shown) < len(means):
        shown = [row for row in shown if row.caused_ns] or shown[:1]
    reasons = [reason for reason in REASONS if any(row.caused_by.get(reason) for row in means)]
    by_device = sorted(shown, key=lambda row: (row.rank, str(row.device)))
    heads = numbers("rank", "device", "waited", "caused", *(f"by {reason}" for reason in reasons))
    lines = [
        [
            *(str(row.rank), str(row.device), milliseconds(row.waited_ns), milliseconds(row.caused_ns)),
            *(milliseconds(row.caused_by.get(reason, 0)) for reason in reasons),
        ]
        for row in by_device
    ]
    left_out = len(means) - len(shown)
    fewer = f"and {count(left_out, 'more rank')} that caused less: --json"
    rest = [Paragraph(fewer, is_faint=True)] if left_out else []
    title = "Waiting, ms per step: how long each rank waited, and how long it made the others wait, by reason"
    table = Table(heads, [lines], places=[Place(rank=row.rank, device=row.device) for row in by_device])
    return [Heading(title), table, *rest, *map(Paragraph, _worst(report, means))]


def _mean(rows: Sequence[WaitingRow]) -> WaitingRow:
    first = rows[0]
    by = {reason: round(np.mean([row.caused_by.get(reason, 0) for row in rows])) for reason in REASONS}
    waited, caused = (round(np.mean([getattr(row, name) for row in rows])) for name in ("waited_ns", "caused_ns"))
    return WaitingRow(first.rank, first.device, None, waited, caused, by)


_WORDS = {
    "launch": "its CPU launched late",
    "compute": "its compute ran longer",
    "collective": "its previous collective ended late",
    "input": "it waited for input",
    "unknown": "the trace does not show why",
}


def _worst(report: Report, means: Sequence[WaitingRow]) -> list[str]:
    """Name the rank that the others waited for most."""
    total = sum(row.caused_ns for row in means)
    worst = max(means, key=lambda row: row.caused_ns)
    if not worst.caused_ns:
        return []
    reason = max(worst.caused_by, key=lambda name: worst.caused_by[name])
    share, why = worst.caused_ns / total, worst.caused_by[reason] / worst.caused_ns
    several = len({row.device for row in means if row.rank == worst.rank}) > 1
    among = "" if len(report.run.ranks) >= report.run.world_size else " among the ranks that are here"
    who = f"Device {worst.device}" if several else f"Rank {worst.rank}"
    return [
        f"{who} causes {percent(share)} of all waiting{among}: {percent(why)} of that because {_WORDS[reason]}. "
        f"The others together wait {ms(worst.caused_ns)} per step for it."
    ]


def by_collective(report: Report) -> Section:
    """List every instance, a row each."""
    if not report.collectives:
        return [Heading("No collectives: no communication was found, or no kernel could be matched.")]
    heads: list[Column] = [*numbers("index", wide=True), *numbers("step"), *texts("kind"), *numbers("ranks")]
    heads += [*texts("for", wide=True), *numbers("size", "transfer\nms", "waited\nms", "busbw\nGB/s")]
    heads += [*numbers("of cali-\nbrated"), *numbers("of link", wide=True)]
    places = [Place(step=row.step, collective=row.index) for row in report.collectives]
    lines = Table(heads, [[_instance(row) for row in report.collectives]], places=places)
    return [Heading("Every collective; waited: the shortest and the longest wait of its ranks"), lines]


def _instance(row: CollectiveRow) -> list[str]:
    waits = [member.wait_ns for member in row.members if member.wait_ns is not None]
    step = "-" if row.step is None else str(row.step)
    return [
        *(str(row.index), step, row.kind, ranks_in_words(row.group, row.group_size), row.purpose),
        *(size(row.bytes), _transfer(row), _extent(waits), _busbw(row)),
        *(percent(row.utilization_at_size), percent(row.utilization_of_link)),
    ]


def _extent(waits: Sequence[int]) -> str:
    return f"{milliseconds(min(waits))} - {milliseconds(max(waits))}" if waits else "-"
