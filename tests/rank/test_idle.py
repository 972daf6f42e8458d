"""Idle time by cause: drawn, by brute force over random traces and over recorded ones."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analyzers.arrays import UNKNOWN
from analyzers.rank import Cause, Phase
from analyzers.rank.idle.causes import Pieces, as_long_as
from analyzers.rank.idle.gaps import Gaps
from analyzers.rank.summary import summarize
from analyzers.run.layout import find
from analyzers.run.light_window import Mismatch, retime
from analyzers.run.loading import load
from analyzers.trace import Category, launch_times
from tests.support import idle_brute_force as reference
from tests.support.brute_force import windows
from tests.support.drawing import LOADER, draw
from tests.support.idle_told import causes, drawn, idle, us
from tests.support.kineto_files import Event, write
from tests.support.samples import OF_KINETO, OWN, params
from tests.support.tiers import cases, quarters
from tests.support.training import ENGINE, MAIN, document, host, kernel, ranged, step, traced


def called(name: str, ts: float, dur: float, tid: int = MAIN) -> Event:
    return host(name, ts, dur, tid=tid, category="cuda_runtime", correlation=round(ts * 1000) + 1)


# Drawn. Kernels of `kernel` are launched by calls of half a microsecond.


def test_collections_and_allocations_are_causes_of_their_own(tmp_path):
    rows = [
        step(3, 0, 100),
        *kernel("first", 1, 2, 8),  # idle from 10 to 40
        host("gc of generation 2", 11, 6, category="gc"),  # in Python
        called("cudaStreamSynchronize", 15, 4),  # from a finalizer, say
        host("aten::empty", 21, 14),
        called("cudaMalloc", 22, 5),
        host("gc of generation 0", 29, 2, category="gc"),  # in an operator
        *kernel("second", 36, 40, 5),
    ]
    # From the call that waits on, until the next launch, the thread's own work is that call's price.
    expected = {"gc": 4, "synchronize": 4 + 17 - 5, "allocator": 5, "python": 1, "launch_latency": 4}
    assert causes(traced(tmp_path, *rows)) == us(expected)
    rows.pop(4)
    expected = {"gc": 6 + 2, "allocator": 5, "operator": 14 - 5 - 2, "python": 1 + 4 + 1, "launch_latency": 4}
    assert causes(traced(tmp_path / "no_call", *rows)) == us(expected)


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaFree", "allocator"),
        ("cudaHostAlloc", "allocator"),
        ("hipHostMalloc", "allocator"),
        ("cuMemMap", "allocator"),
        ("cuMemSetAccess", "allocator"),
        ("cuMemcpyHtoD_v2", "synchronize"),
        ("cuMemsetD32Async", "python"),
        ("cudaMemGetInfo", "python"),
        ("cuMemGetInfo_v2", "python"),
        ("cuMemPrefetchAsync", "python"),
    ],
)
def test_which_calls_are_the_allocators(tmp_path, call, cause):
    rows = [step(3, 0, 100), *kernel("first", 1, 2, 8), called(call, 10, 10), *kernel("second", 20, 25, 5)]
    assert causes(traced(tmp_path, *rows)) == us({cause: 10, "launch_latency": 5})


def test_what_lies_before_the_launch_is_the_hosts(tmp_path):
    rows = [
        step(3, 0, 100),
        *kernel("first", 1, 2, 8),  # idle from 10 to 30
        ranged(LOADER, 8, 5),
        host("aten::item", 13, 6),
        called("cudaStreamSynchronize", 14, 3),
        host("aten::add", 21, 7),
        *kernel("second", 25, 30, 5),
    ]
    # What drains the queue is there until something is launched again.
    expected = {"input": 3, "operator": 1, "synchronize": 3 + 8, "launch_latency": 5}
    assert causes(traced(tmp_path, *rows)) == us(expected)
    lines = idle(traced(tmp_path, *rows)).lines
    named = dict(zip(zip(lines.name, lines.call, strict=True), lines.ns.tolist(), strict=True))
    assert named[("aten::item", "cudaStreamSynchronize")] == 11_000
    assert named[("aten::item", "")] == 1_000
    since = 1_700_000_000_000_000_000
    assert [
        ((start - since) // 1000, (end - since) // 1000, *rest) for start, end, *rest in drawn(traced(tmp_path, *rows))
    ] == [
        (10, 13, "input", LOADER, None),
        (13, 14, "operator", "aten::item", None),
        (14, 25, "synchronize", "aten::item", "cudaStreamSynchronize"),
        (25, 30, "launch_latency", "aten::add", None),
    ]


def test_a_launch_of_any_thread_fills_the_queue_again(tmp_path):
    rows = [
        step(3, 0, 100),
        *kernel("first", 1, 2, 8),  # idle from 10 to 16, from 18 to 30
        called("cudaDeviceSynchronize", 9, 3),
        *kernel("second", 14, 16, 2, tid=ENGINE),
        *kernel("third", 25, 30, 5),
    ]
    expected = {"synchronize": 0, "python": 4 + 7, "launch_latency": 2 + 5}
    assert causes(traced(tmp_path, *rows)) == us({cause: ns for cause, ns in expected.items() if ns})


def test_what_starts_long_after_its_launch_was_queued_for_something(tmp_path):
    rows = [step(3, 0, 200), *kernel("a", 1, 2, 8), *kernel("b", 12, 112, 8)]
    assert causes(traced(tmp_path, *rows)) == us({"python": 2, "launch_latency": 20.5, "dependency": 79.5})


def test_only_the_launching_thread_counts(tmp_path):
    rows = [
        step(3, 0, 100),
        *kernel("first", 1, 2, 8),
        host("aten::add", 10, 20),  # on the main thread, while another launches
        *kernel("second", 20, 22, 5, tid=ENGINE),
    ]
    assert causes(traced(tmp_path, *rows)) == us({"python": 10, "launch_latency": 2})


def test_an_event_that_was_launched_before_its_gap(tmp_path):
    rows = [
        step(3, 0, 200),
        *kernel("a", 0, 2, 8),
        *kernel("b", 8, 12, 8),  # launched before 10; its stream was busy until then
        *kernel("c", 9, 22, 8, stream=8),  # its stream has been free since ever
        *kernel("d", 9.7, 120, 8, stream=8),  # too long for the device's own pause
        *kernel("e", 130, 132, 8),  # the only launch inside its gap: 1.5 us from its call's end to its start
    ]
    expected = {"kernel_gap": 2, "dependency": 2 + 90, "python": 2, "launch_latency": 2}
    # a call ends half a microsecond after it began, 8.5 and 9.5 and 10.2: a delay of 1.5 reaches into the first gap
    assert causes(traced(tmp_path, *rows)) == us(expected)
    late = [*rows[:3], *kernel("b", 9.5, 12, 8), *rows[5:]]
    assert causes(traced(tmp_path / "late", *late))[0]["launch_latency"] == 1_500 + 2_000


def test_of_one_call_the_first_event_alone_waits_for_it(tmp_path):
    graph = host("cudaGraphLaunch", 12, 4, category="cuda_runtime", correlation=77)
    rows = [step(3, 0, 100), *kernel("a", 1, 2, 8), graph]
    for ts in (15, 20):
        part = kernel("part", 12, ts, 3)[1]
        rows.append(part | {"args": part["args"] | {"correlation": 77}})
    assert causes(traced(tmp_path, *rows)) == us({"python": 2, "launch_latency": 3, "kernel_gap": 2})


def test_a_gap_at_the_end_of_a_window_is_ended_by_the_next_ones_first_event(tmp_path):
    rows = [step(3, 0, 20), step(4, 20, 20), *kernel("a", 1, 2, 8), *kernel("b", 25, 27, 3), *kernel("c", 26, 31, 3)]
    assert causes(traced(tmp_path, *rows)) == us({"python": 15, "launch_latency": 2}, {"kernel_gap": 1})


def test_what_the_profiler_does_meanwhile_is_its_own(tmp_path):
    """On whatever thread it is, and on either side of the launch; a flush only within a call of the thread."""
    own = host("Activity Buffer Request", 12, 11, tid=0, category="overhead")
    rows = [step(3, 0, 100), *kernel("a", 1, 2, 8), *kernel("b", 20, 30, 5)]  # idle from 10 to 30
    assert causes(traced(tmp_path, *rows, own)) == us({"python": 2, "profiler": 11, "launch_latency": 7})
    flush = own | {"name": "Buffer Flush"}
    assert causes(traced(tmp_path, *rows, flush)) == us({"python": 10, "launch_latency": 10})
    held = called("cudaFree", 11, 13)
    flushed = causes(traced(tmp_path, *rows, flush, held))
    assert flushed == us({"python": 1, "allocator": 1, "profiler": 11, "launch_latency": 7})


def test_gaps_without_a_launch_are_unknown(tmp_path):
    rows = [step(3, 0, 100), *kernel("a", 1, 2, 8), kernel("b", 20, 22, 5)[1], *kernel("c", 24, 27, 5)]
    assert causes(traced(tmp_path, *rows)) == us({"unknown": 12})


def test_a_copy_into_pageable_memory_blocks(tmp_path):
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0, "tid": 7}
    copy |= {"ts": 12, "dur": 3, "args": {"device": 0, "stream": 7, "correlation": 5}}
    rows = [
        step(3, 0, 100),
        *kernel("a", 1, 2, 8),
        host("cudaMemcpyAsync", 11, 9, category="cuda_runtime", correlation=5),
        copy,
        *kernel("b", 22, 24, 5),
    ]
    assert causes(traced(tmp_path, *rows))[0]["synchronize"] == 5_000 + 2_000
    pinned = copy | {"name": "Memcpy DtoH (Device -> Pinned)"}
    rows[-3] = pinned
    assert "synchronize" not in causes(traced(tmp_path / "pinned", *rows))[0]


def test_a_cpu_runs_gaps_are_the_loaders_or_pythons(tmp_path):
    rows = [step(3, 0, 40), host("aten::linear", 1, 4), ranged(LOADER, 10, 10), host("aten::linear", 25, 5)]
    assert causes(traced(tmp_path, *rows)) == us({"input": 10, "python": 11})


def test_phases(tmp_path):
    rows = [
        step(3, 0, 60),
        ranged(LOADER, 0, 4),
        host("aten::linear", 10, 4, **{"Sequence number": 1}),
        *kernel("forward", 11, 12, 1),
        host("autograd::engine::evaluate_function: AddmmBackward0", 20, 4, tid=ENGINE, **{"Sequence number": 1}),
        *kernel("backward", 21, 22, 1, tid=ENGINE),
        ranged("Optimizer.step#SGD.step", 30, 4),
        *kernel("sgd", 31, 32, 1),
        step(4, 60, 40),
        host("aten::linear", 70, 4, **{"Sequence number": 2}),
        *kernel("forward", 71, 72, 1),
    ]
    of = idle(traced(tmp_path, *rows))
    phases = [{phase.label: int(ns) for phase, ns in zip(Phase, row, strict=True) if ns} for row in of.ns.sum(axis=1)]
    # up to its step's end the first window idles between steps, but for what the optimizer's range takes
    assert phases == us({"forward": 1 + 2, "backward": 7 + 2, "optimizer": 6 + 2 + 1, "between_steps": 36}, {})
    assert of.launching.launches.tolist() == [3, 1]
    assert of.launching.host_ns.tolist() == [60_000, 40_000]


def test_a_call_that_a_full_queue_holds_up_is_known_by_its_length(tmp_path):
    held = host("cudaLaunchKernel", 8, 30, category="cuda_runtime", correlation=77)
    part = kernel("c", 8, 41, 8)[1]
    part = part | {"args": part["args"] | {"correlation": 77}}
    rows = [step(3, 0, 100), *kernel("a", 1, 2, 8), *kernel("b", 3, 10, 30), held, part, *kernel("d", 40, 50, 8)]
    of = idle(traced(tmp_path, *rows)).launching
    # Four calls: three of half a microsecond, and one of 30.
    assert (of.launching_ns.tolist(), of.call_ns.tolist()) == ([31_500], [500])


# Random traces.

HOST_ROWS = ["aten::item", LOADER, "cudaDeviceSynchronize", "cudaMemcpy", "cudaFree", "gc", "range", ""]


@st.composite
def traces(draw_one):
    """Two steps of two threads that launch on two devices: nested operators, loaders, calls that wait, graphs."""
    number = st.integers
    rows = [step(3, 0, 60), step(4, 60, 60)]
    for tid in (MAIN, ENGINE):
        at = draw_one(number(0, 5))
        while at < 110:
            length = draw_one(number(1, 20))
            what = draw_one(st.sampled_from(HOST_ROWS))
            if what == "gc":
                rows.append(host("gc of generation 0", at, length, tid=tid, category="gc"))
            elif what.startswith("cuda"):
                rows.append(host(what, at, length, tid=tid, category="cuda_runtime", correlation=10_000 + len(rows)))
            elif what in (LOADER, "range"):
                rows += [ranged(what, at, length, tid=tid), host("aten::stack", at + length / 4, length / 2, tid=tid)]
            elif what:
                rows += [host(what, at, length, tid=tid)]
                rows += [called("cudaStreamSynchronize", at + length / 4, length / 2, tid)]
            at += length + draw_one(number(0, 8))
    for at in draw_one(st.lists(number(0, 110), max_size=2)):
        rows.append(host("Activity Buffer Request", at, draw_one(number(0, 30)), tid=0, category="overhead"))
    streams = {key: draw_one(number(1, 9)) for key in [(0, 7), (0, 8), (1, 7)]}
    for place in range(draw_one(number(1, 24))):
        (device, stream), at = draw_one(st.sampled_from(sorted(streams))), draw_one(number(0, 100))
        length, call = draw_one(number(0, 12)), draw_one(st.sampled_from(["cudaLaunchKernel", "cudaGraphLaunch", ""]))
        tid = draw_one(st.sampled_from([MAIN, ENGINE, 77]))
        if call:
            args = {"category": "cuda_runtime", "correlation": place + 1, "tid": tid}
            rows.append(host(call, at, draw_one(number(0, 6)), **args))
        for _ in range(draw_one(number(1, 3)) if call != "cudaLaunchKernel" else 1):
            begin = max(at + draw_one(number(-1, 4)), streams[device, stream])
            streams[device, stream] = begin + length + draw_one(st.sampled_from([0, 0, 1, 60]))
            (_, row) = kernel("k", at, begin, length, stream=stream, device=device)
            rows.append(row | {"args": row["args"] | {"correlation": place + 1}})
    return rows


@settings(max_examples=cases(40))
@given(rows=traces())
def test_random_traces_equal_the_brute_force(tmp_path_factory, rows):
    path = write(tmp_path_factory.mktemp("idle") / "rank0.json", document(rows))
    # Where a later step's first event runs first, the brute force has a window that ends before it begins.
    assume(all(window["span_ns"] >= 0 for window in windows(path)))
    measured = summarize(path).ranks[0].timed
    found = [dict(zip(reference.CAUSES, row, strict=True)) for row in measured.idle.ns.sum(axis=2).tolist()]
    assert found == reference.idle_by_cause(path)
    assert [sum(row.values()) for row in found] == measured.windows.idle_ns.tolist()


@pytest.mark.parametrize("run", quarters(params(run for run in OF_KINETO if run in OWN)))
def test_the_first_recorded_window_equals_the_brute_force(run):
    path = find(run).files[0].path
    trace = load(path).ranks[0]
    found = idle(trace).ns.sum(axis=2).tolist()
    (expected,) = reference.idle_by_cause(path, only=1)
    assert dict(zip(reference.CAUSES, found[0], strict=True)) == expected


# Light windows.


def retimed(*categories):
    full = draw(step="33333333333333", loader="..llll", compute="aa.......bb..c", launch={"compute": "^......^..^"})
    quick = draw(compute="aa...bb..c", launch={"compute": "^...^...^"})
    rows = quick.events.take(np.isin(quick.events.category, categories))
    launched_ns = launch_times(rows.category, rows.correlation, rows.start_ns)
    joined = retime(full.events, replace(rows, launched_ns=launched_ns))
    assert not isinstance(joined, Mismatch)
    times = {"events": joined.full, "timed": joined.light, "launch_ends_ns": joined.launch_ends_ns}
    return replace(full, joining=joined.joining, **times)


def told(trace):
    return [(start, end, cause) for start, end, cause, *_ in drawn(trace)]


def test_a_light_windows_gaps_are_told_by_its_own_launches():
    # Before `b` 5 ns are the host's in full, 4 of them input: here 2. Before `c` none is, and here 1.
    trace = retimed(Category.KERNEL, Category.LAUNCH)
    assert causes(trace.in_full()) == [{"input": 4, "python": 1, "launch_latency": 2 + 1, "kernel_gap": 1}]
    assert causes(trace) == [{"input": 1, "python": 1, "launch_latency": 1 + 1, "unknown": 1}]
    assert told(trace.in_full()) == [
        (2, 6, "input"),
        (6, 7, "python"),
        (7, 9, "launch_latency"),
        (11, 12, "launch_latency"),
        (12, 13, "kernel_gap"),
    ]
    # In order of cause, where in full it was.
    assert told(trace) == [
        (2, 3, "input"),
        (3, 4, "python"),
        (4, 5, "launch_latency"),
        (7, 8, "unknown"),
        (8, 9, "launch_latency"),
    ]


def test_without_launches_of_its_own_a_gap_that_was_the_hosts_is_divided_as_a_whole():
    """What was queued in full was so as long before as there."""
    trace = retimed(Category.KERNEL)
    assert told(trace) == [
        (2, 3, "input"),
        (3, 4, "python"),
        (4, 5, "launch_latency"),
        (7, 8, "launch_latency"),
        (8, 9, "kernel_gap"),
    ]


lengths = st.lists(st.integers(0, 2**33), min_size=1, max_size=5).filter(any)


@given(st.lists(st.tuples(lengths, st.integers(1, 2**33), st.booleans()), min_size=1, max_size=6))
def test_divisions_at_other_lengths_add_up(gaps):
    """Each part lies within a nanosecond of its share, and they add up; gaps without their like are unknown."""

    def column(*values):
        return np.array(values, dtype=np.int64)

    nothing = np.zeros(len(gaps), dtype=np.int64)
    full_ns, light_ns = column(*(sum(parts) for parts, _, _ in gaps)), column(*(light for _, light, _ in gaps))
    ender = np.arange(len(gaps))
    alike = np.array([has_like for _, _, has_like in gaps])
    full = Gaps(nothing, nothing, nothing, full_ns, np.where(alike, ender, UNKNOWN))
    timed = Gaps(nothing, nothing, nothing, light_ns, ender[::-1].copy())
    timed = replace(timed, end_ns=light_ns[::-1].copy())
    rows = [(gap, place, ns) for gap, (parts, _, _) in enumerate(gaps) for place, ns in enumerate(parts) if ns]
    of, place, ns = (column(*values) for values in zip(*rows, strict=True))
    pieces = Pieces(of, place, 0 * of, 0 * of, 0 * of, place, ns)
    scaled = as_long_as(timed, full, pieces)
    assert np.bincount(scaled.gap, weights=scaled.ns).astype(np.int64).tolist() == timed.length_ns.tolist()
    for gap, cause, got in zip(scaled.gap.tolist(), scaled.cause.tolist(), scaled.ns.tolist(), strict=True):
        parts, light, has_like = gaps[len(gaps) - 1 - gap]
        share = Fraction(parts[cause] * light, sum(parts)) if has_like else Fraction(light)
        assert abs(got - share) < 1
        assert has_like == (cause != Cause.UNKNOWN)
