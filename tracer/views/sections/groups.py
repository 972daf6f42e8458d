"""Section on process groups: exposed communication of each alone.

group          ranks                 exposed  waiting  transfer
mesh_fsdp      2 groups of 2 ranks        ..       ..        ..
mesh_tp        2 groups of 2 ranks        ..       ..        ..
several                                   ..       ..        ..      more than one at once
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from analyzers.collectives import NO_GROUP, OF_GROUPS, SEVERAL, GroupSummary, GroupWindow, OneGroup, line_names
from analyzers.rank import STRATEGIES
from analyzers.reporting import Report
from analyzers.statistics import ratio
from analyzers.units import ms, percent
from tracer.views import HELP, Block, Field, Heading, Paragraph, Section, count, field, milliseconds, table
from tracer.views.sections.communication import ranks_in_words

# How many groups are listed one by one; the JSON has all.
MOST_GROUPS = 16
UNRESOLVED = "exposed_unresolved_ns"
# Heads of what a line is measured by, with the names that their help goes by.
_HEADS = {
    "comm_ns": ("comm_ns", "commu-\nnication"),
    "exposed_ns": ("exposed_ns", "exposed"),
    "exposed_wait_ns": ("wait_ns", "waiting"),
    "exposed_transfer_ns": ("transfer_ns", "transfer"),
    UNRESOLVED: ("unresolved_ns", "unre-\nsolved"),
}
_AT_MOST = ("transfer_at_most_ns", "transfer\nat most")
_EXPOSED = "Time in which this group communicates, no other group does, and nothing computes."
_RANKS = "The members, or how many groups of how many ranks."
_OTHERS = {SEVERAL: "several at once", NO_GROUP: "group not known"}
_TITLES = {asked.name: asked.title for asked in STRATEGIES}
_ALONE = "Exposed: while no other group communicates"
_SEVERAL = "; several at once: while more than one does"
_UNRESOLVED = (
    "Unresolved: waiting or transfer, not known which, since ranks of the group are missing or its kernels could not "
    "be matched."
)


def groups_section(report: Report) -> Section:
    """List the lines of the run's communication where there is more than one, and one step in which they add up."""
    return [*_medians(report), Paragraph(_sum(report))] if len(report.summary.groups) > 1 else []


def by_group(report: Report) -> Section:
    """List every line, one step in which they add up, and each group of a line that has several."""
    if not report.summary.groups:
        return [Heading("No groups: no communication was found in these steps.")]
    return [*_medians(report), *_step(report), *_one_by_one(report)]


def _medians(report: Report) -> list[Block]:
    lines, measures = report.summary.groups, _measures(report)
    fields: Sequence[Field[GroupSummary]] = (
        Field("group", True, cell=_named),
        Field("ranks", True, help=_RANKS, cell=_ranks),
        *_times(report, measures, lambda line, name: line.measures[name].median),
        Field("carries", True, True, "What the group's communication is for.", lambda line: ", ".join(line.purposes)),
    )
    several = _SEVERAL if any(line.role is None and line.name == SEVERAL for line in lines) else ""
    notes = [f"{_ALONE}{several}.", *([_UNRESOLVED] if UNRESOLVED in measures else [])]
    return [
        Heading("Communication by process group: medians over ranks and steps, ms"),
        table(fields, lines),
        *(Paragraph(note, is_faint=True) for note in notes),
    ]


def _measures(report: Report) -> list[str]:
    """Return what the tables show: unresolved time only where there is any."""
    any_unresolved = any(row.exposed_unresolved_ns for row in report.groups)
    return [name for name in OF_GROUPS if name != UNRESOLVED or any_unresolved]


def _times(report: Report, measures: Sequence[str], of: Callable[[Any, str], float | None]) -> list[Field[Any]]:
    """Build the columns of what the tables show; `of` gives a row's figure by its name."""
    heads = _HEADS | ({"exposed_transfer_ns": _AT_MOST} if report.summary.transfer_is_bound else {})
    return [_time(name, *heads[name], of) for name in measures]


def _time(name: str, meant: str, head: str, of: Callable[[Any, str], float | None]) -> Field[Any]:
    meaning = _EXPOSED if name == "exposed_ns" else HELP[meant]
    return field(name, head, meaning, of)


def _named(line: GroupSummary) -> str:
    """Return `mesh_tp (tensor parallel)`; the strategy's words alone for a group that nobody described."""
    if line.role is None:
        return line_title(line.name)
    strategy = _TITLES.get(line.role)
    return f"{line.name} ({strategy})" if line.description and strategy else line.name


def line_title(name: str) -> str:
    """Return a line's name in words: what stands for several groups at once, or for none that is known, is no name."""
    return _OTHERS.get(name, name)


def _ranks(line: GroupSummary) -> str:
    """Return `0-3`, or `2 groups of 2 ranks`."""
    if len(line.groups) < 2:
        return "".join(ranks_in_words(one.ranks, len(one.ranks)) if one.ranks else "-" for one in line.groups)
    sizes = sorted({len(one.ranks) for one in line.groups})
    extent = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{len(line.groups)} groups of {extent}" + (" ranks" if sizes[-1] > 1 else " rank")


def _of_step(report: Report) -> list[tuple[GroupSummary, GroupWindow]]:
    """Return the lines of the representative step of its rank, over all of the rank's devices."""
    chosen = report.summary.representative
    names = line_names(row.line for row in report.groups)
    lines = {line.name: line for line in report.summary.groups}
    rows = {names[row.line]: row for row in report.groups if (row.rank, row.step) == (chosen.rank, chosen.step)}
    return [(line, rows[name]) for name, line in lines.items() if name in rows]


def _where(report: Report) -> str:
    chosen = report.summary.representative
    devices = [window for window in report.windows if (window.rank, window.step) == (chosen.rank, chosen.step)]
    device = f"device {chosen.device}" if len(devices) == 1 else f"its {len(devices)} devices together"
    return f"The step of median length (rank {chosen.rank}, {device}, step {chosen.step})"


def _sum(report: Report) -> str:
    """Say in one line how the lines of one step add up."""
    parts = [(_named(line), row.exposed_ns) for line, row in _of_step(report) if row.exposed_ns]
    whole = sum(exposed_ns for _, exposed_ns in parts)
    if not parts:
        return f"{_where(report)} has no exposed communication."
    return f"{_where(report)}: exposed {ms(whole)} = {' + '.join(f'{name} {milliseconds(ns)}' for name, ns in parts)}"


def _step(report: Report) -> Section:
    """List the lines of one step, which add up to its exposed communication."""
    shown, measures = _of_step(report), _measures(report)
    whole = {name: sum(getattr(row, name) for _, row in shown) for name in measures}
    fields: Sequence[Field[tuple[GroupSummary, GroupWindow]]] = (
        Field("group", True, cell=lambda pair: _named(pair[0])),
        *_times(report, measures, lambda pair, name: getattr(pair[1], name)),
        Field(
            "of\nexposed",
            help="The share of this step's exposed communication.",
            cell=lambda pair: percent(ratio(pair[1].exposed_ns, whole["exposed_ns"])),
        ),
    )
    lines = table(fields, shown)
    # Several groups communicate at once: only exposed time adds up.
    total = ["all", "", *(milliseconds(whole[name]) for name in measures[1:]), percent(1.0)]
    title = Heading(f"{_where(report)}, whose exposed communication adds up, ms")
    return [title, replace(lines, groups=[*lines.groups, [total]])]


def _one_by_one(report: Report) -> Section:
    """List the groups of lines that have several, those of most exposed time first."""
    found = [(line, one) for line in report.summary.groups if len(line.groups) > 1 for one in line.groups]
    if not found:
        return []
    measures = _measures(report)
    shown = sorted(found, key=lambda pair: -pair[1].exposed_ns)[:MOST_GROUPS]
    fields: Sequence[Field[tuple[GroupSummary, OneGroup]]] = (
        Field("group", True, cell=lambda pair: pair[0].name),
        Field("name", True, cell=lambda pair: pair[1].group),
        Field("ranks", True, help=_RANKS, cell=lambda pair: ranks_in_words(pair[1].ranks, len(pair[1].ranks))),
        *_times(report, measures, lambda pair, name: getattr(pair[1], name)),
    )
    left_out = len(found) - len(shown)
    rest = [Paragraph(f"and {count(left_out, 'more group')}, which are less exposed: --json", is_faint=True)]
    return [Heading("Each group: medians, ms"), table(fields, shown), *(rest if left_out else [])]
