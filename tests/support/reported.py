"""Rows as profilers write them, and inputs with what is right of them: kinds of damage that people reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import analyzers
from analyzers.reporting.document import Report
from tests.support.kineto_files import Event, step, write

SHARED = Path(__file__).resolve().parents[3] / "shared" / "public-bugs"
MEASURES = ("span_ns", "compute_ns", "comm_ns", "copy_ns", "idle_ns")
FAR = 5_000_000_000  # 5,000 s, in us


def call(name: str, ts: float, dur: float = 5, correlation: int | None = None, **said: Any) -> Event:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur}
    return row | {"args": {**({} if correlation is None else {"correlation": correlation}), **said}}


def on_device(name: str, ts: float, dur: float, correlation: int, cat: str = "kernel", **said: Any) -> Event:
    args = {"device": 0, "stream": 7, "correlation": correlation, "grid": [132, 1, 1], "block": [128, 1, 1]} | said
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": args["stream"], "ts": ts, "dur": dur, "args": args}


def overhead(name: str, ts: float, dur: float) -> Event:
    return {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": ts, "dur": dur, "args": {}}


def steps(*numbers: int, at: float = 10_000, each: int = 3) -> list[Event]:
    """Steps of 1 ms, each with kernels of 150 us every 180 us, the first 100 us after its launch."""
    rows: list[Event] = []
    for place, number in enumerate(numbers):
        begin = at + 1000 * place
        rows.append(step(number, begin, 999))
        for k in range(each):
            known = int(begin) * 10 + k + 1
            rows.append(call("cudaLaunchKernel", begin + 25 + 20 * k, 5, known))
            rows.append(on_device("gemm", begin + 100 + 180 * k, 150, known))
    return rows


def changed(rows: list[Event], chosen: Callable[[Event], bool], **values: Any) -> list[Event]:
    return [row | values if chosen(row) else row for row in rows]


def is_row(cat: str, ts: float) -> Callable[[Event], bool]:
    return lambda row: row["cat"] == cat and row["ts"] == ts


Window = tuple[float, ...]
Windows = dict[tuple[int, int], Window]


def window(span: float, compute: float, comm: float = 0, copy: float = 0, idle: float | None = None) -> Window:
    return (span, compute, comm, copy, span - compute - comm - copy if idle is None else idle)


# Of `steps`.
WHOLE, LAST = window(1000, 450), window(510, 450)
THREE: Windows = {(0, 1): WHOLE, (0, 2): WHOLE, (0, 3): LAST}


@dataclass(frozen=True)
class Case:
    """An input (rows of one rank, or the name of one beside the checkout) and what is right of it.

    `windows` are span, compute, communication, copies, idle by rank and step, in us; `said` are codes of warnings and
    notes with words of each; `unsaid` words that nothing says; `trust` the grade, where the damage sets it.
    """

    id: str
    kind: str
    of: list[Event] | str
    windows: Windows
    said: dict[str, Sequence[str]]
    unsaid: Sequence[str] = ()
    trust: str | None = None
    idle: dict[int, dict[str, float]] | None = None


def reported(case: Case, tmp_path: Path) -> Report:
    if isinstance(case.of, str) and not (SHARED / case.of).exists():
        pytest.skip("its input does not lie beside this checkout")
    path = SHARED / case.of if isinstance(case.of, str) else write(tmp_path / "rank0.json", case.of)
    return analyzers.report(analyzers.load(path))


def check(case: Case, tmp_path: Path) -> None:
    """Assert that the report of an input is right: its windows, and what is said."""
    report = reported(case, tmp_path)
    found = {(row.rank, row.step): tuple(getattr(row, name) / 1000 for name in MEASURES) for row in report.windows}
    assert found == case.windows
    texts: dict[str, str] = {}
    for notice in (*report.run.warnings, *report.run.notes):
        texts[str(notice.code)] = texts.get(str(notice.code), "") + notice.text
    for code, words in case.said.items():
        assert all(word in texts[code] for word in words), texts
    damage = {"rows_too_long", "launches_are_lost", "graph_kernels_are_lost", "times_are_lost", "times_are_corrupt",
              "stream_out_of_order", "several_cycles", "steps_without_device_rows", "trace_incomplete"}  # fmt: skip
    assert damage & texts.keys() == damage & case.said.keys()
    spoken = " ".join([*texts.values(), report.summary.headline.sentence, report.summary.verdict])
    assert not [word for word in case.unsaid if word in spoken]
    assert case.trust in (None, report.summary.headline.trust)
    for row in report.windows:
        for name, us in (case.idle or {}).get(row.step, {}).items():
            assert getattr(row.idle, name) == us * 1000
