"""Steps without a rank's lateness, against a simulation kernel by kernel in which that rank is as the others."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.prediction.levelling import Cause, Levelling, host_floor_ns, levelled, settled, slow_floor_ns
from analyzers.prediction.replay import Played, RecordedSteps, play
from tests.support.replaying import Kernel, Rank, chain, plan, ranks_of, recorded, simulate
from tests.support.tiers import cases

EARLY = Rank([Kernel(10, 0), Kernel(5, gradient=True), Kernel(5, gradient=True)], [Kernel(7)], 1, 0)
SLOW = replace(EARLY, kernels=[Kernel(60, 0), Kernel(5, gradient=True), Kernel(5, gradient=True)])
HELD_UP = replace(EARLY, kernels=[Kernel(10, 0), Kernel(5, 90, gradient=True), Kernel(5, gradient=True)])


def steps_of(ranks: list[Rank], last: list[int], transfer_ns: list[int]) -> RecordedSteps:
    return recorded(ranks, *simulate(ranks, last, transfer_ns))


def spans(steps: RecordedSteps, last: list[int], transfer_ns: list[int]) -> list[float]:
    return settle(steps, last, transfer_ns).span_ns[:, 0].tolist()


def settle(steps: RecordedSteps, last: list[int], transfer_ns: list[int]) -> Played:
    return settled(steps, lambda each: play(each, plan(last, transfer_ns)))


@st.composite
def late_ranks(draw):
    gradients = draw(st.integers(1, 5))
    early, late = draw(ranks_of(gradients)), draw(ranks_of(gradients))
    last = sorted({*draw(st.sets(st.integers(0, gradients - 1))), gradients - 1})
    return early, late, draw(st.integers(1, 3)), last, [draw(st.integers(1, 300)) for _ in last]


@settings(max_examples=cases(150))
@given(late_ranks())
def test_a_rank_that_is_as_the_others_is_what_would_have_run(case):
    early, late, others, last, transfer_ns = case
    steps = levelled(steps_of([early] * others + [late], last, transfer_ns), Levelling(others))
    (alike, *_), _ = simulate([early] * (others + 1), last, transfer_ns)
    assert spans(steps, last, transfer_ns) == [alike.now - alike.rows[0][0]] * (others + 1)


@pytest.mark.parametrize(("late", "cause"), [(SLOW, Cause.COMPUTE), (HELD_UP, Cause.HOST)])
def test_what_a_rank_is_late_with_is_what_helps(late, cause):
    steps = steps_of([EARLY, EARLY, late], [1], [30])
    alike = spans(steps_of([EARLY] * 3, [1], [30]), [1], [30])
    found = {each: spans(levelled(steps, Levelling(2, each)), [1], [30]) for each in Cause}
    assert found[Cause.ALL] == found[cause] == alike
    assert all(found[each] == spans(steps, [1], [30]) for each in Cause if each not in (Cause.ALL, cause))


def test_every_rank_as_the_median_leaves_no_one_to_wait_for():
    steps = steps_of([EARLY, EARLY, SLOW], [1], [30])
    assert spans(levelled(steps, Levelling(None)), [1], [30]) == spans(steps_of([EARLY] * 3, [1], [30]), [1], [30])


def test_a_rank_alone_has_none_to_be_like():
    steps = steps_of([SLOW], [1], [30])
    assert spans(levelled(steps, Levelling(0)), [1], [30]) == spans(steps, [1], [30])


def test_input_is_what_the_next_step_waits_for():
    #  rank 1 waits 40 for its next batch behind the step's work: 20, 30 of transfer, 2 and 7
    steps = steps_of([EARLY, replace(EARLY, next_ns=99)], [1], [30])
    assert spans(steps, [1], [30]) == [59, 99]
    fed = replace(steps, input_ns=np.array([[0.0], [40.0]]))
    assert spans(levelled(fed, Levelling(1, Cause.INPUT)), [1], [30]) == [59, 59]
    partly = replace(steps, input_ns=np.array([[0.0], [10.0]]))
    assert spans(levelled(partly, Levelling(1, Cause.INPUT)), [1], [30]) == [59, 89]


@settings(max_examples=cases(100))
@given(late_ranks(), st.integers(2, 4), st.data())
def test_several_steps_without_the_late_rank_are_what_would_have_run(case, count, data):
    early, _, others, last, transfer_ns = case
    first, *rest = early.kernels
    early = replace(early, kernels=[replace(first, launched_ns=0), *rest])
    late = data.draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    ranks = [[early] * others + [_held_up(early, by, data.draw(st.booleans()))] for by in late]
    recording, _ = chain(ranks, last, transfer_ns)
    _, spans_ns = chain([[early] * (others + 1)] * count, last, transfer_ns)
    found = settle(levelled(recording, Levelling(others)), last, transfer_ns)
    assert found.span_ns.tolist() == spans_ns.tolist()


def _held_up(rank: Rank, by: int, on_device: bool) -> Rank:
    """A rank whose first kernel takes longer, or whose last launches come later."""
    first, *rest = rank.kernels
    if on_device:
        return replace(rank, kernels=[replace(first, dur_ns=first.dur_ns + by), *rest])
    return replace(rank, rest=[replace(rank.rest[0], launched_ns=900 + by), *rank.rest[1:]])


def test_a_step_begins_where_the_one_before_it_ended():
    one = steps_of([EARLY, replace(EARLY, next_ns=80)], [1], [30])
    two = replace(
        one,
        **{
            name: np.repeat(value, 2, axis=1)
            for name, value in vars(one).items()
            if isinstance(value, np.ndarray) and value.ndim > 1
        },
        follows=np.array([False, True]),
    )
    # The second rank ends 21 later than the first, which waits for it in the next step.
    assert settle(two, [1], [30]).span_ns.tolist() == [[80, 80], [80, 80]]


def of_hosts(*own_ns: float) -> RecordedSteps:
    """Steps of ranks whose hosts take so long."""
    return replace(steps_of([EARLY] * len(own_ns), [1], [30]), own_host_ns=np.array([[each] for each in own_ns]))


def test_what_a_late_host_takes_longer_goes_from_the_step_that_it_limits():
    #  hosts under the profiler  100, 160; the step without it takes 80, of which 60 are the late host's own
    late = of_hosts(100.0, 160.0)
    even = levelled(late, Levelling(1))
    assert host_floor_ns(late, even, 80, is_levelled=True) == 20
    # If of these 60 as much is the profiler's as of the rest, the other host takes 50.
    assert slow_floor_ns(late, even, 80, 1.0) == 50
    # No host takes longer than under the profiler, of whose 200 and 320 half was kept.
    assert slow_floor_ns(late, even, 200, 0.5) == 125
    assert slow_floor_ns(late, even, 900, 0.5) == 200


def test_hosts_that_nothing_tells_of_are_no_limit():
    unknown = of_hosts(0.0, 0.0)
    assert host_floor_ns(unknown, unknown, 80, is_levelled=True) == slow_floor_ns(unknown, unknown, 80, 1.0) == 0
