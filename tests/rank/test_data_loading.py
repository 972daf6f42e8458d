"""Idle time in which the host waits for its next batch: drawn, by brute force, on recorded rows, and recorded here."""

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

import analyzers
from analyzers.arrays import UNKNOWN
from analyzers.rank.columns.time_breakdown import breakdown
from analyzers.rank.idle.data_loading import fetches, is_input
from analyzers.rank.summary import summarize, summary_of
from analyzers.reporting.build import report
from analyzers.reporting.document import from_json, to_json
from analyzers.run.light_window import Mismatch, retime
from analyzers.run.loading import Run
from analyzers.trace.kernel_names import Category
from tests.support import brute_force as reference
from tests.support.drawing import LOADER, draw
from tests.support.idle_brute_force import idle_by_cause
from tests.support.kineto_files import write
from tests.support.saved import saved
from tests.support.training import MAIN, host, kernel, ranged, step, traced
from tracer.views.sections.overview import report_text

SAMPLES = Path(__file__).resolve().parents[2] / "traces"


def found(trace):
    (rank,) = summary_of(Run("drawn", None, (trace,))).ranks
    return rank.timed.fetching


def idle(trace):
    """What each window idles for input."""
    return found(trace).input_idle_ns.tolist()


def lines(trace_or_report, first):
    shown = report_text(trace_or_report)
    return [line.split() for line in shown.splitlines() if line.strip().startswith(first)]


# Drawn.


def test_idle_time_counts_while_the_host_is_in_the_loader():
    #                    what is behind the loader is the host's way to its next launch
    trace = draw(step="333333333333", loader="..lllll.....", compute="aaaa.....bbb")
    assert idle(trace) == [3]
    assert found(trace).fetch_ns.tolist() == [5]
    assert breakdown(trace).idle_ns.tolist() == [5]


def test_a_batch_fetched_behind_a_busy_device_waits_for_nobody():
    assert idle(draw(step="333333", loader=".lll..", compute="aaaaab")) == [0]
    assert idle(draw(step="333333", loader=".lll..", compute="a....b", comm=".cc...", copy="...d..")) == [0]


def test_of_two_fetches_each_counts_in_its_window():
    trace = draw(step="333344445", loader="...l...ll", compute="a...b....", launch={"compute": "^...^"})
    assert idle(trace) == [1, 0]  # the last window ends with its last event
    trace = draw(step="333344444", loader="...l...ll", compute="a...b...c")
    assert idle(trace) == [1, 1]


def test_without_a_loader_none_of_the_idle_time_is_its():
    trace = draw(step="3333", compute="a..b")
    assert idle(trace) == [0]
    assert not found(trace).seen
    assert report(Run("drawn", None, (trace,))).summary.input is None


def test_without_rows_of_the_host_it_is_not_known():
    trace = draw(compute="a..b")
    assert idle(trace) == found(trace).fetch_ns.tolist() == [UNKNOWN]
    (window,) = report(Run("drawn", None, (trace,))).windows
    assert window.input_idle_ns is None


lane = st.text("ab.", min_size=1, max_size=24)


@given(lane, lane, lane, st.text("lm..", max_size=26), st.sampled_from(["", "3", "333344445566", "." * 8 + "4" * 9]))
def test_it_equals_the_brute_force_and_is_a_part_of_idle_time(compute, comm, copy, loader, steps):
    lanes = {"compute": compute, "comm": comm, "copy": copy}
    if not any(set(picture) - {"."} for picture in lanes.values()):
        return
    trace = draw(step=steps, loader=loader, **lanes)
    rows, of = breakdown(trace), found(trace)
    if not steps and not set(loader) - {"."}:
        assert of.input_idle_ns.tolist() == [UNKNOWN] * len(rows)
        return

    def is_on(picture, at):
        return picture[at : at + 1] not in ("", ".")

    for number, (begin, span) in enumerate(zip(rows.start_ns.tolist(), rows.span_ns.tolist(), strict=True)):
        fetched = [at for at in range(begin, begin + span) if is_on(loader, at)]
        waited = [at for at in fetched if not any(is_on(picture, at) for picture in lanes.values())]
        assert (of.fetch_ns[number], of.input_idle_ns[number]) == (len(fetched), len(waited))
        assert 0 <= of.input_idle_ns[number] <= rows.idle_ns[number]


# Which ranges are the loader's.

INPUT = [
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "enumerate(DataLoader)#_StatefulSingleProcessDataLoaderIter.__next__",
    "enumerate(DataPipe)#ShufflerIterDataPipe",
    "Batcher(batch_size=4, datapipe=Mapper, drop_last=False, wrapper_class=<class 'DataChunk'>)",
    "ShardingFilter(source_datapipe=Mapper)",
    "Zipper(datapipes=(Mapper, Mapper))",
]
OTHER = ["DataLoader", "aten::copy_", "Optimizer.step#SGD.step", "forward(datapipe)", "enumerate(DataLoader)", "f(x=1)"]


def test_the_names_of_pytorchs_loaders():
    assert all(map(is_input, INPUT))
    assert not any(map(is_input, OTHER))


def told_fetches(folder, *events):
    trace = traced(folder, *events, *kernel("gemm", 90, 95, 5))
    start = int(trace.events.start_ns.min())
    found = fetches(trace.events)
    return list(zip((found.start - start).tolist(), (found.end - start).tolist(), strict=True))


def test_ranges_within_ranges_count_once(tmp_path):
    inner = [ranged("Mapper(datapipe=IterableWrapper, fn=f)", ts, 3) for ts in (12, 16)]
    assert told_fetches(tmp_path, step(3, 0, 100), ranged(LOADER, 10, 12), *inner) == [(10_000, 22_000)]


def test_a_thread_that_fetches_ahead_keeps_nobody_waiting(tmp_path):
    ahead = ranged(LOADER, 10, 50, tid=MAIN + 1)
    own = ranged(LOADER, 70, 5)
    assert told_fetches(tmp_path / "steps", step(3, 0, 100), ahead, own) == [(70_000, 75_000)]
    # Where no thread marks steps, all may train.
    assert told_fetches(tmp_path / "none", host("aten::add", 0, 1), ahead, own) == [(10_000, 60_000), (70_000, 75_000)]


# Windows whose times are a light window's.


def retimed():
    """A full window in which 4 of 5 are waiting for input, at a light one's times."""
    full = draw(step="33333333", loader="..llll..", compute="aa....bb")
    quick = draw(compute="aa.bb")
    joined = retime(full.events, quick.events.take(quick.events.category != Category.ANNOTATION))
    assert not isinstance(joined, Mismatch)
    return replace(full, events=joined.full, timed=joined.light)


def test_light_times_are_not_laid_over_the_hosts():
    assert idle(retimed()) == [UNKNOWN]
    document = report(summary_of(Run("drawn", None, (retimed(),))))
    assert document.run.times_from == "light"
    assert [(window.span_ns, window.input_idle_ns) for window in document.windows] == [(5, None)]
    of = document.summary.input
    assert (of.idle_ns.median, of.fetch_ns.median, of.span_ns.median, of.window) == (4, 4, 8, "full")
    assert json.loads(to_json(document))["summary"]["input"]["from"] == "full"
    assert from_json(to_json(document)) == saved(document)


def test_a_light_report_says_whose_times_those_of_the_input_are():
    document = report(summary_of(Run("drawn", None, (retimed(),))))
    assert not lines(document, "(idle for input)")
    assert "timed with the full profile" in " ".join(lines(document, "Input:")[0])


def test_the_rank_whose_loader_is_slowest_is_named():
    ranks = [
        draw(rank=rank, device=rank, step="3" * 10, loader=".llllllll.", compute="a" * (9 - rank) + "." * rank + "b")
        for rank in range(4)
    ]
    # By the graph of causes rank 0's device takes as long without waiting.
    document = report(summary_of(Run("drawn", None, tuple(ranks))))
    of = document.summary.input
    assert [(each.rank, each.device, each.idle_ns.median) for each in of.by_device] == [
        *((0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 3))
    ]
    assert (of.longest.rank, of.idle_ns.median) == (3, 1.5)
    assert "most on rank 3" in " ".join(lines(document, "Input:")[0])


def test_ranks_that_fall_back_to_full_times_have_the_figure_in_each_window():
    run = summary_of(Run("drawn", None, (retimed(), draw(rank=1, step="3333", loader=".ll.", compute="a..b"))))
    assert not run.is_light
    assert [window.input_idle_ns for window in report(run).windows] == [4, 2]


# What the report shows.


def reported(loader="..llllll..", compute="aa......bb", **more):
    return report(Run("drawn", None, (draw(step="3333333333", loader=loader, compute=compute, **more),)))


def test_the_step_whose_lines_add_up_names_it_below_idle():
    assert lines(reported(), "(idle for input)")[0] == ["(idle", "for", "input)", "0.000", "60.0", "%"]
    shown = [line.strip() for line in report_text(reported()).splitlines()]
    place = next(number for number, line in enumerate(shown) if line.startswith("(idle for input)"))
    assert shown[place - 1].startswith("idle")
    assert not lines(reported(compute="aaaaaaaabb"), "(idle for input)")
    assert not lines(reported(loader=""), "Input:")


def test_advice_is_given_from_a_hundredth_of_the_step():
    (found,) = reported().summary.advice
    assert "num_workers" in found.text
    assert found.figure_ns == 6
    for length, spoken in ((99, True), (101, False)):
        step, compute = "3" * length, "a" * 40 + "." + "a" * (length - 41)
        advised = report(Run("drawn", None, (draw(step=step, loader="." * 40 + "l", compute=compute),))).summary.advice
        assert bool(advised) == spoken


def test_frames_have_the_column():
    frame = analyzers.TABLES["windows"].frame(reported())
    assert frame["input_idle_ns"].tolist() == [6]
    without = report(summary_of(Run("drawn", None, (retimed(),))))
    assert analyzers.TABLES["windows"].frame(without)["input_idle_ns"].isna().all()


def test_a_cpu_runs_operators_within_the_loader_compute(tmp_path):
    """One process loads between two steps' operators; it stacks its samples with one."""
    collate = host("aten::stack", 14, 2)
    rows = [step(3, 0, 40), host("aten::linear", 1, 4), ranged(LOADER, 10, 10), collate, host("aten::linear", 25, 5)]
    trace = traced(tmp_path, *rows)
    assert breakdown(trace).compute_ns.tolist() == [11_000]
    assert idle(trace) == [8_000]


# Recorded rows of a device, with ranges of a loader laid over them.


def test_recorded_windows_equal_the_brute_force(tmp_path):
    source = json.loads(gzip.decompress((SAMPLES / "resnet18-ddp2" / "rank0.json.gz").read_bytes()))
    marks = [event for event in source["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")]
    marks = [event for event in marks if event["cat"] == "user_annotation"]
    for number, mark in enumerate(marks):
        for part in (0.0, 0.3 + 0.1 * number):
            source["traceEvents"].append(mark | {"name": LOADER, "ts": mark["ts"] + part * mark["dur"], "dur": 900.5})
    path = write(tmp_path / "rank0.json", json.dumps(source))
    windows = report(summarize(path)).windows
    assert [window.input_idle_ns for window in windows] == [row["input"] for row in idle_by_cause(path)]
    assert sum(window.input_idle_ns for window in windows) > 0


# Recorded here: a model of one layer, and a dataset that takes its time.


class Slow(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    cycle = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle, acc_events=True) as profiler:
        for batch in DataLoader(Slow(), batch_size=4):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            profiler.step()
    path = tmp_path_factory.mktemp("slow") / "rank0.json"
    profiler.export_chrome_trace(str(path))
    return path


def test_a_recording_with_a_slow_dataset_names_the_waiting(recorded):
    document = report(summarize(recorded))
    assert [window.step for window in document.windows] == [1, 2, 3]
    # Four samples of 5 ms each, and little else.
    assert all(18e6 < window.input_idle_ns <= window.idle_ns for window in document.windows)
    assert [window.input_idle_ns for window in document.windows] == reference.input_idle(recorded)
    of = document.summary.input
    assert of.idle_ns.median <= of.fetch_ns.median <= of.span_ns.median
    (advised,) = [each for each in document.summary.advice if each.code == "input"]
    assert "num_workers" in advised.text
    assert advised.gain_ns == pytest.approx(of.idle_ns.median, rel=0.1)
    assert lines(document, "(idle for input)")
    assert lines(document, "Input:")
