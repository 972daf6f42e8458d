"""What is corrupt is left out and named; a healthy profile is not said to be ill."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import analyzers
from analyzers.notices import Code
from tests.support.brute_force import windows
from tests.support.kineto_files import Event, kernel, step, write
from tests.support.samples import REPORTED, summarized

ILL = {
    *(Code.TIMES_ARE_CORRUPT, Code.LAUNCHES_ARE_LOST, Code.PROFILE_DRIFTS, Code.ROWS_TOO_LONG, Code.TIMES_ARE_LOST),
    *(Code.STREAM_OUT_OF_ORDER, Code.GRAPH_KERNELS_ARE_LOST, Code.SEVERAL_CYCLES),
}


def call(name: str, ts: float, dur: float, correlation: int = 0) -> Event:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur}
    return row | {"args": {"correlation": correlation}}


def at(start: float, launched: float, correlation: int, dur: float = 5) -> list[Event]:
    """A kernel that begins at an instant, and was launched at another."""
    device, launch = kernel("gemm", start, dur, correlation)
    return [device, launch | {"ts": launched}]


def traced(tmp_path: Path, *rows: Event) -> Path:
    return write(tmp_path / "rank0.json", [step(1, 0, 100_000), *rows])


def said(path: Path) -> dict[Code, str]:
    return {warning.code: str(warning) for warning in analyzers.load(path).warnings if warning.code in ILL}


def test_what_begins_before_its_own_launch_is_left_out_and_named(tmp_path):
    path = traced(tmp_path, *at(2000, 1990, 1), *at(3000, 4001, 2), *at(5000, 4990, 3))
    (window,) = analyzers.report(analyzers.load(path)).windows
    assert (window.compute_ns, window.span_ns) == (10_000, 3_005_000)
    text = said(path)[Code.TIMES_ARE_CORRUPT]
    assert "rank0.json: 1 of 3 device events begin before their own launch, by up to 1.00 ms" in text
    assert "'gemm' 1 times" in text


def test_the_clocks_own_error_is_no_illness(tmp_path):
    path = traced(tmp_path, *at(2000, 1990, 1), *at(3000, 4000, 2), *at(5000, 4990, 3))
    assert analyzers.report(analyzers.load(path)).windows[0].compute_ns == 15_000
    assert not said(path)


def test_kernels_of_long_ago_without_a_launch_are_corrupt(tmp_path):
    """1e14 ns early, as records of a later session have been seen (pytorch#192021)."""
    stray, _ = kernel("gemm", 0, 5, 7)
    recent, _ = kernel("gemm", 100, 5, 8)
    host = step(1, 1e11, 100_000)
    path = write(tmp_path / "rank0.json", [host, stray, recent | {"ts": 1e11 - 50}, *at(1e11 + 20, 1e11 + 10, 1)])
    assert analyzers.report(analyzers.load(path)).windows[0].compute_ns == 5000
    assert "1 of 3 device events begin long before the profile" in said(path)[Code.TIMES_ARE_CORRUPT]


def test_launches_that_never_reach_the_device_are_counted(tmp_path):
    lost = [call("cudaLaunchKernel", 3000, 2, 20), call("cuLaunchKernelEx", 3010, 2, 21)]
    path = traced(tmp_path, *at(2000, 1990, 1), *lost, *at(9000, 8990, 3))
    assert "2 launches of kernels in the midst of the profile have no event" in said(path)[Code.LAUNCHES_ARE_LOST]


FINE = {
    "the profile's head": [call("cudaLaunchKernel", 10, 2, 20)],
    "its end": [call("cudaLaunchKernel", 9990, 2, 20)],
    "a copy of nothing": [call("cudaMemcpyAsync", 3000, 2, 20)],
    "a host function": [call("cudaLaunchHostFunc", 3000, 2, 20)],
    "a graph's capture": [
        call("cudaStreamBeginCapture", 2990, 2),
        call("cudaLaunchKernel", 3000, 2, 20),
        call("cudaStreamEndCapture", 3010, 2),
    ],
    "a capture whose begin is not recorded": [
        call("cudaLaunchKernel", 3000, 2, 20),
        call("cudaGraphInstantiate", 3010, 2),
    ],
}


@pytest.mark.parametrize("case", FINE)
def test_launches_that_legitimately_have_no_event(tmp_path, case):
    assert not said(traced(tmp_path, *at(2000, 1990, 1), *FINE[case], *at(10_000, 9980, 3)))


def drifting(per_launch_us: float) -> list[Event]:
    """Forty kernels, 2 ms apart, whose device's clock moves by so much at each; and a synchronization."""
    rows = [event for k in range(40) for event in at(2000 * k + 10 + per_launch_us * k, 2000 * k, k + 1)]
    return [*rows, call("cudaDeviceSynchronize", 80_000, 30)]


@pytest.mark.parametrize(("per_launch_us", "drifts"), [(0, False), (-20, False), (-300, True), (300, True)])
def test_a_clock_that_moves_against_the_hosts_is_named(tmp_path, per_launch_us, drifts):
    assert (Code.PROFILE_DRIFTS in said(traced(tmp_path, *drifting(per_launch_us)))) == drifts


def test_a_queue_that_grows_is_no_drift(tmp_path):
    """Launched far ahead, kernels begin later and later after their launches."""
    rows = [event for k in range(40) for event in at(2000 * k + 10, 10 * k, k + 1, dur=1990)]
    assert not said(traced(tmp_path, *rows, call("cudaDeviceSynchronize", 500, 79_600)))


@pytest.mark.parametrize("seed", range(20))
def test_windows_without_what_is_corrupt_are_those_of_brute_force(tmp_path, seed):
    chance = random.Random(seed)
    rows: list[Event] = [step(k, 10_000 * k, 9000) for k in range(4)]
    for correlation in range(1, 30):
        launched = chance.randrange(40_000)
        rows += at(launched + chance.choice([10, 500, -999, -1000, -1001, -30_000]), launched, correlation)
    path = write(tmp_path / "rank0.json", rows)
    found = [
        (row.step, row.start_ns, row.span_ns, row.compute_ns) for row in analyzers.report(analyzers.load(path)).windows
    ]
    origin = found[0][1]
    expected = [(row["step"], row["start_ns"], row["span_ns"], row["compute_ns"]) for row in windows(path)]
    first = expected[0][1]
    assert [(k, start - origin, *rest) for k, start, *rest in found] == [
        (k, s - first, *rest) for k, s, *rest in expected
    ]


@pytest.mark.parametrize("path", REPORTED)
def test_no_recorded_run_is_ill(path):
    assert not [str(warning) for warning in summarized(path).warnings if warning.code in ILL]
