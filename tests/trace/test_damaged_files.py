"""Any document, in any layout, cut into blocks anywhere, damaged anyhow.

The rows are those of json and Decimal, or what is missing is said.

`FUZZ_EXAMPLES` sets how many documents each test draws.
"""

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers import load
from analyzers.errors import UnreadableTrace
from analyzers.notices import Code, Notice
from analyzers.reporting.build import report
from analyzers.reporting.document import from_json, to_json
from analyzers.trace.decoding import decompress as inflate
from analyzers.trace.reader import read_trace
from tests.support.json_oracle import CATEGORIES, NotJson, Row, Unknown, expected, expected_row, parsed, plain, rows_of
from tests.support.kineto_files import small_trace
from tests.support.tiers import cases

EXAMPLES = cases(int(os.environ.get("FUZZ_EXAMPLES", "150")))
settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FUZZ = settings.get_profile("fuzz")

times = st.builds(
    lambda whole, ns: Decimal(whole) + Decimal(ns) / 1000,
    st.sampled_from([0, 5, 4_312_138_907_338, 4_458_676_983_543, 8_796_093_022_207, 1_682_725_898_082_228])
    | st.integers(0, 10**13),
    st.integers(0, 999),
)
small = st.integers(0, 2**40) | st.sampled_from([-1, 2**62])
args = st.fixed_dictionaries(
    {},
    optional={
        "correlation": small,
        "stream": st.integers(0, 99),
        "bytes": small,
        "device": st.integers(0, 7),
        "External id": small,
        "Input Dims": st.just([[3, 4], []]),
        "nested": st.just([{"a": {"b": [1, {"c": "}, {"}]}}, {"name": "x"}]),
        "text": st.text(max_size=9),
    },
)
names = st.text(max_size=12) | st.sampled_from(["},\n  {\n", '"traceEvents": [', "]}", "a\\", '\\"', "void f<a>(b)"])
events = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXMi"),
        "cat": st.sampled_from([*CATEGORIES, "ac2g", "other"]),
        "name": names,
        "ts": times,
    },
    optional={"dur": times, "pid": st.integers(0, 9), "tid": st.integers(0, 10**6), "args": args},
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "schemaVersion": st.just(1),
        "baseTimeNanoseconds": st.sampled_from([0, 1_790_857_026_000_000_000]),
        "distributedInfo": st.just({"rank": 3, "pg_config": [{"ranks": [0, 1]}]}),
        "note": names,
        "odd": st.just({"traceEvents": [{"ph": "X"}]}),
    },
)


def kineto(text: list[str]) -> str:
    return "\n  " + ",\n  ".join(f"{{\n    {event[1:-1]}\n  }}" for event in text) + "\n  "


LAYOUTS = {
    "compact": lambda rows: ",".join(json.dumps(row, separators=(",", ":")) for row in rows),
    "lines": lambda rows: ",\n".join(json.dumps(row) for row in rows),
    "pretty": lambda rows: json.dumps(rows, indent=4)[1:-1],
    "ascii": lambda rows: ", ".join(json.dumps(row, ensure_ascii=False) for row in rows),
    "kineto": lambda rows: kineto([json.dumps(row) for row in rows]),
}


@st.composite
def documents(draw) -> bytes:
    """The bytes of a trace file, and what it says."""
    rows = [plain(row) for row in draw(st.lists(events, max_size=12))]
    body = "[" + LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](rows) + "]"
    if draw(st.booleans()):
        before, behind = (json.dumps(draw(headers))[1:-1] for _ in range(2))
        body = "{" + ", ".join(filter(None, [before, f'"traceEvents": {body}', behind])) + "}"
    mark = "\ufeff" if draw(st.booleans()) else ""
    space = draw(st.sampled_from(["", "\n", " \n\n"]))
    return (mark + space + body + space).encode(errors="surrogatepass")


def read_rows(path: Path) -> tuple[list[Row], tuple[Notice, ...]]:
    trace = read_trace(path)
    return rows_of(trace), tuple(each for each in trace.lost if each.code != Code.EVENTS_WITHOUT_DURATION)


@pytest.fixture
def place(tmp_path, monkeypatch):
    def put(data: bytes, block: int, zipped: bool) -> Path:
        monkeypatch.setattr(inflate, "BLOCK", block)
        monkeypatch.setattr(inflate, "_COMPRESSED_BLOCK", max(block // 8, 2))
        path = tmp_path / "rank0.json"
        path.write_bytes(gzip.compress(data) if zipped else data)
        return path

    return put


blocks = st.sampled_from([3, 17, 64, 301, 1000, 1 << 19])
same_place = settings(FUZZ, suppress_health_check=[*FUZZ.suppress_health_check, HealthCheck.function_scoped_fixture])


@same_place
@given(documents(), blocks, st.booleans())
def test_whole_documents_give_the_rows_of_json(place, data, block, zipped):
    assert read_rows(place(data, block, zipped)) == (expected(parsed(data)), ())


@same_place
@given(documents(), blocks, st.booleans(), st.data())
def test_a_cut_document_gives_every_whole_event_and_says_that_it_is_cut(place, data, block, zipped, more):
    cut = more.draw(st.integers(0, max(len(data) - 1, 0)))
    whole = expected(parsed(data))
    try:
        rows, lost = read_rows(place(data[:cut], block, zipped))
    except UnreadableTrace:
        assert events_before(data, cut) == 0
        return
    base = {row[2] - other[2] for row, other in zip(whole, rows, strict=False)}
    rows = [(*row[:2], row[2] + min(base, default=0), *row[3:]) for row in rows]  # the epoch may stand behind the cut
    assert len(base) <= 1
    assert rows == whole[: len(rows)]
    assert len(rows) >= events_before(data, cut)
    assert lost or data[cut:].strip() == b""


def events_before(data: bytes, cut: int) -> int:
    """How many of the rows that are read end before a place: the longest prefix of events that closes into JSON."""
    text = data.decode("utf-8-sig", errors="replace")
    start = text.index("[", 0 if text.lstrip()[0] == "[" else find_events(text))
    decoder, at, count = json.JSONDecoder(parse_float=Decimal), start + 1, 0
    while True:
        at = len(text) - len(text[at:].lstrip(" ,\n\r\t"))
        if text[at] == "]":
            return count
        event, end = decoder.raw_decode(text, at)
        mark = 3 if data.startswith(b"\xef\xbb\xbf") else 0
        if mark + len(text[:end].encode(errors="surrogatepass")) > cut:
            return count
        count += expected_row(event, 0) is not None
        at = end


def find_events(text: str) -> int:
    """Where the top-level key of the list of events is, by parsing the keys before it."""
    decoder, at = json.JSONDecoder(), text.index("{") + 1
    while True:
        at = len(text) - len(text[at:].lstrip(" ,\n\r\t"))
        key, at = decoder.raw_decode(text, at)
        at = text.index(":", at) + 1
        at = len(text) - len(text[at:].lstrip())
        if key == "traceEvents":
            return at
        _, at = decoder.raw_decode(text, at)


@same_place
@given(documents(), blocks, st.booleans(), st.data())
def test_a_damaged_byte_is_read_as_json_reads_it_or_said(place, data, block, zipped, more):
    at = more.draw(st.integers(0, len(data) - 1))
    damaged = data[:at] + bytes([more.draw(st.integers(0, 255))]) + data[at + 1 :]
    try:
        rows, lost = read_rows(place(damaged, block, zipped))
    except UnreadableTrace:
        return
    try:
        whole = expected(parsed(damaged))
    except NotJson:
        assert lost
    except Unknown:
        return
    else:
        assert rows == whole or lost


@pytest.mark.parametrize("half", [r"\ud876", r"\udc7f", r"\udc80", r"\udfff", r"\udc80\ud876", r"\ud876\u0041"])
def test_half_of_a_surrogate_pair_is_no_character(tmp_path, half):
    event = '{"name": "a", "cat": "kernel", "ph": "X", "ts": 0.0}'
    damaged = event.replace('"a"', f'"a{half}"')
    (tmp_path / "trace.json").write_text(f'{{"traceEvents": [{damaged}, {event}]}}')
    (first, _), lost = read_rows(tmp_path / "trace.json")
    assert first[1] == re.sub("[\ud800-\udfff]", "\ufffd", json.loads(f'"a{half}"'))
    assert lost == ()


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "-nan", "NaN", "-Infinity"])
@pytest.mark.parametrize("behind", ["", ', {"broken"'])
def test_a_bandwidth_that_cpp_writes_as_no_number_costs_no_kernel(tmp_path, number, behind):
    event = f'{{"name": "a: inf, -nan", "cat": "kernel", "ph": "X", "ts": 1.5, "args": {{"b": {number}}}}}'
    (tmp_path / "trace.json").write_text(f'{{"traceEvents": [{event}, {event.replace("1.5", "2")}{behind}]}}')
    rows, lost = read_rows(tmp_path / "trace.json")
    assert [row[1] for row in rows] == ["a: inf, -nan"] * 2
    assert any(notice.code == Code.TRACE_INCOMPLETE for notice in lost) == bool(behind)
    assert behind or [str(notice) for notice in lost] == [NO_NUMBERS]


NO_NUMBERS = "trace.json: no valid JSON, but all of it was read: numbers written inf or nan"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "nan", "-inf"])
@pytest.mark.parametrize("place", ["x", "dur", "Ev Idx", "meta", "behind"])
def test_a_number_that_python_writes_as_none_is_said_wherever_it_stands(tmp_path, number, place):
    values = dict.fromkeys(("x", "dur", "Ev Idx", "meta", "behind"), "1") | {place: number}
    event = (
        f'{{"name": "NaN, Infinity", "cat": "kernel", "ph": "X", "ts": 1.5, "dur": {values["dur"]}, '
        f'"args": {{"Ev Idx": {values["Ev Idx"]}}}}}'
    )
    meta = f'{{"ph": "M", "name": "process_name", "args": {{"labels": [{values["meta"]}]}}}}'
    text = f'{{"x": [{values["x"]}], "traceEvents": [{meta}, {event}], "y": {values["behind"]}}}'
    (tmp_path / "trace.json").write_text(text)
    rows, lost = read_rows(tmp_path / "trace.json")
    assert [row[1] for row in rows] == ["NaN, Infinity"]
    assert [str(notice) for notice in lost] == [NO_NUMBERS]


HALF = "\\ud800"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"distributedInfo": {{"backend": "{HALF}", "{HALF}": 1}}, "deviceProperties": [{{"name": "{HALF}"}}], ',
        "{",
    ],
)
@pytest.mark.parametrize("odd", [f'"dtype": "{HALF}"', f'"{HALF}": 1', f'"Process Group Name": "a{HALF}b"'])
def test_a_report_can_be_written_whatever_characters_its_traces_hold(tmp_path, text, odd):
    kernel = '{"name": "ncclDevKernel_AllReduce", "cat": "kernel", "ph": "X", "ts": 1, "dur": 1, "args": {%s}}'
    said = f'"device": 0, "stream": 1, "Collective name": "allreduce", "In msg nelems": 8, "{HALF}": "{HALF}", {odd}'
    (tmp_path / "rank0.json").write_text(f'{text}"traceEvents": [{kernel % said}]}}')
    found = report(load(tmp_path))
    assert from_json(to_json(found)).windows == found.windows


@same_place
@given(st.binary(max_size=200), blocks)
def test_any_bytes_are_read_or_refused(place, data, block):
    for content in (data, b"[" + data, b'{"traceEvents": [' + data, b"\x1f\x8b" + data):
        try:
            read_rows(place(content, block, zipped=False))
        except UnreadableTrace as error:
            assert "\n" not in str(error)


def test_of_a_file_cut_anywhere_nobody_counts_no_bytes(tmp_path):
    text = json.dumps(small_trace(), indent=1).encode()
    for cut in range(len(text) // 2, len(text), 7):
        (tmp_path / "cut.json").write_bytes(text[:cut])
        said = [notice.text for notice in read_trace(tmp_path / "cut.json").lost]
        assert said
        assert not [words for words in said if re.search(r"(?<![\d,])0 bytes", words)]
