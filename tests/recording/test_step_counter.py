"""Which optimizer's steps end training steps, for drawn sequences of steps."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import TracerError
from tracer.recording.unchanged_script import SILENCE, StepCounter

OPTIMIZERS = st.integers(0, 3)
# What optimizers do in each iteration, in order.
ITERATIONS = st.lists(OPTIMIZERS, min_size=1, max_size=8)


@given(ITERATIONS)
def test_after_the_wait_every_iteration_has_the_steps_of_the_optimizer_that_steps_least_often(iteration):
    counter = StepCounter(wait=100)
    while counter.steps < 100:
        for each in iteration:
            counter.count(each, 0, "SGD")
    counts = Counter(iteration)
    for _ in range(3):
        ended = [each for each in iteration if counter.count(each, 0, "SGD")]
        assert len(set(ended)) == 1
        assert len(ended) == counts[ended[0]] == min(counts.values())


@given(st.permutations(range(4)), st.integers(2, 50))
def test_of_those_that_step_as_often_the_last_ends_an_iteration(iteration, wait):
    # In a wait of one step nobody but the first has been heard.
    counter = StepCounter(wait)
    for _ in range(wait):
        for each in iteration:
            counter.count(each, 0, "SGD")
    assert [each for each in iteration if counter.count(each, 0, "SGD")] == iteration[-1:]


@given(st.permutations(range(4)), st.integers(2, 50))
def test_no_iteration_of_those_that_step_as_often_counts_twice(iteration, wait):
    counter = StepCounter(wait)
    for done in range(1, wait + 5):
        for each in iteration:
            counter.count(each, 0, "AdamW")
        assert counter.steps == done


@given(st.lists(OPTIMIZERS, max_size=SILENCE), st.integers(0, 20))
def test_the_first_counts_during_the_wait_and_one_alone_after_it(heard, wait):
    counter = StepCounter(wait)
    ended = [each for each in heard if counter.count(each, 0, "SGD")]
    assert counter.steps == len(ended)
    assert set(ended[:wait]) <= set(heard[:1])
    assert len(set(ended[wait:])) <= 1


@given(st.lists(st.tuples(OPTIMIZERS, st.integers(0, 2)), max_size=60), st.integers(0, 60))
def test_a_thread_counts_from_the_first_training_step_in_it_and_changes_during_the_wait_alone(heard, wait):
    counter, thread = StepCounter(wait), None
    for each, where in heard:
        try:
            ends = counter.count(each, where, "SGD")
        except TracerError as error:
            assert counter.steps >= wait
            assert where != thread
            assert "another thread" in str(error)
            return
        if ends:
            assert where == thread or counter.steps <= max(wait, 1)
            thread = where


@pytest.mark.parametrize("steps", [1, 5])
def test_an_optimizer_that_falls_silent_is_followed_by_another_during_the_wait_alone(steps):
    counter = StepCounter(wait=5)
    for _ in range(steps):
        assert counter.count(0, 0, "SGD")
    assert not any(counter.count(1, 0, "Adam") for _ in range(SILENCE - 1))
    assert counter.has_stopped
    if steps == 1:
        assert not counter.count(1, 0, "Adam")
        assert counter.count(1, 0, "Adam")
    else:
        with pytest.raises(TracerError, match=r"another \(Adam\) goes on"):
            counter.count(1, 0, "Adam")
