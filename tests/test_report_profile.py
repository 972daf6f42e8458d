"""`benchmarks/report_profile.py` times functions that exist, and its phases are the whole report."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"(?P<name>\S.*?)\s+\d+\.\d{3}\s+(?P<share>\d+\.\d)%", re.MULTILINE)


def test_every_phase_of_a_report_is_seen_and_shares_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "benchmarks/report_profile.py", "traces/resnet18-ddp2-sick", "--rounds", "1"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shares = {match["name"]: float(match["share"]) for match in LINE.finditer(printed)}
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    assert shares.keys() == set(importlib.import_module("report_profile").PHASES.values())
    # Of the processor seconds of the whole command, which are counted apart; the profile's own work is in both.
    assert sum(shares.values()) == pytest.approx(100, abs=0.05 * len(shares) + 1)
