"""The laws of METRICS, and the brute-force reference, on every recorded run there is.

`TRACER_TRACES` may name more folders of runs, separated like PATH.
"""

import os
from pathlib import Path

import pytest

import analyzers
from analyzers.report import from_json, report, to_json
from analyzers.run import Run, trace_files
from tests import reference

SAMPLES = Path(__file__).resolve().parents[1] / "traces"
FOLDERS = [SAMPLES, *map(Path, filter(None, os.environ.get("TRACER_TRACES", "").split(os.pathsep)))]
RUNS = [run for folder in FOLDERS for run in sorted(folder.iterdir()) if run.is_dir() and not run.name.startswith(".")]


def load(path: Path) -> Run:
    try:
        return analyzers.load(path)
    except analyzers.AnalysisError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)
        pytest.skip(f"refused: {error}")


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_time_is_conserved_in_every_window(path):
    found = analyzers.breakdown(load(path))
    parts = found.compute_ns + found.exposed_comm_ns + found.exposed_copy_ns + found.idle_ns
    assert (parts == found.span_ns).all()
    assert (found.overlapped_comm_ns + found.exposed_comm_ns == found.comm_ns).all()
    assert (
        min(found.compute_ns.min(), found.exposed_comm_ns.min(), found.exposed_copy_ns.min(), found.idle_ns.min()) >= 0
    )


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_windows_equal_the_brute_force(path):
    load(path)
    for file in trace_files(path):
        frame = analyzers.breakdown(analyzers.load(file)).to_frame()
        for expected, row in zip(reference.windows(file), frame.to_dict("records"), strict=True):
            assert {key: row[key] for key in expected} == expected


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_reports_survive_their_own_json(path):
    found = report(load(path))
    assert from_json(to_json(found)) == found


def test_samples_are_small():
    assert sum(file.stat().st_size for file in SAMPLES.rglob("*") if file.is_file()) < 10e6


def test_samples_recorded_on_gpus_take_their_times_from_the_light_window():
    recorded = [path for path in SAMPLES.iterdir() if (path / "light").is_dir()]
    assert recorded
    for path in recorded:
        assert report(analyzers.load(path)).run.times_from == "light", path.name
