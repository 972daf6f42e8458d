"""Lanes against the report's numbers, and against counting nanoseconds."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from analyzers.errors import AnalysisError
from analyzers.intervals import Intervals, union_of
from analyzers.rank.columns.time_breakdown import breakdown
from analyzers.rank.idle.host_states import Cause
from analyzers.rank.idle.idle_time import OTHERS
from analyzers.rank.idle.phases import Phase
from analyzers.rank.summary import RunSummary, summary_of
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import TIMES, Lanes, drawn_hosts, lanes
from analyzers.reporting.document import Report
from analyzers.reporting.measures.idle_time import IDLE_CAUSES
from analyzers.run.loading import Run
from tests.support.drawing import draw, meet
from tests.support.samples import REPORTED, SAMPLES, reported, summarized


def check_laws(found: tuple[Lanes, ...], document: Report) -> None:
    """Every number of every window is the length of a lane in it."""
    windows = {(row.rank, row.device, row.step): row for row in document.windows}
    for lane in found:
        steps = lane.steps
        for step, start, end in zip(steps.step, steps.start_ns, steps.end_ns, strict=True):
            row = windows.pop((lane.rank, lane.device, int(step)))
            assert (int(start), int(end - start)) == (row.start_ns, row.span_ns)
            for name, time in lane.times.items():
                assert int(time.length_within(start, end)) == getattr(row, TIMES[name]), name
    assert not windows
    check_causes(found, document)
    assert layers_in_windows(found) == layers_of(document)


def check_causes(found: tuple[Lanes, ...], document: Report) -> None:
    """Idle time by cause tiles idle time, and is as long as each window's causes and each rank's lines say."""
    drawn, lines = Counter(), Counter()
    for lane in found:
        track = lane.idle_causes
        whole = Intervals(track.start_ns, track.end_ns)
        assert (track.end_ns > track.start_ns).all()
        assert (track.start_ns[1:] >= track.end_ns[:-1]).all()
        assert ((lane.idle - union_of(whole.start, whole.end)).length_ns(), whole.length_ns()) == (
            0,
            lane.idle.length_ns(),
        )
        window = np.searchsorted(lane.steps.start_ns, track.start_ns, side="right") - 1
        assert (track.end_ns <= lane.steps.end_ns[window]).all()
        names = [*track.names, None]
        columns = (lane.steps.step[window], track.cause, track.phase, track.name, track.call)
        for k, (step, cause, phase, name, call) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
            ns = int(track.end_ns[k] - track.start_ns[k])
            drawn[lane.rank, lane.device, step, Cause(cause).label] += ns
            lines[lane.rank, Cause(cause).label, Phase(phase).label, names[name], names[call]] += ns
    said = Counter(
        {
            (row.rank, row.device, row.step, cause): getattr(row.idle, f"{cause}_ns")
            for row in document.windows
            for cause in IDLE_CAUSES
        }
    )
    assert drawn == +said
    for row in document.idle.lines:
        assert row.name == OTHERS or lines[row.rank, row.cause, row.phase, row.name, row.call] == row.ns


def layers_of(document: Report) -> Counter:
    total: Counter = Counter()
    for row in document.layers:
        total[row.rank, row.device, row.step, row.layer, False] += row.forward_ns
        total[row.rank, row.device, row.step, row.layer, True] += row.backward_ns
    return +total


def layers_in_windows(found: tuple[Lanes, ...]) -> Counter:
    total: Counter = Counter()
    for lane in found:
        layers = lane.layers
        assert (layers.start_ns[1:] >= layers.end_ns[:-1]).all()
        assert (layers.end_ns > layers.start_ns).all()
        for step, start, end in zip(lane.steps.step, lane.steps.start_ns, lane.steps.end_ns, strict=True):
            inside = np.minimum(layers.end_ns, end) - np.maximum(layers.start_ns, start)
            for row in np.flatnonzero(inside > 0).tolist():
                name = layers.names[layers.layer[row]]
                total[lane.rank, lane.device, int(step), name, bool(layers.backward[row])] += int(inside[row])
    return total


@pytest.mark.parametrize("path", REPORTED)
def test_lanes_are_as_long_as_the_report_says(path):
    found = lanes(summarized(path), reported(path))
    check_laws(found, reported(path))
    places = {(row.rank, row.device): None for row in reported(path).windows}
    assert [(lane.rank, lane.device) for lane in found] == list(places)


@pytest.mark.parametrize("path", REPORTED)
def test_collectives_on_lanes_are_the_reports(path):
    document = reported(path)
    said, drawn, alone = Counter(), Counter(), Counter()
    for row in document.collectives:
        for each in row.members:
            place = (each.rank, each.device, each.start_ns, each.dur_ns, each.wait_ns, each.exposed_ns)
            said[(*place, row.index, row.bucket, row.kind, row.purpose)] += 1
    for lane in lanes(summarized(path), document):
        marks = lane.collectives
        for k in range(len(marks.start_ns)):
            numbers = [int(getattr(marks, name)[k]) for name in ("wait_ns", "exposed_ns", "index", "bucket")]
            wait, exposed, index, bucket = (None if number < 0 else number for number in numbers)
            start, end = int(marks.start_ns[k]), int(marks.end_ns[k])
            if index is None:
                alone[lane.rank, start, end - start, marks.kind[k]] += 1
                continue
            place = (lane.rank, lane.device, start, end - start, wait, exposed)
            drawn[(*place, index, bucket, marks.kind[k], marks.purpose[k])] += 1
    assert drawn == said
    assert alone == Counter((row.rank, row.start_ns, row.dur_ns, row.kind) for row in document.unmatched)


def filled(time: Intervals, length: int) -> list[bool]:
    cells = [False] * length
    for start, end in zip(time.start.tolist(), time.end.tolist(), strict=True):
        cells[start:end] = [True] * (end - start)
    return cells


def brute_force(pictures: dict[str, str], moving: list[bool], alone: bool) -> dict[str, list[bool]]:
    """The lanes of one drawn device, nanosecond by nanosecond."""
    compute, comm, copy = ([mark != "." for mark in pictures[name]] for name in ("compute", "comm", "copy"))
    active = [any(each) for each in zip(compute, comm, copy, strict=True)]
    exposed = [m and not c for m, c in zip(comm, compute, strict=True)]
    span = range(active.index(True), len(active) - active[::-1].index(True))
    return {
        "compute": compute,
        "communication": comm,
        "exposed_wait": [e and not t for e, t in zip(exposed, moving, strict=True)],
        "exposed_transfer": [e and t and not alone for e, t in zip(exposed, moving, strict=True)],
        "exposed_unresolved": [e and t and alone for e, t in zip(exposed, moving, strict=True)],
        "copies": copy,
        "exposed_copies": [p and not (c or m) for c, m, p in zip(compute, comm, copy, strict=True)],
        "idle": [at in span and not busy for at, busy in enumerate(active)],
    }


def drawn(random: np.random.Generator, ranks: int, length: int) -> list[dict[str, str]]:
    """Random pictures of ranks, one all-reduce each, which end together."""
    ends = int(random.integers(length // 2, length))
    pictures = []
    for _ in range(ranks):
        own = {name: "".join(random.choice(list("..ab"), length)) for name in ("compute", "copy")}
        start = int(random.integers(1, ends))
        pictures.append(own | {"comm": "." * start + "a" * (ends - start) + "." * (length - ends)})
    return pictures


def steps_of(random: np.random.Generator, length: int) -> str:
    cut = int(random.integers(1, length))
    return "3" * cut + "4" * (length - cut)


@pytest.mark.parametrize("seed", range(12))
def test_lanes_equal_the_brute_force(seed):
    random = np.random.default_rng(seed)
    pictures = drawn(random, 3, 60)
    lane = {name: [each[name] for each in pictures] for name in ("compute", "copy")}
    run = meet(*(each["comm"] for each in pictures), **lane, step=steps_of(random, 60))
    document = report(run)
    found = lanes(run, document)
    check_laws(found, document)
    origin = int(document.run.origin_ns)
    alone = {row.rank for row in document.unmatched}  # launched in another step: all of it is unresolved
    matched = [each["comm"].count("a") for rank, each in enumerate(pictures) if rank not in alone]
    for own, picture in zip(found, pictures, strict=True):
        last = picture["comm"].rindex("a")
        moving = [own.rank in alone or last - min(matched) < at <= last for at in range(60)]
        expected = brute_force(picture, moving, own.rank in alone)
        assert own.shift_ns == origin
        assert {name: filled(time.moved(origin), 60) for name, time in own.times.items()} == expected


def test_what_lies_outside_of_windows_is_there_but_is_not_idle():
    trace = draw(compute="aa..bb..cc.d", launch={"compute": "...^....^.^^"[:12]}, step="..33334444..")
    run = summary_of(Run("drawn", None, (trace,)), lanes=True)
    (lane,) = lanes(run, report(run))
    rows = breakdown(trace)
    assert lane.compute.length_ns() == rows.compute_ns.sum() + rows.outside_ns.sum()
    assert lane.idle.length_ns() == rows.idle_ns.sum()


def test_lanes_are_on_the_common_clock():
    pictures = ["aaaa....bbbb....cccc", "..aa......bb......cc"]
    run = meet(*pictures, since=(0, 10**6), compute=["#" * 20, "#" * 20])
    first, second = lanes(run, report(run))
    assert (first.shift_ns, second.shift_ns) == (0, 10**6)
    assert second.collectives.start_ns.tolist() == [2, 10, 18]
    assert second.collectives.end_ns.tolist() == first.collectives.end_ns.tolist()


def test_a_frame_has_every_stretch():
    path = SAMPLES / "resnet18-ddp4"
    found = lanes(summarized(path), reported(path))[3]
    frame = found.to_frame()
    assert frame["rank"].unique().tolist() == [3]
    for name, time in found.times.items():
        assert frame.loc[frame["lane"] == name, "dur_ns"].sum() == time.length_ns()
    marks = frame[frame["lane"] == "collective"]
    assert marks["bucket"].dropna().tolist() == [0, 1, 2, 0, 1, 2]
    assert marks["collective"].isna().sum() == (found.collectives.index < 0).sum()
    assert frame.loc[frame["lane"] == "layer", "pass"].isin(["forward", "backward"]).all()


def test_a_report_needs_no_lanes_and_lanes_say_what_they_need():
    path = SAMPLES / "resnet18-ddp2"
    run = summarized(path)
    without = replace(run, ranks=tuple(replace(each, timed=replace(each.timed, tracks=None)) for each in run.ranks))
    assert report(without) == reported(path)
    with pytest.raises(AnalysisError, match="lanes=True"):
        lanes(without, reported(path))
    with pytest.raises(AnalysisError, match="another run"):
        lanes(summarized(SAMPLES / "resnet18-ddp4"), reported(path))


def test_what_crosses_processes_grows_only_when_asked():
    run: RunSummary = meet("aa..", "aa..")
    assert all(each.timed.tracks is not None for each in run.ranks)
    trace = draw(compute="aa", step="00")
    assert summary_of(Run("drawn", None, (trace,))).ranks[0].timed.tracks is None


@pytest.mark.parametrize("path", REPORTED)
def test_kernels_and_copies_cover_what_lanes_say(path):
    for lane in lanes(summarized(path), reported(path)):
        kernels = lane.kernels
        computes, copies = (
            union_of(kernels.start_ns[rows], kernels.end_ns[rows]) for rows in (~kernels.is_copy, kernels.is_copy)
        )
        assert (np.diff(kernels.start_ns) >= 0).all()
        assert ((computes - lane.compute).length_ns(), (lane.compute - computes).length_ns()) == (0, 0)
        # A copy between two devices is in both their lanes of time, and a kernel of one.
        assert (copies - lane.copies).length_ns() == 0
        assert max(kernels.name, default=-1) < len(kernels.names)
        assert max(kernels.layer, default=-1) < len(lane.layers.names)


def test_kernels_name_their_operator_and_layer():
    path = SAMPLES / "resnet18-ddp4"
    frame = lanes(summarized(path), reported(path))[0].to_frame()
    kernels = frame[frame["lane"] == "kernel"]
    convolution = kernels[kernels["kernel"].str.contains("fprop") & (kernels["layer"] == "conv1")]
    assert set(convolution["operator"]) == {"aten::cudnn_convolution"}
    assert frame.loc[frame["lane"] == "collective", "kernel"].str.startswith("nccl").all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resnet18-ddp2-sick", [1]), ("resnet18-fsdp4", [3]), ("resnet18-ddp2", []), ("resnet50-ddp4-bf16", [])],
)
def test_a_host_is_drawn_where_it_is_the_main_problem(name, expected):
    path = SAMPLES / name
    found = lanes(summarized(path), reported(path))
    assert drawn_hosts(reported(path)) == expected
    assert [lane.rank for lane in found if lane.host_track is not None] == expected
    for lane in found:
        assert ("host" in set(lane.to_frame()["lane"])) == (lane.host_track is not None)
