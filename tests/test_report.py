import json
from dataclasses import replace
from pathlib import Path

import pytest

import analyzers
from analyzers.controls import Control, Controls, control
from analyzers.document import from_json, to_json
from analyzers.errors import AnalysisError
from analyzers.manifest import Manifest
from analyzers.report import PARTS, report
from analyzers.run import Run
from tests.drawing import draw
from tracer.views.text import text

# What METRICS names; keys may be added, these stay.
KEYS = {"schema", "run", "windows", "collectives", "unmatched", "buckets", "layers", "traffic", "summary"}
RUN_KEYS = {
    "name", "world_size", "devices", "backend", "strategy", "model", "batch_per_gpu", "bucket_cap_mb", "versions",
    "origin_ns", "controls", "clock", "links", "warnings",
}  # fmt: skip
WINDOW_KEYS = {
    "rank", "device", "step", "start_ns", "span_ns", "compute_ns", "packing_ns", "comm_ns", "copy_ns",
    "overlapped_comm_ns", "exposed_comm_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_copy_ns", "idle_ns",
    "overlap",
}  # fmt: skip

PICTURE = {"step": "333333444444", "compute": "aa..bb.cc..d", "comm": ".ee....f....", "copy": "...........g"}


def drawn(**manifest) -> Run:
    traces = tuple(draw(rank=rank, device=rank, **PICTURE) for rank in (0, 1))
    return Run("drawn", Manifest(**manifest) if manifest else None, traces)


def test_json_has_every_key_of_the_contract():
    document = json.loads(to_json(report(drawn())))
    assert document["schema"] == "tracer.report/1"
    assert set(document) >= KEYS
    assert set(document["run"]) >= RUN_KEYS
    assert set(document["run"]["controls"]) == {
        "unprofiled_step_ns", "nosync_step_ns", "profiled_step_ns", "distortion", "sync_cost_ns",
    }  # fmt: skip
    assert all(set(window) >= WINDOW_KEYS for window in document["windows"])


def test_json_conserves_time_and_counts_from_the_earliest_event():
    windows = json.loads(to_json(report(drawn())))["windows"]
    assert [window["start_ns"] for window in windows] == [0, 7, 0, 7]
    for window in windows:
        assert sum(window[part] for part in PARTS) == window["span_ns"]


def test_a_window_without_communication_has_a_null_overlap():
    run = Run("drawn", None, (draw(compute="aa"),))
    assert json.loads(to_json(report(run)))["windows"][0]["overlap"] is None


def test_the_representative_step_has_the_median_span():
    found = report(drawn())
    chosen = found.summary.representative
    spans = sorted(window.span_ns for window in found.windows)
    (window,) = [w for w in found.windows if (w.rank, w.step) == (chosen.rank, chosen.step)]
    assert window.span_ns == spans[1]


def test_shares_of_all_time_add_up():
    shares = report(drawn()).summary.shares
    assert sum(shares[part] for part in PARTS) == pytest.approx(1)


def timed(ns: int) -> Control:
    return control({0: [ns, ns], 1: [ns, ns]})


def test_controls_are_medians_of_all_samples():
    found = report(drawn(controls=Controls(unprofiled=timed(100), nosync=timed(80), full=timed(110)))).run.controls
    assert (found.unprofiled_step_ns, found.profiled_step_ns, found.sync_cost_ns) == (100, 110, 20)
    assert found.distortion == 1.1


def test_a_high_distortion_leads_the_report():
    for full, leads in ((106, True), (104, False)):
        warnings = report(drawn(controls=Controls(unprofiled=timed(100), full=timed(full)))).run.warnings
        assert any("stretches" in warning for warning in warnings[:1]) == leads


def test_a_control_that_scatters_is_null_with_its_reason():
    wide = control({0: [100, 150, 100, 150]})
    assert wide.median_ns is None
    found = report(drawn(controls=Controls(unprofiled=wide, full=timed(200)))).run
    assert found.controls.distortion is found.controls.unprofiled_step_ns is None
    assert "steps scatter" in found.warnings[0]
    assert any("control unprofiled: samples spread" in warning for warning in found.warnings)


def test_only_reports_are_read_back():
    found = report(drawn())
    assert from_json(to_json(found)) == found
    for other in ("{}", "no", to_json(found).replace("tracer.report/1", "tracer.report/9")):
        with pytest.raises(AnalysisError):
            from_json(other)


@pytest.mark.parametrize("width", [80, 110, 200])
@pytest.mark.parametrize("by", ["rank", "step"])
def test_text_fits_its_width_without_cutting_numbers(width, by):
    shown = text(report(drawn(model="resnet18", controls=Controls(unprofiled=timed(100)))), by, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert "\x1b" not in shown
    assert "\x1b[" in text(report(drawn()), by, width, color=True)


def test_a_narrow_terminal_loses_no_number():
    shown = text(report(drawn()), width=20)
    assert "…" not in shown
    assert "100.0 %" in shown


def test_names_cannot_steer_a_terminal():
    hostile = "\x1b[2J[bold]x\nA step takes 0 ms"
    run = Run(hostile, Manifest(model=hostile), drawn().ranks, (hostile,))
    shown = text(report(run))
    assert "\x1b" not in shown
    assert "[bold]x" in shown
    assert sum(line.startswith("A step takes") for line in shown.splitlines()) == 1


def test_a_trace_without_steps_is_not_called_a_step():
    found = report(Run("drawn", None, (draw(compute="aa"),)))
    assert found.summary.verdict.startswith("The whole trace, in which no step is marked, takes")
    assert any("no ProfilerStep" in warning for warning in found.run.warnings)


def test_text_says_the_verdict_before_anything_else():
    lines = text(report(drawn())).splitlines()
    assert lines[2].startswith("A step takes")


def test_frames_of_a_run_and_of_its_ranks_agree(tmp_path):
    run = drawn()
    frame = analyzers.breakdown(run).to_frame()
    parts = [analyzers.breakdown(replace(trace, path=Path("x"))).to_frame() for trace in run.ranks]
    assert frame.to_dict("records")[2:] == parts[1].to_dict("records")
