"""Outline of the report's page: its sections, ordered by share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.prediction import WhatIf
from analyzers.reporting import IDLE_CAUSES, Report
from analyzers.units import ms, percent
from tracer.views import TitledTable, count
from tracer.views.sections import IDLE_MEANINGS, communicates, line_title, short
from tracer.views.sections.results import sentence

Shown = Mapping[str, Sequence[TitledTable]]


@dataclass(frozen=True)
class PageSection:
    """A folded section: its title, its share of the step in words (empty for none), and what is inside in a line."""

    name: str
    title: str
    share: str = ""
    inside: str = ""
    is_open: bool = False


def outline(report: Report, shown: Shown, predicted: WhatIf | None) -> list[PageSection]:
    """Return the sections: the ranks', then those on the largest part of a step; the first of these is open."""
    shares = report.summary.shares
    of_parts = [
        (shares["idle_ns"], _on_idle(report)),
        (shares["compute_ns"], _on_compute(report)),
        (shares["exposed_comm_ns"], _on_communication(report, shown)),
    ]
    largest, *others = [
        section for _, sections in sorted(of_parts, key=lambda part: -(part[0] or 0.0)) for section in sections
    ]
    return [
        PageSection("ranks", "Ranks", "", _ranks(report)),
        replace(largest, is_open=True),
        *others,
        *_further(report, predicted),
    ]


def _ranks(report: Report) -> str:
    span, devices = report.summary.windows["span_ns"], report.summary.by_device
    marked = [f"rank {each.rank} is {each.mark}" for each in report.summary.headline.marked]
    extent = f"typical profiled steps between {ms(span.minimum or 0)} and {ms(span.maximum or 0)}"
    return "; ".join([count(len(devices), "device"), extent, *marked])


def _share(report: Report, field: str, words: str) -> str:
    return f"{percent(report.summary.shares[field])} {words}"


def _on_idle(report: Report) -> list[PageSection]:
    shares = {cause: report.summary.shares[f"idle_{cause}_ns"] or 0.0 for cause in IDLE_CAUSES}
    cause = max(shares, key=lambda name: shares[name])
    mostly = f"most of all, {percent(shares[cause])}: {IDLE_MEANINGS[cause]}" if shares[cause] else "no idle time"
    sections = [PageSection("idle", "Idle time", _share(report, "idle_ns", "idle"), mostly)]
    for one in report.summary.pipelines[:1]:
        inside = f"{one.schedule or 'a schedule that is not known'}, {count(len(one.stages), 'stage')}"
        sections.append(PageSection("pipeline", "Pipeline", "", inside))
    return sections


def _on_compute(report: Report) -> list[PageSection]:
    rank = report.summary.representative.rank
    compute = (row for row in report.kernels if row.rank == rank and row.kind == "compute")
    longest = next(compute, None)
    inside = "no kernels" if longest is None else f"longest kernel: {short(longest.name)}, {percent(longest.share)}"
    layers = count(len(report.summary.layers), "line") + " on layers, forward and backward"
    return [
        PageSection("kernels", "Compute", _share(report, "compute_ns", "compute"), inside),
        PageSection("layers", "Layers", "", layers),
    ]


def _on_communication(report: Report, shown: Shown) -> list[PageSection]:
    if not communicates(report):
        return []
    shares = report.summary.shares
    kinds = count(len(report.summary.communication), "line") + " by kind, ranks and size"
    groups = ", ".join(line_title(line.name) for line in report.summary.groups[:4])
    exposed = PageSection(
        "communication",
        "Communication",
        _share(report, "exposed_comm_ns", "exposed"),
        report.summary.headline.communication or kinds,
    )
    waiting = PageSection(
        "waiting", "Stragglers", _share(report, "exposed_wait_ns", "waiting"), _last_note(shown["waiting"])
    )
    is_mostly_waiting = 2 * (shares["exposed_wait_ns"] or 0.0) > (shares["exposed_comm_ns"] or 0.0)
    return [
        *([waiting, exposed] if is_mostly_waiting else [exposed, waiting]),
        *([PageSection("groups", "Process groups", "", groups)] if shown["groups"] else []),
        PageSection("buckets", "Buckets", "", _buckets(report, shown["buckets"])),
    ]


def _last_note(tables: Sequence[TitledTable]) -> str:
    notes = [note for table in tables for note in table.notes]
    return notes[-1] if notes else "no rank is known to wait for another"


def _buckets(report: Report, tables: Sequence[TitledTable]) -> str:
    """Say how many there are; without any, the section's title says why."""
    buckets = report.summary.buckets
    return f"{count(len(buckets), 'bucket')} of DDP: what each holds, and what hides it" if buckets else tables[0].title


def _further(report: Report, predicted: WhatIf | None) -> list[PageSection]:
    """Return what is about no part of the step in particular."""
    sections = []
    if report.experts or report.attention:
        sections.append(PageSection("experts", "Experts and attention", "", "tokens, imbalance, waiting"))
    if predicted is not None:
        sections.append(PageSection("whatif", "What if", "", sentence(predicted.headline)))
    versions = ", ".join(f"{name} {version}" for name, version in report.run.versions.items() if version)
    return [*sections, PageSection("about", "Run and versions", "", versions)]
