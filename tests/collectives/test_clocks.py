"""Ranks' clocks against one another, and when they are put on one."""

import pytest

from analyzers.collectives.clocks import clocks
from analyzers.collectives.matching import match_run
from analyzers.collectives.measured import exchange
from analyzers.reporting.build import report
from analyzers.trace.collective_calls import Collective
from tests.support.drawing import called, meet

ALIKE = "aa...bb...cc"


def clocks_of(run):
    return clocks(run, match_run(run)).by_rank


def test_an_offset_is_the_median_difference_of_ends():
    # Ends of rank 1 are 100, 101 and 107 later.
    found = clocks_of(meet("aa........bb........cc", "aa.........bb.............cc", since=(0, 100)))
    assert (found[0].offset_ns, found[0].spread_ns) == (0, 0)
    assert found[1].offset_ns == 101


def test_the_spread_is_the_distance_between_the_quartiles():
    # Differences 0, 1, 4: the quartiles lie half way, at 0.5 and 2.5.
    found = clocks_of(meet("aa........bb........cc", "aa.........bb...........cc"))
    assert (found[1].offset_ns, found[1].spread_ns) == (1, 2)


def test_an_offset_beyond_its_spread_and_the_shortest_transfer_is_applied():
    for since, applied in ((1, False), (2, False), (3, True), (1_000_000, True)):
        found = clocks_of(meet(ALIKE, ALIKE, since=(0, since)))  # spread 0, every transfer 2
        assert found[1].applied == applied, since
        assert found[1].shift_ns == (since if applied else 0)


def test_an_offset_below_its_spread_is_not_applied():
    run = meet("aa........bb..........cc", "aa..........bb..........cc")
    found = clocks_of(run)[1]
    # Differences 0, 2, 2.
    assert (found.offset_ns, found.spread_ns, found.applied) == (2, 1, False)


def test_an_earlier_clock_counts_like_a_later_one():
    found = clocks_of(meet(ALIKE, ALIKE, since=(500, 0)))
    assert (found[1].offset_ns, found[1].applied) == (-500, True)


def test_an_offset_beyond_what_a_float_holds_is_exact():
    """A rank whose trace lacks its epoch: its clock is decades off, and known to the nanosecond all the same."""
    epoch = 1_790_857_026_000_000_007
    found = clocks_of(meet(ALIKE, ALIKE, since=(epoch, 0)))
    assert (found[1].offset_ns, found[1].shift_ns) == (-epoch, -epoch)


def test_ranks_known_to_share_a_host_keep_their_times():
    for hosts, applied in ((("x", "x"), False), (("x", "y"), True), ((None, None), True), (("x", None), True)):
        found = clocks_of(meet(ALIKE, ALIKE, since=(0, 80_000), hosts=hosts))
        assert found[1].offset_ns == 80_000
        assert found[1].applied == applied, hosts


def test_ranks_that_share_another_host_are_shifted_alike():
    late = "aa.." + "...bb...cc"
    found = clocks_of(meet("aa...bb...cc", "aa...bb...cc", late, since=(0, 50_000, 50_000), hosts=("x", "y", "y")))
    assert found[1].applied
    assert found[2].applied
    assert found[1].shift_ns == found[2].shift_ns


def mesh(since):
    """Ranks 0 1 / 2 3: rows first, then columns; no collective of all, so that 3 is reached by way of others."""
    rows = {rank: called(Collective.ALL_REDUCE, 1000, row) for row in ((0, 1), (2, 3)) for rank in row}
    columns = {rank: called(Collective.ALL_REDUCE, 3000, column) for column in ((0, 2), (1, 3)) for rank in column}
    letters = {"a": rows[0], "b": rows[2], "c": columns[0], "d": columns[1]}
    return meet("aa...cc", "aa...dd", "bb...cc", "bb...dd", calls=letters, since=since)


def test_offsets_are_led_over_other_ranks():
    found = clocks_of(mesh((0, 1000, 50_000, 51_000)))
    assert {rank: clock.offset_ns for rank, clock in found.items()} == {0: 0, 1: 1000, 2: 50_000, 3: 51_000}
    assert all(clock.applied for rank, clock in found.items() if rank)


def test_spreads_add_up_along_the_way():
    run = meet("aa........bb........cc", "aa.........bb...........cc")
    direct = clocks_of(run)[1].spread_ns
    letters = {
        **{letter: called(Collective.ALL_REDUCE, 1000 * (k + 1), (0, 1)) for k, letter in enumerate("abc")},
        **{letter: called(Collective.ALL_REDUCE, 1000 * (k + 5), (1, 2)) for k, letter in enumerate("def")},
    }
    first, second = "aa........bb........cc", "aa.........bb...........cc"
    wait = "." * 30
    then, last = (picture.translate(str.maketrans("abc", "def")) for picture in (first, second))
    found = clocks_of(meet(first, second.ljust(30, ".") + then, wait + last, calls=letters))
    assert found[2].spread_ns == 2 * direct == 4


def test_a_rank_that_shares_nothing_has_no_clock():
    letters = {"a": called(Collective.ALL_REDUCE, 1000, (0, 1)), "b": called(Collective.ALL_REDUCE, 1000, (2, 3))}
    found = clocks_of(meet("aa", "aa", "bb", "bb", calls=letters))
    assert sorted(found) == [0, 1]
    clock = report_clock(meet("aa", "aa", "bb", "bb", calls=letters))
    assert clock.offsets_ns == {"0": 0, "1": 0, "2": None, "3": None}
    assert clock.spread_ns == {"0": 0, "1": 0, "2": None, "3": None}


def report_clock(run):
    return report(run).run.clock


def test_the_report_says_whose_clock_was_corrected():
    clock = report_clock(meet(ALIKE, ALIKE, ALIKE, since=(0, 0, 900)))
    assert (clock.applied, clock.applied_to) == (True, [2])
    assert clock.offsets_ns == {"0": 0, "1": 0, "2": 900}


def test_times_are_on_the_common_clock():
    found = report(meet(ALIKE, ALIKE, since=(0, 900_000)))
    assert [member.start_ns for member in found.collectives[0].members] == [0, 0]
    assert {window.start_ns for window in found.windows} == {0}


def test_a_correction_never_makes_a_time_negative():
    found = report(meet(ALIKE, ALIKE, since=(900_000, 0)))
    assert min(member.start_ns for row in found.collectives for member in row.members) == 0
    assert min(window.start_ns for window in found.windows) == 0


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda: meet("", "", compute=("aa", "aa")), id="no communication"),
        pytest.param(lambda: meet("aa", "aa", kind=Collective.BROADCAST), id="broadcasts alone"),
        pytest.param(lambda: meet("aa", "bb"), id="nothing matched"),
    ],
)
def test_without_synchronizing_collectives_no_clock_is_known(run):
    found = exchange(run()).clocks
    assert list(found.by_rank) == [0]
