"""Replays against a simulation kernel by kernel: recorded under some buckets, played under others."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.intervals import union_of
from analyzers.prediction.replay import BucketPlan, RecordedSteps, play
from analyzers.rank.gradient_schedule import NEVER, _Device, _of_step, _stalls, _StepGradients


@dataclass
class Kernel:
    dur_ns: int
    launched_ns: int = NEVER
    gradient: bool = False


@dataclass
class Rank:
    """What one rank runs in a step: kernels of which some make gradients, copies of these, the rest, the next step."""

    kernels: list[Kernel]
    rest: list[Kernel]
    copy_ns: int
    next_ns: int


@dataclass
class Ran:
    """When it ran: starts and ends of kernels, copies and the rest, when gradients were ready, when the step ended."""

    rows: list[tuple[int, int, int, bool]] = field(default_factory=list)
    ready_ns: list[int] = field(default_factory=list)
    now: int = 0

    def run(self, kernel: Kernel, packs: bool = False) -> None:
        start = max(self.now, kernel.launched_ns)
        self.now = start + kernel.dur_ns
        self.rows.append((start, self.now, kernel.launched_ns, packs))


def simulate(ranks: list[Rank], last: list[int], transfer_ns: list[int]) -> tuple[list[Ran], list[int]]:
    """Each rank's step, and the ends of reductions."""
    ran = [Ran() for _ in ranks]
    for rank, times in zip(ranks, ran, strict=True):
        for kernel in rank.kernels:
            times.run(kernel)
            if kernel.gradient:
                times.ready_ns.append(times.now)
    free = -(10**9)
    ends = []
    for gradient, took in zip(last, transfer_ns, strict=True):
        free = max(free, *(times.ready_ns[gradient] for times in ran)) + took
        ends.append(free)
    for rank, times in zip(ranks, ran, strict=True):
        first = 0
        for gradient, end in zip(last, ends, strict=True):
            times.now = max(times.now, end)
            for _ in range(first, gradient + 1):
                times.run(Kernel(rank.copy_ns), packs=True)
            first = gradient + 1
        for kernel in rank.rest:
            times.run(kernel)
        times.now = max(times.now, rank.next_ns)
    return ran, ends


def recorded(ranks: list[Rank], ran: list[Ran], ends: list[int]) -> RecordedSteps:
    """The course of a step that was simulated, as a trace would tell it."""
    steps = [_step(rank, times, ends) for rank, times in zip(ranks, ran, strict=True)]
    begins = np.array([[times.rows[0][0]] for times in ran], dtype=np.float64)

    def per_step(name: str) -> np.ndarray:
        return np.array([step[name] for step in steps], dtype=np.float64)

    def per_gradient(name: str) -> np.ndarray:
        return np.array([[step[name]] for step in steps], dtype=np.float64)

    zero = np.zeros_like(begins)
    return RecordedSteps(
        begin_ns=begins - begins.min(),
        span_ns=np.array([[times.now] for times in ran]) - begins,
        buffers_ns=zero,
        packing_ns=zero,
        host_gap_ns=per_step("host_gap_ns"),
        norms=zero,
        work_ns=per_gradient("work_ns"),
        recorded_ns=per_gradient("work_ns"),
        host_ns=per_gradient("host_ns"),
        copy_ns=per_gradient("copy_ns"),
        total_ns=per_step("total_ns"),
        total_recorded_ns=per_step("total_ns"),
        tail_host_ns=per_step("tail_host_ns"),
        slower=0.0,
        covered=1.0,
        start_delay_ns=0.0,
        elements=np.ones(len(ran[0].ready_ns), dtype=np.int64),
        step=np.zeros(1, dtype=np.int64),
        follows=np.zeros(1, dtype=bool),
        own_host_ns=zero,
        input_ns=zero,
    )


def _step(rank: Rank, times: Ran, ends: list[int]) -> dict[str, np.ndarray]:
    start, end, launched, packs = (np.array(column) for column in zip(*times.rows, strict=True))
    start, end = np.r_[start, times.now], np.r_[end, times.now + 1]
    launched = np.r_[launched, rank.next_ns]
    busy = union_of(start, end)
    stalls, host_gaps = _stalls(busy, start, launched, np.array(ends))
    backward = union_of([times.ready_ns[0]], [times.ready_ns[-1]])
    device = _Device(start, launched, np.r_[packs, False], busy, union_of([], []), stalls - backward, host_gaps)
    count = len(times.ready_ns)
    taken = _StepGradients(np.array(times.ready_ns), np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64))
    return _of_step(device, (int(start[0]), times.now), taken)


def plan(last: list[int], transfer_ns: list[int]) -> BucketPlan:
    times = np.array(transfer_ns, dtype=np.float64)
    return BucketPlan(np.array(last), times, np.zeros(len(last) + 1), np.zeros((1, 1)))


def played(steps: RecordedSteps, last: list[int], transfer_ns: list[int]) -> list[int]:
    return play(steps, plan(last, transfer_ns)).span_ns[:, 0].tolist()


@st.composite
def ranks_of(draw, gradients):
    """Ranks that run so many gradients each, with kernels between them, some launched late."""
    times = st.integers(1, 50)
    kernels, now = [], 0
    for _ in range(gradients):
        for made in [*draw(st.lists(st.just(False), max_size=2)), True]:
            now += draw(st.integers(0, 60)) if draw(st.booleans()) else 0
            late = now if draw(st.integers(0, 3)) == 0 else NEVER
            kernels.append(Kernel(draw(times), late, made))
    kernels[0].launched_ns = draw(st.integers(0, 20))
    rest = [Kernel(draw(times), draw(st.sampled_from([NEVER, 200, 500]))) for _ in range(draw(st.integers(1, 3)))]
    return Rank(kernels, rest, draw(st.integers(1, 9)), draw(st.sampled_from([0, 300, 900])))


@st.composite
def cases(draw):
    gradients = draw(st.integers(1, 6))
    ranks = [draw(ranks_of(gradients)) for _ in range(draw(st.integers(1, 3)))]
    plans = []
    for _ in range(2):
        cuts = sorted({*draw(st.sets(st.integers(0, gradients - 1))), gradients - 1})
        plans.append((cuts, [draw(st.integers(1, 300)) for _ in cuts]))
    return ranks, plans


@settings(max_examples=150)
@given(cases())
def test_a_replay_is_what_would_have_run(case):
    ranks, (before, after) = case
    ran, ends = simulate(ranks, *before)
    steps = recorded(ranks, ran, ends)
    assert played(steps, *before) == [times.now - times.rows[0][0] for times in ran]
    again, _ = simulate(ranks, *after)
    assert played(steps, *after) == [times.now - times.rows[0][0] for times in again]


DRAWN = [Rank([Kernel(10, 0), Kernel(5, gradient=True), Kernel(5, gradient=True)], [Kernel(7)], 1, 0)] * 2
DRAWN_RAN = simulate(DRAWN, [1], [30])
STEPS = recorded(DRAWN, *DRAWN_RAN)


def test_one_bucket_of_everything_hides_behind_nothing():
    out = play(STEPS, plan([1], [30]))
    assert out.span_ns.tolist() == [[20 + 30 + 2 + 7]] * 2
    assert out.stalled_ns.tolist() == [[30], [30]]


def test_a_bucket_hides_behind_what_comes_after_its_gradients():
    # The first ends with the last gradient, and is copied out beside the second.
    assert play(STEPS, plan([0, 1], [5, 5])).stalled_ns.tolist() == [[5 - 1], [5 - 1]]
    assert played(STEPS, [0, 1], [5, 5]) == [20 + 5 + 1 + 7] * 2


@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=2), st.integers(0, 30), st.integers(0, 30), st.integers(0, 20),
    st.floats(0, 1),
)  # fmt: skip
def test_exposed_is_never_less_than_nothing(transfer_ns, start_delay, next_delay, slower, covered):
    """Compute that goes on in the gaps before reductions begin hides none of them."""
    steps = replace(STEPS, start_delay_ns=float(start_delay), slower=slower / 20, covered=covered)
    played = play(steps, replace(plan([0, 1], transfer_ns), next_delay_ns=float(next_delay)))
    assert (played.exposed_ns >= 0).all()


def test_exposed_is_what_no_kernel_covers():
    # Beside the first bucket the second gradient computes, beside the second nothing does (copies are no compute).
    assert play(STEPS, plan([0, 1], [5, 5])).exposed_ns.tolist() == [[5], [5]]
    half = RecordedSteps(**{**STEPS.__dict__, "covered": 0.5})
    assert play(half, plan([0, 1], [4, 5])).exposed_ns.tolist() == [[2 + 5], [2 + 5]]
    late = Rank([Kernel(30, 0, gradient=True)], [Kernel(7)], 1, 0)
    ranks = [late, Rank([Kernel(10, 0, gradient=True)], [Kernel(7)], 1, 0)]
    # The second rank's kernel waits for the first's.
    assert play(recorded(ranks, *simulate(ranks, [0], [4])), plan([0], [4])).exposed_ns.tolist() == [[4], [24]]


def test_infinitely_fast_links_leave_the_work_alone():
    assert played(STEPS, [1], [0]) == STEPS.total_ns[:, 0].tolist()


@settings(max_examples=100)
@given(cases(), st.integers(0, 200))
def test_slower_links_are_never_faster(case, more):
    ranks, ((last, times), _) = case
    steps = recorded(ranks, *simulate(ranks, last, times))
    assert all(np.array(played(steps, last, times)) <= np.array(played(steps, last, [t + more for t in times])))


def test_compute_beside_communication_is_slower_and_no_more_than_that():
    #  ggggg|ggggg|     the second gradient's work beside the first bucket: 5 at half the speed
    slow = RecordedSteps(**{**STEPS.__dict__, "slower": 1.0})
    assert play(slow, plan([0, 1], [100, 0])).span_ns[0, 0] == 15 + 100 + 2 + 7
    assert play(slow, plan([0, 1], [4, 0])).span_ns[0, 0] == pytest.approx(15 + 4 + (5 - 2) + 2 + 7)


def test_a_hurried_host_is_later_by_less():
    late = Rank([Kernel(10, 0), Kernel(5, 100, gradient=True)], [Kernel(7)], 1, 0)
    steps = recorded([late], *simulate([late], [0], [1]))
    assert played(steps, [0], [1]) == [100 + 5 + 1 + 1 + 7]
    assert play(steps.hurried(0.5), plan([0], [1])).span_ns[0, 0] == 100 - 45 + 5 + 1 + 1 + 7
    assert play(steps.hurried(1.0), plan([0], [1])).span_ns[0, 0] == 10 + 5 + 1 + 1 + 7
