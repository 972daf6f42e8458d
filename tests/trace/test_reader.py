import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.errors import UnreadableTrace
from analyzers.notices import Code, Notice
from analyzers.trace.kernel_names import Category, Kind
from analyzers.trace.reader import read_trace
from tests.support.kineto_files import kernel, small_trace, step, write

BASE = 1_700_000_000_000_000_000


def times(path: Path) -> list[int]:
    return (read_trace(path).events.start_ns).tolist()


LAYOUTS = {
    "compact": lambda document: json.dumps(document, separators=(",", ":")),
    "pretty": lambda document: json.dumps(document, indent=4),
    "an event a line": lambda document: (
        f'{{"baseTimeNanoseconds":{document["baseTimeNanoseconds"]},"traceEvents":[\n'
        + ",\n".join(map(json.dumps, document["traceEvents"]))
        + "\n]}\n"
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_every_layout_gives_the_same_rows(tmp_path, layout, suffix):
    document = small_trace()
    events = read_trace(write(tmp_path / f"a.{suffix}", LAYOUTS[layout](document))).events
    assert events.start_ns.tolist() == [BASE + at for at in (0, 10_000, 2_000, 1_000, 12_000, 11_000)]
    assert events.kind.tolist() == [Kind.HOST, Kind.HOST, Kind.COMPUTE, Kind.HOST, Kind.COMM, Kind.HOST]


def test_a_bare_array_is_a_trace_without_a_header(tmp_path):
    trace = read_trace(write(tmp_path / "a.json", small_trace()["traceEvents"]))
    assert len(trace.events) == 6
    assert trace.events.start_ns.min() == 0
    assert trace.header.distributed == {}


# The bands in which decimal microseconds are hard on a float: above 2**42, 2**43, and since 1970.
@given(
    st.sampled_from([0, 4_398_046_511_104, 4_458_676_983_543, 8_796_093_022_208, 1_682_725_898_082_228]),
    st.integers(0, 10**9),
)
def test_microseconds_with_three_decimals_arrive_exactly(tmp_path_factory, whole, ns):
    written = Decimal(whole) + Decimal(ns) / 1000
    text = json.dumps([step(1, 0, 1)]).replace('"ts": 0', f'"ts": {written}')
    assert times(write(tmp_path_factory.mktemp("t") / "a.json", text)) == [int(written * 1000)]


def test_a_copy_between_two_devices_is_communication_of_both(tmp_path):
    args = {"fromDevice": 0, "inDevice": 0, "toDevice": 3, "correlation": 4, "stream": 7, "bytes": 8}
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0, "tid": 7, "ts": 1}
    events = read_trace(write(tmp_path / "a.json", [copy | {"dur": 2, "args": args}])).events
    assert (events.kind[0], events.device[0], events.peer[0]) == (Kind.COMM, 0, 3)
    within = args | {"toDevice": 0}
    assert read_trace(write(tmp_path / "b.json", [copy | {"dur": 2, "args": within}])).events.kind[0] == Kind.COPY


def test_waiting_is_no_activity(tmp_path):
    document = [*kernel("Event Sync", 1, 5, 1), *kernel("Stream Wait Event", 1, 5, 2)]
    document += [event | {"cat": "cuda_sync"} for event in document]
    assert not read_trace(write(tmp_path / "a.json", document)).events.on_device.any()


@pytest.mark.parametrize("since_us", [0, 1_682_725_898_082_228], ids=["", "since 1970"])
def test_synchronizations_stand_beside_the_rows(tmp_path, since_us):
    args = {"device": 1, "stream": 20, "correlation": 7, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 5}
    wait = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 1, "tid": 20, "dur": 2}
    wait["ts"] = since_us + 1
    odd = wait | {"name": "Context Sync", "args": {"stream": -1, "wait_on_stream": 2**70, "correlation": 8}}
    document = [{"ph": "M", "name": "process_name"}, wait | {"args": args}, *kernel("gemm", since_us + 1, 5, 1), odd]
    events = read_trace(write(tmp_path / "a.json", document)).events
    assert [events.names[code] for code in events.name] == ["gemm", "cudaLaunchKernel"]
    assert events.position.tolist() == [2, 3]
    syncs = events.syncs
    assert [events.names[code] for code in syncs.name] == ["Stream Wait Event", "Context Sync"]
    assert (syncs.position.tolist(), syncs.correlation.tolist(), syncs.stream.tolist()) == ([1, 4], [7, 8], [20, -1])
    assert (syncs.wait_on_stream.tolist(), syncs.wait_on_record.tolist()) == ([7, -1], [5, -1])
    assert (syncs.device.tolist(), syncs.dur_ns.tolist()) == ([1, 1], [2000] * 2)
    assert syncs.start_ns.tolist() == [since_us * 1000 + 1000] * 2


def test_samples_of_pythons_stack_stand_beside_the_rows(tmp_path):
    sample = {"ph": "i", "cat": "python_sample", "name": "load (data.py:3)", "pid": 1, "tid": 20, "ts": 9}
    early = sample | {"name": "log (train.py:7)", "ts": 5, "args": {"held_ns": 2000, "stack": ["train.py:9 log"]}}
    odd = sample | {"ts": 12, "args": {"held_ns": "long"}}
    spans = [sample | {"ph": "X", "dur": 1}, sample | {"cat": "cpu_op"}, sample | {"cat": "kernel"}]
    trace = read_trace(write(tmp_path / "a.json", [sample, early, *spans, *kernel("gemm", 1, 5, 1), odd]))
    events, samples = trace.events, trace.events.samples
    assert [events.names[code] for code in events.name] == ["gemm", "cudaLaunchKernel"]
    names = [events.names[code] for code in samples.name]
    assert names == ["log (train.py:7)", "load (data.py:3)", "load (data.py:3)"]
    assert (samples.noted_ns.tolist(), samples.since_ns.tolist()) == ([5000, 9000, 12000], [3000, 9000, 12000])
    assert samples.thread.tolist() == [20] * 3
    said = ["a.json: not read: 1 values that are not of their type; all else is kept"]
    assert ([*map(str, trace.lost)], trace.unknown) == (said, ())
    kept = read_trace(tmp_path / "a.json", categories=[Category.KERNEL]).events
    assert len(kept.samples) == 0


@pytest.mark.parametrize("size", [3, 5_000])
def test_a_row_knows_its_place_in_the_file(tmp_path, size):
    other = {"ph": "i", "cat": "cpu_op", "name": "marker", "ts": 1}
    document = [event for k in range(size) for event in (other, step(k, k, 1), *kernel("gemm", k, 1, k))]
    events = read_trace(write(tmp_path / "a.json", json.dumps(document, indent=1))).events
    assert events.position.tolist() == [at for at, event in enumerate(document) if event["ph"] == "X"]


def test_an_odd_argument_costs_no_event(tmp_path):
    document = [*kernel("gemm", 1, 5, 1), *kernel("relu", 7, 5, 2)]
    document[0]["args"]["stream"] = "0x0"
    document[2]["args"] |= {"device": None, "bytes": [1, 2], "correlation": "seven"}
    document += ["no event", {"ph": "X", "cat": "kernel", "name": "late", "ts": "never"}]
    trace = read_trace(write(tmp_path / "rank3.json", document))
    assert trace.events.start_ns[trace.events.on_device].tolist() == [1000, 7000]
    lost = "2 events that make no sense; 3 values that are not of their type; 1 streams that are no numbers"
    assert [*map(str, trace.lost)] == [f"rank3.json: not read: {lost}; all else is kept"]


@pytest.mark.parametrize("key", ["stream", "correlation", "device", "bytes", "name", "pid", "tid", "args"])
@pytest.mark.parametrize("odd", [None, 1.5, [[]]])
def test_a_value_of_another_type_costs_itself_alone_and_is_said(tmp_path, key, odd):
    document = [*kernel("gemm", 1, 5, 1), *kernel("relu", 7, 5, 2)]
    of = document[0] if key in document[0] else document[0]["args"]
    of[key] = odd
    trace = read_trace(write(tmp_path / "a.json", document))
    assert sum(len(process.events) for process in trace.processes) == 4
    said = "a.json: not read: 1 values that are not of their type; all else is kept"
    assert [*map(str, trace.lost)] == [said]


def test_a_stream_that_is_no_number_is_one_of_its_own_and_is_said(tmp_path):
    document = [*kernel("gemm", 1, 5, 1, stream="x"), *kernel("relu", 7, 5, 2, stream="7"), *kernel("add", 20, 5, 3)]
    trace = read_trace(write(tmp_path / "a.json", document))
    odd, *others = trace.events.stream[trace.events.on_device].tolist()
    assert (odd < 0, others) == (True, [7, 7])
    assert [*map(str, trace.lost)] == ["a.json: not read: 1 streams that are no numbers; all else is kept"]


def test_times_that_cannot_be_are_left_out(tmp_path):
    text = json.dumps([step(1, 5, 1), step(2, 1, 1)])
    for index, odd in enumerate(('"ts": NaN', '"ts": 1e300', '"ts": 1e9999999', '"ts": null', '"t": 5')):
        trace = read_trace(write(tmp_path / f"{index}.json", text.replace('"ts": 5', odd)))
        assert trace.events.start_ns.tolist() == [1000]
        assert "not read: 1 events" in str(trace.lost[0])


def test_a_missing_duration_is_an_empty_event_and_is_said(tmp_path):
    text = json.dumps([step(1, 5, 1), step(2, 1, 1)]).replace('"dur": 1}]', '"dur": null}]')
    trace = read_trace(write(tmp_path / "a.json", text))
    words = "1 events have no duration, and count as empty"
    assert trace.events.dur_ns.tolist() == [1000, 0]
    assert trace.lost == (Notice(Code.EVENTS_WITHOUT_DURATION, f"a.json: {words}"),)
    negative = read_trace(write(tmp_path / "b.json", text.replace("null", "-1")))
    assert negative.events.dur_ns.tolist() == [1000, 0]
    assert negative.lost == (Notice(Code.EVENTS_WITHOUT_DURATION, f"b.json: {words}"),)


def test_an_odd_header_field_costs_only_itself(tmp_path):
    document = small_trace(rank=3, world_size=4) | {"deviceProperties": None, "host_name": 5}
    trace = read_trace(write(tmp_path / "a.json", document))
    assert trace.header.distributed["rank"] == 3
    assert trace.header.base_time_ns == BASE
    words = "a.json: not read: the header's deviceProperties, host_name; all else is kept"
    assert trace.lost == (Notice(Code.TRACE_INCOMPLETE, words),)
    for base in (2**70, -1, "x"):
        trace = read_trace(write(tmp_path / "b.json", document | {"baseTimeNanoseconds": base}))
        assert trace.header.base_time_ns == 0
        assert "baseTimeNanoseconds" in str(trace.lost[0])


@pytest.mark.parametrize("key", ["correlation", "stream", "bytes", "device", "fromDevice"])
def test_numbers_beyond_64_bits_cost_no_event(tmp_path, key):
    document = kernel("gemm", 1, 5, 1)
    document[0]["args"][key] = 2**70
    document[1] |= {"pid": 2**70, "tid": -(2**80)}
    assert read_trace(write(tmp_path / "a.json", document)).events.start_ns.tolist() == [1000, 0]


def test_threads_written_as_texts_are_those_written_as_numbers(tmp_path):
    """Torch 1.8 wrote the threads of runtime calls as texts, beside streams that have names."""
    (row, launch) = kernel("gemm", 1, 5, 1)
    document = [row | {"tid": "stream 7"}, launch | {"tid": "9"}, launch | {"tid": 9}]
    threads = read_trace(write(tmp_path / "a.json", document)).events.thread.tolist()
    assert threads[1:] == [9, 9]
    assert threads[0] < 0


def test_negative_durations_are_empty(tmp_path):
    events = read_trace(write(tmp_path / "a.json", kernel("gemm", 5, -1, 1))).events
    assert np.array_equal(events.dur_ns, [0, 1000])


# A case is called by its bytes, which all workers must make alike: no time of day among them.
@pytest.mark.parametrize(
    "content", [b"", b"{", b"word", b'{"a": 1}', b"3", b"\x1f\x8b broken", gzip.compress(b"[]", mtime=0)[:9]]
)
def test_what_is_no_trace_is_one_line_that_names_the_file(tmp_path, content):
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(content)
    with pytest.raises(UnreadableTrace, match=r"rank0\.json\.gz[^\n]*$"):
        read_trace(path)


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnreadableTrace, match=str(path)):
            read_trace(path)


def test_whoever_looks_at_frames_does_not_stop_the_reading(tmp_path):
    """A profiler in another thread may keep a frame, with what its variables hold, for as long as it likes."""
    kept = []
    sys.setprofile(lambda frame, event, _: kept.append(frame) if "event_stream" in frame.f_code.co_filename else None)
    try:
        events = read_trace(write(tmp_path / "rank0.json", small_trace())).events
    finally:
        sys.setprofile(None)
    assert len(events) and kept


@pytest.mark.parametrize("phase", [None, 1, "", "no key"])
def test_an_event_without_a_phase_is_lost_and_said(tmp_path, phase):
    document = [*kernel("gemm", 1, 5, 1), *kernel("relu", 7.0005, 5, 2)]
    document[0]["ph"] = phase
    if phase == "no key":
        del document[0]["ph"]
    assert_first_is_lost(tmp_path, document)


@pytest.mark.parametrize("category", [None, -1e308, [], {"a": 1}])
def test_an_event_whose_category_is_no_text_is_lost_and_said(tmp_path, category):
    document = [*kernel("gemm", 1, 5, 1), *kernel("relu", 7.0005, 5, 2)]
    document[0]["cat"] = category
    assert_first_is_lost(tmp_path, document)


def assert_first_is_lost(tmp_path, document):
    trace = read_trace(write(tmp_path / "a.json", document))
    assert trace.events.on_device.sum() == 1
    assert [*map(str, trace.lost)] == ["a.json: not read: 1 events that make no sense; all else is kept"]
