"""Replays against a simulation kernel by kernel: recorded under some buckets, played under others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.prediction.replay import RecordedSteps, play
from tests.support import tiers
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


@settings(max_examples=tiers.cases(150))
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


@settings(max_examples=tiers.cases(100))
@given(cases(), st.integers(0, 200))
def test_slower_links_are_never_faster(case, more):
    ranks, ((last, times), _) = case
    steps = recorded(ranks, *simulate(ranks, last, times))
    assert all(np.array(played(steps, last, times)) <= np.array(played(steps, last, [t + more for t in times])))


@settings(max_examples=tiers.cases(100))
@given(cases(), st.integers(1, 4))
def test_transfers_are_faster_when_compute_has_ended(case, times):
    """Against a simulation that moves byte by byte, and ends a transfer up to a nanosecond late."""
    ranks, ((last, after_ns), _) = case
    beside_ns = [times * took for took in after_ns]
    steps = recorded(ranks, *simulate(ranks, last, beside_ns))
    again, _ = simulate(ranks, last, beside_ns, after_ns)
    found = play(steps, plan(last, beside_ns, after_ns)).span_ns[:, 0]
    wanted = np.array([ran.now - ran.rows[0][0] for ran in again])
    assert (found <= wanted).all()
    assert (wanted - found <= len(last)).all()


def test_what_is_left_of_a_transfer_is_faster_when_compute_has_ended():
    #  5 of 20 beside the second gradient's work, half of the other 15 after it; then half of 4, a copy and the rest
    assert play(STEPS, plan([0, 1], [20, 4], [10, 2])).span_ns[0, 0] == 15 + 5 + 15 / 2 + 2 + 1 + 7


def test_compute_beside_communication_is_slower_and_no_more_than_that():
    #  ggggg|ggggg|     the second gradient's work beside the first bucket: 5 at half the speed
    slow = RecordedSteps(**{**STEPS.__dict__, "slower": 1.0})
    assert play(slow, plan([0, 1], [100, 0])).span_ns[0, 0] == 15 + 100 + 2 + 7
    assert play(slow, plan([0, 1], [4, 0])).span_ns[0, 0] == pytest.approx(15 + 4 + (5 - 2) + 2 + 7)


def unhurried(rank: Rank) -> Rank:
    """The rank with all of its kernels launched in time."""
    kernels, rest = (
        [Kernel(each.dur_ns, gradient=each.gradient) for each in part] for part in (rank.kernels, rank.rest)
    )
    kernels[0].launched_ns = 0
    return Rank(kernels, rest, rank.copy_ns, 0)


@settings(max_examples=tiers.cases(100))
@given(cases(), st.integers(1, 4))
def test_microbatches_before_the_last_are_forward_and_backward_alone(case, batches):
    ranks, ((last, transfer_ns), _) = case
    ranks = [unhurried(rank) for rank in ranks]
    before = [[Kernel(each.dur_ns, each.launched_ns) for each in rank.kernels] * (batches - 1) for rank in ranks]
    longer = [replace(rank, kernels=[*more, *rank.kernels]) for rank, more in zip(ranks, before, strict=True)]
    one, many = (recorded(each, *simulate(each, last, transfer_ns)) for each in (ranks, longer))
    further_ns = (batches - 1) * one.microbatch_ns
    found = play(replace(one, begin_ns=one.begin_ns + further_ns), plan(last, transfer_ns)).span_ns + further_ns
    assert found.tolist() == play(many, plan(last, transfer_ns)).span_ns.tolist()
    # From the steps of several microbatches to one of them.
    fewer_ns = (1 - batches) * replace(many, passes=batches).microbatch_ns
    assert fewer_ns == pytest.approx(-further_ns)


def test_a_late_launch_makes_its_microbatch_longer():
    assert recorded([LATE], *simulate([LATE], [1], [1])).microbatch_ns.tolist() == [[105]]


@settings(max_examples=tiers.cases(100))
@given(cases())
def test_gradients_that_are_views_are_not_copied_out(case):
    ranks, ((last, transfer_ns), _) = case
    ranks = [unhurried(rank) for rank in ranks]
    steps = recorded(ranks, *simulate(ranks, last, transfer_ns))
    again, _ = simulate([replace(rank, copy_ns=0) for rank in ranks], last, transfer_ns)
    assert played(steps.without_copies_out(), last, transfer_ns) == [ran.now - ran.rows[0][0] for ran in again]


LATE = Rank([Kernel(10, 0, gradient=True), Kernel(5, 100, gradient=True)], [Kernel(7)], 1, 0)


def test_a_hurried_host_launches_sooner():
    steps = recorded([LATE], *simulate([LATE], [1], [1]))
    assert played(steps, [1], [1]) == [100 + 5 + 1 + 2 + 7]
    assert played(steps.hurried(0.5), [1], [1]) == [50 + 5 + 1 + 2 + 7]
    assert played(steps.hurried(0.0), [1], [1]) == [10 + 5 + 1 + 2 + 7]


def test_input_comes_when_it_came():
    #  20 of work, 1 of transfer, 2 and 7; the next batch at 99, for which the host waited 60
    fed = Rank(DRAWN[0].kernels, [Kernel(7)], 1, 99)
    steps = replace(recorded([fed], *simulate([fed], [1], [1])), input_ns=np.array([[60.0]]))
    assert played(steps, [1], [1]) == [99]
    # Of the host's 39 a half is left; copies and the rest, 9, are counted as if they came before.
    assert played(steps.hurried(0.5), [1], [1]) == [39 / 2 + 60 + 9 / 2]
    assert played(steps.hurried(0.0), [1], [1]) == [60 + 9]


def test_a_faster_host_is_no_slower_where_devices_waited_longer_for_input_than_it_takes():
    """What it takes is known without the profiler, and waits for input are not."""
    steps = replace(STEPS, own_host_ns=np.array([[40.0]] * 2), input_ns=np.array([[50.0]] * 2))
    assert steps.hurried(0.5).own_host_ns.ravel().tolist() == [40, 40]
    assert replace(steps, input_ns=np.array([[10.0]] * 2)).hurried(0.5).own_host_ns.ravel().tolist() == [25, 25]


@st.composite
def launched_ranks(draw):
    """One rank whose gradients are single kernels, launched at times that grow, no sooner than a step begins."""
    times = st.integers(1, 50)
    launches = np.cumsum(draw(st.lists(st.integers(0, 80), min_size=3, max_size=8))).tolist()
    kernels = [Kernel(draw(times), 2 * launch, gradient=True) for launch in launches[1:-1]]
    return Rank([Kernel(1, 0), *kernels], [Kernel(draw(times), 2 * launches[-1])], draw(st.integers(1, 9)), 0)


@settings(max_examples=tiers.cases(150))
@given(launched_ranks(), st.integers(1, 300))
def test_half_the_hosts_time_is_what_would_have_run(rank, transfer_ns):
    def sooner(kernels):
        return [replace(kernel, launched_ns=kernel.launched_ns // 2) for kernel in kernels]

    last = [len(rank.kernels) - 2]
    steps = recorded([rank], *simulate([rank], last, [transfer_ns]))
    (half,), _ = simulate([replace(rank, kernels=sooner(rank.kernels), rest=sooner(rank.rest))], last, [transfer_ns])
    # How far copies had come when the rest was launched is not kept: as if they had not begun.
    later_ns = played(steps.hurried(0.5), last, [transfer_ns])[0] - (half.now - half.rows[0][0])
    assert 0 <= later_ns <= rank.copy_ns * len(rank.kernels) / 2


def test_a_graph_has_no_gaps():
    #  10, 2 of a gap, 3 beside communication of which 1 is a gap, 4 more of which 2 are
    steps = replace(
        STEPS,
        recorded_ns=np.array([[[12.0, 16.0]]] * 2),
        work_ns=np.array([[[12.0, 14.0]]] * 2),
        total_recorded_ns=np.array([[20.0]] * 2),
        total_ns=np.array([[18.0]] * 2),
        gaps_ns=np.array([[[2.0, 3.0]]] * 2),
        total_gaps_ns=np.array([[5.0]] * 2),
    )
    found = steps.without_gaps()
    assert found.work_ns[0].tolist() == [[10, 10 + 2 - 0.5]]
    assert found.recorded_ns[0].tolist() == [[10, 13]]
    assert (found.total_ns[0, 0], found.total_recorded_ns[0, 0]) == (11.5 + 4 - 2, 13 + 4 - 2)
    assert not found.gaps_ns.any() and not found.total_gaps_ns.any()
