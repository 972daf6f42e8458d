"""Waiting in recordings in which one rank came late by a known time, on two GPUs: over NVLink and over host memory."""

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("skew-nvlink", "skew-memory")


@pytest.fixture(scope="module")
def skew():
    spec = importlib.util.spec_from_file_location("skew", ROOT / "benchmarks" / "skew.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["skew"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("run", RUNS)
def test_waiting_is_what_the_late_rank_slept(skew, run):
    judged = {row.kind: row for row in skew.judge(Namespace(folder=ROOT / "traces" / run))}
    assert set(judged) == {*skew.SYNCHRONIZING, *skew.ONE_WAY}
    for row in judged.values():
        assert row.found == row.of
        assert row.late_named
    for kind in skew.SYNCHRONIZING:
        assert judged[kind].allowed == 1.0
        assert max(map(abs, judged[kind].errors_ns)) < 5_000
    for kind in skew.ONE_WAY:
        told, true = judged[kind].window_ns
        # So few repeats tell what a kernel takes when nobody is late to a tenth of a millisecond a step.
        assert told == pytest.approx(true, abs=150_000)
