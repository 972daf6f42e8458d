"""Ranks meet through a store: here threads, and a store in memory or over loopback."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore, PrefixStore, TCPStore

from tracer.recording import rendezvous as meeting
from tracer.recording import torch_compat as compat
from tracer.recording.rendezvous import Meeting, NotAllCame

SHORT, LONG = timedelta(seconds=0.5), timedelta(seconds=30)


@pytest.fixture(params=["hash", "tcp"])
def connect(request):
    """A store for each rank, of what all share."""
    if request.param == "hash":
        shared = HashStore()
        return lambda: shared
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    return lambda: TCPStore("localhost", server.port, is_master=False)


@pytest.fixture
def ranks(connect, monkeypatch):
    """Meetings of so many ranks."""
    threads = threading.local()

    def store(name):
        threads.store = getattr(threads, "store", None) or connect()
        return PrefixStore(name, threads.store)

    monkeypatch.setattr(compat, "meeting_store", store)

    def make(count, patience=LONG):
        made = []
        for rank in range(count):
            monkeypatch.setattr(compat, "rank_and_size", lambda rank=rank: (rank, count))
            monkeypatch.setattr(meeting, "_numbers", iter([0]))
            made.append(Meeting(patience))
        return made

    return make


def each(ranks, act):
    """What each rank's thread returns or raises."""

    def tried(rank):
        try:
            return act(rank)
        except NotAllCame as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(tried, ranks))


def test_all_wait_for_the_last(ranks):
    came = []

    def come(rank):
        time.sleep(0.1 * rank.rank)
        came.append(rank.rank)
        rank.barrier()
        return len(came)

    assert each(ranks(3), come) == [3, 3, 3]


def test_words_go_from_rank_0_to_all_and_from_all_to_rank_0(ranks):
    assert each(ranks(3), lambda rank: rank.broadcast(f"from {rank.rank}")) == ["from 0"] * 3
    assert each(ranks(3), lambda rank: rank.gather(f"from {rank.rank}")) == [["from 0", "from 1", "from 2"], [], []]


def test_meetings_follow_one_another(ranks):
    def meet(rank):
        said = [rank.broadcast(f"{number}") for number in range(3)]
        rank.barrier()
        return [*said, *rank.gather(f"{rank.rank}")]

    assert each(ranks(2), meet) == [["0", "1", "2", "0", "1"], ["0", "1", "2"]]


def test_one_process_meets_itself(ranks):
    (alone,) = ranks(1)
    alone.barrier()
    assert (alone.broadcast("a"), alone.gather("b")) == ("a", ["b"])
    alone.leave("nobody hears it")


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_was_said(ranks):
    first, _ = ranks(2, SHORT)
    with pytest.raises(NotAllCame, match=r"rank 0 waited up to 0 s for the other 1 ranks"):
        first.barrier()


@pytest.mark.parametrize("leaver", [0, 1, 2])
@pytest.mark.parametrize("call", ["barrier", "gather", "broadcast"])
def test_who_waits_for_a_rank_that_leaves_learns_why_at_once(ranks, leaver, call):
    def act(rank):
        rank.barrier()
        if rank.rank == leaver:
            time.sleep(0.1)
            rank.leave("it fell")
            return
        if call != "barrier":
            # What one says waits for nobody: the next meeting does.
            getattr(rank, call)("words")
        rank.barrier()
        return

    began = time.monotonic()
    found = each(ranks(3), act)
    assert time.monotonic() - began < 10
    for rank, said in enumerate(found):
        assert said is None if rank == leaver else str(said) == f"rank {leaver} has left: it fell"


def test_they_meet_at_the_end_however_far_each_came(ranks):
    def act(rank):
        if rank.rank == 0:
            rank.broadcast("more than the other")
        rank.leave("the end")
        rank.all_left()
        return "met"

    assert each(ranks(2), act) == ["met", "met"]


def test_who_waits_at_the_end_for_a_rank_that_failed_learns_why(ranks):
    def act(rank):
        rank.leave("the end")
        if rank.rank == 1:
            rank.fail("it fell")
            return
        rank.all_left()

    assert [str(said) for said in each(ranks(2), act)] == ["rank 1 has left: it fell", "None"]


def test_without_a_store_there_is_no_meeting(ranks, monkeypatch):
    def none(name):
        raise ValueError("Default process group has not been initialized")

    (first, _) = ranks(2)
    monkeypatch.setattr(compat, "meeting_store", none)
    with pytest.raises(NotAllCame, match="its process group has no store"):
        first.barrier()
    first.leave("and leaving is no error")


@pytest.mark.parametrize(("hosts", "restarts", "words"), [(1, "1", None), (1, "0", b"old"), (2, "1", b"old")])
def test_what_ranks_said_before_torchrun_started_them_anew_is_not_heard(monkeypatch, hosts, restarts, words):
    """On one host, whose ranks agree on how often that was."""
    shared = HashStore()
    monkeypatch.setattr(compat.distributed_c10d, "_get_default_store", lambda: shared)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(4 // hosts))
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    compat.meeting_store("tracer-0").set("said", "old")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    store = compat.meeting_store("tracer-0")
    assert (store.get("said") if store.check(["said"]) else None) == words
