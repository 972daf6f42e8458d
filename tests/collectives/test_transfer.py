"""Waiting against transfer, bytes, and bandwidth of every kind."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.collectives.transfer import divide
from analyzers.rank.summary import summarize, summary_of
from analyzers.reporting.build import report
from analyzers.run.loading import Run
from analyzers.trace.collective_calls import Call, Collective, Group
from analyzers.trace.header import Header
from tests.support import damage
from tests.support.drawing import called, draw, meet
from tests.support.physics import Collective as Reduction
from tests.support.physics import Compute
from tests.support.synthetic_runs import World, build

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


HERE = ["here"] * 3


def test_on_one_clock_members_wait_for_the_last_start_and_what_is_left_of_the_longest_is_the_transfer():
    # Rank 2 finds data buffered: its own duration, 3, is not the transfer.
    (found,) = rows("aaaaaaaa", "...aaaaa", "....aaa.", hosts=HERE)
    assert (found.transfer_ns, found.bound) == (4, False)
    assert waits(found) == [4, 1, 0]


def test_a_member_that_ends_before_the_last_starts_waited_for_those_that_had_started():
    (found,) = rows("aaaa......", ".aaaaaaaaa", "......aaaa", hosts=HERE)
    assert waits(found) == [1, 5, 0]
    assert found.transfer_ns == 4


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE", "GATHER", "SCATTER"])
def test_in_one_way_kinds_a_wait_is_at_most_what_a_member_takes_longer_than_the_shortest(kind):
    #           ..aaaaaa....    waits from 2 to 6, but takes only 2 longer than rank 1
    #           ......aaaa..
    found = of_two(Collective[kind], "..aaaaaa....", "......aaaa..", hosts=HERE[:2])
    assert (found.transfer_ns, found.bound) == (4, True)
    assert waits(found) == [2, 0]


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE"])
def test_without_a_common_clock_the_shortest_member_is_an_estimate_of_one_way_kinds_too(kind):
    found = of_two(Collective[kind], "..aaaa......", "......aaaaaa", hosts=["here", "there"])
    assert (found.transfer_ns, found.bound) == (4, True)
    assert waits(found) == [0, 2]


@pytest.mark.parametrize("kind", ["GATHER", "SCATTER"])
@pytest.mark.parametrize(
    ("root", "hosts", "transfer_ns", "told"),
    [
        # rank 0   wwTTTTTTTT     a sender's kernel is as long as its own message, which takes less
        (0, HERE[:2], 8, [2, 0]),
        (1, HERE[:2], 3, [2, 0]),
        (0, ["here", "there"], 10, [0, 0]),
        (1, ["here", "there"], 3, [7, 0]),
        (None, HERE[:2], 8, [2, 0]),  # nobody says who it is
        (None, ["here", "there"], 10, [0, 0]),
    ],
)
def test_the_root_of_a_gather_and_a_scatter_shows_the_transfer(kind, root, hosts, transfer_ns, told):
    call = replace(called(Collective[kind], 1000, (0, 1)), root=() if root is None else (root,))
    (found,) = rows("aaaaaaaaaa..", "..aaa.......", calls={"a": call}, hosts=hosts)
    assert (found.transfer_ns, found.bound) == (transfer_ns, True)
    assert waits(found) == told


def test_an_all_to_all_in_which_some_pair_sends_nothing_one_way_is_one_way():
    assert uneven(((10, 0), (10, 70)), ((70, 5), (0, 5))).bound
    assert uneven(((10, 1), (10, 70)), ((70, 5), (1, 5))).bound is False


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


def offsets(*ends, length, late):
    """Two hosts whose collectives' ends differ by so much, then a broadcast of `length`, to which rank 1 comes late."""
    pictures = ["", ""]
    for letter, difference in zip("abcde", ends, strict=False):
        pictures[0] += letter * 10 + "." * 100
        pictures[1] += letter * (10 + difference) + "." * (100 - difference)
    calls = {letter: called(Collective.ALL_REDUCE, 7 + k, (0, 1)) for k, letter in enumerate("abcde")}
    calls["x"] = called(Collective.BROADCAST, 1000, (0, 1))
    pictures[0] += "x" * (length + late)
    pictures[1] += "." * late + "x" * length
    run = meet(*pictures, calls=calls, hosts=["here", "there"], since=(0, 1_000_000))
    (found,) = [row for row in report(run).collectives if row.kind == "broadcast"]
    return found


def test_hosts_share_a_clock_where_their_offset_is_known_to_less_than_a_tenth_of_the_shortest_member():
    # Differences 0, 5, 10: median 5, quartiles 2.5 and 7.5, spread 5; a tenth of 51 is more than that.
    for length, shared in ((50, False), (49, False), (51, True)):
        found = offsets(0, 5, 10, length=length, late=20)
        assert found.bound
        # On the shared clock rank 1, 5 ahead, started 15 later.
        assert waits(found) == ([15, 0] if shared else [20, 0])


def test_an_unknown_clock_has_its_reason_among_the_warnings():
    calls = {"s": SYNC, "a": called(Collective.BROADCAST, 1000, (2, 3))}
    found = report(meet("ss", "ss", "...aaaa", "...aaaa", calls=calls))
    assert found.run.clock.offsets_ns["2"] is None
    assert any("clock" in str(warning) for warning in found.run.notices)


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
    assert any("no bandwidth" in str(note) for note in found.run.notes)


# Ends far apart, and profiles that begin late: neither is waiting.


@pytest.mark.parametrize("longer_us", [900, 2500])
def test_members_whose_ends_lie_a_millisecond_apart_on_one_clock_are_one_instance_of_unknown_times(tmp_path, longer_us):
    program = (Compute(5000), Reduction("all_reduce", 1 << 20, waited=True))
    made = build(World(ranks=2, program=program, jitter=0.0, lead_us=0, hosts=("h", "h")))
    kernel = [event for event in made.documents[1]["traceEvents"] if damage.is_nccl(event)][1]
    kernel["dur"] += longer_us
    run = summarize(damage.write_run(tmp_path, made.documents))
    found = report(run)
    assert not found.unmatched
    before, row, after = found.collectives
    assert before.transfer_ns == after.transfer_ns
    if longer_us < 1000:
        assert row.transfer_ns is not None
        assert row.why is None
        return
    assert (row.transfer_ns, row.busbw_gbps) == (None, None)
    assert [member.wait_ns for member in row.members] == [None, None]
    assert row.why == "the ends of its members lie 2,500 us apart on one clock"
    windows = [window for window in found.windows if window.step == row.step]
    assert len(windows) == 2
    assert all(one.exposed_unresolved_ns == one.exposed_comm_ns > 0 for one in windows)
    assert any(note.code == "ends_lie_apart" for note in found.run.notices)


def test_what_a_member_waited_before_anothers_profile_began_is_unresolved_and_nobodys_fault():
    calls = {"a": called(Collective.ALL_REDUCE, 1000, (0, 1))}
    header = Header(distributed={"world_size": 2}, host_name="here")
    #  rank 0   uuuuuwwwtttt    rank 1's first row is at 5
    early = draw(rank=0, device=0, comm="aaaaaaaaaaaa", step="0" * 12, calls=calls, header=header)
    late = draw(rank=1, device=1, comm="........aaaa", step=".....0000000", calls=calls, header=header)
    run = summary_of(Run("drawn", None, (early, late)))
    assert window(run, 0) == (3, 4, 5)
    found = report(run)
    assert [member.wait_ns for member in found.collectives[0].members] == [8, 0]
    assert [member.exposed_transfer_ns for member in found.collectives[0].members] == [None, 4]
    assert found.collectives[0].why == "a member waited 0.005 us before another's profile began"
    assert [(row.waited_ns, row.caused_ns) for row in found.waiting] == [(3, 0), (0, 3)]
    (note,) = [note for note in found.run.notices if note.code == "profiles_begin_apart"]
    assert "rank 1's profile began" in note.text


# Windows: waiting, transfer and unresolved add up to exposed communication.


def window(run, rank):
    (found,) = [each for each in report(run).windows if each.rank == rank]
    parts = found.exposed_wait_ns, found.exposed_transfer_ns, found.exposed_unresolved_ns
    assert sum(parts) == found.exposed_comm_ns
    return parts


def test_exposed_communication_is_waiting_then_transfer():
    run = meet("aaaaaaaa", "....aaaa")
    assert window(run, 0) == (4, 4, 0)
    assert window(run, 1) == (0, 4, 0)


def test_compute_hides_waiting_and_transfer_alike():
    #            wwwwtttt
    #            ..cccc..
    run = meet("aaaaaaaa", "....aaaa", compute=("..cccc..", "........"))
    assert window(run, 0) == (2, 2, 0)


def test_unmatched_communication_is_unresolved():
    run = meet("aaa...bb", "aaa.....")
    assert window(run, 0) == (0, 3, 2)
    found = report(run)
    assert found.windows[0].unmatched_comm_ns == 2
    assert found.summary.unmatched_share == pytest.approx(2 / 8)


def test_what_missing_ranks_leave_is_waiting_as_far_as_it_is_known_and_unresolved_beyond():
    run = meet("aaaaaaa", "...aaaa", world_size=3)
    assert window(run, 0) == (3, 0, 4)
    assert window(run, 1) == (0, 0, 4)
    (found,) = report(run).collectives
    assert found.algbw_gbps is found.busbw_gbps is None


def test_a_rank_alone_has_neither_waiting_nor_transfer():
    run = meet("aaaa", world_size=8, compute=("..b.",))
    assert window(run, 0) == (0, 0, 3)
    found = report(run)
    assert [member.wait_ns for member in found.collectives[0].members] == [None]
    assert "1 of 8 ranks is here" in found.summary.verdict


def test_a_transfer_beside_what_is_unresolved_counts_as_transfer():
    #  rank 0   aaaa....     transfer from 0 to 4; b, unresolved, runs on another stream from 2 to 8
    calls = {"a": called(Collective.ALL_REDUCE, 1000, (0, 1)), "b": called(Collective.ALL_REDUCE, 2000, (0, 1, 2, 3))}
    traces = [
        draw(rank=rank, device=rank, comm="aaaa....", comm2="..bbbbbb", step="0" * 8, calls=calls) for rank in (0, 1)
    ]
    header = Header(distributed={"world_size": 4})
    run = summary_of(Run("drawn", None, tuple(replace(trace, header=header) for trace in traces)))
    assert window(run, 0) == (0, 4, 4)


def test_an_applied_offset_does_not_move_a_rank_against_its_own_compute():
    run = meet("aaaaaaaa", "....aaaa", compute=("..cccc..", "......cc"), since=(0, 900_000))
    assert window(run, 0) == (2, 2, 0)
    assert window(run, 1) == (0, 2, 0)


@pytest.mark.parametrize("at", [0, 3])
def test_exposed_ns_of_a_member_is_the_kernel_less_its_devices_compute(at):
    compute = "." * at + "cc"
    (found,) = rows("aaaaaaaa", "....aaaa", compute=(compute.ljust(8, "."), "........"))
    assert [member.exposed_ns for member in found.members] == [6, 4]


@given(
    st.integers(0, 11),
    st.lists(st.text("c.", min_size=12, max_size=12).filter(lambda text: "c" in text), min_size=2, max_size=2),
)
def test_a_members_exposed_waiting_and_transfer_are_its_nanoseconds_without_compute(late, compute):
    comm = ("aaaaaaaaaaaa", "." * late + "a" * (12 - late))
    (found,) = rows(*comm, compute=compute)
    for begin, computed, member in zip((0, late), compute, found.members, strict=True):
        expected = computed[begin:late].count("."), computed[late:].count(".")
        assert (member.exposed_wait_ns, member.exposed_transfer_ns) == expected
        assert member.exposed_ns == sum(expected)
    assert found.exposed_wait_ns == compute[0][:late].count(".")


def test_what_is_unresolved_has_neither_exposed_waiting_nor_transfer():
    (found,) = rows("aaaaaaa", "...aaaa", world_size=3)
    assert [(one.exposed_wait_ns, one.exposed_transfer_ns) for one in found.members] == [(None, None)] * 2
    assert found.exposed_wait_ns is found.exposed_transfer_ns is None


MEMBER = st.tuples(st.integers(0, 30), st.integers(1, 30))

# A brute force over random instances: every definition in plain Python.


def by_hand(members: list[tuple[int, int]], *, shared: bool, one_way: bool) -> tuple[list[int], int]:
    """Waits and transfer of members (start, end), word by word as docs/measuring.md has them."""
    shortest = min(end - start for start, end in members)
    found = []
    for start, end in members:
        last = max([other for other, _ in members if other < end] or [start])
        wait = last - start if shared else end - start - shortest
        found.append(min(wait, end - start - shortest) if shared and one_way else wait)
    return found, max(end - start - wait for (start, end), wait in zip(members, found, strict=True))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=2, max_size=4), min_size=1, max_size=5
    ),
    st.booleans(),
)
def test_waits_and_transfers_equal_the_brute_force(drawn, one_way):
    for shared in (True, False):
        start, end = (
            np.array(times, dtype=np.int64)
            for times in zip(*((start, start + dur) for members in drawn for start, dur in members), strict=True)
        )
        first = np.cumsum([0, *map(len, drawn)])
        flags = (np.full(len(drawn), flag) for flag in (shared, one_way))
        wait, waits_for, transfer = divide(start, end, first, *flags)
        for number, members in enumerate(drawn):
            own = slice(first[number], first[number + 1])
            expected = by_hand([(start, start + dur) for start, dur in members], shared=shared, one_way=one_way)
            assert (wait[own].tolist(), transfer[number]) == expected
            assert ((waits_for[own] >= first[number]) & (waits_for[own] < first[number + 1])).all()
            if shared:
                assert (start[waits_for[own]] - start[own] >= wait[own]).all()
            else:
                assert (wait[waits_for[own]] == 0).all()
