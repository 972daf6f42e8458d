"""What buckets and layers add up to, per rank, device and step, on every recorded run there is."""

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from analyzers.rank.activity import device_label
from analyzers.rank.communication import Purpose
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.trace.collective_calls import Collective, itemsize
from tests.support import attributed
from tests.support.samples import REPORTED, RUNS, SAMPLES, reported, summarized


def exposed_of_kernels(run: RunSummary, *, gradients: bool) -> Counter:
    """Exposed ns of all communication, or of gradients' all-reduces alone, by rank, device and step."""
    total: Counter = Counter()
    for rank, measured in zip(run.ranks, run.measured, strict=True):
        comm = measured.communication
        chosen = np.ones(len(comm), dtype=bool)
        if gradients:
            chosen &= (comm.purpose == Purpose.GRADIENTS) & (comm.kind == Collective.ALL_REDUCE)
        for row in np.flatnonzero(chosen & (comm.window >= 0)).tolist():
            place = rank.rank, device_label(int(comm.device[row])), int(comm.window[row])
            total[place] += int(comm.exposed_ns[row])
            if comm.peer[row] >= 0:  # a copy between two devices is of both
                total[rank.rank, int(comm.peer[row]), int(comm.window[row])] += int(comm.peer_exposed_ns[row])
    return +total


def summed(rows, value) -> Counter:
    total: Counter = Counter()
    for row in rows:
        total[row.rank, row.device, row.step] += value(row)
    return +total


@pytest.mark.parametrize("path", REPORTED)
def test_lines_add_up_to_the_compute_of_their_window(path):
    found = reported(path)
    lines = summed(found.layers, lambda row: row.forward_ns + row.backward_ns)
    assert lines == summed(found.windows, lambda window: window.compute_ns)
    assert all(row.forward_ns >= 0 and row.backward_ns >= 0 for row in found.layers)
    places = [(row.rank, row.device, row.step, row.layer) for row in found.layers]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("path", REPORTED)
def test_waiting_for_input_is_a_part_of_idle_time(path):
    found, summary = reported(path), summarized(path)
    for window in found.windows:
        assert window.input_idle_ns is None or 0 <= window.input_idle_ns <= window.idle_ns
    if found.run.times_from == "light":
        assert {window.input_idle_ns for window in found.windows} == {None}
    for measured in summary.in_full:
        fetched, idle_ns = measured.fetching, measured.windows.idle_ns
        assert (fetched.input_idle_ns <= np.minimum(fetched.fetch_ns, idle_ns)).all()
        assert fetched.seen or fetched.fetch_ns.max() <= 0
    assert (found.summary.input is not None) == any(measured.fetching.seen for measured in summary.in_full)


@pytest.mark.parametrize("path", REPORTED)
def test_packing_is_compute(path):
    found = reported(path)
    line = summed(
        (row for row in found.layers if row.layer == "(packing)"), lambda row: row.forward_ns + row.backward_ns
    )
    for window in found.windows:
        assert 0 <= window.packing_ns <= window.compute_ns
        # The line lacks what ran beside compute that began before.
        assert line[window.rank, window.device, window.step] <= window.packing_ns


@pytest.mark.parametrize("path", REPORTED)
def test_buckets_add_up_to_the_exposed_reductions_of_gradients(path):
    found = reported(path)
    if any(layer.type == "FSDP" for layer in found.layers):
        pytest.skip("sharded gradients have no buckets")
    assert summed(found.buckets, lambda row: row.exposed_ns) == exposed_of_kernels(summarized(path), gradients=True)


@pytest.mark.parametrize("path", REPORTED)
def test_a_bucket_is_its_collective(path):
    found = reported(path)
    members = {(row.index, m.rank, m.device): (m, row) for row in found.collectives for m in row.members}
    for bucket in found.buckets:
        assert bucket.overlapped_ns + bucket.exposed_ns == bucket.dur_ns
        assert sum(part.ns for part in bucket.hidden_by) == bucket.overlapped_ns
        if bucket.collective is not None:
            member, row = members[bucket.collective, bucket.rank, bucket.device]
            assert (member.start_ns, member.dur_ns) == (bucket.start_ns, bucket.dur_ns)
            assert (member.exposed_ns, member.wait_ns) == (bucket.exposed_ns, bucket.wait_ns)
            assert (row.kind, row.purpose, row.step) == ("all_reduce", "gradients", bucket.step)
            # A kernel that does not say its size has it from the other members.
            assert None in (bucket.bytes, row.bytes) or bucket.bytes == row.bytes
    unmatched = {(row.rank, row.device, row.start_ns) for row in found.unmatched}
    for bucket in found.buckets:
        assert (bucket.collective is None) == ((bucket.rank, bucket.device, bucket.start_ns) in unmatched)


@pytest.mark.parametrize("path", REPORTED)
def test_a_collectives_bucket_is_the_same_on_all_its_ranks(path):
    found = reported(path)
    of = {row.index: row.bucket for row in found.collectives}
    for bucket in found.buckets:
        assert bucket.collective is None or of[bucket.collective] == bucket.bucket


@pytest.mark.parametrize("path", REPORTED)
def test_the_times_of_a_bucket_follow_one_another(path):
    for row in reported(path).buckets:
        if None in (row.ready_ns, row.launched_ns):
            assert row.queued_ns is None
            assert row.late_launch_ns is None
            continue
        assert row.queued_ns == max(0, row.start_ns - max(row.ready_ns, row.launched_ns))
        assert row.late_launch_ns == max(0, row.launched_ns - row.ready_ns)
        # On one device a kernel starts when it was launched, and what it waits for has run.
        assert row.start_ns >= row.launched_ns
        assert row.device == "cpu" or row.start_ns >= row.ready_ns


@pytest.mark.parametrize("path", REPORTED)
def test_layers_communication_adds_up_to_all_exposed_communication(path):
    found = reported(path)
    assert summed(found.layers, lambda row: row.exposed_ns) == exposed_of_kernels(summarized(path), gradients=False)
    for row in found.layers:
        assert row.overlapped_ns == sum(each.overlapped_ns for each in row.comm)
        assert row.exposed_ns == sum(each.exposed_ns for each in row.comm)
        for each in row.comm:
            assert each.overlapped_ns + each.exposed_ns == each.dur_ns
            assert min(each.overlapped_ns, each.exposed_ns) >= 0


@pytest.mark.parametrize("path", REPORTED)
def test_each_parameter_is_in_one_bucket(path):
    found = reported(path)
    layout = found.summary.layout
    if layout is None:
        assert not found.buckets
        return
    assert [bucket.bucket for bucket in layout.buckets] == list(range(len(layout.buckets)))
    held = [name for bucket in layout.buckets for name in bucket.parameters or ()]
    assert len(held) == len(set(held))
    summary = summarized(path)
    parameters = summary.manifest.parameters if summary.manifest else []
    if parameters:
        assert sorted(held) == sorted(parameter.name for parameter in parameters)


@pytest.mark.parametrize("path", REPORTED)
def test_a_buckets_bytes_are_those_of_its_parameters(path):
    found, summary = reported(path), summarized(path)
    shapes: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for rank, measured in enumerate(summary.measured):
        gradients = measured.gradients
        for index, reduction in enumerate(gradients.reduction.tolist()):
            shapes[rank, reduction].append(int(gradients.elements[index]))
    for rank, measured in enumerate(summary.measured):
        comm, number = measured.communication, summary.ranks[rank].rank
        rows = [row for row in found.buckets if row.rank == number]
        for reduction, (kernel, row) in enumerate(zip(measured.reductions.kernel.tolist(), rows, strict=True)):
            held = shapes[rank, reduction]
            if row.bytes is None or row.parameters is None or -1 in held:
                continue
            size = itemsize(comm.calls[comm.call[kernel]].dtype)
            assert row.bytes == size * sum(held)
            assert len(held) == len(row.parameters)


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
