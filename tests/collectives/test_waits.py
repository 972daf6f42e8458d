"""Who waited, and who was waited for."""

import pytest

from analyzers.collectives.clocks import clocks
from analyzers.collectives.matching import match_run
from analyzers.collectives.measured import began
from analyzers.collectives.transfer import transfers
from analyzers.collectives.waits import waiting
from analyzers.reporting.build import report
from analyzers.trace.collective_calls import Collective
from tests.support.drawing import called, meet


def waits(*comm, **more):
    run = meet(*comm, **more)
    matching = match_run(run)
    clock = clocks(run, matching)
    return waiting(matching, transfers(matching, clock, began(run, clock)))


def test_the_last_to_arrive_is_charged_with_what_the_others_waited():
    found = waits("aaaaaaaaa", "...aaaaaa", "......aaa")
    assert found.waited_ns.tolist() == [6, 3, 0]
    assert found.caused_ns.tolist() == [0, 0, 9]


def test_all_that_is_waited_is_charged_but_for_the_last_arrivers_own():
    found = waits("aaaa..bbb....cc", ".aaa..bbbb..ccc", "..aa....bb....c")
    # Shortest 2, 2, 1; waits 2 1 0, 1 2 0, 1 2 0.
    assert found.waited_ns.tolist() == [4, 5, 0]
    assert found.caused_ns.tolist() == [0, 0, 9]


def test_each_step_is_counted_by_itself():
    found = waits("aaaa..bbb.", "..aa...bb.", step="0000001111")
    assert list(zip(found.rank, found.step, found.waited_ns, found.caused_ns, strict=True)) == [
        *((0, 0, 2, 0), (0, 1, 1, 0)),
        *((1, 0, 0, 2), (1, 1, 0, 1)),
    ]


def test_of_broadcasts_too_the_last_to_arrive_is_charged():
    calls = {"s": called(Collective.ALL_REDUCE, 10, (0, 1, 2)), "a": called(Collective.BROADCAST, 10, (0, 1, 2))}
    # Rank 0, the root, leaves before rank 2 has come: it waited for rank 1 alone.
    found = waits("s..aaa....", "s...aaaaaa", "s.......aa", calls=calls, hosts=["here"] * 3)
    assert found.waited_ns.tolist() == [1, 4, 0]
    assert found.caused_ns.tolist() == [0, 1, 4]


def test_what_is_waited_in_two_collectives_at_once_is_charged_once():
    group = called(Collective.ALL_REDUCE, 10, (0, 1)), called(Collective.ALL_REDUCE, 20, (0, 2))
    calls = {"a": group[0], "b": group[1]}
    found = waits("aaaaaaaabb", "......aa..", "........bb", calls=calls, hosts=["here"] * 3)
    assert found.caused_ns.sum() == found.waited_ns.sum()


def test_the_report_has_a_row_for_each_window():
    rows = report(meet("aaaa", "..aa")).waiting
    assert [(row.rank, row.device, row.step, row.waited_ns, row.caused_ns) for row in rows] == [
        (0, 0, 0, 2, 0),
        (1, 1, 0, 0, 2),
    ]


def test_a_partial_collective_charges_the_last_that_is_here():
    found = waits("aaaa", "..aa", world_size=3)
    assert found.waited_ns.tolist() == [2, 0]
    assert found.caused_ns.tolist() == [0, 2]


@pytest.mark.parametrize("late", [0, 1])
def test_who_comes_last_among_equals_does_not_depend_on_the_order_of_ranks(late):
    pictures = ["aaaaa", "aaaaa"]
    pictures[late] = "..aaa"
    found = waits(*pictures)
    assert found.caused_ns.tolist()[late] == 2
    assert found.caused_ns.sum() == 2
