"""Comparison of two runs' reports, table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.collectives import CollectiveRow
from analyzers.comparison.change import NOTHING, Change, Method, Pair, Samples, changes, enough, pooled, with_intervals
from analyzers.comparison.document import (
    SCHEMA,
    BucketChange,
    Changes,
    CollectiveChange,
    Comparison,
    Difference,
    GroupChange,
    LayerChange,
    Layouts,
)
from analyzers.comparison.promises import odd_gone, promised
from analyzers.comparison.serial import OF_BLOCKS
from analyzers.comparison.verdict import UNPROFILED, account, leading, verdict
from analyzers.layers import BUCKET_MEASURES, BucketRow, LayerRow
from analyzers.notices import Code, Notice
from analyzers.reporting import IDLE_CAUSES, Report, RunFacts, gradient_steps, group_steps, typical_of
from analyzers.run import HIGH_DISTORTION
from analyzers.step_parts import EXPOSED, SPLIT_PARTS, fields_of
from analyzers.trace import GLOO_BACKEND
from analyzers.units import percent

# A whole step; what its span is made of; what its buckets are measured by. Each is a table of its own.
STEP = ("span_ns", "exposed_comm_ns", "overlap")
BUSBW = "gradients_busbw_gbps"
OF_BUCKETS = tuple(name for name, is_compared in BUCKET_MEASURES.items() if is_compared)
OF_LAYERS = ("forward_ns", "backward_ns", "exposed_ns")
# Each control with the report's figure for it.
CONTROLS = {UNPROFILED: "unprofiled", "nosync_step_ns": "nosync", "profiled_step_ns": None}
# From such quartiles of its blocks on, over their median, a machine is said to have done something else, too.
SCATTERED = 0.05
# What no two runs that are the same thing measured twice may differ in.
SETTINGS = ("world_size", "devices", "backend", "strategy", "model", "batch_per_gpu", "bucket_cap_mb", "times_from")

GroupKey = tuple[str, int, int | None, str]
# The first is what a line is named with where only one run has it.
MEASURES = ("exposed_ns", *fields_of(EXPOSED), "comm_ns")


def compare(a: Report, b: Report) -> Comparison:
    """Compare B with A, the baseline."""
    layouts = _layouts(a, b)
    controls = {name: (_control(a, name), _control(b, name)) for name in CONTROLS}
    # What a comparison is made for is corrected for nothing else.
    others = {name: pair for name, pair in controls.items() if name != UNPROFILED}
    judged = changes({UNPROFILED: controls[UNPROFILED]}, OF_BLOCKS) | changes(others, OF_BLOCKS)
    step = changes(_windows(a, b, STEP) | {BUSBW: (_busbw(a), _busbw(b))})
    comparison = Comparison(
        schema=SCHEMA,
        a=a.run.name,
        b=b.run.name,
        verdict="",
        test=Method(),
        different=_differences(a.run, b.run),
        warnings=[
            *_warnings("A", a),
            *_warnings("B", b),
            *_of_both(a, b),
            *([Notice(Code.LAYOUTS_DIFFER, layouts.why)] if layouts.same is False and layouts.why else []),
        ],
        layouts=layouts,
        controls=with_intervals(judged, controls),
        step=step,
        parts=changes(_windows(a, b, fields_of(SPLIT_PARTS))),
        idle=changes(_idle(a, b)),
        totals=changes({name: (_total(a.buckets, name), _total(b.buckets, name)) for name in OF_BUCKETS}),
        buckets=_buckets(a, b) if layouts.same else [],
        layers=_layers(a, b),
        collectives=_collectives(a, b),
        groups=_by_group(a, b),
    )
    warnings = [*comparison.warnings, *_too_few(comparison), *_of_launches(a, b, comparison)]
    leader, _ = leading(comparison)
    accounted = account(typical_of(a.windows), typical_of(b.windows), leader, comparison.parts | comparison.idle)
    promise = promised(a, b, comparison.controls.get(UNPROFILED))
    comparison = replace(comparison, account=accounted, warnings=warnings, promise=promise, odd_gone=odd_gone(a, b))
    return replace(comparison, verdict=verdict(comparison))


def _windows(a: Report, b: Report, names: Sequence[str]) -> dict[str, Pair]:
    def samples_of(report: Report, name: str) -> Samples:
        return pooled((window.step, getattr(window, name)) for window in typical_of(report.windows))

    return {name: (samples_of(a, name), samples_of(b, name)) for name in names}


def _idle(a: Report, b: Report) -> dict[str, Pair]:
    """Return idle time by cause: those causes that either run has."""

    def samples_of(report: Report, cause: str) -> Samples:
        return pooled((window.step, getattr(window.idle, f"{cause}_ns")) for window in typical_of(report.windows))

    pairs = {f"idle_{cause}_ns": (samples_of(a, cause), samples_of(b, cause)) for cause in IDLE_CAUSES}
    return {name: pair for name, pair in pairs.items() if _says_anything(pair)}


def _control(report: Report, name: str) -> Samples:
    """Return a control's blocks of steps; their median, where an older report has none for they scattered."""
    controls = report.run.controls
    blocks = controls.blocks_ns.get(CONTROLS[name] or report.run.times_from, [])
    figure = getattr(controls, name)
    median = float(np.median(blocks)) if blocks else None
    return Samples(median if figure is None or not blocks else float(figure), dict(enumerate(blocks)))


def _busbw(report: Report) -> Samples:
    return pooled(gradient_steps(report.collectives).items())


def _total(rows: Sequence[BucketRow], name: str) -> Samples:
    """Add up all buckets in a step, on each rank; unknown where one of them is."""
    together: dict[tuple[int, int, int | str], list[int | None]] = {}
    for row in rows:
        together.setdefault((row.step, row.rank, row.device), []).append(getattr(row, name))
    return pooled((step, _sum(values)) for (step, _, _), values in together.items())


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _layouts(a: Report, b: Report) -> Layouts:
    """Whether both runs have the same buckets: as many, each with the same bytes."""
    of_a, of_b = _sizes(a), _sizes(b)
    if not of_a or not of_b:
        lacking = "B" if of_a else "A"
        return Layouts(of_a, of_b, None, f"{lacking} has no buckets that are known" if of_a or of_b else None)
    if of_a == of_b:
        return Layouts(of_a, of_b, True)
    sizes = f"A has {len(of_a)} of {_megabytes(of_a)} MB, B has {len(of_b)} of {_megabytes(of_b)} MB"
    return Layouts(of_a, of_b, False, f"bucket layouts differ: {sizes}; only their totals can be compared")


def _sizes(report: Report) -> list[int | None]:
    return [] if report.summary.layout is None else [bucket.bytes for bucket in report.summary.layout.buckets]


def _megabytes(sizes: Sequence[int | None]) -> str:
    shown = ["?" if size is None else f"{size / 1e6:.3g}" for size in sizes[:6]]
    return " + ".join(shown) + (" + ..." if len(sizes) > 6 else "")


def _buckets(a: Report, b: Report) -> list[BucketChange]:
    bytes_of = {bucket.bucket: bucket.bytes for bucket in (a.summary.layout.buckets if a.summary.layout else ())}
    of_a, of_b = _by_number(a.buckets), _by_number(b.buckets)
    pairs = {
        (number, name): (_reductions(of_a.get(number, []), name), _reductions(of_b.get(number, []), name))
        for number in bytes_of
        for name in OF_BUCKETS
    }
    return [
        BucketChange(number, bytes_of[number], measures) for number, measures in _by_subject(changes(pairs)).items()
    ]


def _by_number(rows: Sequence[BucketRow]) -> dict[int | None, list[BucketRow]]:
    by_number: dict[int | None, list[BucketRow]] = {}
    for row in rows:
        by_number.setdefault(row.bucket, []).append(row)
    return by_number


def _reductions(rows: Sequence[BucketRow], name: str) -> Samples:
    return pooled((row.step, getattr(row, name)) for row in rows)


def _by_subject(changed: Mapping[tuple[Any, str], Change]) -> dict[Any, Changes]:
    """Group a table's figures by subject."""
    subjects: dict[Any, Changes] = {}
    for (subject, measure), change in changed.items():
        subjects.setdefault(subject, {})[measure] = change
    return subjects


def _layers(a: Report, b: Report) -> list[LayerChange]:
    types = {row.layer: row.type for report in (b, a) for row in report.layers}
    of_a, of_b = (dict(_layer_samples(report.layers)) for report in (a, b))
    names = list(dict.fromkeys([*of_a, *of_b]))
    nothing = dict.fromkeys(OF_LAYERS, Samples(None, {}))
    pairs = {
        (layer, measure): pair
        for layer in names
        for measure in OF_LAYERS
        if _says_anything(pair := (of_a.get(layer, nothing)[measure], of_b.get(layer, nothing)[measure]))
    }
    return [LayerChange(layer, types[layer], measures) for layer, measures in _by_subject(changes(pairs)).items()]


def _by_group(a: Report, b: Report) -> list[GroupChange]:
    pairs = {key: pair for key, pair in group_pairs(a, b).items() if _says_anything(pair)}
    return [GroupChange(name, measures) for name, measures in _by_subject(changes(pairs)).items()]


def _says_anything(pair: Pair) -> bool:
    """Whether any step took any of it: most layers communicate nothing, and few runs have every cause of idle time."""
    return any(any(samples.steps.values()) for samples in pair)


def _layer_samples(rows: Sequence[LayerRow]) -> Iterator[tuple[str, dict[str, Samples]]]:
    """Yield each line's figures; in a window without the line, on a device that has it, it took no time."""
    windows: dict[tuple[int, int | str], set[int]] = {}
    by_name: dict[str, list[LayerRow]] = {}
    for row in rows:
        windows.setdefault((row.rank, row.device), set()).add(row.step)
        by_name.setdefault(row.layer, []).append(row)
    for name, line_rows in by_name.items():
        devices = {(row.rank, row.device) for row in line_rows}
        present = {(row.rank, row.device, row.step) for row in line_rows}
        absent = [(step, 0) for device in devices for step in windows[device] if (*device, step) not in present]
        yield (
            name,
            {
                measure: pooled([*((row.step, getattr(row, measure)) for row in line_rows), *absent])
                for measure in OF_LAYERS
            },
        )


# What collectives are compared by, as the report's table has it: waiting is the mean over members.
_OF_COLLECTIVES: dict[str, Callable[[CollectiveRow], float | None]] = {
    "busbw_gbps": lambda row: row.busbw_gbps,
    "transfer_ns": lambda row: row.transfer_ns,
    "wait_ns": lambda row: _mean([member.wait_ns for member in row.members]),
}


def _mean(values: Sequence[int | None]) -> float | None:
    total = _sum(values)
    return None if total is None or not values else total / len(values)


def _collectives(a: Report, b: Report) -> list[CollectiveChange]:
    groups = [_groups(report.collectives) for report in (a, b)]
    keys = list(dict.fromkeys([*groups[0], *groups[1]]))
    pairs: dict[tuple[GroupKey, str], Pair] = {}
    for key in keys:
        for measure, figure_of in _OF_COLLECTIVES.items():
            a_samples, b_samples = (
                pooled((row.step, figure_of(row)) for row in by_key.get(key, [])) for by_key in groups
            )
            pairs[key, measure] = (a_samples, b_samples)
    measures_of = _by_subject(changes(pairs))
    counts = [(len(groups[0].get(key, [])), len(groups[1].get(key, []))) for key in keys]
    return [CollectiveChange(*key, *count, measures_of.get(key, {})) for key, count in zip(keys, counts, strict=True)]


def _groups(rows: Sequence[CollectiveRow]) -> dict[GroupKey, list[CollectiveRow]]:
    """Group collectives by kind, group size, bytes and purpose, the largest first within a kind."""
    groups: dict[GroupKey, list[CollectiveRow]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.group_size, row.bytes, row.purpose), []).append(row)
    return {key: groups[key] for key in sorted(groups, key=lambda key: (key[0], key[1], -(key[2] or 0), key[3]))}


def _differences(a: RunFacts, b: RunFacts) -> list[Difference]:
    settings = [{name: _in_words(getattr(run, name)) for name in SETTINGS} | dict(run.versions) for run in (a, b)]
    for run_settings, run in zip(settings, (a, b), strict=True):
        run_settings["transport"] = run.links.transport
    names = dict.fromkeys([*settings[0], *settings[1]])
    compared = [Difference(name, settings[0].get(name), settings[1].get(name)) for name in names]
    return [difference for difference in compared if difference.a != difference.b]


def _in_words(value: object) -> str | None:
    if isinstance(value, list):
        return ", ".join(f"{value.count(name)} x {name}" for name in dict.fromkeys(value)) or None
    return None if value is None else str(value)


def _warnings(name: str, report: Report) -> Iterator[Notice]:
    """Yield what of one run a reader must know before its differences."""
    if report.run.controls.is_stretched:
        distortion = report.run.controls.distortion
        text = f"{name}'s profiled steps take {distortion:.2f} times as long as unprofiled ones: idle and waiting most"
        yield Notice(Code.PROFILER_DISTORTS, text)
    blocks = report.run.controls.blocks_ns.get("unprofiled", [])
    low, median, high = np.percentile(blocks, [25, 50, 75]) if blocks else (0.0, 1.0, 0.0)
    if median > 0 and (high - low) / median > SCATTERED:
        scatter = f"steps without the profiler scatter by {percent(float(high - low) / median)}"
        text = f"{name}: {scatter}: the machine may have done something else, too"
        yield Notice(Code.STEPS_SCATTER, text)
    missing = report.run.world_size - len(report.run.ranks)
    if missing:
        text = f"{name} lacks {missing} of its {report.run.world_size} ranks: its figures are from the others"
        yield Notice(Code.RANKS_MISSING, text)


def _of_both(a: Report, b: Report) -> Iterator[Notice]:
    """Say why figures of two runs may not be the same thing."""
    if a.run.times_from != b.run.times_from:
        windows = f"A's times come from the {a.run.times_from} window, B's from the {b.run.times_from} one"
        yield Notice(Code.WINDOWS_DIFFER, f"{windows}, which the profiler stretches differently")
    stretched = [each.run.controls.distortion for each in (a, b)]
    distortions = [each for each in stretched if each is not None]
    if len(distortions) == len(stretched) and max(distortions) > HIGH_DISTORTION * min(distortions):
        text = f"the profiler makes A's steps {distortions[0]:.2f} times as long, B's {distortions[1]:.2f} times"
        yield Notice(
            Code.DISTORTIONS_DIFFER, f"{text}: changes of waiting, overlap and idle time may come from the profiler"
        )
    if a.summary.layers_from != b.summary.layers_from:
        text = f"layers' names come from {a.summary.layers_from} in A, from {b.summary.layers_from} in B: few agree"
        yield Notice(Code.LAYERS_DIFFER, text)


def _too_few(comparison: Comparison) -> Iterator[Notice]:
    span = comparison.step.get("span_ns")
    if span is not None and span.difference is not None and not enough(span.a_steps, span.b_steps):
        yield Notice(
            Code.STEPS_TOO_FEW,
            f"A has {span.a_steps} profiled steps, B {span.b_steps}: too few to tell a change from chance",
            Code.STEPS_TOO_FEW.facts.do,
        )


def _of_launches(a: Report, b: Report, comparison: Comparison) -> Iterator[Notice]:
    """Say where steps of one launch do not tell what launches differ by."""
    states = [figure.change.state for figure in comparison.figures()]
    if number := states.count("correlated"):
        figures = "1 figure differs" if number == 1 else f"{number} figures differ"
        text = f"{figures}, but each step resembles the one before, so that launches may differ as much"
        yield Notice(Code.LAUNCHES_DIFFER, text, Code.LAUNCHES_DIFFER.facts.do)
    if "changed" in states and GLOO_BACKEND in (a.run.backend, b.run.backend):
        text = "ranks shared CPUs: launches may differ by what is marked, depending on the cores they got"
        yield Notice(Code.LAUNCHES_DIFFER, text, Code.LAUNCHES_DIFFER.facts.do)


def group_pairs(a: Report, b: Report) -> dict[tuple[str, str], Pair]:
    """Return each line's figures in both runs by its name; nothing where both runs have but one line.

    Lines are the same that have the same name: groups' numbers may differ between launches. A line that is all of a
    run's communication is compared as that, among the parts of the step. A report saved before there were groups has
    none, and nothing to compare.
    """
    if any(not report.groups and any(window.comm_ns for window in report.windows) for report in (a, b)):
        return {}
    of_a, of_b = (dict(_samples(report)) for report in (a, b))
    if max(len(of_a), len(of_b)) < 2:
        return {}
    alone = dict.fromkeys(MEASURES, NOTHING)
    return {
        (name, measure): (of_a.get(name, alone)[measure], of_b.get(name, alone)[measure])
        for name in dict.fromkeys([*of_a, *of_b])
        for measure in MEASURES
    }


def _samples(report: Report) -> Iterator[tuple[str, dict[str, Samples]]]:
    """Yield each line's figures in the summary's order."""
    for name, steps in group_steps(report).items():
        yield (
            name,
            {
                measure: pooled((step, 0 if row is None else getattr(row, measure)) for step, row in steps)
                for measure in MEASURES
            },
        )
