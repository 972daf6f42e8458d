"""HTA on our columns: the frame is what its own parser makes of the file, its figures are ours where both have them."""

from __future__ import annotations

import importlib.util
import json
import logging
from dataclasses import replace
from functools import cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analyzers
from analyzers.errors import NotAnalyzable, NotInstalled, install_hint
from analyzers.hta.adapter import hta_library, to_hta, versions
from analyzers.hta.critical_paths import DEPENDENCY, CriticalPath, critical_path
from analyzers.hta.tables import calls_of_device, diff, idle, kernels, launches, queue, to_json
from analyzers.intervals import union_of
from analyzers.rank.columns.windows import profiler_steps
from analyzers.run.loading import Run
from analyzers.run.rank_trace import RankTrace
from analyzers.trace.kernel_names import Category, Kind
from analyzers.trace.range_names import is_of_module, own_name
from tests.support import samples
from tests.support.brute_force import OLD_CATEGORIES
from tests.support.drawing import draw
from tests.support.samples import OF_KINETO, RUNS, SAMPLES, params
from tests.support.stack_samples import copied_with_samples
from tests.support.tiers import quarters
from tracer.cli import main

INSTALLED = importlib.util.find_spec("hta") is not None
SIZES = {run: sum(file.stat().st_size for file in run.glob("*.json*")) for run in RUNS}
# HTA's parser and its critical paths take seconds for the largest runs, whose like are among the smaller ones.
READ_BY_HTA = params(run for run, size in SIZES.items() if size < 1.8e6)
MOST_WALKED = 1_400_000
WALKED_BY_HTA = params(run for run, size in SIZES.items() if size < MOST_WALKED)
needs_hta = pytest.mark.skipif(not INSTALLED, reason="HTA is not installed: pip install '.[hta]'")
ONE_RANK = SAMPLES / "resnet18-ddp1"
TWO_RANKS = SAMPLES / "resnet18-ddp2"
HTA_ROUNDS_TO = 0.005  # of a percent


load = cache(samples.load)


@cache
def first_path(path: Path) -> CriticalPath:
    """The critical path of a run's first rank."""
    return critical_path(load(path), load(path).ranks[0].rank)


def quietly(call: Any, *arguments: Any, **options: Any) -> Any:
    with hta_library().quiet():
        return call(*arguments, **options)


def drawn(trace: RankTrace) -> Run:
    return Run("drawn", None, (trace,))


def times(rank: RankTrace) -> tuple[Any, Any, Any]:
    """Compute, communication as HTA has it (kernels alone, not copies between devices), and all that a device does."""
    events, start, end = rank.events, rank.events.start_ns, rank.events.end_ns
    masks = (
        events.kind == Kind.COMPUTE,
        (events.kind == Kind.COMM) & (events.category == Category.KERNEL),
        events.on_device,
    )
    compute, comm, everything = (union_of(start[mask], end[mask]) for mask in masks)
    # To HTA a stream that waits is not idle.
    syncs, on_stream = events.syncs, events.syncs.stream >= 0
    waiting = union_of(syncs.start_ns[on_stream], (syncs.start_ns + syncs.dur_ns)[on_stream])
    return compute, comm, everything | waiting


@needs_hta
def test_the_version_that_the_readme_names_is_the_oldest_that_is_installed():
    oldest = "0.6.1"
    assert f"traceinsight {oldest}" in (SAMPLES.parent / "README.md").read_text()
    assert f"traceinsight>={oldest}" in (SAMPLES.parent / "setup.cfg").read_text()
    found = versions()
    assert [int(part) for part in found["traceinsight"].split(".")[:3]] >= [0, 6, 1]
    assert found["pandas"] == metadata.version("pandas")


def knows_all_communication(rank: RankTrace) -> bool:
    """Whether HTA, too, takes every communication kernel for one: to it only NCCL communicates."""
    events = rank.events
    kernels = events.name[(events.kind == Kind.COMM) & (events.category == Category.KERNEL)]
    return all("nccl" in events.names[name] for name in np.unique(kernels))


@needs_hta
@pytest.mark.parametrize("path", quarters(READ_BY_HTA))
def test_its_overlap_and_its_times_over_whole_traces_are_ours_to_the_nanosecond(path):
    run = load(path)
    analysis = to_hta(run)
    overlap = dict(quietly(analysis.get_comm_comp_overlap, visualize=False).itertuples(index=False, name=None))
    for rank in run.ranks:
        compute, comm, everything = times(rank)
        known = knows_all_communication(rank)
        if not known:
            pass
        elif not len(comm):
            assert np.isnan(overlap[rank.rank])
        else:
            ours = 100 * (comm & compute).length_ns() / comm.length_ns()
            assert overlap[rank.rank] == pytest.approx(ours, abs=HTA_ROUNDS_TO + 1e-9)
        if not rank.is_cpu_run:
            alone = to_hta(replace(run, ranks=(rank,)))
            found = quietly(alone.get_temporal_breakdown, visualize=False).iloc[0]
            extent = int(everything.end[-1] - everything.start[0])
            assert found["compute_time(us)"] == compute.length_ns() or not known
            assert found["kernel_time(us)"] == extent
            assert found["idle_time(us)"] == extent - everything.length_ns()


@needs_hta
@pytest.mark.parametrize("path", quarters(WALKED_BY_HTA))
def test_the_critical_path_runs_on_every_trace_or_says_why_not(path):
    if not calls_of_device(load(path).ranks[0]):
        with pytest.raises(NotAnalyzable, match=r"CPU run|launch"):
            first_path(path)
        return
    found = first_path(path)
    assert len(found.start_ns) == len(found.name) > 0
    assert (found.start_ns[1:] == found.end_ns[:-1]).all()
    assert (found.weight_ns >= 0).all()
    assert set(found.bound) - {DEPENDENCY} <= {
        *("cpu_bound", "data_loading", "gpu_compute_bound", "gpu_communication_bound"),
        *("gpu_kernel_kernel_overhead", "gpu_kernel_launch_overhead"),
    }
    own = np.array(found.weight_ns) > 0
    assert (found.weight_ns[own] <= (found.end_ns - found.start_ns)[own]).all()


@needs_hta
@pytest.mark.parametrize("path", quarters(READ_BY_HTA))
@pytest.mark.parametrize("analyze", [idle, queue, launches, kernels])
def test_every_analysis_has_rows_for_its_ranks_or_says_why_not(path, analyze):
    run = load(path)
    try:
        found = analyze(run)
    except NotAnalyzable as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        # HTA counts no launch of NCCL's kernels, and these runs have no other.
        assert path.parent != SAMPLES or path.name.startswith("skew-")
        return
    table = found.tables[-1].to_frame()
    left_out = sum(note.startswith("left out") for note in found.notes)
    assert table["rank"].nunique() == len(run.ranks) - left_out or analyze is idle
    json.loads(to_json(found))


@needs_hta
@pytest.mark.parametrize("path", quarters(params(run for run in OF_KINETO if SIZES[run] < MOST_WALKED)))
def test_the_frame_is_what_its_own_parser_makes_of_the_file(path):
    from hta.common.trace import parse_trace_file

    rank = load(path).ranks[0]
    theirs = quietly(parse_trace_file, str(rank.path))
    analysis = to_hta(Run("one", None, (rank,)))
    ours, symbols = analysis.t.traces[rank.rank], analysis.t.symbol_table.get_sym_table()
    frame = theirs[1].set_index("index", drop=False).loc[ours.index]
    assert (ours.index == ours["index"]).all()
    for column in ("name", "cat"):
        words = [theirs[2].get_sym_table()[code] for code in frame[column]]
        # Ours have today's names for the categories of torch 1.8.
        words = [OLD_CATEGORIES.get(word, word) if column == "cat" else word for word in words]
        if column == "cat":  # steps are annotations, as they are today
            steps = [symbols[code].startswith("ProfilerStep") for code in ours["name"]]
            words = ["user_annotation" if is_step else word for word, is_step in zip(words, steps, strict=True)]
        # Ours leave out of modules' names what wrappers add.
        assert [symbols[code] for code in ours[column]] == [
            own_name(word) if is_of_module(word) else word for word in words
        ]
    # A CUDA graph's launch has many kernels: HTA names one or another of them as its own, ours the first.
    kernels_of = ours.groupby("correlation")["correlation"].transform("size")
    graph = ((ours["correlation"] > 0) & (kernels_of > 2) & (ours["stream"] < 0)).to_numpy()
    for column in ("correlation", "index_correlation", "wait_on_stream", "wait_on_cuda_event_record_corr_id"):
        equal = ours[column].to_numpy() == frame.get(column, ours[column]).to_numpy()
        assert (equal | (graph if column == "index_correlation" else False)).all(), column
    # HTA takes an operator's argument `stream` (Triton's) for a place.
    on_device = ours["stream"].to_numpy() >= 0
    assert (ours["device_stream"].to_numpy() == frame["stream"].to_numpy())[on_device].all()
    # It rounds starts up to whole microseconds; ours are exact.
    early = (frame["ts"] - frame["ts"].iloc[0]).to_numpy() * 1000 - (ours["ts"] - ours["ts"].iloc[0]).to_numpy()
    assert (np.abs(early) < 1000).all()


@needs_hta
@pytest.mark.slow
def test_samples_of_pythons_stack_are_no_rows_of_its_frame_nor_of_ours(tmp_path):
    from hta.common.trace import parse_trace_file

    runs = load(ONE_RANK), samples.load(copied_with_samples(ONE_RANK, tmp_path / "sampled"))
    assert [len(run.ranks[0].events.samples) > 0 for run in runs] == [False, True]
    plain, sampled = (quietly(parse_trace_file, str(run.ranks[0].path))[1] for run in runs)
    assert len(plain) == len(sampled)
    plain, sampled = (to_hta(run).t.traces[0] for run in runs)
    assert plain["ts"].tolist() == sampled["ts"].tolist()


@needs_hta
@pytest.mark.parametrize("name", quarters(["resnet18-ddp2", "every-collective4", "resnet18-dp4"]))
def test_the_critical_path_is_that_of_its_own_parser_when_that_does_not_round(name):
    from hta.configs.env_options import HTAEnvOptions
    from hta.trace_analysis import TraceAnalysis

    run, ours = load(SAMPLES / name), first_path(SAMPLES / name)
    rounding = HTAEnvOptions.instance()
    rounding.set_disable_ns_rounding(True)
    try:
        files = {0: str(run.ranks[0].path)}
        theirs = quietly(TraceAnalysis, trace_files=files, trace_dir="/", include_last_profiler_step=True)
        place = profiler_steps(run.ranks[0].events).number.tolist().index(ours.step)
        graph, found = quietly(theirs.critical_path_analysis, 0, "ProfilerStep", place)
    finally:
        rounding.set_disable_ns_rounding(False)
    edges = list(pairwise(graph.critical_path_nodes))
    assert found
    assert len(ours.weight_ns) == len(edges)
    # Its microseconds are floats of times since the machine started: each is off by up to half a nanosecond.
    error_us = 0.001 * len(edges)
    assert ours.length_ns / 1000 == pytest.approx(sum(graph.edges[edge]["weight"] for edge in edges), abs=error_us)


@needs_hta
def test_events_are_of_the_step_that_holds_them_or_their_launch():
    # HTA's own goes astray where the device's copies of the steps' annotations lie elsewhere than the host's.
    frame = to_hta(load(ONE_RANK)).t.traces[0]
    symbols = to_hta(load(ONE_RANK)).t.symbol_table.get_sym_table()
    steps = [row for row in frame.itertuples() if symbols[row.name].startswith("ProfilerStep#")]
    for row in frame.itertuples():
        at = row.ts if row.stream < 0 else frame.at[row.index_correlation, "ts"] if row.index_correlation > 0 else -1
        holding = [int(symbols[step.name].partition("#")[2]) for step in steps if step.ts <= at < step.end]
        assert row.iteration == (holding[0] if holding else -1)


@needs_hta
def test_a_picture_has_the_critical_path_that_one_sees_in_it():
    # The kernel runs long behind its launch: work of the host beside it cannot matter.
    run = drawn(
        draw(step="00000000000000000000", compute="..aaaaaaaaaaaaaaaa..", launch={"compute": "^..................."})
    )
    found = critical_path(run)
    assert [name for name, weight in zip(found.name, found.weight_ns, strict=True) if weight] == ["compute a"] * 2
    assert found.bound[-2:] == ("gpu_kernel_launch_overhead", "gpu_compute_bound")
    assert found.weight_ns.tolist()[-2:] == [2, 16]


@needs_hta
def test_streams_of_several_devices_are_told_apart():
    events = draw(step="0000000000", compute="aa..bb....", comm="....aa..bb").events
    rows = np.flatnonzero(events.on_device)
    device, stream = events.device.copy(), events.stream.copy()
    device[rows[1::2]], stream[rows] = 1, 7
    rank = draw(step="0000000000")
    several = replace(events, device=device, stream=stream)
    frame = to_hta(drawn(replace(rank, events=several, timed=several))).t.traces[0]
    assert sorted(set(frame["stream"])) == [-1, 7, 17]
    assert set(frame.loc[frame["stream"] >= 0, "device_stream"]) == {7}


@needs_hta
def test_a_run_differs_in_nothing_from_itself_and_by_calls_from_another():
    run = analyzers.load(TWO_RANKS)
    same = diff(run, run)
    assert all(row[3] == row[6] == 0 for table in same.tables for row in table.rows)
    other = diff(run, analyzers.load(ONE_RANK))
    fewer = {row[0] for row in other.tables[0].rows if row[3] < 0}
    assert any(name.startswith("ncclDevKernel_AllReduce") for name in fewer)


@needs_hta
def test_what_it_raises_is_one_line_that_names_the_file(monkeypatch, capsys):
    def broken(*arguments: Any, **options: Any) -> None:
        raise KeyError("stream\nof two lines")

    monkeypatch.setattr(hta_library().ExactAnalysis, "critical_path_analysis", broken)
    assert main(["hta", str(ONE_RANK), "critical-path"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "rank0.json.gz: HTA's critical path fails on it (KeyError: 'stream" in said


@needs_hta
def test_its_noise_is_not_heard(capfd):
    run = analyzers.load(ONE_RANK)
    handlers = list(logging.getLogger().handlers)
    critical_path(run)
    launches(run)
    assert capfd.readouterr() == ("", "")
    assert list(logging.getLogger().handlers) == handlers


@needs_hta
@pytest.mark.parametrize("analysis", quarters(["critical-path", "idle", "queue", "launches", "kernels"]))
def test_the_command_prints_tables_json_and_csv(analysis, capsys, tmp_path):
    assert main(["hta", str(TWO_RANKS), analysis, "--rank", "1", "--top", "2", "--csv", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"HTA {analysis} of resnet18-ddp2")
    assert "traceinsight" in text
    assert main(["hta", str(TWO_RANKS), analysis, "--rank", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["analysis"]) == ("tracer.hta/1", analysis)
    for file in tmp_path.iterdir():
        lines = file.read_text().splitlines()
        assert len(lines) == len(document[file.stem]) + 1
        assert lines[0].split(",") == list(document[file.stem][0])


@needs_hta
def test_the_path_lies_in_the_timeline_on_the_runs_clock(capsys, tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    file = tmp_path / "path.pftrace"
    assert main(["hta", str(TWO_RANKS), "critical-path", "--rank", "1", "--step", "4", "-o", str(file)]) == 0
    packets = Trace.FromString(file.read_bytes()).packet
    tracks = {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in packets
        if packet.HasField("track_descriptor")
    }
    groups = {uuid: track.name for uuid, track in tracks.items() if not track.parent_uuid}
    assert "rank 1: critical path (HTA), step 4" in groups.values()
    assert sum(name.startswith(("rank 0 (", "rank 1 (")) for name in groups.values()) == 2
    path = next(uuid for uuid, track in tracks.items() if track.name == "critical path")
    begins = [
        packet.timestamp for packet in packets if packet.track_event.track_uuid == path and packet.track_event.type == 1
    ]
    step = critical_path(analyzers.load(TWO_RANKS), 1, 4)
    drawn_edges = [
        row for row, bound in enumerate(step.bound) if bound != DEPENDENCY and step.end_ns[row] > step.start_ns[row]
    ]
    assert len(begins) == len(drawn_edges)
    assert np.diff(begins).tolist() == np.diff(step.start_ns[drawn_edges]).tolist()


@needs_hta
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diff"], "tracer hta RUN diff RUN2"),
        (["idle", "traces"], "leave out traces"),
        (["idle", "--step", "3"], "--step only applies to"),
        (["queue", "-o", "x.pftrace"], "-o only applies to critical-path"),
        (["critical-path", "-o", "x.json"], ".pftrace"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments, said, capsys):
    assert main(["hta", str(ONE_RANK), *arguments]) == 2
    assert said in capsys.readouterr().err


@needs_hta
def test_a_rank_and_a_step_that_are_not_there_are_said(capsys):
    assert main(["hta", str(TWO_RANKS), "critical-path", "--rank", "7"]) == 1
    assert "no rank 7: it has 0, 1" in capsys.readouterr().err
    assert main(["hta", str(TWO_RANKS), "critical-path", "--step", "9"]) == 1
    assert "step 9 is not in it; it has 3, 4" in capsys.readouterr().err


@needs_hta
def test_a_cpu_run_and_a_trace_without_launches_say_why():
    with pytest.raises(NotAnalyzable, match="no device event has its launch"):
        lonely = draw(step="0000", compute="aaaa")
        events = lonely.events.take(lonely.events.category != Category.LAUNCH)
        idle(drawn(replace(lonely, events=events, timed=events)))


def test_a_library_that_is_missing_is_one_line_with_its_remedy(capsys, monkeypatch):
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("analyzers.hta.adapter.metadata.version", version)
    with pytest.raises(NotInstalled):
        to_hta(analyzers.load(ONE_RANK))
    assert main(["hta", str(ONE_RANK), "idle"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert install_hint("hta") in said


def test_its_predecessor_has_to_go_first(monkeypatch):
    def version(name: str) -> str:
        if name == "HolisticTraceAnalysis":
            return "0.5.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("analyzers.hta.adapter.metadata.version", version)
    with pytest.raises(NotInstalled, match="pip uninstall HolisticTraceAnalysis"):
        hta_library()


@needs_hta
def test_a_run_without_devices_is_not_compared(tmp_path):
    run = load(SAMPLES / "resnet18-ddp2")
    rank = run.ranks[0]
    alone = replace(rank, events=rank.events.take(~rank.events.on_device), timed=rank.timed)
    with pytest.raises(NotAnalyzable, match="a CPU run"):
        diff(run, replace(run, ranks=(alone,)))


def test_numbers_that_no_gpu_has_are_a_line():
    """A stream and a device in one 64-bit number, as HTA wants them."""
    trace = draw(compute="#.#.")
    huge = np.where(trace.events.on_device, 2**62, trace.events.stream)
    apart = np.where(trace.events.on_device, np.arange(len(trace.events)), trace.events.device)
    events = replace(trace.events, stream=huge, device=apart.astype(trace.events.device.dtype))
    with pytest.raises(NotAnalyzable, match="is no number that a GPU has"):
        to_hta(drawn(replace(trace, events=events, timed=events)))
