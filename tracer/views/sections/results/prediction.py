"""Sections of predictions: the answer first, then each prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from analyzers.prediction import AtGpus, Baseline, MeasuredFrom, Prediction, ScaleOut, WhatIf, doubts, is_own
from analyzers.units import ms, percent
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

# What changes the step by less than this share has no line of its own, where there are more than a few.
LEAST_SHOWN, FEW = 0.001, 5
_STEP = "What a step would take: the step as measured less the gain."
_GAIN = "What that takes off the step: the recorded steps, replayed without and with what is changed."
_WITHIN = "What the gain lies between, the replay's own error included."
_EXPOSED = "Transfers of gradients beside no kernel that computes; of accumulated batches the last one's."
_EFFICIENCY = "A step of one GPU that synchronizes nothing, over the predicted step."


def prediction_text(prediction: WhatIf, width: int | None = None, color: bool = False) -> str:
    """Write all of it; prose wrapped at `width` columns if given, in terminal colors if asked for."""
    return rendered(sections(prediction), width, color)


def sections(prediction: WhatIf) -> list[Section]:
    """Return the parts in order."""
    return [
        [Paragraph(f"{prediction.run} · what if")],
        [Heading(f"{sentence(prediction.headline)}"), *own(prediction)],
        [Caution(warning) for warning in prediction.warnings],
        other_scenarios(prediction),
        scenarios(prediction),
        scale_out_section(prediction),
        basis(prediction),
    ]


def own(prediction: WhatIf) -> Section:
    """Show how far the answer can be trusted, and the run's own settings, as measured and as replayed."""
    baseline = prediction.baseline
    settings = own_gpus(baseline)
    if not prediction.is_of_fsdp and baseline.buckets:
        settings = f"{cap(baseline.bucket_mb)}, {settings}, {count(len(baseline.buckets), 'bucket')}"
    why = prediction.grade_why or ""
    why = f": {why}" if why and why not in prediction.headline else ""
    return [
        Paragraph(f"Trust is {prediction.grade}{why}."),
        Paragraph(
            f"The run's own step ({settings}): {ms(baseline.measured_step_ns)} measured ({baseline.measured_from}), "
            f"{ms(baseline.predicted_step_ns)} as replayed ({signed(baseline.error)})."
        ),
    ]


def other_scenarios(prediction: WhatIf) -> Section:
    """List what would change the step at the run's own settings, the largest gain first; nothing where nothing is."""
    if not prediction.others:
        return []
    told = shown(prediction)
    found = [[each for each in told if each.of_degree is degree] for degree in (False, True)]
    title = f"What would change the step, {_kind(prediction.baseline)}, ms"
    lines = [table(_OTHER, *(rows for rows in found if rows), is_spaced=True)] if told else []
    rest = [each.words for each in prediction.others if each not in told]
    nothing = [Paragraph(f"Would bring nothing: {'; '.join(rest)}.", is_faint=True)] if rest else []
    return [Heading(title), *lines, *(Paragraph(f"? {why}") for why in doubts(told)), *nothing]


def shown(prediction: WhatIf) -> list[Prediction]:
    """Return what would change the step by enough to have a line; all, where that is but a few."""
    told = [each for each in prediction.others if abs(each.share) >= LEAST_SHOWN]
    return told if len(prediction.others) > FEW else prediction.others


def scenarios(prediction: WhatIf) -> Section:
    """List settings, a group of rows per number of GPUs; what is not to be trusted is marked, and why."""
    if not prediction.of_settings:
        return []
    groups = [list(group) for _, group in groupby(prediction.of_settings, key=lambda each: each.gpus)]
    title = f"Predicted steps under other settings, {_kind(prediction.baseline)}, ms"
    lines = table(_setting_fields(prediction), *groups, is_spaced=True)
    return [Heading(title), lines, *map(Paragraph, _notes(prediction))]


def rows_besides_caps(prediction: WhatIf) -> list[Prediction]:
    """Return the scenarios that have no place over bucket caps: FSDP2's, and all that is changed besides."""
    return [*([] if prediction.has_caps else prediction.of_settings), *shown(prediction)]


def row_words(scenario: Prediction) -> str:
    """Say what a scenario is."""
    return scenario.words


def within(scenario: Prediction) -> str:
    """Write what a gain lies between."""
    return " to ".join(map(milliseconds, scenario.within_ns))


def _kind(baseline: Baseline) -> str:
    return "unprofiled" if baseline.measured_from == MeasuredFrom.UNPROFILED else "as under the profiler"


def _setting_fields(prediction: WhatIf) -> list[Field[Prediction]]:
    """Return the columns of settings: buckets and links under DDP, options under FSDP2."""
    own_mark: Field[Prediction] = Field(
        "", True, cell=lambda scenario: mark(scenario.reliable) + "*" * is_own(scenario, prediction)
    )
    if prediction.is_of_fsdp:
        return [own_mark, _WORDS, *_GPUS, *_PREDICTED]
    return [own_mark, *_BUCKETS, *_GPUS, *_PREDICTED, *_COSTS, *_LINKS]


def _notes(prediction: WhatIf) -> Iterator[str]:
    if any(is_own(scenario, prediction) for scenario in prediction.of_settings):
        yield "* the run's own settings"
    said = doubts(shown(prediction))
    yield from (f"? {why}" for why in doubts(prediction.of_settings) if why not in said)


def scale_out_section(prediction: WhatIf) -> Section:
    """List the best cap per number of GPUs, and when communication shows; nothing for one number."""
    out = prediction.scale_out
    if out is None:
        return []
    title = "Scaling out, the batch of each GPU as it was: the best cap for each number of GPUs, ms"
    return [
        Heading(title),
        table(_SCALE, out.rows),
        Paragraph(no_longer_hidden(out)),
        Paragraph(hidden_means(out), is_faint=True),
    ]


def _state(row: AtGpus) -> str:
    return "-" if row.gpus == 1 else "hidden" if row.hidden else "exposed"


def no_longer_hidden(out: ScaleOut) -> str:
    """Say from which number of GPUs on communication shows."""
    if out.exposed_from_gpus is None:
        return f"Communication stays hidden up to {gpus(out.rows[-1].gpus)}."
    row = next(row for row in out.rows if row.gpus == out.exposed_from_gpus)
    hidden = [earlier.gpus for earlier in out.rows if earlier.hidden and 1 < earlier.gpus < row.gpus]
    before = f" On {gpus(hidden[-1])} it still is." if hidden else ""
    exposed = f"{ms(row.predicted_exposed_comm_ns)} of it are exposed under the best cap"
    return f"On {gpus(row.gpus)} communication is no longer hidden: {exposed}.{before}"


def hidden_means(out: ScaleOut) -> str:
    """Say what hidden means."""
    return (
        f"(Hidden: no more of it is exposed than {percent(out.little)} of the step, or than {ms(out.noise_ns)}, the "
        "noise.)"
    )


def basis(prediction: WhatIf) -> Section:
    """List what predictions rest on."""
    lines = list(prediction.assumptions)
    if prediction.of_settings:
        efficiency = "efficiency: the step of one GPU that synchronizes nothing, over the predicted one; equal batches"
        noise = f"settings whose steps differ by less than {ms(prediction.uncertainty_ns)} are not told apart"
        of_ddp = [] if prediction.is_of_fsdp else [efficiency]
        lines = [f"links: {prediction.links}", *lines, noise, *of_ddp]
    return [Heading("What this rests on"), *(Paragraph(line, is_indented=True) for line in lines)] if lines else []


def cap(bucket_mb: float | None) -> str:
    """Write a bucket cap."""
    return "default" if bucket_mb is None else f"{bucket_mb:g} MB"


def gpus(number: int | None) -> str:
    """Write `1 GPU`, `1,024 GPUs`."""
    return f"{number or 1:,} GPU" + "s" * (number != 1)


def own_gpus(baseline: Baseline) -> str:
    """Write how many GPUs a run has, or ranks where it has none."""
    return count(baseline.gpus, "rank") if baseline.on_cpus else gpus(baseline.gpus)


def mark(reliable: bool) -> str:
    """Return `?` for what is not to be trusted."""
    return "" if reliable else "?"


def signed(share: float) -> str:
    """Write a share with its sign, `0.0 %` without one."""
    figure = f"{100 * share:+.1f} %"
    return "0.0 %" if figure in ("+0.0 %", "-0.0 %") else figure


_WORDS: Field[Prediction] = Field("with", True, cell=row_words)
_GPUS: Sequence[Field[Prediction]] = (Field("GPUs", cell=lambda scenario: f"{scenario.gpus:,}"),)
_PREDICTED: Sequence[Field[Prediction]] = (
    field("step_ns", "step", _STEP),
    field("gain_ns", "gain", _GAIN),
    Field("between", help=_WITHIN, cell=within),
)
_COSTS: Sequence[Field[Prediction]] = (
    field("predicted_exposed_comm_ns", "exposed\ntransfer", _EXPOSED),
    field("efficiency", "efficiency", _EFFICIENCY),
)
_BUCKETS: Sequence[Field[Prediction]] = (
    Field(
        "cap", help="The bucket cap, MB.", cell=lambda scenario: cap(scenario.bucket_mb) if scenario.buckets else "-"
    ),
    Field(
        "buckets", help="How many buckets the gradients make.", cell=lambda scenario: str(len(scenario.buckets) or "-")
    ),
)
_LINKS: Sequence[Field[Prediction]] = (
    field("link_gbps", "busbw\nGB/s"),
    Field("latency\nus", cell=lambda scenario: "-" if scenario.latency_us is None else f"{scenario.latency_us:,.1f}"),
)
_OTHER: Sequence[Field[Prediction]] = (
    Field("", True, cell=lambda scenario: mark(scenario.reliable and scenario.within_ns[0] > 0)),
    _WORDS,
    *_PREDICTED,
    Field("of the\nstep", help="The gain's share of the step.", cell=lambda scenario: percent(scenario.share)),
)
_SCALE: Sequence[Field[AtGpus]] = (
    Field("", True, cell=lambda row: mark(row.reliable)),
    Field("GPUs", cell=lambda row: f"{row.gpus:,}"),
    Field("best cap", help="The bucket cap with the shortest step.", cell=lambda row: cap(row.bucket_mb)),
    field("step_ns", "step", _STEP),
    field("predicted_exposed_comm_ns", "exposed\ntransfer", _EXPOSED),
    field("efficiency", "efficiency", _EFFICIENCY),
    Field("communication", True, help="Whether communication is hidden behind compute.", cell=_state),
)
