"""Sections of predictions: baseline, scenarios, recommendation, assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    microbatches,
    scale_out,
)
from analyzers.units import ms, percent, rounded_percent
from tracer.views import (
    Caution,
    Field,
    Heading,
    Paragraph,
    Section,
    count,
    field,
    milliseconds,
    rendered,
    sentence,
    table,
)

_STEP = "What a step would take: the recorded steps, replayed with what is changed."
_INTERVAL = "Where nine of ten such steps are expected."
_EXPOSED = "Communication with no kernel beside it that computes."
_STALL = "What of that costs time, and moments before collectives begin; the rest is beside copies."
_EFFICIENCY = "A step of one GPU that synchronizes nothing, over the predicted step."
_AGAINST_OWN = "The change against the run's own settings, predicted by the same replay."
WITHOUT_LATENESS = {
    Cause.ALL: "{who} as the others",
    Cause.COMPUTE: "in its compute alone",
    Cause.HOST: "in its CPU's launches alone, input included",
    Cause.INPUT: "in waits for its DataLoader alone",
}


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
    groups = [list(group) for _, group in groupby(prediction.of_settings, key=lambda scenario: scenario.gpus)]
    title = (
        f"Predicted steps, {_kind(prediction.baseline)}, ms; compared with the prediction for the run's own settings"
    )
    lines = table(_scenario_fields(prediction), *groups, is_spaced=True)
    return [Heading(title), lines, *map(Paragraph, _notes(prediction))]


def other_scenarios(prediction: WhatIf) -> Section:
    """List the run's own settings with something else changed; nothing where nothing is."""
    if not prediction.others:
        return []
    by_kind = groupby(prediction.others, key=lambda scenario: scenario.kind)
    lines = table(_OTHER, *(list(group) for _, group in by_kind), is_spaced=True)
    said = doubts(prediction.of_settings) if prediction.synchronizes else []
    new = [why for why in doubts(prediction.others) if why not in said]
    what = "What else" if prediction.synchronizes else "What"
    title = f"{what} would change the step, at the run's own settings, ms"
    return [Heading(title), lines, *(Paragraph(f"? {why}") for why in new)]


def what_changes(scenario: Scenario) -> str:
    """Say what a scenario changes at the run's own settings."""
    if scenario.cause is not None:
        who = "every rank" if scenario.rank is None else f"rank {scenario.rank}"
        return WITHOUT_LATENESS[scenario.cause].format(who=who)
    if scenario.grad_accumulation is not None:
        return f"{microbatches(scenario.grad_accumulation)} a step, synchronized once"
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


def _scenario_fields(prediction: WhatIf) -> list[Field[Scenario]]:
    """Return the columns of scenarios of settings: buckets and links under DDP, shardings under FSDP2."""
    own_mark: Field[Scenario] = Field(
        "", True, cell=lambda scenario: mark(scenario.reliable) + "*" * is_own(scenario, prediction)
    )
    against: Field[Scenario] = Field(
        "against\nown", help=_AGAINST_OWN, cell=lambda scenario: signed(against_own(scenario, prediction.baseline))
    )
    step = [*_GPUS, *_PREDICTED, against, *_COSTS]
    return [own_mark, _SHARDING, *step] if prediction.is_of_fsdp else [own_mark, *_BUCKETS, *step, *_LINKS]


def _notes(prediction: WhatIf) -> Iterator[str]:
    if any(is_own(scenario, prediction) for scenario in prediction.scenarios):
        yield "* the run's own settings"
    yield from (f"? {why}" for why in doubts(prediction.of_settings))


def scale_out_section(prediction: WhatIf) -> Section:
    """List the best cap per number of GPUs, and when communication shows; nothing for one number."""
    out = scale_out(prediction)
    if out is None:
        return []
    lines = table(_SCALE, out.rows)
    title = "Scaling out, the batch of each GPU as it was: the best cap for each number of GPUs, ms"
    return [Heading(title), lines, Paragraph(no_longer_hidden(out)), Paragraph(hidden_means(out), is_faint=True)]


def _state(row: AtGpus) -> str:
    return "-" if row.gpus == 1 else "hidden" if row.hidden else "exposed"


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


_GPUS: Sequence[Field[Scenario]] = (Field("GPUs", cell=lambda scenario: f"{scenario.gpus:,}"),)
_PREDICTED: Sequence[Field[Scenario]] = (
    field("predicted_step_ns", "step", _STEP),
    Field("nine\nin ten", help=_INTERVAL, cell=interval),
)
_COSTS: Sequence[Field[Scenario]] = (
    field("predicted_exposed_comm_ns", "exposed\ncomm", _EXPOSED),
    field("predicted_stall_ns", "compute\nwaits", _STALL),
    field("efficiency", "efficiency", _EFFICIENCY),
)
_SHARDING: Field[Scenario] = Field(
    "", True, cell=lambda scenario: "as recorded" if scenario.sharding is None else scenario.sharding.words
)
_BUCKETS: Sequence[Field[Scenario]] = (
    Field(
        "cap", help="The bucket cap, MB.", cell=lambda scenario: cap(scenario.bucket_mb) if scenario.buckets else "-"
    ),
    Field(
        "buckets", help="How many buckets the gradients make.", cell=lambda scenario: str(len(scenario.buckets) or "-")
    ),
)
_LINKS: Sequence[Field[Scenario]] = (
    field("link_gbps", "busbw\nGB/s"),
    Field("latency\nus", cell=lambda scenario: "-" if scenario.latency_us is None else f"{scenario.latency_us:,.1f}"),
)
_OTHER: Sequence[Field[Scenario]] = (
    Field("", True, cell=lambda scenario: mark(scenario.reliable)),
    Field("", True, cell=what_changes),
    *_PREDICTED,
    field("gain_ns", "gain", "What it takes off the step with the run's own settings, predicted by the same replay."),
)
_SCALE: Sequence[Field[AtGpus]] = (
    Field("", True, cell=lambda row: mark(row.reliable)),
    Field("GPUs", cell=lambda row: f"{row.gpus:,}"),
    Field("best cap", help="The bucket cap with the shortest step.", cell=lambda row: cap(row.bucket_mb)),
    field("predicted_step_ns", "step", _STEP),
    field("predicted_stall_ns", "compute\nwaits", _STALL),
    field("efficiency", "efficiency", _EFFICIENCY),
    Field("communication", True, help="Whether communication is hidden behind compute.", cell=_state),
)
