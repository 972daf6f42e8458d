"""Replays against a simulation kernel by kernel: recorded under some buckets, played under others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.prediction.replay import RecordedSteps, play
from tests.support.replaying import Kernel, Rank, plan, ranks_of, recorded, simulate


def played(steps: RecordedSteps, last: list[int], transfer_ns: list[int]) -> list[int]:
    return play(steps, plan(last, transfer_ns)).span_ns[:, 0].tolist()


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
