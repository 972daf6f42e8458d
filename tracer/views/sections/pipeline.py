"""Section on pipelines: stages, bubbles, and one step drawn.

stage 0   0░░1░░    0████2░░1████
stage 1      0░░0████1░░1████         forwards of microbatches, and █ their backwards
          |0 ms     |1        |2
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.layers import PipelineAction, PipelineRow, PipelineStage, PipelineSummary
from analyzers.reporting import Report
from analyzers.texts import listed
from analyzers.units import duration, ms
from tracer.views import (
    BACKWARD,
    FORWARD,
    Drawing,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    Span,
    columns,
    field,
    table,
)
from tracer.views.sections.step_timeline import axis

NONE = "No pipeline in this run: no rank sends the output of a forward to another rank"
_PARTS = (
    "bubble: between a stage's first action and the end of its last, the time in which its device runs nothing but the "
    "pipeline's messages; schedule: the bubble that equal stages and free messages would leave; unequal stages: what "
    "unequal durations add; rest: what messages and the CPU add. The three add up to the bubble in every step; the "
    "last two are negative where they shorten it."
)
_SHARED = "Stages of one rank share its device: their bubbles overlap."
_LEGEND = (
    f"digits: microbatches (of 10 and more the last digit); {FORWARD.label.split()[0]} ░, {BACKWARD.label.split()[0]} █"
)
_GLYPHS = {"F": ("░", FORWARD.color)}
_FEWEST_CELLS = 24


def pipeline_section(report: Report, width: int | None = None) -> Section:
    """Show each pipeline's stages, and its step of median length in time."""
    if not report.pipeline:
        return [Heading(NONE)]
    return [block for one in report.summary.pipelines for block in _pipeline(report, one, width)]


def _pipeline(report: Report, one: PipelineSummary, width: int | None) -> Section:
    schedule = f"{one.schedule}, " if one.schedule else ""
    ranks = f"rank{'s' * (len(one.ranks) > 1)} {listed(one.ranks, 8)}"
    plural = "" if one.microbatches == 1 else "es"
    shares = len({stage.rank for stage in one.stages}) < len(one.stages)
    return [
        Heading(f"The pipeline on {ranks}: {schedule}{one.microbatches} microbatch{plural}; medians, ms"),
        table(_STAGE, one.stages, place=lambda stage: Place(rank=stage.rank)),
        Paragraph(f"{_PARTS} {_SHARED}" if shares else _PARTS, is_faint=True),
        *_slowest(one),
        *_drawn(report, one, width),
    ]


_STAGE: Sequence[Field[PipelineStage]] = (
    Field("stage", cell=lambda stage: "-" if stage.stage is None else str(stage.stage)),
    Field("rank", cell=lambda stage: str(stage.rank)),
    field("forward_ns", "forward", "Compute of all forwards of this stage."),
    field("backward_ns", "backward", "Compute of all backwards of this stage."),
    field(
        "bubble_ns",
        "bubble",
        "From the stage's first action to its last, the time in which its device runs nothing but messages.",
    ),
    field("schedule_ns", "schedule", "What is left of the bubble with equal stages and free messages."),
    field("imbalance_ns", "unequal\nstages", "What unequal durations add to the bubble."),
    field("rest_ns", "rest", "What messages and the CPU add to the bubble."),
)


def _slowest(one: PipelineSummary) -> Section:
    if one.slowest is None or one.slower_by_ns is None:
        return []
    line = f"Stage {one.slowest} is the slowest: its microbatches compute {ms(one.slower_by_ns)} longer "
    return [Paragraph(f"{line}than the mean of the others.")]


def _drawn(report: Report, one: PipelineSummary, width: int | None) -> Section:
    """Draw the step of median length, a line for each stage."""
    by_step: dict[int, list[PipelineRow]] = {}
    for row in report.pipeline:
        if row.rank in one.ranks and row.actions:
            by_step.setdefault(row.step, []).append(row)
    if not by_step:
        return []
    # Steps that a rank lacks are shorter; the lower median is a step that there is.
    ordered = sorted(by_step, key=lambda step: (_extent(by_step[step])[1] - _extent(by_step[step])[0], step))
    step = ordered[(len(ordered) - 1) // 2]
    start, end = _extent(by_step[step])
    rows = sorted(by_step[step], key=lambda row: (row.stage is None, row.stage or 0, row.rank))
    labels = [f"rank {row.rank}" if row.stage is None else f"stage {row.stage}" for row in rows]
    gutter = max(map(len, labels)) + 2
    cells = max(columns(width) - gutter, _FEWEST_CELLS)
    lines = [
        [Span(label.ljust(gutter)), *_lane(row.actions, start, end - start, cells)]
        for label, row in zip(labels, rows, strict=True)
    ]
    title = f"Step {step} of the pipeline in time; a cell is {duration((end - start) / cells)}"
    return [
        Heading(title),
        Drawing([*lines, [Span(" " * gutter + axis(end - start, cells))]]),
        Paragraph(_LEGEND, is_faint=True),
    ]


def _extent(rows: Sequence[PipelineRow]) -> tuple[int, int]:
    actions = [action for row in rows for action in row.actions]
    return min(action.start_ns for action in actions), max(action.start_ns + action.dur_ns for action in actions)


def _lane(actions: Sequence[PipelineAction], start_ns: int, span_ns: int, cells: int) -> list[Span]:
    """Draw a stage's actions: the microbatch's digit, and the sign for its pass behind it."""
    lane, at = [], 0
    for action in sorted(actions, key=lambda one: one.start_ns):
        glyph, color = _GLYPHS.get(action.kind, ("█", BACKWARD.color))
        first = max((action.start_ns - start_ns) * cells // max(span_ns, 1), at)
        last = max((action.start_ns + action.dur_ns - start_ns) * cells // max(span_ns, 1), first + 1)
        if first >= cells:
            break
        lane += [Span(" " * (first - at)), Span(str(action.microbatch % 10) + glyph * (last - first - 1), color)]
        at = last
    return lane
