"""What changed between two runs: the test by brute force and by its error rates, each table, and sweeps."""

from functools import cache
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.comparison import permutation_test
from analyzers.comparison.change import LEVEL, changes, enough, pooled
from analyzers.comparison.condition_names import RunFigures
from analyzers.comparison.conditions import Figure
from analyzers.comparison.document import Comparison
from analyzers.comparison.frames import CHANGES
from analyzers.comparison.permutation_test import MOST_PERMUTATIONS, shift_interval, significance
from analyzers.comparison.runs import OF_BUCKETS, compare
from analyzers.comparison.sweeps import compare_sweeps
from analyzers.layers.bucket_table import Layout, LayoutBucket
from analyzers.lazy_fields import replaced as replace
from analyzers.notices import Code
from analyzers.reporting.document import Report
from analyzers.reporting.measures.idle_time import IdleCauses
from analyzers.run.controls import control
from tests.support.comparing import controlled, stepping
from tests.support.samples import REPORTED, SAMPLES, reported
from tests.support.sweeping import cell, studied, timed
from tests.support.tiers import cases
from tests.support.typical_steps import typical_of_sample
from tracer.views.sections.results import comparison_text


@cache
def with_itself(path: Path) -> Comparison:
    """A run compared with itself, made once."""
    return compare(reported(path), reported(path))


def brute_force_p(a: list[float], b: list[float]) -> float:
    """The share of all ways to choose A whose rank sum is as far from its mean."""
    both = [*a, *b]
    ranks = [sum(other < value for other in both) + (sum(other == value for other in both) + 1) / 2 for value in both]
    center = len(a) * (len(both) + 1) / 2
    distances = [abs(sum(chosen) - center) for chosen in combinations(ranks, len(a))]
    own = abs(sum(ranks[: len(a)]) - center)
    return sum(distance >= own - 1e-9 for distance in distances) / len(distances)


VALUES = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=5)


@settings(max_examples=cases(80), deadline=None)
@given(VALUES, VALUES)
def test_p_is_that_of_all_permutations(a, b):
    found = significance(np.array(a)[:, None], np.array(b)[:, None])
    assert found.p[0] == pytest.approx(brute_force_p(a, b))
    assert found.adjusted_p[0] == pytest.approx(found.p[0])
    assert significance(np.array(b)[:, None], np.array(a)[:, None]).p[0] == pytest.approx(found.p[0])


@pytest.mark.parametrize("steps", [(2, 2), (3, 3), (4, 4), (3, 6), (5, 5)])
def test_steps_that_come_apart_have_the_least_p(steps):
    a, b = (np.arange(count, dtype=float)[:, None] for count in steps)
    found = significance(a, b + 100)
    assert found.p[0] == found.least_p[0] == pytest.approx(2 / comb(sum(steps), steps[0]))
    assert enough(*steps) == (found.p[0] <= LEVEL)


def test_beyond_the_most_permutations_a_sample_is_drawn_and_is_the_same_again():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(12, 1)), rng.normal(size=(12, 1)) + 3
    found = significance(a, b)
    assert found.p[0] <= 3 / MOST_PERMUTATIONS
    assert found.p[0] == significance(a, b).p[0] > 0


@pytest.mark.slow
def test_thousands_of_measures_are_tested_too():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 2000)), rng.normal(size=(8, 2000))
    assert significance(a, b).adjusted_p.min() > LEVEL
    assert significance(a, b + 100).adjusted_p.max() <= LEVEL


def marks_anything(rng: np.random.Generator, steps: int, measures: int) -> bool:
    """Whether anything is found in two halves of one run, whose measures have something of each step in common."""
    shared = rng.random()
    whole = rng.exponential(size=(2 * steps, measures)) + shared * 5 * rng.normal(size=(2 * steps, 1))
    return bool(significance(whole[:steps], whole[steps:]).adjusted_p.min() <= LEVEL)


@pytest.mark.parametrize(("steps", "measures"), [(2, 5), (4, 1), (5, 5), (6, 30)])
def test_halves_of_one_run_differ_as_seldom_as_is_said(steps, measures):
    rng, cases = np.random.default_rng(steps * measures), 300
    found = sum(marks_anything(rng, steps, measures) for _ in range(cases))
    # Three standard deviations above the level's expectation.
    assert found <= cases * LEVEL + 3 * (cases * LEVEL * (1 - LEVEL)) ** 0.5


def test_a_measure_that_some_steps_lack_is_tested_by_the_others():
    rng, cases, found = np.random.default_rng(5), 300, 0
    for _ in range(cases):
        values = rng.normal(size=(12, 3))
        values[rng.random(values.shape) < 0.3] = np.nan
        found += significance(values[:6], values[6:]).adjusted_p.min() <= LEVEL
    assert found <= cases * LEVEL + 3 * (cases * LEVEL * (1 - LEVEL)) ** 0.5


def random_steps(rng: np.random.Generator, steps: int, longer: float = 0.0) -> Report:
    """Steps of about 10 ms on two ranks, which one slow host delays together; parts that add up to them."""
    compute = 6 + 0.1 * rng.normal(size=(steps, 2))
    wait = rng.exponential(size=(steps, 1)) + 0.1 * rng.random((steps, 2))
    spans = (compute + wait + 3) * (1 + longer)
    return stepping(spans.tolist(), compute_ns=compute.tolist(), exposed_wait_ns=wait.tolist())


def marked(found: Comparison, *tables: str) -> list[str]:
    return [each.measure for each in found.figures() if each.change.is_marked and (not tables or each.table in tables)]


@pytest.mark.slow
def test_recordings_of_the_same_steps_are_marked_as_seldom_as_is_said():
    rng, cases = np.random.default_rng(7), 150
    for table in ("step", "parts"):
        found = sum(bool(marked(compare(random_steps(rng, 6), random_steps(rng, 6)), table)) for _ in range(cases))
        assert found <= cases * LEVEL + 3 * (cases * LEVEL * (1 - LEVEL)) ** 0.5


def test_a_longer_step_is_found_with_as_many_steps_as_are_recorded_by_default():
    rng = np.random.default_rng(3)
    found = compare(random_steps(rng, 8), random_steps(rng, 8, longer=0.5))
    assert marked(found) == ["span_ns"]
    assert "longer than A's" in found.verdict


def test_ranks_of_a_step_are_no_steps_of_their_own():
    # 32 windows a run, and yet two steps: nothing can be told of them.
    a, b = stepping([[10.0] * 16, [10.1] * 16]), stepping([[20.0] * 16, [20.1] * 16])
    change = compare(a, b).step["span_ns"]
    assert (change.state, change.apart, change.a_steps) == ("too_few", True, 2)
    assert change.changed is None


def test_a_change_below_the_least_is_not_marked_however_sure_it_is():
    a, b = (stepping([[base + 0.001 * step] for step in range(6)]) for base in (10.0, 10.06))
    change = compare(a, b).step["span_ns"]
    assert (change.state, change.changed) == ("small", False)
    assert change.adjusted_p is not None
    assert change.adjusted_p <= LEVEL


@pytest.mark.parametrize("path", REPORTED)
def test_a_run_compared_with_itself_shows_no_change(path):
    found = with_itself(path)
    assert {figure.change.state for figure in found.figures()} <= {"same"}
    assert (found.different, found.layouts.same) == ([], True if found.layouts.a_bytes else None)
    assert found.verdict.startswith(("B's step takes as long as A's", "Neither run has a step"))
    assert found.account is None or (found.account.difference_ns, found.account.is_opposed) == (0, False)


def over_steps(rows, name: str) -> float:
    """The median over steps of the median over what each step has."""
    steps = {row.step: [getattr(each, name) for each in rows if each.step == row.step] for row in rows}
    return float(np.median([np.median(values) for values in steps.values()]))


@pytest.mark.parametrize("path", REPORTED)
def test_medians_are_over_steps(path):
    report, found = reported(path), with_itself(path)
    for name, change in (found.step | found.parts).items():
        rows = [row for row in typical_of_sample(path) if getattr(row, name, None) is not None]
        if rows:
            assert change.a == over_steps(rows, name), name
    for layer in found.layers[:5]:
        rows = [row for row in report.layers if row.layer == layer.layer]
        if len(rows) < len(report.windows):
            continue  # a window without the line counts as one in which it took no time
        assert all(change.a == over_steps(rows, name) for name, change in layer.measures.items())
    for bucket in found.buckets:
        rows = [row for row in report.buckets if row.bucket == bucket.bucket]
        known = {name: change for name, change in bucket.measures.items() if getattr(rows[0], name) is not None}
        assert all(change.a == over_steps(rows, name) for name, change in known.items())


def test_of_ranks_that_wait_in_turn_a_step_counts_and_not_whichever_rank_is_in_the_middle():
    """Each step one of two ranks waits: the pooled median would be either's."""
    waits = pooled((step, value) for step in range(5) for value in (0.0, 10.0 + step))
    assert waits.median == 6.0


DDP2, DDP4 = SAMPLES / "resnet18-ddp2", SAMPLES / "resnet18-ddp4"


def test_two_and_four_gpus_show_what_differs():
    found = compare(reported(DDP2), reported(DDP4))
    assert [(each.what, each.a, each.b) for each in found.different] == [
        ("world_size", "2", "4"),
        ("devices", "2 x NVIDIA H200", "4 x NVIDIA H200"),
    ]
    assert found.layouts.same
    assert [bucket.bytes for bucket in found.buckets] == found.layouts.a_bytes == [9_461_800, 26_494_976, 8_769_792]
    groups = {(each.group_size, each.a_count, each.b_count) for each in found.collectives if each.kind == "all_reduce"}
    assert groups == {(2, 2, 0), (4, 0, 2)}
    assert all(change.state == "too_few" for change in found.step.values())
    assert found.controls["unprofiled_step_ns"].a_steps == 8
    assert any("too few to tell" in str(warning) for warning in found.warnings)


PARTS = {"compute_ns": 4.0, "exposed_wait_ns": 1.0, "exposed_transfer_ns": 1.0, "exposed_copy_ns": 0.0, "idle_ns": 4.0}


def made_of(name: str, steps: int = 8, **parts_ms: float) -> Report:
    """Steps of two ranks that are made of these parts, all idle time in Python."""
    parts = PARTS | parts_ms
    spans = [[sum(parts.values()) + 0.01 * step] * 2 for step in range(steps)]
    of_steps = {part: [[value] * 2 for _ in range(steps)] for part, value in parts.items()}
    of_steps["idle_ns"] = [[parts["idle_ns"] + 0.01 * step] * 2 for step in range(steps)]
    of_steps["exposed_unresolved_ns"] = [[0.0] * 2 for _ in range(steps)]
    made = stepping(spans, name, **of_steps)
    causes = [IdleCauses(0, 0, 0, window.idle_ns, 0, 0, 0, 0) for window in made.windows]
    return replace(made, windows=[replace(row, idle=cause) for row, cause in zip(made.windows, causes, strict=True)])


def test_the_account_adds_up_and_names_the_part_that_changed_most():
    found = compare(made_of("a"), made_of("b", exposed_wait_ns=4.0, compute_ns=3.8))
    assert found.account is not None
    assert sum(part.difference_ns for part in found.account.parts) == pytest.approx(found.account.difference_ns)
    assert {part.part: part.difference_ns / 1e6 for part in found.account.parts} == pytest.approx(
        {"compute_ns": -0.2, "exposed_wait_ns": 3.0, "exposed_transfer_ns": 0.0, "idle_python_ns": 0.0}
    )
    assert found.verdict == (
        "B's step is 27.9 % longer than A's: 12.84 ms instead of 10.04 ms while profiled. Most of it is exposed "
        "waiting for other ranks: 3.00 ms more per profiled step."
    )


@pytest.mark.parametrize("path", REPORTED)
def test_the_account_of_every_sample_is_its_windows(path):
    report, account = reported(path), with_itself(path).account
    assert (account is None) == (not report.windows)
    if account is not None:
        assert account.a_span_ns == pytest.approx(np.mean([window.span_ns for window in typical_of_sample(path)]))
        assert sum(part.a_ns for part in account.parts) == pytest.approx(account.a_span_ns)
        assert sum(line.b_ns for line in account.lines) == pytest.approx(account.b_span_ns)


def test_where_profiled_steps_say_otherwise_the_verdict_says_so():
    a = controlled(made_of("a"), {"unprofiled": [8 + 0.01 * step for step in range(6)]})
    b = controlled(made_of("b", idle_ns=3.0), {"unprofiled": [9 + 0.01 * step for step in range(6)]})
    found = compare(a, b)
    assert found.account is not None
    assert found.account.is_opposed
    assert found.verdict == (
        "B's step is 12.5 % longer than A's: 9.03 ms instead of 8.03 ms without the profiler. The profiled steps, "
        "which the parts below are from, do not show this: 9.04 ms instead of 10.04 ms on average."
    )


def test_where_controls_have_too_few_blocks_the_profiled_step_that_changed_leads():
    a, b = (
        controlled(made_of(name, idle_ns=idle_ns), {"unprofiled": blocks})
        for name, idle_ns, blocks in (("a", 4.0, [8, 8.01]), ("b", 3.0, [7, 7.01]))
    )
    assert compare(a, b).verdict == (
        "B's step is 10.0 % shorter than A's: 9.04 ms instead of 10.04 ms while profiled. Most of it is idle time in "
        "Python: 1.00 ms less per profiled step. There are too few steps without the profiler to tell whether those "
        "changed: 7.00 ms instead of 8.01 ms (12.5 % shorter)."
    )


def test_beyond_1000_percent_a_difference_is_a_factor():
    a, b = stepping([[1.0 + step / 100] for step in range(6)]), stepping([[20.0 + step / 100] for step in range(6)])
    assert compare(a, b).verdict.startswith("B's step is 19.5 times as long as A's: 20.02 ms instead of 1.02 ms")


def test_a_part_that_changed_stands_by_itself_however_small():
    a, b = (
        stepping(
            [[10 + step / 100] * 2 for step in range(8)],
            name,
            exposed_wait_ns=[[least_ms + step / 1e4] * 2 for step in range(8)],
        )
        for name, least_ms in (("a", 0.03), ("b", 0.06))
    )
    found = compare(a, b)
    assert found.account is not None
    assert [line.state for line in found.account.lines if line.part == "exposed_wait_ns"] == ["changed"]


def relaid(report: Report, sizes: list[int]) -> Report:
    buckets = [LayoutBucket(number, size // 4, size, None, []) for number, size in enumerate(sizes)]
    return replace(report, summary=replace(report.summary, layout=Layout("run.json", buckets)))


def test_where_bucket_layouts_differ_totals_alone_are_compared():
    a = reported(DDP4)
    found = compare(a, relaid(a, [5_000_000, 39_726_568]))
    assert (found.layouts.same, found.buckets) == (False, [])
    assert found.layouts.why == (
        "bucket layouts differ: A has 3 of 9.46 + 26.5 + 8.77 MB, B has 2 of 5 + 39.7 MB; "
        "only their totals can be compared"
    )
    assert found.layouts.why in [str(warning) for warning in found.warnings if warning.code == Code.LAYOUTS_DIFFER]
    assert set(found.totals) == set(OF_BUCKETS)
    by_step = [
        np.median(
            [sum(row.exposed_ns for row in a.buckets if (row.step, row.rank) == (step, rank)) for rank in range(4)]
        )
        for step in {row.step for row in a.buckets}
    ]
    assert found.totals["exposed_ns"].a == np.median(by_step)


def test_a_run_without_buckets_says_so():
    found = compare(reported(SAMPLES / "resnet18-ddp1"), reported(SAMPLES / "resnet18-dp4"))
    assert found.layouts.same is None
    other = compare(reported(SAMPLES / "resnet18-dp4"), reported(DDP4))
    assert other.layouts.why == "A has no buckets that are known"
    assert {change.state for change in other.totals.values()} == {"only_b"}


def test_controls_are_compared_by_blocks_also_where_they_scatter():
    a = controlled(stepping([[10.0]]), {"unprofiled": [8, 9, 10, 11]})
    b = controlled(stepping([[10.0]]), {"unprofiled": [18, 19, 20, 21]})
    change = compare(a, b).controls["unprofiled_step_ns"]
    assert (change.a, change.b, change.state) == (9.5e6, 19.5e6, "changed")
    assert change.interval == (5.5e6, 14.5e6)
    said = "B's step is 105.3 % longer than A's: 19.50 ms instead of 9.50 ms without the profiler."
    assert compare(a, b).verdict.startswith(said)


def test_a_recording_whose_machine_did_other_things_is_warned_of():
    steady = controlled(stepping([[10.0]]), {"unprofiled": [10, 10.1, 10.2, 10.1]})
    restless = controlled(stepping([[10.0]]), {"unprofiled": [10, 12, 14, 11]})
    warnings = compare(steady, restless).warnings
    assert [str(warning)[:2] for warning in warnings if warning.code == Code.STEPS_SCATTER] == ["B:"]


def test_a_step_of_a_block_is_the_longest_over_its_ranks_and_nonsense_is_none():
    found = control({0: [[1], [5], [-7]], 1: [[3], [5]], 2: [[8], [2**62], [0]]})
    assert found.blocks_ns == [8.0, 5.0]


def test_times_of_different_windows_and_missing_ranks_are_warned_of():
    a, b = reported(DDP4), reported(DDP2)
    other = replace(b, run=replace(b.run, times_from="full", world_size=8))
    warnings = compare(a, other).warnings
    assert any("A's times come from the light window" in str(warning) for warning in warnings)
    assert any("B lacks 6 of its 8 ranks" in str(warning) for warning in warnings)


def test_the_frame_has_every_figure():
    found = compare(reported(DDP2), reported(DDP4))
    frame = CHANGES.frame(found)
    assert len(frame) == len(list(found.figures()))
    (row,) = frame[
        (frame["table"] == "layers") & (frame["of"] == "conv1") & (frame["measure"] == "backward_ns")
    ].itertuples()
    measured = next(layer.measures["backward_ns"] for layer in found.layers if layer.layer == "conv1")
    assert (row.a, row.b, row.state) == (measured.a, measured.b, measured.state)


def test_figures_without_steps_are_never_tested():
    nothing = pooled([])
    assert changes({"x": (nothing, nothing)}) == {}
    assert changes({"x": (pooled([(0, 1.0)]), nothing)})["x"].state == "only_a"


def timed_cell(strategy: str, gpus: int, batch: int, step_ms: float):
    blocks = [step_ms * (1 + 0.001 * k) * 1e6 for k in range(6)]
    return cell(strategy, gpus, batch, timed(step_ms), blocks_ns=blocks)


def test_sweeps_are_compared_cell_by_cell():
    a = studied([timed_cell("single", 1, 32, 10), timed_cell("ddp", 2, 32, 12), timed_cell("ddp", 2, 64, 20)], "a")
    b = studied([timed_cell("single", 1, 32, 10), timed_cell("ddp", 2, 32, 15), timed_cell("ddp", 4, 32, 20)], "b")
    found = compare_sweeps(a, b)
    cells = {(each.strategy, each.gpus, each.batch): each for each in found.cells}
    assert {name: change.state for name, change in cells["single", 1, 32].measures.items()} == {"step_ns": "same"}
    slower = cells["ddp", 2, 32].measures
    assert {name: change.state for name, change in slower.items()} == {
        "step_ns": "changed",
        "weak_efficiency": "changed",
    }
    assert slower["weak_efficiency"].a == pytest.approx(10 / 12)
    assert slower["weak_efficiency"].b == pytest.approx(10 / 15)
    assert cells["ddp", 2, 64].why == ["B has no such cell"]
    assert cells["ddp", 4, 32].measures["step_ns"].state == "only_b"
    assert "in 1 of them the step changed" in found.verdict
    assert "most in ddp2 at batch 32: 25.0 % longer" in found.verdict


def test_a_sweep_compared_with_itself_shows_no_change():
    study = studied([timed_cell("single", 1, 32, 10), timed_cell("ddp", 2, 32, 12)])
    states = {change.state for each in compare_sweeps(study, study).cells for change in each.measures.values()}
    assert states == {"same"}


def test_runs_that_the_profiler_stretched_differently_are_warned_of():
    run = reported(SAMPLES / "resnet50-ddp4-bf16")
    controls = replace(run.run.controls, distortion=1.4)
    stretched = replace(run, run=replace(run.run, controls=controls))
    said = "the profiler makes A's steps 1.02 times as long, B's 1.40 times"
    assert any(said in str(each) for each in compare(run, stretched).warnings)
    assert not any("the profiler makes A's" in str(each) for each in compare(run, run).warnings)


def test_idle_time_is_compared_by_cause():
    paths = [SAMPLES / name for name in ("resnet18-ddp1", "resnet18-ddp4")]
    (a, b), (a_typical, typical) = map(reported, paths), map(typical_of_sample, paths)
    found = compare(a, b)
    for name, change in found.idle.items():
        cause = name.removeprefix("idle_")
        for windows, value in ((a_typical, change.a), (typical, change.b)):
            assert value == pooled((row.step, getattr(row.idle, cause)) for row in windows).median
    # Neither run loads input nor waits for its device in a gap.
    told = [
        f"idle_{name}_ns"
        for name in ("operator", "python", "launch_latency", "kernel_gap", "dependency", "unknown", "profiler")
    ]
    assert list(found.idle) == told
    figures = RunFigures([b], [a], found)
    operator = Figure("idle_operator_ns")
    assert figures(operator) == b.summary.windows["idle_operator_ns"].median
    idle_ns, span_ns = (sum(getattr(row, name) for row in typical) for name in ("idle_ns", "span_ns"))
    shares = [figures(Figure(f"idle_{name.removesuffix('_ns')}_share")) for name in IdleCauses.__struct_fields__]
    assert sum(shares) == pytest.approx(idle_ns / span_ns)
    assert figures(Figure("idle_operator_ns", of="change")) is found.idle["idle_operator_ns"].changed


@settings(max_examples=cases(60), deadline=None)
@given(*[st.lists(st.floats(1, 100), min_size=1, max_size=6, unique=True)] * 2, st.floats(-50, 50))
def test_an_interval_of_a_difference_holds_what_the_test_does_not_tell_from_none(a, b, shift):
    """Brute force: shift B by any amount, and test it."""
    a, b = np.array(a), np.array(b)
    limits = shift_interval(a, b, 0.05)
    assert (limits is None) == (not enough(len(a), len(b)))
    if limits is None or np.abs(b[:, None] - a - shift).min() < 1e-6:
        return
    p = significance(a[:, None], (b - shift)[:, None]).p[0]
    assert (limits[0] <= shift <= limits[1]) == (p > 0.05)


steps_of_a_run = st.lists(st.floats(1, 100).map(lambda length: round(length, 1)), min_size=4, max_size=30)


@settings(max_examples=cases(60), deadline=None)
@given(steps_of_a_run, steps_of_a_run)
def test_an_interval_that_is_closed_in_upon_is_that_of_all_differences(a, b):
    a, b = np.array(a), np.array(b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutation_test, "MOST_PAIRS", 0)
        closed_in = shift_interval(a, b, 0.05)
    assert closed_in == (None if (limits := shift_interval(a, b, 0.05)) is None else pytest.approx(limits, abs=1e-12))


def test_labels_in_blocks_are_those_of_one(monkeypatch):
    chance = np.random.default_rng(1)
    a, b = chance.normal(10, 1, (30, 2)), chance.normal(10.5, 1, (31, 2))
    in_one = significance(a, b)
    monkeypatch.setattr(permutation_test, "LABELS_AT_ONCE", 1000)
    assert significance(a, b).p.tolist() == in_one.p.tolist()


def test_an_interval_of_many_steps_is_that_of_fewer_counted():
    chance = np.random.default_rng(1)
    a, b = chance.normal(10, 1, 30), chance.normal(11, 1, 31)
    by_normal, counted = shift_interval(a, b, 0.05), shift_interval(a, b[:30], 0.05)
    assert by_normal == pytest.approx(counted, abs=0.1)


def test_steps_that_are_not_told_apart_are_named_with_what_lies_between():
    a = controlled(stepping([[10.0]]), {"unprofiled": [10, 11, 12, 13, 14]})
    b = controlled(stepping([[10.0]]), {"unprofiled": [10.5, 11.5, 12.4, 13.5, 14.5]})
    found = compare(a, b)
    said = "B's step cannot be told apart from A's: 12.40 ms instead of 12.00 ms without the profiler (3.3 % longer)."
    assert found.verdict.startswith(f"{said} The difference lies between -6.73 and 7.11 ms.")
    shown = " ".join(comparison_text(found, full=True).split())
    assert "Differences, 95 % intervals: step, no profiler between -6.73 and 7.11 ms." in shown
