"""What hosts were in: collections, cores that were busy, and how it is written down."""

import gc
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from analyzers.run.machine_states import find_held_up, host_notices
from analyzers.run.manifest import HostStates
from tracer.recording import host_states
from tracer.recording.host_states import Collections, HostWatch

NS_PER_S = 1_000_000_000


@pytest.fixture
def watch():
    made = HostWatch()
    with made.collections:
        yield made


def test_a_collection_is_a_row_of_its_thread_and_time_of_its_step(watch):
    gc.disable()
    try:
        watch.begin(6)
        watch.mark(7)
        before_ns = time.time_ns()
        gc.collect(1)
        after_ns = time.time_ns()
        watch.mark(8)
    finally:
        gc.enable()
    (row,) = [row for row in watch.rows() if row.category == "gc"]
    assert (row.name, row.thread, row.arguments) == ("gc of generation 1", threading.get_native_id(), {"generation": 1})
    assert before_ns <= row.start_ns <= row.end_ns <= after_ns
    states = watch.states()
    assert states.step == [7, 8]
    assert states.gc_ns == [0, row.end_ns - row.start_ns]
    assert states.host_ns[1] >= states.gc_ns[1]


def test_only_collections_while_it_is_entered_are_noted():
    collections = Collections()
    gc.collect()
    with collections:
        gc.collect()
    gc.collect()
    assert collections.count == 1
    assert collections._note not in gc.callbacks


def test_more_collections_than_there_is_room_for_are_in_their_steps_time(monkeypatch):
    monkeypatch.setattr(host_states, "MOST_COLLECTIONS", 2)
    few = HostWatch()
    with few.collections:
        for block in (0, 10):
            few.begin(block)
            for step in range(block + 1, block + 5):
                gc.collect(0)
                few.mark(step)
            assert len([row for row in few.rows() if row.category == "gc"]) == 2
    assert all(few.states().gc_ns)
    assert few.states().step == [1, 2, 3, 4, 11, 12, 13, 14]


def test_a_counter_of_a_step_stands_over_that_step(watch):
    begun_ns = time.time_ns()
    watch.begin(0)
    watch.mark(1)
    watch.mark(2)
    starts_ns = [row.start_ns for row in watch.rows() if row.name == "of the main thread"]
    assert begun_ns <= starts_ns[0] <= starts_ns[1]
    assert len(starts_ns) == 2
    assert starts_ns[0] == watch._blocks[-1][0].time_ns


def test_usage_is_of_one_thread():
    watch = HostWatch()
    watch.begin(0)
    thread = threading.Thread(target=watch.mark, args=(1,))
    thread.start()
    thread.join()
    assert watch.states().switches == [None]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how long threads wait for cores")
def test_a_thread_that_shares_its_core_waits_for_it(watch):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        watch.begin(0)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            pass
        watch.mark(1)
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, cores)
    states = watch.states()
    # Half of a second and more, where nothing else runs there.
    assert states.runnable_ns[0] > 0.1 * NS_PER_S
    assert states.switches[0] >= 1


def test_autograds_threads_are_known_by_name_and_work(monkeypatch, tmp_path):
    for tid, name, ran_ns in ((7, "python", 10**9), (8, "pt_autograd_0", 10**9), (9, "pt_autograd_1", 10)):
        (tmp_path / str(tid)).mkdir()
        (tmp_path / str(tid) / "comm").write_text(f"{name}\n")
        (tmp_path / str(tid) / "schedstat").write_text(f"{ran_ns} 1000 3\n")
    monkeypatch.setattr(host_states, "THREADS", tmp_path)
    monkeypatch.setattr(host_states.threading, "get_native_id", lambda: 7)
    watch = HostWatch()
    watch.begin(0)
    (tmp_path / "7" / "schedstat").write_text("1000000009 1400 4\n")
    (tmp_path / "8" / "schedstat").write_text("1000000009 3500 4\n")
    watch.mark(1)
    assert (watch.states().runnable_ns, watch.states().autograd_runnable_ns) == ([400], [2500])
    counters = [row for row in watch.rows() if row.category == "host_state"]
    assert counters[0].arguments == {"main": 400, "autograd": 2500}
    assert "dur" not in counters[0].event(0)
    assert counters[0].event(0)["ph"] == "C"


def test_what_a_system_does_not_say_is_null(monkeypatch, tmp_path):
    monkeypatch.setattr(host_states, "THREADS", tmp_path / "none")
    monkeypatch.setattr(host_states, "resource", SimpleNamespace())
    monkeypatch.setattr(host_states, "CPUINFO", tmp_path / "none")
    watch = HostWatch()
    watch.begin(0)
    watch.mark(1)
    found = watch.states()
    nothing = [None]
    assert found.runnable_ns == found.autograd_runnable_ns == found.switches == found.faults == nothing


def states(steps=4, **lists):
    return HostStates(step=[*range(1, steps + 1)], host_ns=[10_000_000] * steps, **lists)


def test_what_held_a_host_up_is_said_in_one_line():
    ranks = {
        "0": states(runnable_ns=[10_000] * 4, switches=[0] * 4, gc_ns=[0] * 4, cpu_mhz=[3000.0]),
        "1": states(
            runnable_ns=[4_000_000] * 4,
            switches=[12] * 4,
            autograd_runnable_ns=[None, 3_000_000, None, None],
            gc_ns=[0, 0, 4_000_000, 0],
            faults=[5, 5, 0, 0],
            cpu_mhz=[2000.0, None],
        ),
    }
    (notice,) = host_notices(ranks)
    assert notice.text == (
        "rank 1's host: its main thread waits 4.00 ms per step for a core (switched out 12 times per step); "
        "autograd's thread waits 3.00 ms per step for a core; Python's garbage collections take 1.00 ms of a step; "
        "2 page faults per step are read from disk; its CPU runs at 2,000 MHz where the others' run at 3,000"
    )


def test_ranks_are_said_in_order():
    held_up = states(gc_ns=[10**7] * 4)
    assert [*find_held_up({"10": held_up, "2": held_up, "x": held_up, "0": held_up})] == [0, 2, 10]


@pytest.mark.parametrize("odd", [-1, 2**60])
def test_nothing_is_made_of_times_that_cannot_be(odd):
    assert find_held_up({"0": states(runnable_ns=[odd] * 4), "x": states(gc_ns=[10**7] * 4)}) == {}
    assert find_held_up(None) == {}
    assert find_held_up({"0": HostStates()}) == {}
