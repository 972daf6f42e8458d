"""Top and outline of the report's page: step, parts, advice, sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.collectives import CollectiveRow
from analyzers.prediction import WhatIf
from analyzers.rank import Purpose
from analyzers.reporting import IDLE_CAUSES, Report
from analyzers.trace import Collective
from analyzers.units import ms, percent
from tracer.views import TRANSFER, Place, TitledTable, count, sentence
from tracer.views.sections import (
    IDLE_MEANINGS,
    ListedAdvice,
    bar_shares,
    causes_sentence,
    communicates,
    further_words,
    gains_remark,
    line_title,
    listed_advice,
    profiled_ns,
    profiled_words,
    short,
)


@dataclass(frozen=True)
class _Sight:
    """Collectives that show a problem, by purpose or kind (all where neither is given), and what is longest there."""

    most: Callable[[CollectiveRow], int]
    purposes: tuple[Purpose, ...] = ()
    kinds: tuple[Collective, ...] = ()

    def shows(self, row: CollectiveRow) -> bool:
        labels = {*(one.label for one in self.purposes), *(one.label for one in self.kinds)}
        return not labels or row.purpose in labels or row.kind in labels


_WAITING = _Sight(lambda row: row.exposed_wait_ns or 0)
_TRANSFER = _Sight(lambda row: row.exposed_transfer_ns or 0)
_GRADIENTS = replace(_TRANSFER, purposes=(Purpose.GRADIENTS,))
_SHARDED = replace(_TRANSFER, kinds=(Collective.ALL_GATHER, Collective.REDUCE_SCATTER))
# Where a problem is seen, by the advice's code; other advice is seen in a whole step.
_SIGHTS = {
    **dict.fromkeys(("exposed_wait", "straggler", "alike", "stages", "attention_imbalance"), _WAITING),
    "experts": replace(_WAITING, purposes=(Purpose.TOKENS,)),
    "exposed_transfer": _TRANSFER,
    "exposed_unresolved": _Sight(lambda row: row.exposed_ns if row.partial else 0),
    "buffers": _Sight(lambda row: row.exposed_ns, (Purpose.BUFFERS,)),
    **dict.fromkeys(("hook", "caps", "accumulation", "coalesce"), _GRADIENTS),
    **dict.fromkeys(("reduce_scatter_group", "sharded_transfer", "max_connections", "larger_units"), _SHARDED),
    "async_tp": replace(_TRANSFER, purposes=(Purpose.ACTIVATIONS,)),
    "attention_transfer": replace(_TRANSFER, purposes=(Purpose.ATTENTION,)),
}
_GRADES = {"high": 3, "fair": 2, "low": 1}


@dataclass(frozen=True)
class TopPart:
    """A part of the step: its look, its name, and its share, also in words."""

    field: str
    label: str
    share: float
    words: str


@dataclass(frozen=True)
class ShownAdvice:
    """A piece of advice, and the moment that shows it."""

    listed: ListedAdvice
    place: Place


@dataclass(frozen=True)
class Top:
    """What stands first: the step, what else is known of its length, its parts, and how far to trust them."""

    figure: str
    unit: str
    counted: str
    remark: str
    parts: list[TopPart]
    of: str
    grade: int
    advice: list[ShownAdvice]
    gains: str


def top(report: Report) -> Top:
    """Build the first screen from the headline."""
    headline = report.summary.headline
    own_ns = profiled_ns(report) if headline.mark_ns is None else headline.mark_ns
    figure, _, unit = ms(own_ns if headline.step_ns is None else headline.step_ns).partition(" ")
    advised = listed_advice(report)
    return Top(
        figure=figure,
        unit=unit,
        counted="per step" if headline.step_word == "step" else "for the whole trace, in which no step is marked",
        remark=_remark(report),
        parts=list(_parts(report)),
        of=report.summary.bar.of if report.summary.bar is not None else "profiled",
        grade=_GRADES[headline.trust],
        advice=[ShownAdvice(piece, _moment(report, piece.code)) for piece in advised],
        gains="; ".join(filter(None, (further_words(report), gains_remark(report, advised)))),
    )


def _remark(report: Report) -> str:
    """Say what the profiler makes of the step."""
    headline = report.summary.headline
    if headline.step_ns is None:
        part = f" the device's part is {ms(headline.profiled_step_ns)};" if headline.mark_ns is not None else ""
        return f"under the profiler;{part} without it not known"
    is_alike = headline.mark_ns is None and ms(headline.profiled_step_ns) == ms(headline.step_ns)
    profiled = "with and without the profiler" if is_alike else profiled_words(headline)
    return "; ".join(filter(None, (report.run.controls.on_average(), profiled)))


def _parts(report: Report) -> Iterable[TopPart]:
    for part, share in bar_shares(report):
        most = "at most " if part is TRANSFER and report.summary.transfer_is_bound else ""
        yield TopPart(part.field, part.label, share, f"{most}{percent(share)}")


def _moment(report: Report, code: str | None) -> Place:
    """Return the moment that shows a problem, in the step of median length."""
    chosen, sight = report.summary.representative, _SIGHTS.get(code or "")
    whole = Place(chosen.step, chosen.rank, chosen.device)
    if sight is None:
        return whole
    rows = [row for row in report.collectives if row.step == chosen.step and sight.shows(row)]
    longest = max(rows, key=sight.most, default=None)
    if longest is None or not sight.most(longest):
        return whole
    members = {member.rank for member in longest.members}
    late = next((one.rank for one in report.summary.headline.marked if one.rank in members), None)
    return Place(chosen.step, late if sight is _WAITING else None, collective=longest.index)


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
        "waiting", "Waiting", _share(report, "exposed_wait_ns", "waiting"), _last_note(shown["waiting"])
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
    sections, charges = [], report.summary.charges
    if charges is not None:
        sections.append(PageSection("causes", "Critical path", "", f"{causes_sentence(report, charges)}."))
    if report.experts or report.attention:
        sections.append(PageSection("experts", "Experts and attention", "", "tokens, imbalance, waiting"))
    if predicted is not None:
        sections.append(PageSection("whatif", "What if", "", sentence(predicted.headline)))
    versions = ", ".join(f"{name} {version}" for name, version in report.run.versions.items() if version)
    return [*sections, PageSection("about", "Run and versions", "", versions)]
