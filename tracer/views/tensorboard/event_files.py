"""TensorBoard event files: scalars of each step, report text, hparams.

Written with TensorBoard's own protos and records: the same report gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analyzers.comparison import CellRow, Scaling
from analyzers.reporting import Report, StepFigures, StepSeries, series
from analyzers.texts import encodable, utf8
from analyzers.units import NS_PER_MS, NS_PER_S
from tracer.views import SPLIT_PARTS, By, sections_markdown
from tracer.views.sections import bar_is_of_profiled, bar_shares, line_title, report_sections

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

# TensorBoard shows these of a report as text.
TEXTS: tuple[By, ...] = ("rank", "group", "bucket", "layer")
STEP, OVERLAP, BUSBW = "step/ms, profiled", "communication/overlap", "communication/gradients busbw, GB per s"
# The step that people train: one figure of the whole run, beside those of all ranks.
UNPROFILED = "step/ms, without the profiler"
SHARE = "share of step/{}"
BAR = "share of the step without the profiler/{}"
GROUP = "exposed by process group/{}, ms"
# A sweep's metrics, as hparams shows them beside what was swept; by tag the cell's figure.
SWEPT = ("strategy", "gpus", "batch")
METRICS = {
    "sweep/step, ms": "step",
    "sweep/samples per s": "samples_per_s",
    "sweep/efficiency, weak": "weak",
    "sweep/efficiency, strong": "strong",
    "sweep/exposed communication, ms": "exposed_comm_ns",
    "sweep/overlap": "overlap",
    "sweep/gradients busbw, GB per s": "busbw",
    "sweep/peak memory, GB": "memory",
}


def report_files(report: Report) -> dict[str, bytes]:
    """Build a run's event files by folder: all ranks together in the run's own, each device's below it."""
    origin_s = int(report.run.origin_ns) / NS_PER_S
    files = {}
    for step_series in series(report):
        events = [_event(figures, scalars(figures), origin_s) for figures in step_series.steps]
        if step_series.rank is None:
            events += [_event(figures, run_scalars(report), origin_s) for figures in step_series.steps[:1]]
        files[_folder(report, step_series)] = _records(
            [*events, *(_texts(report, origin_s) if step_series.rank is None else [])]
        )
    return files


def _folder(report: Report, step_series: StepSeries) -> str:
    if step_series.rank is None:
        return "."
    several = len({window.device for window in report.windows if window.rank == step_series.rank}) > 1
    return f"rank{step_series.rank}" + (f"-device{step_series.device}" if several else "")


def scalars(figures: StepFigures) -> dict[str, float]:
    """Return a step's figures by tag, those that are known."""
    shares = {SHARE.format(part.label): figures.shares[part.field] for part in SPLIT_PARTS}
    rest = {STEP: figures.span_ns / NS_PER_MS, OVERLAP: figures.overlap, BUSBW: figures.gradients_busbw_gbps}
    groups = {GROUP.format(line_title(name)): ns / NS_PER_MS for name, ns in figures.groups_ns.items()}
    return {tag: value for tag, value in (shares | rest | groups).items() if value is not None}


def run_scalars(report: Report) -> dict[str, float]:
    """Return the figures of a run that are no step's own, by tag, those that are known."""
    step_ns = report.run.controls.unprofiled_step_ns
    if step_ns is None:
        return {}
    shares = {BAR.format(part.label): share for part, share in bar_shares(report)} if step_ns else {}
    return {UNPROFILED: step_ns / NS_PER_MS} | ({} if bar_is_of_profiled(report) else shares)


def _event(figures: StepFigures, known: Mapping[str, float], origin_s: float) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event

    values = [_scalar(tag, value) for tag, value in known.items()]
    return Event(wall_time=origin_s + figures.start_ns / NS_PER_S, step=figures.step, summary={"value": values})


def _scalar(tag: str, value: float) -> dict[str, Any]:
    from tensorboard.plugins.scalar import metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    about = metadata.create_summary_metadata(display_name="", description="")
    return {"tag": tag, "metadata": about, "tensor": make_tensor_proto(np.float32(value))}


def _texts(report: Report, origin_s: float) -> Iterator[Event]:
    for by in TEXTS:
        yield _text(f"report/by {by}", sections_markdown(report_sections(report, by)), origin_s)


def _text(tag: str, markdown: str, wall_time: float) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text import metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    about = metadata.create_summary_metadata(display_name="", description="")
    value = {"tag": tag, "metadata": about, "tensor": make_tensor_proto(np.array(utf8(markdown), dtype=object))}
    return Event(wall_time=wall_time, step=0, summary={"value": [value]})


def _records(events: Sequence[Event]) -> bytes:
    """Return an event file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    out = io.BytesIO()
    writer = RecordWriter(out)
    first = min((event.wall_time for event in events), default=0.0)
    for event in (Event(wall_time=first, file_version="brain.Event:2"), *events):
        writer.write(event.SerializeToString(deterministic=True))
    return out.getvalue()


def study_files(study: Scaling, markdown: str) -> dict[str, bytes]:
    """Build a sweep's event files by folder: the study as text, and each measured cell as a session."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb

    config = hparams_config_pb(
        hparams=[HParam(name) for name in SWEPT],
        metrics=[Metric(tag, display_name=tag.partition("/")[2]) for tag in METRICS],
        time_created_secs=0,
    )
    files = {".": _records([Event(summary=config), _text("study", markdown, 0.0)])}
    return files | {cell.name: _session(cell, metrics) for cell, metrics in sessions(study) if metrics}


def sessions(study: Scaling) -> Iterator[tuple[CellRow, dict[str, float]]]:
    """Yield each cell with its metrics by tag, those that are known."""
    for cell, weak, strong in zip(study.cells, study.weak, study.strong, strict=True):
        exposed, overlap = (cell.measured.get(name) for name in ("exposed_comm_ns", "overlap"))
        figures: Mapping[str, float | None] = {
            "step": _scaled(cell.step.median_ns, NS_PER_MS),
            "samples_per_s": cell.samples_per_s,
            "weak": weak.efficiency.value if weak.efficiency else None,
            "strong": strong.efficiency.value if strong.efficiency else None,
            "exposed_comm_ns": _scaled(exposed.median if exposed else None, NS_PER_MS),
            "overlap": overlap.median if overlap else None,
            "busbw": cell.gradients.busbw_gbps.median,
            "memory": _scaled(cell.peak_memory_bytes, 1e9),
        }
        yield cell, {tag: value for tag, name in METRICS.items() if (value := figures[name]) is not None}


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _session(cell: CellRow, metrics: Mapping[str, float]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    swept = {name: getattr(cell, name) for name in SWEPT}
    start = hparams_pb(swept, trial_id=encodable(cell.name), start_time_secs=0)
    values = [_scalar(tag, value) for tag, value in metrics.items()]
    return _records([Event(summary=start), Event(step=0, summary={"value": values})])
