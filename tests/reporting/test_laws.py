"""What buckets and layers add up to, per rank, device and step, on every recorded run there is."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from tests.support import attributed, laws
from tests.support.samples import REPORTED, RUNS, SAMPLES, reported, summarized


@pytest.mark.parametrize("path", REPORTED)
@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_every_law_holds_on_every_sample(law, path):
    law(path)


def named(name: str) -> Path:
    """A run with no manifest of that name, among those that `TRACER_TRACES` adds."""
    found = [path for path in RUNS if path.name == name and not (path / "run.json").is_file()]
    if not found:
        pytest.skip("not among the runs")
    return found[0]


# Parameters from the last to the first, a bucket closing when it passes its cap.
LAYOUTS = {
    "resnet18-ddp4": [28_872_744, 15_853_824],
    "resnet18-ddp4-bucket5": [9_461_800, 9_441_280, 9_969_664, 7_084_032, 6_037_504, 2_732_288],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_resnet18s_buckets_have_the_sizes_known_by_hand(name):
    layout = reported(named(name)).summary.layout
    assert layout.source == "trace"
    assert [bucket.bytes for bucket in layout.buckets] == LAYOUTS[name]
    assert sum(bucket.bytes for bucket in layout.buckets) == 4 * 11_181_642
    assert sum(len(bucket.parameters) for bucket in layout.buckets) == 62


def copied(path: Path, into: Path, *, manifest: bool) -> Path:
    """A run without its light and other windows, with its run.json or without it."""
    into.mkdir()
    for file in path.glob("rank*.json.gz"):
        shutil.copy(file, into)
    if manifest:
        shutil.copy(path / "run.json", into)
    return into


def layout_of(found: Report) -> list[tuple]:
    return [(bucket.bytes, len(bucket.parameters), len(bucket.layers)) for bucket in found.summary.layout.buckets]


@pytest.mark.parametrize("name", ["resnet18-ddp2", "resnet18-ddp4"])
def test_run_json_adds_names_to_a_layout_that_the_trace_shows_alone(name, tmp_path):
    said = report(summarize(copied(SAMPLES / name, tmp_path / "said", manifest=True)))
    unsaid = report(summarize(copied(SAMPLES / name, tmp_path / "unsaid", manifest=False)))
    assert (said.summary.layout.source, unsaid.summary.layout.source) == ("run.json", "trace")
    assert layout_of(said) == layout_of(unsaid) == layout_of(reported(SAMPLES / name))
    assert [(row.rank, row.step, row.bucket, row.bytes) for row in said.buckets] == [
        (row.rank, row.step, row.bucket, row.bytes) for row in unsaid.buckets
    ]
    names = {parameter.name for parameter in summarized(SAMPLES / name).manifest.parameters}
    assert {each for bucket in said.summary.layout.buckets for each in bucket.parameters} == names
    # What took how long does not hang on what it is called.
    spent = [
        sorted((row.forward_ns, row.backward_ns, row.exposed_ns) for row in each.layers) for each in (said, unsaid)
    ]
    assert spent[0] == spent[1]


@pytest.mark.parametrize("rank", [0, 3])
def test_lines_and_buckets_equal_the_brute_force(rank, tmp_path):
    found = report(summarize(copied(SAMPLES / "resnet18-ddp4", tmp_path / "run", manifest=False)))
    expected = attributed.traced(tmp_path / "run" / f"rank{rank}.json.gz")
    lines: Counter = Counter()
    for row in found.layers:
        if row.rank == rank:
            lines[row.step, row.layer, False] += row.forward_ns
            lines[row.step, row.layer, True] += row.backward_ns
    assert +lines == attributed.lines(expected)
    origin_ns = int(found.run.origin_ns) + (found.run.clock.offsets_ns[str(rank)] if found.run.clock.applied else 0)
    instants = ("ready_ns", "launched_ns", "start_ns")
    rows = [row for row in found.buckets if row.rank == rank]
    for row, truth in zip(rows, attributed.buckets(expected), strict=True):
        assert {key: getattr(row, key) + (origin_ns if key in instants else 0) for key in truth} == truth
    for row, beside in zip(rows, attributed.hidden_by(expected), strict=True):
        assert {(part.layer, part.direction == "backward"): part.ns for part in row.hidden_by} == beside
