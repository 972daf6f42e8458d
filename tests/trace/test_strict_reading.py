"""Of every file that gives no warning, json and the reader agree."""

import gzip
import json
from pathlib import Path

import pytest

from analyzers.notices import Code
from analyzers.trace.reader import read_trace
from tests.support.fuzzing import fuzz, made
from tests.support.kineto_files import kernel, write

SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "resnet18-ddp2" / "rank0.json.gz"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_reader_and_json_agree_or_something_is_said(tmp_path, seed):
    went, wrong = fuzz(made(), 250, seed, tmp_path)
    assert wrong == []
    # Not by refusing, or saying something of, every file.
    assert went["JSON: rows are json's"] > 10
    assert went["no JSON: said"] > 3 * went["no JSON: refused"]


def test_a_head_joined_to_another_events_tail_is_said(tmp_path):
    """Nearly a megabyte is gone between the two: what is left looks like a name with a quote in it."""
    text = gzip.decompress(SAMPLE.read_bytes())
    head = text.index(b'"cudaLaunchKernel"', len(text) // 4) + len(b'"cudaLaunchKernel"')
    tail = text.index(b'"kernel", "name": "void', head + 900_000) + len(b'"kernel", "name": "void')
    path = tmp_path / "rank0.json"
    path.write_bytes(text[:head] + text[tail:])
    trace = read_trace(path)
    assert len(trace.events) > 3000
    assert [notice.code for notice in trace.lost] == [Code.TRACE_INCOMPLETE]
    assert "1 places that are no JSON, where any number of events may be missing" in trace.lost[0].text


@pytest.mark.parametrize("odd", ["1e3", "1.5", "[1e3]", "[[1.5, 1e400]]", "NaN", "[" * 900 + "1e3" + "]" * 900])
@pytest.mark.parametrize("key", ["Input Dims", "Input type", "Concrete Inputs", "grid", "block"])
def test_decimals_where_there_are_none_cost_no_event(tmp_path, key, odd):
    events = kernel("gemm", 1, 5, 1) + kernel("relu", 8, 5, 2)
    text = json.dumps(events).replace('"correlation": 1', f'"correlation": 1, "{key}": {odd}')
    trace = read_trace(write(tmp_path / "a.json", text.replace('"dur": 1,', '"dur": inf,', 1)))
    assert len(trace.events) == 4
    assert {notice.code for notice in trace.lost} == {Code.TRACE_IS_NO_JSON, Code.EVENTS_WITHOUT_DURATION}


def test_one_grid_is_one_however_it_is_spaced(tmp_path):
    first, second = (kernel("gemm", start, 5, start)[0] for start in (1, 8))
    for event in (first, second):
        event["args"] |= {"grid": [1, 2, 3], "block": [4, 5, 6]}
    text = f"[{json.dumps(first)}, {json.dumps(second, separators=(',', ':'))}]"
    grid = read_trace(write(tmp_path / "a.json", text)).events.grid
    assert grid[0] == grid[1] >= 0
