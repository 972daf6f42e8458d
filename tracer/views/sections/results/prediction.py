"""Sections of predictions: baseline, scenarios, recommendation, assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from analyzers.prediction import (
    AtGpus,
    Baseline,
    Cause,
    MeasuredFrom,
    ScaleOut,
    Scenario,
    WhatIf,
    against_own,
    doubts,
    is_own,
    known_within,
    micro_batches,
    scale_out,
)
from analyzers.units import ms, percent, rounded_percent
from tracer.views import (
    Caution,
    Heading,
    Paragraph,
    Section,
    Table,
    count,
    gbps,
    milliseconds,
    numbers,
    rendered,
    texts,
)

HEADS = [
    *texts(""),
    *numbers("cap", "buckets", "GPUs", "step", "nine\nin ten", "against\nown", "exposed\ncomm", "compute\nwaits"),
    *numbers("efficiency"),
    *numbers("busbw\nGB/s", "latency\nus"),
]
FSDP_HEADS = [
    *texts("", ""),
    *numbers("GPUs", "step", "nine\nin ten", "against\nown", "exposed\ncomm", "compute\nwaits", "efficiency"),
]
OTHER_HEADS = [*texts("", ""), *numbers("step", "nine\nin ten", "gain")]
WITHOUT_LATENESS = {
    Cause.ALL: "{who} as the others",
    Cause.COMPUTE: "in its compute alone",
    Cause.HOST: "in its CPU's launches alone, input included",
    Cause.INPUT: "in waits for its DataLoader alone",
}
SCALE_HEADS = [
    *texts(""),
    *numbers("GPUs", "best cap", "step", "compute\nwaits", "efficiency"),
    *texts("communication"),
]


def prediction_text(prediction: WhatIf, width: int | None = None, color: bool = False) -> str:
    """Write all of it; prose wrapped at `width` columns if given, in terminal colors if asked for."""
    return rendered(sections(prediction), width, color)


def sections(prediction: WhatIf) -> list[Section]:
    """Return the parts in order."""
    return [
        [Paragraph(f"{prediction.run} · what if"), *own(prediction)],
        [Heading(sentence(prediction.headline))],
        [Caution(warning) for warning in prediction.warnings],
        scenarios(prediction),
        other_scenarios(prediction),
        scale_out_section(prediction),
        basis(prediction),
    ]


def own(prediction: WhatIf) -> Section:
    """Show the run's own settings, as measured and as predicted."""
    baseline = prediction.baseline
    settings = gpus(baseline.gpus)
    if prediction.synchronizes and not prediction.is_of_fsdp and baseline.buckets:
        settings = f"{cap(baseline.bucket_mb)}, {settings}, {count(len(baseline.buckets), 'bucket')}"
    replayed = "its profiled steps less the profiler's cost" if _kind(baseline) == "unprofiled" else "its steps"
    return [
        Paragraph(
            f"The run's own settings ({settings}): {ms(baseline.measured_step_ns)} per step measured "
            f"({baseline.measured_from}), {ms(baseline.predicted_step_ns)} predicted by a replay of {replayed} "
            f"({signed(baseline.error)}); {_noise(prediction)}."
        )
    ]


def _noise(prediction: WhatIf) -> str:
    noise_ns, step_ns = prediction.uncertainty_ns, prediction.baseline.predicted_step_ns
    return f"differences below {ms(noise_ns)} are noise" if noise_ns < step_ns else known_within(noise_ns, step_ns)


def scenarios(prediction: WhatIf) -> Section:
    """List every scenario, a group of rows per number of GPUs; what is not to be trusted is marked, and why.

    One GPU has no buckets: nothing of it alone.
    """
    if not prediction.synchronizes:
        return []
    heads, cells = (FSDP_HEADS, _fsdp_cells) if prediction.is_of_fsdp else (HEADS, _cells)
    groups = [
        [cells(scenario, prediction) for scenario in group]
        for _, group in groupby(prediction.of_settings, key=lambda scenario: scenario.gpus)
    ]
    title = (
        f"Predicted steps, {_kind(prediction.baseline)}, ms; compared with the prediction for the run's own settings"
    )
    return [Heading(title), Table(heads, groups, is_spaced=True), *map(Paragraph, _notes(prediction))]


def other_scenarios(prediction: WhatIf) -> Section:
    """List the run's own settings with something else changed; nothing where nothing is."""
    if not prediction.others:
        return []
    by_kind = groupby(prediction.others, key=lambda scenario: scenario.kind)
    lines = Table(OTHER_HEADS, [[_other_cells(scenario) for scenario in group] for _, group in by_kind], is_spaced=True)
    said = doubts(prediction.of_settings) if prediction.synchronizes else []
    new = [why for why in doubts(prediction.others) if why not in said]
    what = "What else" if prediction.synchronizes else "What"
    title = f"{what} would change the step, at the run's own settings, ms"
    return [Heading(title), lines, *(Paragraph(f"? {why}") for why in new)]


def _other_cells(scenario: Scenario) -> list[str]:
    step, gain = milliseconds(scenario.predicted_step_ns), milliseconds(scenario.gain_ns)
    return [mark(scenario.reliable), what_changes(scenario), step, interval(scenario), gain]


def what_changes(scenario: Scenario) -> str:
    """Say what a scenario changes at the run's own settings."""
    if scenario.cause is not None:
        who = "every rank" if scenario.rank is None else f"rank {scenario.rank}"
        return WITHOUT_LATENESS[scenario.cause].format(who=who)
    if scenario.grad_accumulation is not None:
        return f"{micro_batches(scenario.grad_accumulation)} a step, synchronized once"
    if not scenario.host_time:
        return "the step as one CUDA graph"
    return f"launches in {rounded_percent(scenario.host_time)} of the CPU's time"


def rows_besides_caps(prediction: WhatIf) -> list[Scenario]:
    """Return the scenarios that have no place over bucket caps: FSDP2's, and all that is changed besides."""
    besides = not prediction.has_caps and prediction.synchronizes
    return [*(prediction.of_settings if besides else []), *prediction.others]


def row_words(scenario: Scenario, prediction: WhatIf) -> str:
    """Say what a scenario is, with its number of GPUs where that is not the run's."""
    if scenario.cause not in (None, Cause.ALL):
        return f"{'every rank' if scenario.rank is None else f'rank {scenario.rank}'} {what_changes(scenario)}"
    if not scenario.is_of_settings:
        return what_changes(scenario)
    what = "as recorded" if scenario.sharding is None else scenario.sharding.words
    return what if scenario.gpus == prediction.baseline.gpus else f"{gpus(scenario.gpus)}: {what}"


def interval(scenario: Scenario) -> str:
    """Write where nine of ten such steps are expected."""
    return "-".join(map(milliseconds, scenario.interval_ns))


def _kind(baseline: Baseline) -> str:
    return "unprofiled" if baseline.measured_from == MeasuredFrom.UNPROFILED else "as under the profiler"


def _cells(scenario: Scenario, prediction: WhatIf) -> list[str]:
    latency = "-" if scenario.latency_us is None else f"{scenario.latency_us:,.1f}"
    return [
        mark(scenario.reliable) + "*" * is_own(scenario, prediction),
        cap(scenario.bucket_mb) if scenario.buckets else "-",
        str(len(scenario.buckets) or "-"),
        *_step_cells(scenario, prediction),
        gbps(scenario.link_gbps),
        latency,
    ]


def _fsdp_cells(scenario: Scenario, prediction: WhatIf) -> list[str]:
    return [
        mark(scenario.reliable) + "*" * is_own(scenario, prediction),
        "as recorded" if scenario.sharding is None else scenario.sharding.words,
        *_step_cells(scenario, prediction),
    ]


def _step_cells(scenario: Scenario, prediction: WhatIf) -> list[str]:
    return [
        f"{scenario.gpus:,}",
        milliseconds(scenario.predicted_step_ns),
        interval(scenario),
        signed(against_own(scenario, prediction.baseline)),
        milliseconds(scenario.predicted_exposed_comm_ns),
        milliseconds(scenario.predicted_stall_ns),
        percent(scenario.efficiency),
    ]


def _notes(prediction: WhatIf) -> Iterator[str]:
    if any(is_own(scenario, prediction) for scenario in prediction.scenarios):
        yield "* the run's own settings"
    yield from (f"? {why}" for why in doubts(prediction.of_settings))


def scale_out_section(prediction: WhatIf) -> Section:
    """List the best cap per number of GPUs, and when communication shows; nothing for one number."""
    out = scale_out(prediction)
    if out is None:
        return []
    lines = Table(SCALE_HEADS, [[_scale_cells(row) for row in out.rows]])
    title = "Scaling out, the batch of each GPU as it was: the best cap for each number of GPUs, ms"
    return [Heading(title), lines, Paragraph(no_longer_hidden(out)), Paragraph(hidden_means(out), is_faint=True)]


def _scale_cells(row: AtGpus) -> list[str]:
    times = (milliseconds(row.predicted_step_ns), milliseconds(row.predicted_stall_ns))
    state = "-" if row.gpus == 1 else "hidden" if row.hidden else "exposed"
    return [mark(row.reliable), f"{row.gpus:,}", cap(row.bucket_mb), *times, percent(row.efficiency), state]


def no_longer_hidden(out: ScaleOut) -> str:
    """Say from which number of GPUs on compute waits for communication."""
    if out.exposed_from_gpus is None:
        return f"Communication stays hidden up to {gpus(out.rows[-1].gpus)}."
    row = next(row for row in out.rows if row.gpus == out.exposed_from_gpus)
    waits = f"compute waits {ms(row.predicted_stall_ns)} for it under the best cap"
    hidden = [earlier.gpus for earlier in out.rows if earlier.hidden and 1 < earlier.gpus < row.gpus]
    before = f" On {gpus(hidden[-1])} it still is." if hidden else ""
    return f"On {gpus(row.gpus)} communication is no longer hidden: {waits}.{before}"


def hidden_means(out: ScaleOut) -> str:
    """Say what hidden means."""
    return (
        f"(Hidden: compute waits for communication no longer than {percent(out.little)} of the step, or than "
        f"{ms(out.noise_ns)}, the noise. Communication during gaps between kernels is exposed, too, but costs nothing.)"
    )


def basis(prediction: WhatIf) -> Section:
    """List what predictions rest on."""
    if not prediction.synchronizes and not prediction.assumptions:
        return []
    lines = [
        *([f"links: {prediction.links}"] if any(each.gpus > 1 for each in prediction.scenarios) else []),
        *prediction.assumptions,
        *(
            ["efficiency: the step of one GPU that synchronizes nothing, over the predicted one; equal batches"]
            if prediction.synchronizes
            else []
        ),
    ]
    return [Heading("What this rests on"), *(Paragraph(line, is_indented=True) for line in lines)]


def cap(bucket_mb: float | None) -> str:
    """Write a bucket cap."""
    return "default" if bucket_mb is None else f"{bucket_mb:g} MB"


def gpus(number: int) -> str:
    """Write `1 GPU`, `1,024 GPUs`."""
    return f"{number:,} GPU" + "s" * (number != 1)


def mark(reliable: bool) -> str:
    """Return `?` for what is not to be trusted."""
    return "" if reliable else "?"


def signed(share: float) -> str:
    """Write a share with its sign, `0.0 %` without one."""
    figure = f"{100 * share:+.1f} %"
    return "0.0 %" if figure in ("+0.0 %", "-0.0 %") else figure


def sentence(clause: str) -> str:
    """Make a sentence from a clause."""
    return f"{clause[:1].upper()}{clause[1:]}."
