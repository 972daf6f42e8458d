"""Laws of the causal model on every sample: recorded times come out, charges add up, nothing lengthens by shortening.

A replay in plain Python, over edges that are not contracted, judges the one in batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.arrays import Float64, Int64
from analyzers.causes.charges import Charge
from analyzers.causes.model import Model
from analyzers.causes.order import _Edges, in_order
from analyzers.causes.pace import Course, CourseEdges
from analyzers.causes.replay import DROPPED, Edged, contract
from analyzers.causes.rows import charge_rows, charges_summary
from analyzers.errors import AnalysisError
from analyzers.notices import Code
from analyzers.prediction import whatif
from analyzers.rank.summary import summarize
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.build import report
from analyzers.scenarios import Gain
from tests.support import causal, relabelled, tiers
from tests.support.causal import PlainReplay
from tests.support.kineto_files import small_trace, write
from tests.support.kineto_files import step as marked_step
from tests.support.samples import RUNS, SAMPLES, params, summary_of
from tracer.views.sections.results.prediction import own

SICK, FOUR = SAMPLES / "resnet18-ddp2-sick", SAMPLES / "resnet18-ddp4"
SMALL = SAMPLES / "every-collective4"
# Of the first tier are the smallest, one whose ranks have light windows, and one of one process.
FEW = (SMALL, SICK, SAMPLES / "resnet18-dp4")
ALL = [
    *params(FEW),
    *(pytest.param(run, id=f"{run.parent.name}/{run.name}", marks=pytest.mark.slow) for run in RUNS if run not in FEW),
]

# What floats of a replay are off by, ns: times of a second have 1e-7, where edges are dropped a thousand times that.
ROUNDING_NS, DROPPED_ROUNDING_NS = 2e-5, 0.02
# Two rounds let a replay settle, not altogether: of a step, what a pace may then be off by.
SETTLED = 0.01


def model_at(path: Path) -> Model:
    """The model of a run, if it has one."""
    try:
        analyses = causal.analyzed(path)
    except AnalysisError as error:
        pytest.skip(f"refused: {error}")
    if analyses.causes is None:
        pytest.skip("nothing tells what launched what")
    return analyses.causes


# Identity


@pytest.mark.parametrize("path", ALL)
def test_recorded_lags_give_every_recorded_time(path: Path) -> None:
    model = model_at(path)
    for part in model.graph.parts:
        assert not causal.unexplained(part.points, part.edges).any()
    recorded = model.recorded.graph
    assert not causal.unexplained(recorded.points, recorded.edges).any()


@pytest.mark.parametrize("path", ALL)
def test_edges_of_steps_that_are_not_typical_change_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_at(path)
    monkeypatch.setattr(Course, "over", lambda course, _: course)
    analyses = Analyses(summary_of(path), None)
    known = causal.analyzed(path)
    assert analyses.charge_rows == known.charge_rows
    assert told_gains(analyses) == told_gains(known)


def told_gains(analyses: Analyses) -> list[object]:
    """What each scenario brings, with the steps that it leaves."""
    return [
        (gain.scenario.at, gain.scenario.words, gain.interval_ns, gain.reliable, gain.lengths_ns.tolist())
        for gain in analyses.gains
    ]


# Sums


@pytest.mark.parametrize("path", ALL)
def test_charges_add_up(path: Path) -> None:
    model = model_at(path)
    rows = charge_rows(model, causal.analyzed(path).in_full)
    summary = charges_summary(model, rows)
    assert sum(row.ns for row in rows) == summary.charged_ns
    assert summary.charged_ns == pytest.approx(summary.steps * summary.step_ns, abs=1)
    for sums in (summary.by_cause, summary.by_phase, summary.by_edge):
        assert sum(sums.values()) == summary.charged_ns
    assert sum(summary.by_group.values()) == summary.by_cause.get(Charge.TRANSFER.label, 0)
    assert summary.by_cause.get(Charge.UNKNOWN.label, 0) == summary.unknown_ns
    assert sum(summary.by_rank.values()) == pytest.approx(1)
    assert min(summary.by_rank.values()) >= 0


@pytest.mark.parametrize("path", ALL)
def test_what_is_nobodys_has_no_rank_and_transfers_alone_have_a_group(path: Path) -> None:
    rows = charge_rows(model_at(path), causal.analyzed(path).in_full)
    nobodys = (Charge.TRANSFER.label, Charge.UNRESOLVED.label)
    assert all((row.rank is None) == (row.cause in nobodys) for row in rows if row.cause != Charge.UNKNOWN.label)
    assert all((row.group is not None) == (row.cause == Charge.TRANSFER.label) for row in rows)


# Paces


@pytest.mark.parametrize("path", ALL)
def test_no_change_brings_nothing(path: Path) -> None:
    lags = model_at(path).lags
    unchanged = lags.at(np.zeros(len(lags.ns), dtype=bool), 0)
    before, *after = lags.paces(lags, unchanged, lags)
    assert all((pace == before).all() for pace in after)
    assert lags.paces(unchanged)[0] == pytest.approx(before, abs=DROPPED_ROUNDING_NS)


def of_course(path: Path) -> tuple[Course, Float64]:
    """A run's course, and what its edges take."""
    model = causal.model_of(path)
    return model.calibrated.course, causal.lags_of(model)


def rounds(course: Course) -> int:
    """Over how many steps a pace is measured."""
    return course.settling * len(course.steps) if len(course.marks) else 1


@cache
def binding(path: Path) -> list[tuple[int, float]]:
    """The edges that bind, from the last point that a pace is measured at back, and when each one's target is."""
    course, lags = of_course(path)
    visits = causal.visits_of(course)
    plain = causal.plain_replay(course)
    last = plain.times(lags.tolist(), visits)[-1]
    ends = course.marks[0].tolist() if len(course.marks) else range(len(last))
    return plain.path(lags.tolist(), visits, max(ends, key=last.__getitem__))


def same(plain: Float64, replayed: Float64, rounding_ns: float) -> None:
    """Whether times are the same; what nothing is left to hold is early in both."""
    held = plain > DROPPED / 2
    assert replayed[held] == pytest.approx(plain[held], abs=rounding_ns)
    assert (replayed[~held] < plain[held].min(initial=0)).all()


@st.composite
def shortened(draw: st.DrawFn, lags: Float64) -> Float64:
    """Lags of which some are shorter, none below what it was if that is negative."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chosen = random.random(len(lags)) < draw(st.sampled_from([0.001, 0.05, 0.5, 1.0]))
    left = random.random(len(lags)) ** draw(st.sampled_from([0.1, 1, 4]))
    return np.where(chosen & (lags > 0), lags * left, lags)


RANDOM = st.sampled_from([SICK, FOUR, SMALL])


@settings(max_examples=tiers.cases(30))
@given(data=st.data(), path=RANDOM)
def test_shortening_brings_no_more_than_it_takes_off_the_path(data: st.DataObject, path: Path) -> None:
    course, lags = of_course(path)
    shorter = data.draw(shortened(lags))
    times = causal.all_times(course, np.c_[lags, shorter])
    assert (times[:, :, 1] <= times[:, :, 0] + DROPPED_ROUNDING_NS).all(), "something comes later"
    (before, after), path_ns = course.pace(course.contracted.sums(np.c_[lags, shorter])), binding(path)
    taken = lags - shorter
    within = [edge for edge, ns in path_ns if ns > path_ns[0][1] - rounds(course) * before]
    assert before - after <= sum(taken[within]) / rounds(course) + SETTLED * before
    assert before - after >= -SETTLED * before


@settings(max_examples=tiers.cases(30))
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0005, 0.01, 0.2]), path=RANDOM)
def test_dropping_dependencies_makes_nothing_later(seed: int, share: float, path: Path) -> None:
    course, lags = of_course(path)
    dropped = np.where(np.random.default_rng(seed).random(len(lags)) < share, DROPPED, lags)
    times = causal.all_times(course, np.c_[lags, dropped])
    assert (times[:, :, 1] <= times[:, :, 0] + DROPPED_ROUNDING_NS).all()


@pytest.mark.parametrize("path", ALL)
def test_a_gain_is_what_the_step_is_shorter_and_within_its_interval(path: Path) -> None:
    model = model_at(path)
    before_ns = float(model.lags.paces(model.lags)[0, 0])
    for gain in causal.gains(model):
        assert gain.step_ns + gain.gain_ns == pytest.approx(before_ns, abs=1)
        assert gain.interval_ns[0] - 1 <= gain.gain_ns <= gain.interval_ns[1] + 1
        assert gain.gain_ns <= before_ns


# Ranks and clocks


ORDERS = {SICK: (1, 0), FOUR: (2, 0, 3, 1)}


@pytest.mark.parametrize("count", [1, 2])
def test_cpus_on_which_no_step_is_marked_have_no_model(tmp_path: Path, count: int) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "dur": 50}
    for rank in range(count):
        rows = [operator | {"ts": 100 + 90 * number} for number in range(4)]
        write(tmp_path / f"rank{rank}.json", small_trace(rank, count) | {"traceEvents": rows})
    run = summarize(tmp_path, causes=True)
    why = Analyses(run, None).why_no_causes
    assert why is not None and why.startswith("no steps are marked on rank 0")
    assert report(run).charges == []


def test_the_graph_of_a_cpu_ends_with_its_last_marked_step(tmp_path: Path) -> None:
    """gloo reduces in the one marked step, 0 to 10,000 us, and long after it."""
    span = {"ph": "X", "cat": "cpu_op", "name": "gloo:all_reduce", "pid": 9, "tid": 10, "dur": 9000}
    rows = [marked_step(1, 0, 10_000), *(span | {"ts": ts} for ts in (1_000, 11_000, 21_000))]
    file = write(tmp_path / "rank0.json", small_trace(0, 300) | {"traceEvents": rows})
    found = whatif(summarize(file, causes=True))
    assert (found.baseline.measured_step_ns, found.baseline.predicted_step_ns) == (10_000_000, 10_000_000)
    assert own(found)[1].words.startswith("The run's own step (300 ranks): 10.00 ms measured")


def test_without_memory_for_a_graph_all_but_charges_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzers.causes.model.machine_memory", lambda: 1_000_000)
    short = Analyses(summary_of(SICK), None)
    assert short.causes is None
    assert short.why_no_causes is not None
    assert re.fullmatch(
        r"one graph of all ranks takes up to \d+(\.\d+)? MB of memory, more than .* here", short.why_no_causes
    )
    told = report(summary_of(SICK))
    assert [notice.code for notice in told.run.notes + told.run.warnings].count(Code.CHARGES_ARE_NULL) == 1
    assert told.summary.headline.sentence
    assert told.charges == []


@pytest.fixture(scope="module")
def renumbered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Analyses]:
    """The analyses of a run whose ranks have other numbers."""

    @cache
    def analyzed(path: Path) -> Analyses:
        folder = tmp_path_factory.mktemp("renumbered")
        return causal.analyzed(relabelled.relabelled(path, folder, dict(enumerate(ORDERS[path]))))

    return analyzed


def place_after(gain: Gain, order: Sequence[int]) -> str:
    """Where a scenario is, by the ranks' other numbers."""
    words = gain.scenario.at.split()
    return f"rank {order[int(words[1][:-1])]}: {words[2]}" if words[0] == "rank" else gain.scenario.at


@pytest.mark.parametrize("path", [SICK, pytest.param(FOUR, marks=pytest.mark.slow)], ids=lambda path: path.name)
def test_relabelled_ranks_have_relabelled_charges(path: Path, renumbered: Callable[[Path], Analyses]) -> None:
    before, after = (
        {(row.rank, row.group, row.cause, row.phase, row.at, row.ns) for row in rows}
        for rows in (causal.analyzed(path).charge_rows, renumbered(path).charge_rows)
    )
    assert {(None if rank is None else ORDERS[path][rank], *of) for rank, *of in before} == after


@pytest.mark.parametrize("path", [SICK, pytest.param(FOUR, marks=pytest.mark.slow)], ids=lambda path: path.name)
def test_relabelled_ranks_have_relabelled_intervals(path: Path, renumbered: Callable[[Path], Analyses]) -> None:
    after = {gain.scenario.at: gain.interval_ns for gain in causal.gains(causal.of_analyses(renumbered(path)))}
    for gain in causal.gains(causal.model_of(path)):
        assert after[place_after(gain, ORDERS[path])] == pytest.approx(gain.interval_ns, abs=1)


@pytest.mark.parametrize("path", [SICK, pytest.param(FOUR, marks=pytest.mark.slow)], ids=lambda path: path.name)
def test_relabelled_ranks_have_relabelled_shares_and_gains(path: Path, renumbered: Callable[[Path], Analyses]) -> None:
    before, after = causal.model_of(path), causal.of_analyses(renumbered(path))
    assert after.walked.by_rank[list(ORDERS[path])] == pytest.approx(before.walked.by_rank)
    assert after.walked.step_ns == pytest.approx(before.walked.step_ns)
    gains = {gain.scenario.at: gain.gain_ns for gain in causal.gains(after)}
    for gain in causal.gains(before):
        assert gains[place_after(gain, ORDERS[path])] == pytest.approx(gain.gain_ns, abs=1)


@pytest.mark.parametrize("path", [SICK, pytest.param(FOUR, marks=pytest.mark.slow)], ids=lambda path: path.name)
def test_a_clock_that_is_off_changes_no_gain(path: Path, tmp_path: Path) -> None:
    before = causal.model_of(path)
    after = causal.model_of(relabelled.on_another_machine(path, tmp_path, 1, 37_500_000))
    assert after.walked.step_ns == pytest.approx(before.walked.step_ns, rel=1e-3)
    assert after.walked.by_rank == pytest.approx(before.walked.by_rank, abs=0.01)
    gains = {gain.scenario.at: gain.gain_ns for gain in causal.gains(after)}
    for gain in causal.gains(before):
        assert gains[gain.scenario.at] == pytest.approx(gain.gain_ns, abs=2e-3 * before.walked.step_ns)


@pytest.mark.slow
@pytest.mark.parametrize("unit_us", [1, 100])
def test_a_coarse_clock_leaves_an_order_or_no_model(unit_us: int, tmp_path: Path) -> None:
    analyses = causal.analyzed(relabelled.coarse(FOUR, tmp_path, unit_us))
    assert (analyses.causes is None) == (unit_us == 100)
    assert (analyses.why_no_causes is None) == (unit_us == 1)


@pytest.mark.parametrize("late_ns", [0, 10**9], ids=["tied", "behind a late point"])
def test_an_order_looks_at_each_edge_once(late_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def count(edges: _Edges, points: Int64) -> Int64:
        found = out_of(edges, points)
        looked_at.append(len(found))
        return found

    out_of = _Edges.out_of
    monkeypatch.setattr(_Edges, "out_of", count)
    time_ns, source = np.arange(2_000) * (late_ns > 0), np.arange(1_999)
    time_ns[0] = late_ns
    assert in_order(time_ns, source, source + 1).tolist() == [*range(2_000)]
    # Once to put points off behind the late one, once to count how deep they lie.
    assert sum(looked_at) <= 2 * len(source)


# Replay in batches


@pytest.mark.parametrize("path", [pytest.param(SICK, marks=pytest.mark.slow), SMALL], ids=lambda path: path.name)
@pytest.mark.parametrize("dropped", [0, 0.01])
def test_a_samples_replay_is_that_in_plain_python(path: Path, dropped: float) -> None:
    course, lags = of_course(path)
    lags = np.where(np.random.default_rng(1).random(len(lags)) < dropped, DROPPED, lags)
    visits = causal.visits_of(course)
    plain = causal.plain_replay(course).times(lags.tolist(), visits)
    kept = course.contracted.point[np.unique(course.contracted.chains.target)]
    same(
        np.array(plain)[:, kept],
        causal.all_times(course, lags[:, None])[:, :, 0],
        DROPPED_ROUNDING_NS if dropped else ROUNDING_NS,
    )


@st.composite
def circles(draw: st.DrawFn) -> tuple[int, CourseEdges, Int64, Float64]:
    """Random courses: how many points, edges, the track of each point, and lags by edge.

    Points of step 0 come first; edges go on in their order, or from any of the step before.
    """
    steps, each = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    size = steps * each
    point = st.integers(0, each - 1)
    rows = []
    for target, source, earlier, step in draw(
        st.lists(st.tuples(point, point, st.booleans(), st.integers(0, steps - 1)), min_size=1, max_size=40)
    ):
        if earlier or source < target:
            before = (step - 1) % steps if earlier else step
            rows.append((before * each + source, step * each + target, earlier, step))
    rows = sorted(set(rows)) or [(0, 0, True, 0)]
    columns = np.array(rows, dtype=np.int64)
    lag = st.integers(-50, 10_000) | st.floats(0, 1e6) | st.just(DROPPED)
    lags = draw(st.lists(lag, min_size=len(rows), max_size=len(rows)))
    tracks = draw(st.lists(st.integers(-1, 3), min_size=size, max_size=size))
    edges = CourseEdges(np.arange(len(rows)), columns[:, 0], columns[:, 1], columns[:, 2] > 0, columns[:, 3])
    return size, edges, np.array(tracks), np.array(lags, dtype=np.float64)


@settings(max_examples=tiers.cases(300))
@given(circle=circles(), rounds=st.integers(1, 3), seed=st.integers(0, 99))
def test_a_random_replay_is_that_in_plain_python(
    circle: tuple[int, CourseEdges, Int64, Float64], rounds: int, seed: int
) -> None:
    size, edges, track, lags = circle
    begun_ns = np.random.default_rng(seed).integers(0, 1000, size).astype(np.float64)
    edged = Edged(edges.source, edges.target, edges.earlier, edges.step)
    contracted = contract(size, edged, np.zeros(size, dtype=bool), np.arange(size), track)
    visits = [*range(int(edges.step.max()) + 1)] * rounds
    plain = PlainReplay.of(edges, np.arange(size), begun_ns).times(lags.tolist(), visits)
    kept = np.unique(contracted.chains.target)
    others = np.where(lags == DROPPED, DROPPED, lags * np.random.default_rng(seed + 1).random(len(lags)))
    replayed = [times[kept] for times in contracted.replay(begun_ns, contracted.sums(np.c_[others, lags]), visits)]
    same(np.array(plain)[:, contracted.point[kept]], np.array(replayed)[:, :, 1], DROPPED_ROUNDING_NS)
