"""Sections on communication: bandwidth, waits, every instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from analyzers.collectives import BandwidthRow, CollectiveRow, WaitingRow
from analyzers.reporting import Report, rows_of_typical
from analyzers.units import ms, percent, us
from tracer.views import (
    HELP,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    Table,
    count,
    field,
    gbps,
    milliseconds,
    of_limit,
    size,
    table,
)

MOST_KINDS = 12
MOST_WAITING_RANKS = 16
LONGEST_NAME = 48
_KIND, _RANKS, _FOR = "The collective operation.", "Which ranks take part.", "What is communicated."
_TIMES = "How many of them were measured."
_BUSBW, _GB = "Bytes over transfer, times what a ring moves per byte.", "1 GB is 1e9 bytes."
_CALIBRATED = "What `tracer calibrate` measured on these links for this kind, group and size."


def communication_section(report: Report, most: int = MOST_KINDS) -> Section:
    """List bandwidth by kind, group and size against calibration, `most` rows; the clocks; what is unmatched."""
    rows = report.summary.communication
    if not rows:
        return _unmatched(report, most)
    shown = sorted(rows, key=lambda row: row.count * ((row.transfer_ns or 0) + (row.wait_ns or 0)), reverse=True)[:most]
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
    lines = [_Unmatched(*key, durations) for key, durations in ordered[:most]]
    listed = table(_UNMATCHED, lines, place=lambda line: Place(kernel=line.name), whole_name=lambda line: line.name)
    fewer = f"and {count(len(found) - most, 'more name')}, which take less time: --json"
    rest = [Paragraph(fewer, is_faint=True)] if len(found) > most else []
    title = "Unmatched communication: kernels that fit no kernel of another rank, all ranks together"
    return [Heading(title), listed, *rest]


class _Unmatched(NamedTuple):
    """Unmatched kernels of one name, kind and reason."""

    name: str
    kind: str
    why: str
    durations_ns: list[int]


_UNMATCHED: Sequence[Field[_Unmatched]] = (
    Field("kernel", True, cell=lambda line: _short(line.name)),
    Field("kind", True, help=_KIND, cell=lambda line: line.kind),
    Field("times", help=_TIMES, cell=lambda line: str(len(line.durations_ns))),
    Field(
        "total\nms",
        help="All durations added up, over all ranks.",
        cell=lambda line: milliseconds(sum(line.durations_ns)),
    ),
    Field(
        "median\nms", help="The median duration.", cell=lambda line: milliseconds(float(np.median(line.durations_ns)))
    ),
    Field("why", True, help=HELP["why"], cell=lambda line: line.why),
)


def _short(name: str) -> str:
    """Write a kernel's name without what it was called with; a long one shortened."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _bandwidths(report: Report, rows: Sequence[BandwidthRow], names: Mapping[str, str]) -> Table:
    instances: dict[tuple[object, ...], list[CollectiveRow]] = {}
    for collective in report.collectives:
        instances.setdefault(_alike(collective), []).append(collective)
    step = report.summary.representative.step

    def example(row: BandwidthRow) -> Place | None:
        """Return one collective, of the representative step where it has one, else of the first step."""
        found = min(instances.get(_alike(row), []), key=lambda one: one.step != step, default=None)
        return None if found is None else Place(step=found.step, collective=found.index)

    def ranks(row: BandwidthRow) -> str:
        return ranks_in_words(row.group, row.group_size) + names.get(row.group_name, "")

    fields: Sequence[Field[BandwidthRow]] = (
        Field("kind", True, help=_KIND, cell=lambda row: row.kind),
        Field("ranks", help=_RANKS, cell=ranks),
        Field("for", True, True, _FOR, lambda row: row.purpose),
        field("bytes", "size"),
        Field("times", help=_TIMES, cell=lambda row: str(row.count)),
        Field("transfer\nms", help=HELP["transfer_ns"], cell=_transfer),
        field("wait_ns", "waited\nms", "How long a member waits for the last one, in the mean."),
        Field("busbw\nGB/s", help=f"{_BUSBW} Compares over kinds, group sizes and with nccl-tests. {_GB}", cell=_busbw),
        Field("(quartiles)", wide=True, help=HELP["quartiles"], cell=_quartiles),
        field("calibrated_gbps", "calibrated\nGB/s", _CALIBRATED),
        field("utilization_at_size", "of cali-\nbrated", "The measured bandwidth as a share of the calibrated one."),
    )
    return table(fields, rows, place=example)


def _alike(row: BandwidthRow | CollectiveRow) -> tuple[object, ...]:
    return row.kind, tuple(row.group), row.group_name, row.bytes, row.purpose


def _twins(rows: Sequence[BandwidthRow]) -> dict[str, str]:
    """Name groups whose ranks are also another group's, to tell them apart."""
    groups = {(row.group_name, tuple(row.group)) for row in rows if row.group_name and row.kind != "send_recv"}
    members = Counter(ranks for _, ranks in groups)
    return {name: f" (group {name})" for name, ranks in groups if members[ranks] > 1}


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
    """List what each rank waited and what it made the others wait, a mean over typical steps."""
    rows = rows_of_typical(report, report.waiting)
    if not any(row.waited_ns for row in rows):
        return []
    means = [_mean(list(device_rows)) for _, device_rows in groupby(rows, key=lambda row: (row.rank, str(row.device)))]
    shown = sorted(means, key=lambda row: row.caused_ns, reverse=True)[:most]
    if len(shown) < len(means):
        shown = [row for row in shown if row.caused_ns] or shown[:1]
    by_device = sorted(shown, key=lambda row: (row.rank, str(row.device)))
    fields: Sequence[Field[WaitingRow]] = (
        Field("rank", cell=lambda row: str(row.rank)),
        Field("device", cell=lambda row: str(row.device)),
        field("waited_ns", "waited", "What this rank lost in collectives before the last member arrived."),
        field("caused_ns", "caused", "What all other ranks lost because this rank arrived last."),
    )
    left_out = len(means) - len(shown)
    fewer = f"and {count(left_out, 'more rank')} that caused less: --json"
    rest = [Paragraph(fewer, is_faint=True)] if left_out else []
    title = "Waiting, ms per typical step: how long each rank waited, and how long it made the others wait"
    lines = table(fields, by_device, place=lambda row: Place(rank=row.rank, device=row.device))
    return [Heading(title), lines, *rest, *map(Paragraph, _worst(report, means))]


def _mean(rows: Sequence[WaitingRow]) -> WaitingRow:
    first = rows[0]
    waited, caused = (round(np.mean([getattr(row, name) for row in rows])) for name in ("waited_ns", "caused_ns"))
    return WaitingRow(first.rank, first.device, None, waited, caused)


def _worst(report: Report, means: Sequence[WaitingRow]) -> list[str]:
    """Name the rank that the others waited for most."""
    total = sum(row.caused_ns for row in means)
    worst = max(means, key=lambda row: row.caused_ns)
    if not worst.caused_ns:
        return []
    share = worst.caused_ns / total
    several = len({row.device for row in means if row.rank == worst.rank}) > 1
    among = "" if len(report.run.ranks) >= report.run.world_size else " among the ranks that are here"
    who = f"Device {worst.device}" if several else f"Rank {worst.rank}"
    return [
        f"{who} comes last for {percent(share)} of all waiting{among}: the others together wait "
        f"{ms(worst.caused_ns)} per step for it. Whether that costs the step anything, and why it is last, its charges "
        "say (--by charge)."
    ]


def by_collective(report: Report) -> Section:
    """List every instance, a row each."""
    if not report.collectives:
        return [Heading("No collectives: no communication was found, or no kernel could be matched.")]
    lines = table(_INSTANCE, report.collectives, place=lambda row: Place(step=row.step, collective=row.index))
    return [Heading("Every collective; waited: the shortest and the longest wait of its ranks"), lines]


def _waits(row: CollectiveRow) -> str:
    waits = [member.wait_ns for member in row.members if member.wait_ns is not None]
    return f"{milliseconds(min(waits))} - {milliseconds(max(waits))}" if waits else "-"


_INSTANCE: Sequence[Field[CollectiveRow]] = (
    Field("index", wide=True, help="The collective's number in the report's JSON.", cell=lambda row: str(row.index)),
    Field("step", help="The step in which it runs.", cell=lambda row: "-" if row.step is None else str(row.step)),
    Field("kind", True, help=_KIND, cell=lambda row: row.kind),
    Field("ranks", help=_RANKS, cell=lambda row: ranks_in_words(row.group, row.group_size)),
    Field("for", True, True, _FOR, lambda row: row.purpose),
    field("bytes", "size"),
    Field("transfer\nms", help=HELP["transfer_ns"], cell=_transfer),
    Field("waited\nms", help="The shortest and the longest that a member waits for the last one.", cell=_waits),
    Field("busbw\nGB/s", help=f"{_BUSBW} {_GB}", cell=_busbw),
    Field(
        "of calibrated\nGB/s",
        help="The bandwidth as a share of what calibration measured for this kind, group and size.",
        cell=lambda row: of_limit(row.utilization_at_size, row.calibrated_gbps),
    ),
    Field(
        "of link's\nGB/s",
        wide=True,
        help="The bandwidth as a share of the link's own rate.",
        cell=lambda row: of_limit(row.utilization_of_link, row.link_gbps),
    ),
)
