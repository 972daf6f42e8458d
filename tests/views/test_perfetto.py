"""Perfetto traces, read back with their own protobuf."""

import hashlib
import io
import re
import sys
import zipfile
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from analyzers.errors import install_hint
from analyzers.intervals import union_of
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import TIMES, Lanes, lanes
from analyzers.reporting.measures.idle_time import IDLE_CAUSES
from tests.support.drawing import meet
from tests.support.samples import SAMPLES, reported, summarized
from tracer.cli import main
from tracer.errors import TracerError
from tracer.views.perfetto.tracks import apart, groups, name_of
from tracer.views.perfetto.writer import write_trace

pytestmark = pytest.mark.usefixtures("remembered")

DDP4 = SAMPLES / "resnet18-ddp4"
Slices = dict[int, list[tuple[int, int, int, str, str]]]
NAMES = ["every-collective4", "resnet18-ddp4", "resnet18-dp4"]


def parsed(data: bytes) -> Trace:
    trace = Trace()
    trace.ParseFromString(data)
    return trace


def exported(found: tuple[Lanes, ...], document) -> Trace:
    file = io.BytesIO()
    write_trace(file, groups(found, document))
    return parsed(file.getvalue())


@cache
def of_sample(name: str) -> tuple[tuple[Lanes, ...], Trace]:
    path = SAMPLES / name
    found = lanes(summarized(path), reported(path))
    return found, exported(found, reported(path))


@cache
def slices_of_sample(name: str) -> Slices:
    return slices(of_sample(name)[1])


def tracks(trace: Trace) -> dict[int, tuple[str, str]]:
    """Of each track the names of its group and itself."""
    described = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    return {uuid: (described[each.parent_uuid].name, each.name) for uuid, each in described.items() if each.parent_uuid}


def slices(trace: Trace) -> Slices:
    """Of each track its slices: start, end, depth, name, category. Fails where they do not nest."""
    opened, found = defaultdict(list), defaultdict(list)
    last: dict[int, int] = {}
    for packet in trace.packet:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            opened[event.track_uuid].append((packet.timestamp, event.name, event.categories[0]))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            start, name, category = opened[event.track_uuid].pop()
            depth = len(opened[event.track_uuid])
            found[event.track_uuid].append((start, packet.timestamp, depth, name, category))
        if event.type in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
            # A track's events are in order, so that what is open when another opens holds it.
            assert packet.timestamp >= last.get(event.track_uuid, 0)
            last[event.track_uuid] = packet.timestamp
    assert not any(opened.values())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tracks_are_as_long_as_the_report_says(name):
    found, trace = of_sample(name)
    document, named, drawn = reported(SAMPLES / name), tracks(trace), slices_of_sample(name)
    for lane in found:
        own = [each for uuid, rows in drawn.items() if named[uuid][0] == name_of(lane) for each in rows]
        for row in (row for row in document.windows if (row.rank, row.device) == (lane.rank, lane.device)):
            extent = [row.start_ns], [row.start_ns + row.span_ns]
            for category, measure in TIMES.items():
                spans = [(start, end) for start, end, depth, _, kind in own if kind == category and not depth]
                inside = union_of([start for start, _ in spans], [end for _, end in spans]).length_within(*extent)
                assert inside.tolist() == [getattr(row, measure)], measure
            for cause in IDLE_CAUSES:
                spans = [(start, end) for start, end, _, name, _ in own if name == cause.replace("_", " ")]
                inside = sum(max(0, min(end, extent[1][0]) - max(start, extent[0][0])) for start, end in spans)
                assert inside == getattr(row.idle, f"{cause}_ns"), cause
            spans = [(start, end) for start, end, _, _, kind in own if kind in ("forward", "backward")]
            inside = sum(max(0, min(end, extent[1][0]) - max(start, extent[0][0])) for start, end in spans)
            assert inside == row.compute_ns
            assert (row.start_ns, row.start_ns + row.span_ns, 0, f"step {row.step}", "step") in own


@pytest.mark.parametrize("name", NAMES)
def test_slices_of_a_track_never_overlap_and_those_within_tile_nothing_twice(name):
    found, trace = of_sample(name)
    for rows in slices_of_sample(name).values():
        for depth in range(3):
            of_depth = sorted(row[:2] for row in rows if row[2] == depth)
            assert all(after[0] >= before[1] for before, after in pairwise(of_depth))
    marks = sum(len(lane.collectives.start_ns) for lane in found)
    named, lanes_named = tracks(trace), {str(one) for lane in found for one in lane.collectives.lanes}
    kernels = [
        row
        for uuid, rows in slices_of_sample(name).items()
        if re.sub(r" \(\d+\)$", "", named[uuid][1]) in lanes_named
        for row in rows
        if not row[2]
    ]
    assert len(kernels) == marks  # none is dropped


def test_idle_time_says_where_the_host_was_and_whether_instants_are_known():
    said = {}
    for run in (summarized(DDP4), summarized(DDP4).of_full_windows()):
        document = report(run)
        trace = exported(lanes(run, document)[:1], document)
        facts = [
            {each.name: each.string_value for each in packet.track_event.debug_annotations}
            for packet in trace.packet
            if packet.track_event.categories and packet.track_event.categories[0] == "idle_operator"
        ]
        assert all(fact["host_in"] for fact in facts)
        assert {fact["phase"] for fact in facts} >= {"forward", "backward", "optimizer"}
        said[document.run.times_from] = {fact.get("divided", "")[:13] for fact in facts}
    assert said == {"light": {"in proportion"}, "full": {""}}


@pytest.mark.parametrize("name", NAMES)
def test_arrows_join_the_members_of_a_collective(name):
    _, trace = of_sample(name)
    ends = defaultdict(list)
    for packet in trace.packet:
        for number in packet.track_event.flow_ids:
            ends[number].append((packet.timestamp, packet.track_event.name, packet.track_event.track_uuid))
    several = [row for row in reported(SAMPLES / name).collectives if len(row.members) > 1]
    assert len(ends) == sum(len(row.members) - 1 for row in several)
    senders = Counter()
    for pair in ends.values():
        (first, second) = sorted(pair)
        assert first[0] < second[0]
        assert first[2] != second[2]
        assert (first[1], second[1]) in {
            ("last to arrive", "all are there"),
            ("left before all came", "last to arrive"),
        }
        senders[next(each for each in pair if each[1] == "last to arrive")] += 1
    assert len(senders) == len(several)
    last = Counter(max(member.start_ns for member in row.members) for row in several)
    assert Counter(at for at, _, _ in senders) == last


def test_counters_are_the_reports_bandwidths():
    _, trace = of_sample("resnet18-ddp4")
    values, named = defaultdict(list), tracks(trace)
    for packet in trace.packet:
        if packet.track_event.type == TrackEvent.TYPE_COUNTER:
            values[named[packet.track_event.track_uuid]].append(packet.track_event.double_counter_value)
    rows = [row for row in reported(DDP4).collectives if row.busbw_gbps is not None]
    for rank in range(4):
        group = f"rank {rank} (cuda:{rank}, {lanes(summarized(DDP4), reported(DDP4))[rank].host})"
        shown = values[group, "bus bandwidth (GB/s)"]
        assert [value for value in shown if value] == pytest.approx([row.busbw_gbps for row in rows])
        assert shown[-1] == 0
        percents = [100 * row.utilization_at_size for row in rows if row.utilization_at_size is not None]
        assert [value for value in values[group, "utilization at size (%)"] if value] == pytest.approx(percents)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_on_tracks_by_name(name):
    found, _ = of_sample(name)
    named = tracks(of_sample(name)[1])
    drawn = Counter(
        (named[uuid][0], *row[:2])
        for uuid, rows in slices_of_sample(name).items()
        if re.fullmatch(r"kernels( \(\d+\))?", named[uuid][1])
        for row in rows
    )
    said = Counter(
        (name_of(lane), start, end)
        for lane in found
        for start, end in zip(lane.kernels.start_ns.tolist(), lane.kernels.end_ns.tolist(), strict=True)
    )
    assert drawn == said


def test_kernels_say_their_operator_and_layer():
    _, trace = of_sample("resnet18-ddp4")
    (facts, *_) = (
        {each.name: each.string_value for each in packet.track_event.debug_annotations}
        for packet in trace.packet
        if "fprop" in packet.track_event.name
    )
    assert facts["operator"] == "aten::cudnn_convolution"
    assert facts["layer"] == "conv1"


def hue_and_lightness(words: str) -> tuple[int, int]:
    """What Perfetto's UI makes of a correlation id: FNV-1a as JavaScript multiplies, in doubles."""

    def hashed(text: str, most: int) -> int:
        number = 18652613
        for letter in text:
            number = int(float(16777619 * (number ^ ord(letter)))) & 0xFFFFFFFF
            number -= (number & 0x80000000) << 1
        return abs(number) % most

    return hashed(words, 360), hashed(words + "x", 40) + 40


def test_idle_time_is_the_palest_and_the_others_near_their_color():
    _, trace = of_sample("resnet18-ddp4")
    ids = {
        event.categories[0]: event.correlation_id_str
        for packet in trace.packet
        if (event := packet.track_event).correlation_id_str
    }
    looks = {category: hue_and_lightness(words) for category, words in ids.items()}
    idle = {look for category, look in looks.items() if category.startswith("idle")}
    assert idle == {(268, 76)}
    assert 240 < looks["compute"][0] < 260 and looks["compute"][1] < 50  # a dark blue
    assert 10 < looks["transfer"][0] < 30 and looks["exposed_transfer"] == looks["transfer"]  # vermilion
    assert "kernel" not in ids and "forward" not in ids  # these are colored by name


def test_what_overlaps_on_one_stream_goes_on_further_tracks():
    run = meet("aaaaa......", "aaaaa......")
    marks = lanes(run, report(run))[0].collectives
    overlapping = replace(
        marks,
        **{name: getattr(marks, name).repeat(4) for name in ("wait_ns", "exposed_ns", "stream", "index", "bucket")},
        start_ns=np.array([0, 2, 3, 5]),
        end_ns=np.array([3, 5, 6, 9]),
    )
    assert apart(overlapping, np.arange(4)) == [[0, 2], [1, 3]]


HOSTILE = ['<img src=x onerror="alert(1)">', "\x00\x1b[31m", "\ud800", "☃" * 300, "../../etc/passwd"]


def test_hostile_names_are_text():
    found = lanes(summarized(DDP4), reported(DDP4))[0]
    names = tuple(HOSTILE[k % len(HOSTILE)] for k in range(len(found.layers.names)))
    hostile = replace(found, host=HOSTILE[0], layers=replace(found.layers, names=names))
    trace = exported((hostile,), reported(DDP4))
    shown = {packet.track_event.name for packet in trace.packet}
    assert shown >= {name.replace("\ud800", "\ufffd") for name in names}
    assert f"rank 0 (cuda:0, {HOSTILE[0]})" in {packet.track_descriptor.name for packet in trace.packet}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_archive_holds_the_raw_traces_as_they_are_on_the_same_clock(tmp_path, capsys):
    output = tmp_path / "run.zip"
    assert main(["export", str(DDP4), "-o", str(output)]) == 0
    assert "full window" in capsys.readouterr().out
    with zipfile.ZipFile(output) as archive:
        names = [f"rank{rank}.json.gz" for rank in range(4)]
        assert archive.namelist() == ["lanes.pftrace", *names]
        assert all(digest(archive.read(name)) == digest((DDP4 / name).read_bytes()) for name in names)
        assert {each.extract_version for each in archive.infolist()} == {20}  # Perfetto reads no ZIP64
        trace = parsed(archive.read("lanes.pftrace"))
    drawn, named = slices(trace), tracks(trace)
    full = summarized(DDP4).in_full
    for rank, measured in enumerate(full):
        base = summarized(DDP4).ranks[rank].header.base_time_ns
        kernels = [row for uuid, rows in drawn.items() if named[uuid][0].startswith(f"rank {rank} ") for row in rows]
        starts = sorted(
            start for start, _, depth, _, kind in kernels if not depth and kind in ("all_reduce", "broadcast")
        )
        assert starts == (measured.communication.start_ns - base).tolist()


def test_each_rank_of_an_archive_is_on_its_own_traces_clock(tmp_path):
    run = meet("aaaa....bbbb....cccc", "..aa......bb......cc", since=(0, 10**6), compute=["#" * 20, "#" * 20])
    document = report(run)
    found = lanes(run, document)
    file = io.BytesIO()
    write_trace(file, groups(found, document, {lane.rank: lane.shift_ns for lane in found}))
    named = tracks(parsed(file.getvalue()))
    first = {named[uuid]: min(rows)[0] for uuid, rows in slices(parsed(file.getvalue())).items()}
    assert [first[name_of(lane), "compute"] for lane in found] == [0, 10**6]


def test_export_refuses_what_exists_and_names_that_say_nothing(tmp_path, capsys):
    output = tmp_path / "run.pftrace"
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(output)]) == 0
    written = output.read_bytes()
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(output)]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(output), "--force"]) == 0
    assert output.read_bytes() == written
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(tmp_path / "run.json")]) == 2
    assert ".pftrace" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["run.pftrace"]


@pytest.mark.parametrize(
    "words", [("export", "-o", "run.pftrace"), ("export", "-o", "run.zip"), ("view", "--perfetto", "--no-open")]
)
def test_without_perfetto_one_line_says_what_to_install_before_anything_is_read(monkeypatch, tmp_path, capsys, words):
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    monkeypatch.chdir(tmp_path)
    command, *options = words
    assert main([command, str(tmp_path / "no_such_run"), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tracer: Perfetto's traces cannot be written (import of perfetto")
    assert line.endswith(f": {install_hint('perfetto')}")


def test_an_older_protobuf_is_one_line_too(monkeypatch):
    class Older:
        def find_spec(self, name, path=None, target=None):
            if name == "perfetto.trace_builder.proto_builder":
                raise RuntimeError("Detected incompatible Protobuf versions:\nmore")

    monkeypatch.delitem(sys.modules, "perfetto.trace_builder.proto_builder", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Older(), *sys.meta_path])
    with pytest.raises(TracerError) as error:
        write_trace(io.BytesIO(), [])
    assert str(error.value).endswith(f"(Detected incompatible Protobuf versions:): {install_hint('perfetto')}")


def test_nothing_is_left_of_a_file_that_could_not_be_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tracer.views.perfetto.write_trace", lambda *_: Path("/nowhere/at/all").read_bytes())
    assert main(["export", str(SAMPLES / "resnet18-ddp1"), "-o", str(tmp_path / "run.pftrace")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_trace_is_whole_whatever_fits_into_a_piece(monkeypatch):
    whole = of_sample("resnet18-ddp4")[1]
    monkeypatch.setattr("tracer.views.perfetto.writer._PACKETS_AT_ONCE", 7)
    assert exported(of_sample("resnet18-ddp4")[0], reported(DDP4)) == whole
