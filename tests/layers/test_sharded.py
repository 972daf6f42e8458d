"""Sharded modules: why their collectives are exposed, in pictures, by brute force, and as laws on every sample."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.collectives.measured import exchange
from analyzers.layers.strategies.exposed_causes import BEHIND_NS, causes, late_launch_ns, queued
from analyzers.rank.strategies import FSDP, STRATEGIES
from tests.support.drawing import meet
from tests.support.drawn_steps import fsdp_step, gathered
from tests.support.samples import REPORTED, reported, summarized
from tests.support.tiers import cases
from tests.support.training import backward, forward, host, kernel, ranged, step, told

PARTS = ("exposed_wait_ns", "exposed_queued_ns", "exposed_late_ns", "exposed_slow_ns", "exposed_unknown_ns")


def parts_of(*comm: str, compute: str, launch: str) -> list[tuple[int, ...]]:
    """Waiting, queued, late, slow, unknown of each collective of the first of two ranks."""
    run = meet(*comm, compute=[compute, "." * len(compute)], launch=[launch, ""])
    exchanged = exchange(run)
    measured = run.measured[0]
    stood, late = queued(measured.communication), late_launch_ns(measured.communication)
    here = slice(len(measured.communication))
    waited, resolved = exchanged.exposed_wait_ns[here], exchanged.is_resolved[here]
    found = causes(measured.communication.exposed_ns, waited, resolved, stood.ns, late)
    columns = tuple(found.columns().values())
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_what_is_exposed_before_the_last_rank_comes_is_waiting():
    assert parts_of("..aaaaa", "....aaa", compute="cc.....", launch=".^") == [(2, 0, 0, 3, 0)]


def test_a_late_launch_costs_no_more_than_the_device_stood_without_compute():
    #          out of compute at 2, launched at 4
    assert parts_of(".....aaaaa", ".....aaaaa", compute="cc........", launch="....^") == [(0, 0, 2, 3, 0)]


def test_what_began_when_another_ended_was_queued():
    #          b launched at 5, a ended at 8: at most 3 of its transfer
    found = parts_of("..aaaaaabbbbb", "..aaaaaabbbbb", compute="ccccccc......", launch=".^...^")
    assert found == [(0, 0, 0, 1, 0), (0, 3, 0, 2, 0)]


def test_hidden_time_has_no_cause():
    assert parts_of("..aaa.", "..aaa.", compute="cccccc", launch=".^") == [(0, 0, 0, 0, 0)]


def test_where_other_ranks_are_not_here_the_cause_is_unknown():
    run = meet("..aaa.", compute=["cc...."], launch=[".^"], world_size=2)
    measured, exchanged = run.measured[0], exchange(run)
    stood, late = queued(measured.communication), late_launch_ns(measured.communication)
    waited, resolved = exchanged.exposed_wait_ns, exchanged.is_resolved
    found = causes(measured.communication.exposed_ns, waited, resolved, stood.ns, late)
    assert (found.exposed_unknown_ns.tolist(), found.exposed_slow_ns.tolist()) == ([3], [0])


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 12)), min_size=1, max_size=8))
def test_queues_equal_the_brute_force(rows):
    """Gaps are stretched so that some lie above what counts as right behind another."""
    starts, ends, launches, now = [], [], [], 20
    for gap, length, lead in rows:
        now += gap * 8_000
        starts.append(now)
        ends.append(now + length * 1_000)
        launches.append(max(0, now - lead * 2_000))
        now = ends[-1]
    picture = meet("a" * 3, "a" * 3).measured[0].communication
    comm = replaced(picture, starts, ends, launches)
    found = queued(comm)
    for row, (start, launch) in enumerate(zip(starts, launches, strict=True)):
        first = row
        while first > 0 and starts[first] - ends[first - 1] <= BEHIND_NS:
            first -= 1
        expected = max(0, ends[row - 1] - max(launch, starts[first])) if first < row else 0
        assert found.ns[row] == expected, (row, start)
        assert found.behind[row] == (row - 1 if expected else -1)


@settings(max_examples=cases(60), deadline=None)
@given(
    st.lists(st.sampled_from("c."), min_size=30, max_size=30),
    *(st.integers(0, 4) for _ in range(4)),
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_causes_equal_the_brute_force(cells, gap, between, ahead, back, lengths):
    """Two collectives, instant by instant; the other rank comes to both a little later."""
    compute = "cc" + "".join(cells)
    begin = 3 + gap
    first, second = (begin, begin + lengths[0]), (begin + lengths[0] + between, sum(lengths) + begin + between)
    picture = "." * first[0] + "a" * lengths[0] + "." * between + "b" * lengths[1]
    late = "".join("." if cell in "ab" and at in (first[0], second[0]) else cell for at, cell in enumerate(picture))
    late = late if min(lengths) > 1 else picture
    calls = sorted({max(0, first[0] - ahead), max(1, second[0] - back)})
    if len(calls) < 2:
        return
    launch = "".join("^" if at in calls else "." for at in range(len(picture)))
    waits = int(late != picture)
    found = parts_of(picture, late, compute=compute, launch=launch)
    computes = {at for at, cell in enumerate(compute) if cell == "c"}
    for number, (start, end) in enumerate((first, second)):
        exposed = [at for at in range(start, end) if at not in computes]
        waiting = sum(at < start + waits for at in exposed)
        left = len(exposed) - waiting
        # All gaps here are far below what counts as right behind another.
        stood = max(0, first[1] - max(calls[1], first[0])) if number else 0
        before = max(at for at in computes if at < start) + 1
        idle = max(0, calls[number] - (start if start in computes and start - 1 in computes else before))
        queue = min(left, stood)
        since = min(left - queue, idle)
        assert found[number] == (waiting, queue, since, left - queue - since, 0)


def replaced(comm, starts, ends, launches):
    """As many rows of one group as there are starts."""
    count = len(starts)
    return replace(
        comm,
        device=np.zeros(count, dtype=np.int32),
        stream=np.full(count, 7),
        start_ns=np.array(starts),
        dur_ns=np.array(ends) - np.array(starts),
        call=np.zeros(count, dtype=np.int32),
        launched_ns=np.array(launches),
    )


def reduced(ts: float, start: float, dur: float, name: str, kind: str = "reduce_scatter") -> list:
    """A reduction in its range, behind the copies of gradients into its input."""
    words = {
        "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum_f32"),
        "all_reduce": ("allreduce", "AllReduce"),
    }
    collective, label = words[kind]
    said = {"Collective name": collective, "In msg nelems": 100, "Out msg nelems": 50, "dtype": "Float"}
    said |= {"Group size": 2, "Process Group Name": kind, "Process Group Ranks": "[0, 1]"}
    return [
        ranged(f"FSDP::post_backward_reduce ({name})", ts, 4),
        *kernel("chunk_cat", ts + 0.5, ts + 1, 1),
        host(f"c10d::{collective}_", ts + 2, 1),
        *kernel(f"ncclDevKernel_{label}_RING_LL(x)", ts + 2.5, start, dur, stream=21, **said),
    ]


def test_each_module_has_its_collectives_and_its_packing(tmp_path):
    rows = [
        *fsdp_step(),
        *reduced(80, 84, 6, "b"),
        *reduced(100, 104, 6, "a"),
        *reduced(120, 124, 3, "a", "all_reduce"),
    ]
    found = told(tmp_path, rows, rows).sharded
    mine = [row for row in found.collectives if row.rank == 0]
    assert [(row.module, row.kind, row.direction, row.prefetched) for row in mine] == [
        ("a", "all_gather", "forward", False),
        ("b", "all_gather", "forward", False),
        ("b", "all_gather", "backward", False),
        ("a", "all_gather", "backward", True),
        ("b", "reduce_scatter", "backward", None),
        ("a", "reduce_scatter", "backward", None),
        ("a", "all_reduce", "backward", None),  # HSDP's
    ]
    assert all(row.exposed_ns == sum(getattr(row, part) for part in PARTS) for row in mine)
    modules = {row.module: row for row in found.modules if row.rank == 0}
    assert {name: row.reshard_after_forward for name, row in modules.items()} == {"a": True, "b": True}
    assert [modules[name].reduce_ns for name in "ab"] == [2000, 1000]


def test_a_module_that_is_not_gathered_again_was_not_resharded(tmp_path):
    rows = [step(0, 0, 200), ranged("FSDP::pre_forward (a)", 10, 4), *gathered(11, 13, 2, "a", 100)]
    rows += [*forward(20, "mm", 1), *backward(40, "mm", 1)]
    without = told(tmp_path, rows, rows).sharded
    assert [row.reshard_after_forward for row in without.modules] == [None, None]
    more = [*rows, *reduced(80, 84, 6, "a")]
    assert [row.reshard_after_forward for row in told(tmp_path, more, more).sharded.modules] == [False, False]


def test_of_the_first_fsdp_the_module_is_the_range_around_its_forward(tmp_path):
    rows = [step(0, 0, 200), ranged("nn.Module: net.0 (FullyShardedDataParallel)", 9, 30)]
    rows += [ranged("FullyShardedDataParallel.forward", 10, 28), ranged("FullyShardedDataParallel._pre_forward", 11, 5)]
    rows += [row for row in gathered(12, 14, 2, "x", 100) if "FSDP::" not in row["name"]]
    rows += forward(20, "mm", 1)
    rows += [ranged("FullyShardedDataParallel._pre_forward_prefetch", 26, 6)]
    rows += [row for row in gathered(27, 29, 2, "y", 200) if "FSDP::" not in row["name"]]
    found = [row for row in told(tmp_path, rows, rows).sharded.collectives if row.rank == 0]
    assert [(row.module, row.prefetched) for row in found] == [("net.0", False), (None, True)]


@pytest.mark.parametrize("path", REPORTED)
def test_causes_add_up_and_each_collective_of_fsdps_has_one_row(path):
    found = reported(path).sharded
    counts = Counter(row.rank for row in found.collectives)
    for summary, measured in zip(summarized(path).ranks, summarized(path).measured, strict=True):
        assert counts[summary.rank] == (measured.communication.strategy == STRATEGIES.index(FSDP)).sum()
    for row in found.collectives:
        assert sum(getattr(row, part) for part in PARTS) == row.exposed_ns
        assert min(getattr(row, part) for part in PARTS) >= 0
        assert sum(part.ns for part in row.hidden_by) == row.overlapped_ns == row.dur_ns - row.exposed_ns
        assert row.queued_ns is None or (row.queued_behind is None) == (row.queued_ns == 0)


@pytest.mark.parametrize("path", REPORTED)
def test_packing_by_module_adds_up_to_no_more_than_the_windows(path):
    report, total = reported(path), Counter()
    for row in report.sharded.modules:
        total[row.rank, row.device, row.step] += row.copy_in_ns + row.copy_out_ns + row.reduce_ns + row.other_ns
    is_fsdp = not report.buckets and bool(report.sharded.collectives)
    for window in report.windows:
        packed = total[window.rank, window.device, window.step]
        assert packed == window.packing_ns if is_fsdp else packed <= window.packing_ns
