"""The laws of METRICS, and the brute-force reference, on every recorded run there is.

`TRACER_TRACES` may name more folders of runs, separated like PATH.
"""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import analyzers
from analyzers.document import from_json, to_json
from analyzers.report import report
from analyzers.run import Run, trace_files
from tests import reference

SAMPLES = Path(__file__).resolve().parents[1] / "traces"
FOLDERS = [SAMPLES, *map(Path, filter(None, os.environ.get("TRACER_TRACES", "").split(os.pathsep)))]
RUNS = [run for folder in FOLDERS for run in sorted(folder.iterdir()) if run.is_dir() and not run.name.startswith(".")]


def load(path: Path) -> Run:
    """A run; another's that is refused in one line is done with. Samples of the project itself are never refused."""
    if path.parent == SAMPLES:
        return analyzers.load(path)
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


def with_light_times(full: Path, light: Path) -> list[dict[str, Any]]:
    """The full window's events at the light window's times, joined by plain sorting: device, stream, launch."""
    events, base = reference.read(full)
    quick, quick_base = reference.read(light)
    on_device = [
        sorted((e for e in some if e["cat"] in reference.DEVICE), key=launch_order) for some in (events, quick)
    ]
    for ours, theirs in zip(*on_device, strict=True):
        assert ours["name"] == theirs["name"]
        ours["ts"], ours["dur"] = theirs["ts"] + Decimal(quick_base - base) / 1000, theirs["dur"]
    return reference.windows_of(events, base)


def launch_order(event: dict[str, Any]) -> tuple[int, ...]:
    args = event["args"]
    return args.get("device", args.get("fromDevice")), args["stream"], args["correlation"], event["ts"]


@pytest.mark.parametrize("path", [path for path in RUNS if (path / "light").is_dir()], ids=lambda path: path.name)
def test_light_times_on_full_steps_equal_the_brute_force(path):
    frame = analyzers.breakdown(load(path)).to_frame()
    for rank, file in enumerate(trace_files(path)):
        rows = frame[frame["rank"] == rank].to_dict("records")
        for expected, row in zip(with_light_times(file, path / "light" / file.name), rows, strict=True):
            assert {key: row[key] for key in expected} == expected


def test_samples_are_small():
    assert sum(file.stat().st_size for file in SAMPLES.rglob("*") if file.is_file()) < 10e6


def test_samples_recorded_on_gpus_take_their_times_from_the_light_window():
    recorded = [path for path in SAMPLES.iterdir() if (path / "light").is_dir()]
    assert recorded
    for path in recorded:
        assert report(analyzers.load(path)).run.times_from == "light", path.name
