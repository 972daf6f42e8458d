"""What torch's own validator says of traces, as warnings."""

import builtins
import re
import sys
from pathlib import Path

import pytest

from analyzers.notices import Code
from tests.support.kineto_files import kernel, step, write
from tracer.errors import NEEDS_TORCH, TracerError
from tracer.reading.second_opinion import second_opinions

pytest.importorskip("torch.profiler._trace_validator")


def traced(path: Path, early: bool) -> Path:
    """A kernel and its launch, joined by their operator; early, it begins before it."""
    device, launch = kernel("gemm", 10, 5, 1)
    for row in (device, launch):
        row["args"]["External id"] = 3
    return write(path, {"traceEvents": [step(1, 0, 100), device | ({"ts": 4} if early else {}), launch]})


def test_what_torch_finds_is_said_by_file_and_rule(tmp_path):
    traced(tmp_path / "rank0.json", early=False)
    assert second_opinions(tmp_path) == []
    traced(tmp_path / "rank1.json", early=True)
    (notice,) = second_opinions(tmp_path)
    assert notice.code == Code.TORCH_DOUBTS
    assert notice.text.startswith("rank1.json: torch's own validator finds 1 violations of gpu_kernel_causality, the ")


def test_a_file_that_it_fails_on_is_told_so(tmp_path):
    (notice,) = second_opinions(write(tmp_path / "rank0.json", '{"traceEvents": [{"ph": "X", "args": 3}]}'))
    assert "not looked at" in notice.text


def test_without_torch_the_remedy_is_named(tmp_path, monkeypatch):
    path = traced(tmp_path / "rank0.json", early=False)
    found = builtins.__import__

    def without_torch(name: str, *rest: object) -> object:
        if name.startswith(("torch", "tracer.recording")):
            raise ImportError(name)
        return found(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "tracer.recording", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(TracerError, match=re.escape(f"--validate {NEEDS_TORCH}")):
        second_opinions(path)
