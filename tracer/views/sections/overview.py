"""The text report: its overview, and the order of its sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import asdict

from analyzers.reporting import ControlFigures, Report, RunFacts, Window
from analyzers.run import Epoch
from analyzers.units import NS_PER_S, between_ms, ms, percent
from tracer.views import (
    COMM,
    HELP,
    PARTS,
    By,
    Caution,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    count,
    field,
    is_wide,
    milliseconds,
    rendered,
    size,
    table,
)
from tracer.views.sections.advice import advice_section, true_cost
from tracer.views.sections.causes import by_cause, by_charge, causes_in_full
from tracer.views.sections.communication import by_collective, communication_section, waiting
from tracer.views.sections.compute import compute_section
from tracer.views.sections.groups import by_group, groups_section
from tracer.views.sections.idle import idle_section
from tracer.views.sections.model import by_bucket, by_expert, by_layer
from tracer.views.sections.pipeline import pipeline_section
from tracer.views.sections.ranks import communicates, folded, ranks_and_bars, step_fields, timed_with
from tracer.views.sections.step_timeline import timeline

# As many kernels as the report has.
MOST_LISTED = 50
# As many loaders and optimizers as a recording writes down.
_MOST_SETTINGS = 8


def report_text(report: Report, by: By = "rank", width: int | None = None, color: bool = False) -> str:
    """Write the whole report; prose wrapped at `width` columns if given, in terminal colors if asked for."""
    return rendered(report_sections(report, by, width), width, color)


def notices_text(report: Report, width: int | None = None, color: bool = False) -> str:
    """Write all warnings and notes, as they stand below a screen."""
    run = report.run
    warnings: Section = [Caution(warning) for warning in folded(run.warnings)]
    notes: Section = [Paragraph(f"note: {note}") for note in folded(run.notes)]
    nothing: Section = [] if run.notices else [Paragraph("No warnings and no notes.")]
    return rendered([warnings, notes, nothing], width, color)


def report_sections(report: Report, by: By = "rank", width: int | None = None) -> list[Section]:
    """Return the report's parts in order, as wide as there is room."""
    parts: list[Section] = [
        [Paragraph(run_title(report.run))],
        [Heading(report.summary.verdict)],
        *([advice_section(report)] if by == "rank" else []),
        [Caution(warning) for warning in folded(report.run.warnings)],
        *_VIEWS[by](report, width),
        controls(report.run),
        *([true_cost(report)] if by == "rank" else []),
        [Paragraph(f"note: {note}", is_faint=True) for note in folded(report.run.notes)],
    ]
    return [part for part in parts if part]


def _rank_view(report: Report, width: int | None) -> list[Section]:
    measured = [ranks_and_bars(report, width), timeline(report, width), *_exchange(report), representative(report)]
    return [
        *measured,
        idle_section(report),
        causes_in_full(report),
        *([pipeline_section(report, width)] if report.pipeline else []),
        *([by_expert(report)] if report.experts or report.attention else []),
        compute_section(report),
        loader(report),
        epochs(report.run),
        memory(report.run),
        training(report.run),
    ]


def _exchange(report: Report) -> list[Section]:
    return [groups_section(report), communication_section(report), waiting(report)]


# What each way of looking at a run shows, between its title and its controls.
_VIEWS: dict[By, Callable[[Report, int | None], list[Section]]] = {
    "rank": _rank_view,
    "step": lambda report, width: [by_step(report), *_exchange(report), representative(report), loader(report)],
    "collective": lambda report, width: [by_collective(report), representative(report)],
    "group": lambda report, width: [by_group(report), timeline(report, width)],
    "bucket": lambda report, width: [by_bucket(report, width), timeline(report, width)],
    "layer": lambda report, width: [by_layer(report, is_wide(width))],
    "expert": lambda report, width: [by_expert(report)],
    "kernel": lambda report, width: [compute_section(report, most=MOST_LISTED)],
    "pipeline": lambda report, width: [pipeline_section(report, width)],
    "cause": lambda report, width: [by_cause(report)],
    "charge": lambda report, width: [by_charge(report)],
}


def run_title(run: RunFacts) -> str:
    """Say in one line what was run on what."""
    batch = f"batch {run.batch_per_gpu} per device" if run.batch_per_gpu else None
    partial = len(run.ranks) < run.world_size
    ranks = f"{len(run.ranks)} of {run.world_size} ranks" if partial else count(run.world_size, "rank")
    if run.strategy == "dp":
        ranks = f"1 process, {count(len(run.devices), 'device')}"
    versions = [f"{name} {run.versions[name]}" for name in ("torch", "nccl") if run.versions.get(name)]
    workload = " ".join(word for word in (run.model, run.strategy) if word)
    devices = ", ".join(dict.fromkeys(run.devices))
    facts = [run.name, workload, batch, ranks, devices, *versions]
    return " · ".join(fact for fact in facts if fact)


def by_step(report: Report) -> Section:
    """List every window."""
    fields: Sequence[Field[Window]] = (
        Field("rank", cell=lambda window: str(window.rank)),
        Field("device", cell=lambda window: str(window.device)),
        Field("step", help=HELP["span_ns"], cell=lambda window: str(window.step)),
        field("start_ns", "starts", wide=True),
        field("span_ns", "span"),
        *step_fields(report),
        Field("", True, cell=lambda window: "" if window.typical else "in no figure"),
    )

    def place(window: Window) -> Place:
        return Place(window.step, window.rank, window.device)

    return [Heading("Every window (one step on one device), ms"), table(fields, report.windows, place=place)]


def representative(report: Report) -> Section:
    """Show the one window whose lines add up."""
    window = report.representative_window
    parts = [(part.label, getattr(window, part.field)) for part in PARTS if part is not COMM or communicates(report)]
    parts += [("(idle for input)", window.input_idle_ns)] if window.input_idle_ns else []
    fields: Sequence[Field[tuple[str, int]]] = (
        Field("", cell=lambda part: part[0]),
        Field("ms", cell=lambda part: milliseconds(part[1])),
        Field("share", help=HELP["share"], cell=lambda part: _of(part[1], window)),
    )
    where = f"rank {window.rank}, device {window.device}, step {window.step}"
    heading = Heading(f"The step of median length ({where}), whose parts add up")
    comm = [Paragraph(_communication(window, report.summary.transfer_is_bound))] if communicates(report) else []
    return [heading, table(fields, parts, [("span", window.span_ns)]), *comm]


def _communication(window: Window, is_bound: bool) -> str:
    comm = (
        f"Communication takes {ms(window.comm_ns)}: {ms(window.overlapped_comm_ns)} hidden behind compute, "
        f"{ms(window.exposed_wait_ns)} exposed waiting, {'at most ' if is_bound else ''}"
        f"{ms(window.exposed_transfer_ns)} exposed transfer"
    )
    if window.exposed_unresolved_ns:
        comm += f", {ms(window.exposed_unresolved_ns)} exposed and unresolved"
    return comm


def _of(value_ns: int, window: Window) -> str:
    return percent(value_ns / window.span_ns if window.span_ns else None)


def loader(report: Report) -> Section:
    """Say what the loader takes, where the traces show one."""
    loading = report.summary.input
    if loading is None or loading.fetch_ns.median is None:
        return []
    longest = loading.longest
    most = f"; most on rank {longest.rank}, {ms(longest.idle_ns.median or 0)}" if len(loading.by_device) > 1 else ""
    line = (
        f"Input: the CPU is in the DataLoader for {ms(loading.fetch_ns.median)} per step of "
        f"{ms(loading.span_ns.median or 0)}; meanwhile the device is idle for {ms(loading.idle_ns.median or 0)}{most} "
        f"(medians; {timed_with(loading.window)})."
    )
    return [Paragraph(line)]


def training(run: RunFacts) -> Section:
    """Say with which settings it was trained, where the recording says so."""
    found = run.training
    if found is None:
        return []
    loaders = [_words("DataLoader", _options(**asdict(one))) for one in found.loaders[:_MOST_SETTINGS]]
    optimizers = [
        _words(one.name, _options(foreach=one.foreach, fused=one.fused)) for one in found.optimizers[:_MOST_SETTINGS]
    ]
    options = _options(
        # Where no forward was seen, its autocast was not either.
        autocast=found.autocast or ("off" if found.forwards_per_step else None),
        matmul_precision=found.matmul_precision,
        memory_format=found.memory_format,
        forwards_per_step=found.forwards_per_step,
        allocator=found.allocator or None,
    )
    return [Paragraph(f"Settings of the training: {'; '.join([*loaders, *optimizers, *options])}.")]


def _words(name: str, options: Sequence[str]) -> str:
    return f"{name} ({', '.join(options)})" if options else name


def _options(**values: object) -> list[str]:
    return [f"{name} {value}" for name, value in values.items() if value is not None]


def controls(run: RunFacts) -> Section:
    """Say what a step takes without the profiler, and without synchronization."""
    controls = run.controls
    if controls.unprofiled_step_ns is None:
        return []
    head = "Controls, with 95 % intervals" if controls.intervals_ns else "Controls"
    line = f"{head}: a step takes {_timed(controls, 'unprofiled_step_ns')} without the profiler"
    if controls.profiled_step_ns is not None:
        line += f", {_timed(controls, 'profiled_step_ns')} with it ({_factor(controls)})"
    if controls.nosync_step_ns is not None and controls.sync_cost_ns is not None:
        line += f"; {_timed(controls, 'nosync_step_ns')} without gradient synchronization, {_cost(controls)}"
    return [Paragraph(f"{line}.")]


def _timed(controls: ControlFigures, name: str) -> str:
    return f"{ms(getattr(controls, name))}{controls.known(name)}"


def _factor(controls: ControlFigures) -> str:
    if controls.distortion is None:
        return "-"
    limits = controls.interval("distortion")
    between = f", between {limits[0]:.3f} and {limits[1]:.3f}" if limits is not None else ""
    return f"x{controls.distortion:.3f}{between}"


def _cost(controls: ControlFigures) -> str:
    """Say what synchronization costs; where that cannot be told from nothing, what it lies between."""
    limits = controls.interval("sync_cost_ns")
    if limits is not None and not controls.is_sync_cost_told:
        return f"and whether synchronization costs anything cannot be told ({between_ms(limits)})"
    return f"so that synchronization costs {_timed(controls, 'sync_cost_ns')}"


SYNTHETIC = "Accuracy and loss mean nothing here: the data is synthetic, a few random batches over and over."


def epochs(run: RunFacts) -> Section:
    """List the epochs that were trained after the recording, if any."""
    if not run.epochs:
        return []
    data = run.dataset
    of_data = f" of {data.samples:,} samples ({data.name})" if data is not None else ""
    title = f"Epochs{of_data}, from new weights, without a profiler; times are the slowest rank's"
    remark = [Paragraph(SYNTHETIC)] if data is not None and data.is_synthetic else []
    return [Heading(title), table(_EPOCH, run.epochs), *remark]


_EPOCH: Sequence[Field[Epoch]] = (
    Field("epoch", cell=lambda epoch: str(epoch.epoch)),
    Field("s", cell=lambda epoch: f"{epoch.time_ns / NS_PER_S:,.2f}"),
    Field("steps", cell=lambda epoch: str(epoch.steps)),
    Field("loss", cell=lambda epoch: "-" if epoch.loss is None else f"{epoch.loss:.4f}"),
    field("accuracy", "accuracy"),
    Field("learning rate", cell=lambda epoch: f"{epoch.learning_rate:.4g}"),
    Field("", True, cell=lambda epoch: "warm-up: its time is not counted" if epoch.epoch == 1 else ""),
)


def memory(run: RunFacts) -> Section:
    """Say the most memory that any rank had in use."""
    if run.memory is None or not run.memory.peak_bytes:
        return []
    rank, peak_bytes = max(run.memory.peak_bytes.items(), key=lambda item: item[1])
    return [Paragraph(f"Memory: at most {size(peak_bytes)} in use, on rank {rank} ({run.memory.source}).")]
