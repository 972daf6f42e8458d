"""One file decoded piece by piece, by several processes: what comes out is what one process makes of it."""

import gzip
import json
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest

from analyzers.trace import Category, Helpers, read_trace
from analyzers.trace.decoding import decompress
from tests.support.generator import LAYOUTS, Run, document
from tests.support.samples import REPORTED
from tests.support.splitting import assert_alike, reads_alike
from tests.support.tiers import quarters

LARGE = Run(steps=300, compute="aabb..c.", comm=".xx.yy..")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "rank0.json"
    path.write_text(LAYOUTS["kineto"](document(LARGE, 0)))
    return path


@pytest.mark.parametrize("run", quarters(REPORTED))
@pytest.mark.parametrize("parts", quarters([3, 2, 7]))
def test_samples_are_read_alike(run, parts):
    for file in sorted(run.glob("rank*.json.gz"))[:2]:
        data = gzip.decompress(file.read_bytes())
        reads_alike(file, len(data) // (2 * parts + 1) + 1, 2, seed=parts)


@pytest.mark.parametrize("layout", quarters([*LAYOUTS]))
@pytest.mark.parametrize("block", quarters([1500, 300, 40_000]))
def test_every_layout_is_read_alike(tmp_path, layout, block):
    path = tmp_path / "rank0.json"
    path.write_text(LAYOUTS[layout](document(LARGE, 0)))
    taken = [reads_alike(path, block, blocks, seed=blocks) for blocks in (2, 3)]
    assert all(taken)


@pytest.mark.parametrize("categories", [[Category.KERNEL], list(Category)])
def test_other_categories_are_read_alike(large, categories):
    assert reads_alike(large, 5000, 2, categories=categories)


def test_large_files_are_handed_over(large):
    assert reads_alike(large, 4000, 2) > 5


def event(name: str, ts: int, **more: object) -> dict[str, object]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 1} | more


def many(count: int, name: str = "aten::add") -> list[dict[str, object]]:
    return [event(f"{name}{index % 7}", index) for index in range(count)]


VIEWS = [event("aten::view", 5000 + n, args={"Input Dims": [[n % 5, 3]], "Input type": ["float"]}) for n in range(600)]
GLOO = event("gloo:all_reduce", 5000, args={"Input Dims": [[7]], "Input type": ["float"]})
CALL = event("c10d::allreduce_", 5000)
SAID = event("record_param_comms", 5001, args={"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float"})
LATE = {
    "nothing": [],
    "what needs more arguments": [GLOO],
    "a call with metadata": [CALL, SAID],
    "a call without metadata": [CALL],
}


@pytest.mark.parametrize("late", quarters([*LATE]))
@pytest.mark.parametrize("blocks", quarters([2, 3]))
def test_what_comes_late_decides_as_in_one_process(tmp_path, late, blocks):
    """From there on shapes are kept that are not kept before, and a process that begins behind it does not see why."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(many(500) + VIEWS + LATE[late] + VIEWS + many(300) + LATE[late] + VIEWS))
    taken = [reads_alike(path, block, blocks, seed=block) for block in (1000, 2000, 5000)]
    assert all(taken)


DAMAGED = {
    "an event in ruins": (b'"ph": "X"', b'"ph" "X"'),
    "two commas": (b"}, {", b"},, {"),
    "no comma": (b"}, {", b"} {"),
    "another space": (b"}, {", b"},  {"),
    "a number of C++": (b'"dur": 1', b'"dur": inf'),
    "bytes that are no text": (b"aten", b"at\xffn"),
    "times that no float holds": (b'"ts": ', b'"ts": 4312138907001'),
    "the boundary in a name": (b'"aten::add1"', b'"}, {}, {"'),
    "an end amidst": (b"}, {", b"}]}, {"),
    "a text that has no end": (b'"aten::add2"', b'"aten::add2'),
}


@pytest.mark.parametrize("damage", quarters(DAMAGED))
@pytest.mark.parametrize("where", quarters([0.3, 0.999, 0.01, 0.6]))
def test_damage_is_met_as_in_one_process(tmp_path, damage, where):
    data = json.dumps(many(1500)).encode()
    old, new = DAMAGED[damage]
    at = data.index(old, int(len(data) * where) - 900)
    path = tmp_path / "rank0.json"
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    for block in (700, 3000):
        assert reads_alike(path, block, 2, seed=block) or where < 0.1


@pytest.mark.parametrize("tail", [0, 1000, 90_000])
@pytest.mark.parametrize("cut", quarters([0, 1, 50, 3000]))
def test_what_follows_the_events_is_met_as_in_one_process(tmp_path, tail, cut):
    text = json.dumps({"traceEvents": many(900), "after": [{"x": 1}] * (tail // 10)})
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(text[: len(text) - cut].encode()))
    assert reads_alike(path, 1000, 2)


@pytest.mark.parametrize("behind", [b"x", b'"', json.dumps({"traceEvents": many(900)}).encode()])
@pytest.mark.parametrize("count", quarters([1500, 3500, 5500]))
def test_text_behind_the_document_is_counted_as_in_one_process(tmp_path, behind, count):
    """It begins amidst the blocks that are too few for a piece."""
    path = tmp_path / "rank0.json"
    path.write_bytes(json.dumps({"traceEvents": many(900)}).encode() + (behind * count)[:count])
    assert reads_alike(path, 1000, 8)


@pytest.mark.parametrize("memory", [100_000_000, 60_000_000, 56_500_000, 2_000_000, 500_000])
def test_memory_is_judged_as_in_one_process(tmp_path, memory):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(many(3000)))
    reads_alike(path, 2000, 2, memory=memory)


@pytest.mark.parametrize("zipped", [False, True])
def test_other_processes_read_alike(large, tmp_path, zipped, monkeypatch):
    monkeypatch.setattr(decompress, "BLOCK", 4000)
    path = tmp_path / "rank0.json"
    path.write_bytes(gzip.compress(large.read_bytes()) if zipped else large.read_bytes())
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert_alike(read_trace(path), read_trace(path, helpers=Helpers(pool, 2)))


def test_a_helper_that_is_killed_is_said(large, monkeypatch):
    monkeypatch.setattr(decompress, "BLOCK", 4000)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            read_trace(large, helpers=Helpers(pool, 1))
