"""Who waited, who was waited for, and why."""

import pytest

from analyzers.collectives.clocks import clocks
from analyzers.collectives.matching import match_run
from analyzers.collectives.measured import began
from analyzers.collectives.stragglers import Reason, waiting
from analyzers.collectives.transfer import transfers
from analyzers.reporting.build import report
from analyzers.trace.collective_calls import Collective
from tests.support.drawing import called, meet


def waits(*comm, ahead=(), **more):
    run = meet(*comm, **more)
    matching = match_run(run)
    clock = clocks(run, matching)
    return waiting(matching, transfers(matching, clock, began(run, clock)), ahead)


def caused(found, rank):
    """What a rank caused, by the labels of reasons."""
    (row,) = [row for row in range(len(found)) if found.rank[row] == rank]
    return {reason.label: int(by) for reason, by in zip(Reason, found.caused_by_ns[:, row], strict=True) if by}


def test_the_last_to_arrive_is_charged_with_what_the_others_waited():
    found = waits("aaaaaaaaa", "...aaaaaa", "......aaa")
    assert found.waited_ns.tolist() == [6, 3, 0]
    assert found.caused_ns.tolist() == [0, 0, 9]


def test_all_that_is_waited_is_charged_but_for_the_last_arrivers_own():
    found = waits("aaaa..bbb....cc", ".aaa..bbbb..ccc", "..aa....bb....c")
    # Shortest 2, 2, 1; waits 2 1 0, 1 2 0, 1 2 0.
    assert found.waited_ns.tolist() == [4, 5, 0]
    assert found.caused_ns.tolist() == [0, 0, 9]


def test_a_launch_that_came_late_is_the_hosts_doing():
    found = waits("a" * 100_000, "." * 80_000 + "a" * 20_000, launch=("^", "." * 79_990 + "^"))
    assert caused(found, 1) == {"launch": 80_000}


def test_a_host_that_is_known_to_be_ahead_launched_nothing_late():
    """What its compute does then is the compute's; where that did not come last, nothing tells."""
    alone = waits("a" * 100_000, "." * 80_000 + "a" * 20_000, launch=("^", "." * 79_990 + "^"), ahead={1})
    assert caused(alone, 1) == {"unknown": 80_000}
    long = 100_000
    comm = ("bb" + "." * (long - 2) + "a" * 2 * long, "bb" + "." * (2 * long - 2) + "a" * long)
    compute = (".." + "c" * (long - 2), "." * (long + 2) + "c" * (long - 2))
    for ahead, reason in ({0}, "launch"), ({1}, "compute"):
        found = waits(*comm, compute=compute, launch=("^.^", "^.^"), step="0" * 3 * long, ahead=ahead)
        assert caused(found, 1) == {reason: long}


def test_compute_that_ran_longer_is_computes_doing():
    long = 100_000
    comm = ("bb" + "." * (long - 2) + "a" * 2 * long, "bb" + "." * (2 * long - 2) + "a" * long)
    compute = (".." + "c" * (long - 2), ".." + "c" * (2 * long - 2))
    # Both hosts launched at the very beginning.
    found = waits(*comm, compute=compute, launch=("^.^", "^.^"), step="0" * 3 * long)
    assert caused(found, 1) == {"compute": long}


def test_as_much_compute_as_the_others_had_is_no_reason():
    long = 100_000
    comm = ("bb" + "." * (long - 2) + "a" * 2 * long, "bb" + "." * (2 * long - 2) + "a" * long)
    compute = (".." + "c" * (long - 2), "." * (long + 2) + "c" * (long - 2))
    found = waits(*comm, compute=compute, launch=("^.^", "^.^"), step="0" * 3 * long)
    assert caused(found, 1) == {"launch": long}


def test_a_collective_before_that_ended_late_is_the_reason():
    long = 100_000
    letters = {
        "a": called(Collective.ALL_REDUCE, 1000, (0, 1)),
        "b": called(Collective.ALL_REDUCE, 2000, (1, 2)),
    }
    comm = ("a" * 3 * long, "b" * 2 * long + "a" * long, "b" * 2 * long)
    found = waits(*comm, calls=letters, launch=("^", "^^", "^"), step="0" * 3 * long)
    assert caused(found, 1) == {"collective": 2 * long}


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


def test_the_report_names_reasons_and_leaves_out_those_without_time():
    rows = report(meet("aaaa", "..aa")).waiting
    assert [(row.rank, row.device, row.step, row.waited_ns, row.caused_ns) for row in rows] == [
        (0, 0, 0, 2, 0),
        (1, 1, 0, 0, 2),
    ]
    assert rows[0].caused_by == {}
    assert sum(rows[1].caused_by.values()) == 2


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
