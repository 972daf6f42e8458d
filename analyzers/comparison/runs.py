"""Comparison of two runs' reports, table by table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from analyzers.collectives import CollectiveRow
from analyzers.comparison.change import (
    METHOD_OF_LAUNCHES,
    NOTHING,
    Change,
    Method,
    Pair,
    Samples,
    changes,
    enough,
    over_launches,
    pooled,
    with_intervals,
)
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
from analyzers.comparison.serial import OF_BLOCKS, OF_STEPS
from analyzers.comparison.verdict import UNPROFILED, account, leading, odd_gone, promised, verdict
from analyzers.layers import BUCKET_MEASURES, BucketRow, LayerRow
from analyzers.notices import Code, Notice, Weight
from analyzers.reporting import IDLE_CAUSES, Report, RunFacts, Window, gradient_steps, group_steps, typical_of
from analyzers.run import HIGH_DISTORTION
from analyzers.step_parts import EXPOSED, SPLIT_PARTS, fields_of
from analyzers.texts import AND_MORE, listed
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
Key = TypeVar("Key", bound=Hashable)
# The first is what a line is named with where only one run has it.
MEASURES = ("exposed_ns", *fields_of(EXPOSED), "comm_ns")


def compare(a: Report | Sequence[Report], b: Report | Sequence[Report]) -> Comparison:
    """Compare B with A, the baseline: one run each, or several launches of the same on either side.

    Of one run each the steps are the sample; of several launches these are, each by its median.
    """
    given = [[side] if isinstance(side, Report) else [*side] for side in (a, b)]
    of_a, of_b = map(_once, given)
    a, b = of_a[0], of_b[0]
    sides = _Sides(of_a, of_b, sum(map(len, given)) - len(of_a) - len(of_b))
    layouts = _layouts(a, b)
    controls = sides.pairs(_controls)
    # What a comparison is made for is corrected for nothing else.
    others = {name: pair for name, pair in controls.items() if name != UNPROFILED}
    judged = sides.changes({UNPROFILED: controls[UNPROFILED]}, OF_BLOCKS) | sides.changes(others, OF_BLOCKS)
    comparison = Comparison(
        schema=SCHEMA,
        a=a.run.name,
        b=b.run.name,
        a_launches=len(of_a),
        b_launches=len(of_b),
        verdict="",
        test=Method(METHOD_OF_LAUNCHES) if sides.are_launches else Method(),
        different=_differences(a.run, b.run),
        warnings=[
            *_of_sides(sides),
            *_warnings("A", a),
            *_warnings("B", b),
            *_of_both(a, b),
            *([Notice(Code.LAYOUTS_DIFFER, layouts.why)] if layouts.same is False and layouts.why else []),
        ],
        layouts=layouts,
        controls=with_intervals(judged, controls, None if sides.are_launches else OF_BLOCKS),
        step=sides.changes(sides.pairs(_step)),
        parts=sides.changes(sides.pairs(lambda report: _windows(report, fields_of(SPLIT_PARTS)))),
        idle=sides.changes(_telling(sides.pairs(_idle))),
        totals=sides.changes(sides.pairs(lambda report: {name: _total(report.buckets, name) for name in OF_BUCKETS})),
        buckets=_buckets(sides) if layouts.same else [],
        layers=_layers(sides),
        collectives=_collectives(sides),
        groups=_by_group(sides),
        a_bar=a.summary.bar,
        b_bar=b.summary.bar,
    )
    warnings = [*comparison.warnings, *_too_few(comparison), *_of_launches(a, b, comparison)]
    leader, _ = leading(comparison)
    accounted = account(_all_windows(of_a), _all_windows(of_b), leader, comparison.parts | comparison.idle)
    promise = promised(a, b, comparison.controls.get(UNPROFILED))
    comparison = replace(comparison, account=accounted, warnings=warnings, promise=promise, odd_gone=odd_gone(a, b))
    return replace(comparison, verdict=verdict(comparison))


def _once(launches: Sequence[Report]) -> list[Report]:
    """Return launches without those that are there already: a recording twice is no second sample."""
    return [*{(each.run.name, each.run.origin_ns): each for each in launches}.values()]


def _all_windows(launches: Sequence[Report]) -> list[Window]:
    return [window for report in launches for window in typical_of(report.windows)]


@dataclass(frozen=True)
class _Sides:
    """The reports of both sides: one each, or several launches of which each is one sample."""

    a: Sequence[Report]
    b: Sequence[Report]
    repeated: int = 0

    @property
    def are_launches(self) -> bool:
        return len(self.a) > 1 or len(self.b) > 1

    def pairs(self, table: Callable[[Report], Mapping[Key, Samples]]) -> dict[Key, Pair]:
        """Return a table's figures in A and B, as `table` makes them of one report."""
        of_a, of_b = (self._sampled([table(report) for report in side]) for side in (self.a, self.b))
        return {key: (of_a.get(key, NOTHING), of_b.get(key, NOTHING)) for key in dict.fromkeys([*of_a, *of_b])}

    def _sampled(self, launches: Sequence[Mapping[Key, Samples]]) -> Mapping[Key, Samples]:
        if not self.are_launches:
            return launches[0]
        keys = dict.fromkeys(key for launch in launches for key in launch)
        return {key: over_launches([launch.get(key, NOTHING) for launch in launches]) for key in keys}

    def changes(self, pairs: Mapping[Key, Pair], assumed: float = OF_STEPS) -> dict[Key, Change]:
        """Judge a table's figures: launches know nothing of one another, steps resemble the ones before."""
        return changes(pairs, None if self.are_launches else assumed)


def _step(report: Report) -> dict[str, Samples]:
    return _windows(report, STEP) | {BUSBW: pooled(gradient_steps(report.collectives).items())}


def _windows(report: Report, names: Sequence[str]) -> dict[str, Samples]:
    windows = typical_of(report.windows)
    return {name: pooled((window.step, getattr(window, name)) for window in windows) for name in names}


def _idle(report: Report) -> dict[str, Samples]:
    """Return idle time by cause."""
    windows = typical_of(report.windows)
    return {
        f"idle_{cause}_ns": pooled((window.step, getattr(window.idle, f"{cause}_ns")) for window in windows)
        for cause in IDLE_CAUSES
    }


def _telling(pairs: Mapping[Key, Pair]) -> dict[Key, Pair]:
    """Return figures of which any step took any: most layers communicate nothing, few runs have every idle cause."""
    return {key: pair for key, pair in pairs.items() if any(any(samples.steps.values()) for samples in pair)}


def _controls(report: Report) -> dict[str, Samples]:
    """Return each control's blocks of steps; their median, where an older report has none for they scattered."""
    controls, found = report.run.controls, {}
    for name, key in CONTROLS.items():
        blocks = controls.blocks_ns.get(key or report.run.times_from, [])
        figure = getattr(controls, name)
        median = float(np.median(blocks)) if blocks else None
        found[name] = Samples(median if figure is None or not blocks else float(figure), dict(enumerate(blocks)))
    return found


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
    return listed(["?" if size is None else f"{size / 1e6:.3g}" for size in sizes], 6, " + ...", " + ")


def _buckets(sides: _Sides) -> list[BucketChange]:
    layout = sides.a[0].summary.layout
    bytes_of = {bucket.bucket: bucket.bytes for bucket in (layout.buckets if layout else ())}
    by_subject = _by_subject(sides.changes(sides.pairs(lambda report: _of_buckets(report.buckets, [*bytes_of]))))
    return [BucketChange(number, bytes_of[number], measures) for number, measures in by_subject.items()]


def _of_buckets(rows: Sequence[BucketRow], numbers: Sequence[int]) -> dict[tuple[int, str], Samples]:
    by_number: dict[int | None, list[BucketRow]] = {}
    for row in rows:
        by_number.setdefault(row.bucket, []).append(row)
    return {
        (number, name): pooled((row.step, getattr(row, name)) for row in by_number.get(number, []))
        for number in numbers
        for name in OF_BUCKETS
    }


def _by_subject(changed: Mapping[tuple[Any, str], Change]) -> dict[Any, Changes]:
    """Group a table's figures by subject."""
    subjects: dict[Any, Changes] = {}
    for (subject, measure), change in changed.items():
        subjects.setdefault(subject, {})[measure] = change
    return subjects


def _layers(sides: _Sides) -> list[LayerChange]:
    types = {row.layer: row.type for report in (*sides.b, *sides.a) for row in report.layers}
    pairs = _telling(sides.pairs(lambda report: dict(_layer_samples(report.layers))))
    return [LayerChange(layer, types[layer], measures) for layer, measures in _by_subject(sides.changes(pairs)).items()]


def _by_group(sides: _Sides) -> list[GroupChange]:
    pairs = _telling(group_pairs(sides))
    return [GroupChange(name, measures) for name, measures in _by_subject(sides.changes(pairs)).items()]


def _layer_samples(rows: Sequence[LayerRow]) -> Iterator[tuple[tuple[str, str], Samples]]:
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
        for measure in OF_LAYERS:
            yield (name, measure), pooled([*((row.step, getattr(row, measure)) for row in line_rows), *absent])


# What collectives are compared by, as the report's table has it: waiting is the mean over members.
_OF_COLLECTIVES: dict[str, Callable[[CollectiveRow], float | None]] = {
    "busbw_gbps": lambda row: row.busbw_gbps,
    "transfer_ns": lambda row: row.transfer_ns,
    "wait_ns": lambda row: _mean([member.wait_ns for member in row.members]),
}


def _mean(values: Sequence[int | None]) -> float | None:
    total = _sum(values)
    return None if total is None or not values else total / len(values)


def _collectives(sides: _Sides) -> list[CollectiveChange]:
    groups = [_groups(side[0].collectives) for side in (sides.a, sides.b)]
    keys = list(dict.fromkeys([*groups[0], *groups[1]]))
    measures_of = _by_subject(sides.changes(sides.pairs(_of_collectives)))
    counts = [(len(groups[0].get(key, [])), len(groups[1].get(key, []))) for key in keys]
    return [CollectiveChange(*key, *count, measures_of.get(key, {})) for key, count in zip(keys, counts, strict=True)]


def _of_collectives(report: Report) -> dict[tuple[GroupKey, str], Samples]:
    return {
        (key, measure): pooled((row.step, figure_of(row)) for row in rows)
        for key, rows in _groups(report.collectives).items()
        for measure, figure_of in _OF_COLLECTIVES.items()
    }


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
    doubtful = (warning for warning in report.run.warnings if warning.code.facts.weight is not Weight.GRADED)
    yield from (warning.within(f"{name}: ") for warning in doubtful)


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


def _of_sides(sides: _Sides) -> Iterator[Notice]:
    """Warn where launches of one side are not the same thing, or one is given twice."""
    if sides.repeated:
        text = f"{sides.repeated} of the runs given are recordings that are there already: each counts once"
        yield Notice(Code.LAUNCHES_UNLIKE, text)
    for name, side in (("A", sides.a), ("B", sides.b)):
        unlike = [each for other in side[1:] for each in _differences(side[0].run, other.run)]
        if unlike:
            what = listed(dict.fromkeys(each.what for each in unlike), 3, AND_MORE)
            yield Notice(Code.LAUNCHES_UNLIKE, f"{name}'s launches differ in {what}: they are not the same thing again")


def _too_few(comparison: Comparison) -> Iterator[Notice]:
    span = comparison.step.get("span_ns")
    if span is None or span.difference is None or enough(span.a_steps, span.b_steps):
        return
    what, do = "profiled steps", Code.STEPS_TOO_FEW.facts.do
    if comparison.are_launches:
        what, do = "launches", "record more launches: four of each tell"
    text = f"A has {span.a_steps} {what}, B {span.b_steps}: too few to tell a change from chance"
    yield Notice(Code.STEPS_TOO_FEW, text, do)


def _of_launches(a: Report, b: Report, comparison: Comparison) -> Iterator[Notice]:
    """Say where steps of one launch do not tell what launches differ by."""
    if comparison.are_launches:
        return
    states = [figure.change.state for figure in comparison.figures()]
    if number := states.count("correlated"):
        figures = "1 figure differs" if number == 1 else f"{number} figures differ"
        text = f"{figures}, but each step resembles the one before, so that launches may differ as much"
        yield Notice(Code.LAUNCHES_DIFFER, text, Code.LAUNCHES_DIFFER.facts.do)
    if "changed" in states and GLOO_BACKEND in (a.run.backend, b.run.backend):
        text = "ranks shared CPUs: launches may differ by what is marked, depending on the cores they got"
        yield Notice(Code.LAUNCHES_DIFFER, text, Code.LAUNCHES_DIFFER.facts.do)


def group_pairs(sides: _Sides) -> dict[tuple[str, str], Pair]:
    """Return each line's figures in both runs by its name; nothing where both runs have but one line.

    Lines are the same that have the same name: groups' numbers may differ between launches. A line that is all of a
    run's communication is compared as that, among the parts of the step. A report saved before there were groups has
    none, and nothing to compare.
    """
    reports = [*sides.a, *sides.b]
    if any(not report.groups and any(window.comm_ns for window in report.windows) for report in reports):
        return {}
    if max(len(group_steps(report)) for report in (sides.a[0], sides.b[0])) < 2:
        return {}
    return sides.pairs(_of_groups)


def _of_groups(report: Report) -> dict[tuple[str, str], Samples]:
    """Return each line's figures in the summary's order."""
    return {
        (name, measure): pooled((step, 0 if row is None else getattr(row, measure)) for step, row in steps)
        for name, steps in group_steps(report).items()
        for measure in MEASURES
    }
