"""Reports whose steps take what is said: for comparisons and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run.controls import control
from analyzers.statistics import spreads
from tests.support.drawing import meet

MS = 1_000_000


@cache
def drawn() -> Report:
    """Two ranks that compute and reduce, in one step."""
    return report(meet("..aa....", ".aaa....", compute=["###..###", "###..###"]))


def stepping(spans_ms: Sequence[Sequence[float]], name: str = "run", **parts: Sequence[Sequence[float]]) -> Report:
    """A report with a window for each value of `spans_ms`, a row for each step, a value for each rank.

    `parts` are other measures of windows, ms, in the same places. Nothing but windows is in it.
    """
    whole = drawn()
    windows = [
        replace(
            whole.windows[0],
            rank=rank,
            step=step,
            span_ns=round(span * MS),
            **{measure: round(values[step][rank] * MS) for measure, values in parts.items()},
        )
        for step, of_ranks in enumerate(spans_ms)
        for rank, span in enumerate(of_ranks)
    ]
    columns = {"span_ns": [window.span_ns for window in windows]} | {
        part: [getattr(window, part) for window in windows] for part in parts
    }
    medians = whole.summary.windows | spreads(columns)  # type: ignore[arg-type]
    summary = replace(whole.summary, windows=medians, layout=None)
    facts = replace(whole.run, name=name)
    lists: dict[str, Any] = {"windows": windows, "collectives": [], "buckets": [], "layers": []}
    return replace(whole, run=facts, summary=summary, **lists)


def controlled(report: Report, blocks_ms: Mapping[str, Sequence[float]]) -> Report:
    """The report with controls of these blocks."""
    found = {name: control({0: [[round(ms * MS)] for ms in blocks]}) for name, blocks in blocks_ms.items()}
    known = {f"{name}_step_ns": each.median_ns for name, each in found.items() if name in ("unprofiled", "nosync")}
    blocks = {name: each.blocks_ns for name, each in found.items()}
    controls = replace(report.run.controls, blocks_ns=blocks, **known)
    return replace(report, run=replace(report.run, controls=controls))
