"""Waiting against transfer, bytes, and bandwidth of every kind."""

import pytest

from analyzers.reporting.build import report
from analyzers.trace.collective_calls import Call, Collective, Group
from tests.support.drawing import called, meet

# A synchronizing collective at the beginning, from which clocks are known.
SYNC = called(Collective.ALL_REDUCE, 7, (0, 1))


def rows(*comm, **more):
    return [row for row in report(meet(*comm, **more)).collectives if row.bytes != 28]


def of_two(kind, first, second, **more):
    """The one collective of two ranks whose pictures have it as `a`, after one that sets their clocks."""
    calls = {"s": SYNC, "a": called(kind, 1000, (0, 1))} | more.pop("calls", {})
    (found,) = rows("sssss." + first, "sssss." + second, calls=calls, **more)
    return found


def waits(row):
    return [member.wait_ns for member in row.members]


@pytest.mark.parametrize("kind", ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BARRIER"])
def test_a_synchronizing_transfer_is_the_shortest_member(kind):
    (found,) = rows("aaaaaaa", "...aaaa", "..aaaaa", kind=Collective[kind])
    assert (found.transfer_ns, found.bound, found.partial) == (4, False, False)
    assert waits(found) == [3, 0, 1]


def test_a_synchronizing_transfer_needs_no_clock():
    for since in (0, 3, 1_000_000):
        (found,) = rows("aaaaaaa", "...aaaa", since=(0, since))
        assert found.transfer_ns == 4
        assert waits(found) == [3, 0]


def test_missing_members_leave_an_upper_bound():
    (found,) = rows("aaaaaaa", "...aaaa", world_size=3)
    assert (found.transfer_ns, found.bound, found.partial, found.group_size) == (4, True, True, 3)
    assert found.group == [0, 1, 2]


def test_a_rank_that_is_here_and_lacks_its_kernel_leaves_the_others_unmatched():
    found = report(meet("aaa...bb", "aaa...bb", "aaa....."))
    assert len(found.collectives) == 1
    assert [(row.rank, row.kind, row.start_ns, row.dur_ns) for row in found.unmatched] == [
        (0, "all_reduce", 6, 2),
        (1, "all_reduce", 6, 2),
    ]
    assert all("rank 2" in row.why for row in found.unmatched[:1])


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE", "GATHER", "SCATTER"])
def test_other_kinds_last_from_the_last_start_to_the_last_end(kind):
    #           ..aaaa......    waits from 2 to its own end at 6, before the last has come
    #           ......aaaaaa
    found = of_two(Collective[kind], "..aaaa......", "......aaaaaa")
    assert (found.transfer_ns, found.bound) == (6, True)
    assert waits(found) == [4, 0]


def test_a_wait_of_the_other_kinds_ends_with_the_last_start():
    found = of_two(Collective.BROADCAST, "aaaaaaaaaa..", "...aaaaaaaaa")
    assert found.transfer_ns == 9
    assert waits(found) == [3, 0]


def test_a_message_is_between_its_two_peers():
    group = Group("0", 3, (0, 1, 2))
    call = Call(Collective.SEND_RECV, 50, 50, "Float", group)
    calls = {
        "s": called(Collective.ALL_REDUCE, 7, (0, 1, 2)),
        "a": Call(Collective.SEND_RECV, 50, 50, "Float", group, sent_to=(2,)),
        "b": Call(Collective.SEND_RECV, 50, 50, "Float", group, received_from=(0,)),
    }
    (found,) = rows("sssss.aaaaaaa", "sssss........", "sssss...bbbbb", calls=calls)
    assert (found.kind, found.group, found.group_size, found.bytes) == ("send_recv", [0, 2], 2, call.nbytes)
    assert (found.transfer_ns, waits(found)) == (5, [2, 0])
    assert found.busbw_gbps == found.algbw_gbps == 200 / 5


def test_the_common_clock_is_used_for_the_other_kinds():
    found = of_two(Collective.BROADCAST, "..aaaa......", "......aaaaaa", since=(0, 1_000_000))
    assert found.transfer_ns == 6
    assert waits(found) == [4, 0]


def spread_of(differences, length):
    """Two ranks whose collectives' ends differ so, then a broadcast of this length, on both at once."""
    letters = "abcde"
    pictures = ["", ""]
    for letter, difference in zip(letters, differences, strict=False):
        pictures[0] += letter * 10 + "." * 100
        pictures[1] += letter * (10 + difference) + "." * (100 - difference)
    calls = {letter: called(Collective.ALL_REDUCE, 7 + k, (0, 1)) for k, letter in enumerate(letters)}
    calls["x"] = called(Collective.BROADCAST, 1000, (0, 1))
    run = meet(*(picture + "x" * length for picture in pictures), calls=calls)
    (found,) = [row for row in report(run).collectives if row.kind == "broadcast"]
    return found


def test_a_transfer_is_null_where_clocks_spread_more_than_a_tenth_of_it():
    # Differences 0, 5, 10: quartiles 2.5 and 7.5, spread 5; a tenth of 50 is 5.
    for length, known in ((50, True), (49, False), (51, True)):
        found = spread_of((0, 5, 10), length)
        assert (found.transfer_ns == length) == known
        assert (found.transfer_ns is None) == (not known)
        assert found.bound
        assert waits(found) == ([0, 0] if known else [None, None])
        assert (found.algbw_gbps is None) == (found.busbw_gbps is None) == (not known)
        assert found.bytes == 4000


def blurred():
    """The report of a broadcast of 30 ns between clocks that are known to within 5."""
    pictures = ["aaaaaaaaaa" + "." * 20 + "bbbbbbbbbb" + "." * 20 + "cccccccccc" + "." * 20] * 2
    pictures[1] = "aaaaaaaaaa" + "." * 20 + "bbbbbbbbbbbbbbb" + "." * 15 + "cccccccccccccccccccc" + "." * 10
    calls = {letter: called(Collective.ALL_REDUCE, 7 + k, (0, 1)) for k, letter in enumerate("abc")}
    calls["x"] = called(Collective.BROADCAST, 1000, (0, 1))
    return report(meet(*(picture + "x" * 30 for picture in pictures), calls=calls))


def test_a_null_transfer_has_its_reason_among_the_warnings():
    found = blurred()
    assert found.collectives[-1].transfer_ns is None
    assert any("clock" in str(warning) for warning in found.run.warnings)


def test_an_unknown_clock_has_its_reason_among_the_warnings():
    calls = {"s": SYNC, "a": called(Collective.BROADCAST, 1000, (2, 3))}
    found = report(meet("ss", "ss", "...aaaa", "...aaaa", calls=calls))
    assert found.run.clock.offsets_ns["2"] is None
    assert any("clock" in str(warning) for warning in found.run.warnings)


def test_a_group_that_shares_nothing_with_rank_0_has_clocks_of_its_own():
    calls = {"s": SYNC, "t": called(Collective.ALL_REDUCE, 8, (2, 3)), "a": called(Collective.BROADCAST, 1000, (2, 3))}
    found = report(meet("ss", "ss", "tt.aaaa", "tt.aaaa", calls=calls))
    assert found.collectives[-1].transfer_ns == 4


FACTORS = {
    "ALL_REDUCE": 2 * 3 / 4,
    "ALL_GATHER": 3 / 4,
    "REDUCE_SCATTER": 3 / 4,
    "ALL_TO_ALL": 3 / 4,
    "GATHER": 3 / 4,
    "SCATTER": 3 / 4,
    "BROADCAST": 1,
    "REDUCE": 1,
}


@pytest.mark.parametrize("kind", FACTORS)
def test_bus_bandwidth_has_the_factor_of_its_kind(kind):
    group = Group("g", 4, (0, 1, 2, 3))
    part, whole = 250, 1000
    sides = {
        "ALL_GATHER": (part, whole),
        "GATHER": (part, whole),
        "REDUCE_SCATTER": (whole, part),
        "SCATTER": (whole, part),
    }
    call = Call(Collective[kind], *sides.get(kind, (whole, whole)), "BFloat16", group)
    calls = {"s": called(Collective.ALL_REDUCE, 7, (0, 1, 2, 3)), "a": call}
    (found,) = rows(*["sssss.aaaaa"] * 4, calls=calls)
    assert (found.kind, found.group_size, found.bytes, found.transfer_ns) == (kind.lower(), 4, 2000, 5)
    assert found.dtype == "BFloat16"
    assert found.algbw_gbps == 400  # 2000 bytes in 5 ns
    assert found.busbw_gbps == pytest.approx(400 * FACTORS[kind])


def test_a_root_that_alone_knows_the_total_says_it_for_all():
    group = Group("g", 2, (0, 1))
    calls = {
        "s": SYNC,
        "a": Call(Collective.GATHER, 500, 1000, "Float", group),
        "b": Call(Collective.GATHER, 500, 0, "Float", group),
    }
    (found,) = rows("sssss.aaaaa", "sssss.bbbbb", calls=calls)
    assert found.bytes == 4000


def uneven(*splits, group=(0, 1)):
    """The all-to-all of ranks that send and receive so much (in, out) to and from each."""
    calls = {"s": called(Collective.ALL_REDUCE, 7, group)}
    pictures = []
    for (sent, received), letter in zip(splits, "abcd", strict=False):
        of = Group("g", len(group), group)
        calls[letter] = Call(
            Collective.ALL_TO_ALL, sum(sent), sum(received), "Float", of, split_in=sent, split_out=received
        )
        pictures.append("sssss." + letter * 10)
    (found,) = rows(*pictures, calls=calls)
    return found


def test_an_uneven_all_to_all_counts_the_most_that_any_rank_moves():
    # Rank 0 sends 30 to rank 1 and gets 70 from it; what each keeps, 10 and 5, does not travel.
    found = uneven(((10, 30), (10, 70)), ((70, 5), (30, 5)))
    assert found.bytes == 70 * 4
    assert found.busbw_gbps == found.algbw_gbps == 28


def test_an_all_to_all_whose_splits_are_equal_is_even():
    found = uneven(((500, 500), (500, 500)), ((500, 500), (500, 500)))
    assert found.bytes == 4000
    assert found.busbw_gbps == pytest.approx(400 / 2)


def test_a_barrier_has_no_bytes():
    group = Group("g", 2, (0, 1))
    (found,) = rows("aaaa", "..aa", calls={"a": Call(Collective.BARRIER, 0, 0, "Byte", group)})
    assert (found.kind, found.transfer_ns) == ("barrier", 2)
    assert found.bytes is found.algbw_gbps is found.busbw_gbps is None


@pytest.mark.parametrize("dtype", ["", "UnknownDtype"])
def test_an_unknown_dtype_leaves_the_size_null(dtype):
    found = report(meet("aaaa", "..aa", calls={"a": called(Collective.ALL_REDUCE, 1000, (0, 1), dtype)}))
    (row,) = found.collectives
    assert row.transfer_ns == 2
    assert row.bytes is row.busbw_gbps is None
    assert any("no bandwidth" in str(warning) for warning in found.run.warnings)


# Windows: exposed_wait + exposed_transfer == exposed_comm.


def window(run, rank):
    (found,) = [each for each in report(run).windows if each.rank == rank]
    assert found.exposed_wait_ns + found.exposed_transfer_ns == found.exposed_comm_ns
    return found.exposed_wait_ns, found.exposed_transfer_ns


def test_exposed_communication_is_waiting_then_transfer():
    run = meet("aaaaaaaa", "....aaaa")
    assert window(run, 0) == (4, 4)
    assert window(run, 1) == (0, 4)


def test_compute_hides_waiting_and_transfer_alike():
    #            wwwwtttt
    #            ..cccc..
    run = meet("aaaaaaaa", "....aaaa", compute=("..cccc..", "........"))
    assert window(run, 0) == (2, 2)


def test_unmatched_and_bounded_communication_counts_as_transfer():
    found = report(meet("aaa...bb", "aaa....."))
    assert found.unmatched
    first = found.windows[0]
    assert (first.exposed_wait_ns, first.exposed_transfer_ns) == (0, 5)
    assert first.unmatched_comm_ns == 2
    assert found.summary.unmatched_share == pytest.approx(2 / 8)
    calls = {"s": SYNC, "a": called(Collective.BROADCAST, 1000, (0, 1))}
    run = meet("sssss.aaaaaaaa", "sssss......aaa", calls=calls)
    assert window(run, 0) == (0, 13)


def test_an_applied_offset_does_not_move_a_rank_against_its_own_compute():
    run = meet("aaaaaaaa", "....aaaa", compute=("..cccc..", "......cc"), since=(0, 900_000))
    assert window(run, 0) == (2, 2)
    assert window(run, 1) == (0, 2)


@pytest.mark.parametrize("at", [0, 3])
def test_exposed_ns_of_a_member_is_the_kernel_less_its_devices_compute(at):
    compute = "." * at + "cc"
    (found,) = rows("aaaaaaaa", "....aaaa", compute=(compute.ljust(8, "."), "........"))
    assert [member.exposed_ns for member in found.members] == [6, 4]


def test_clocks_that_nothing_compares_tell_no_transfer():
    calls = {"a": called(Collective.BROADCAST, 1000, (0, 1))}
    found = report(meet("aaaa", "..aaaa", calls=calls))
    (row,) = found.collectives
    assert (row.transfer_ns, row.busbw_gbps) == (None, None)
    assert {member.wait_ns for member in row.members} == {None}
