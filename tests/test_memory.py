"""Memory: what a machine has, and what reading one rank may take of it."""

import json
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analyzers
from analyzers import memory
from analyzers.errors import TooLarge
from analyzers.notices import Code
from analyzers.run.rank_trace import MOST_DEVICES
from analyzers.statistics import spreads
from analyzers.trace import arguments, kernel_names
from analyzers.trace.columns import ROW_BYTES
from analyzers.trace.reader import read_trace
from tests.support.commands import fails
from tests.support.effort import effort
from tests.support.kineto_files import kernel, small_trace, step, write
from tests.support.tiers import cases
from tracer.cli import main
from tracer.reading import processes

LEAST = '{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1}'
MB = 1_000_000
MEMINFO = {"proc/meminfo": "MemTotal:  16000000 kB\nMemFree: 1 kB\n"}
MACHINES = {
    "not told": ({}, memory.ASSUMED_BYTES),
    "bare": (MEMINFO | {"proc/self/cgroup": "0::/\n"}, 16_384_000_000),
    "v2": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": "5000\n",
            "sys/fs/cgroup/a/b/memory.max": "max",
        },
        5000,
    ),
    "v1": (
        {
            "proc/self/cgroup": "3:cpu:/x\n4:hugetlb,memory:/docker/x\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n",
        },
        7000,
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_has_the_least_of_its_limits(tmp_path, machine, monkeypatch):
    files, expected = MACHINES[machine]
    for not_of_files in ("_of_system", "_of_process"):
        monkeypatch.setattr(memory, not_of_files, lambda: ())
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory.machine_memory(tmp_path) == expected


def test_readers_share_half_of_the_machine(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 8000)
    assert [memory.budget_of(None), memory.budget_of(None, 4), memory.budget_of(9)] == [4000, 1000, 9]
    assert processes._limit_memory([], [None] * 3, processes.Readers(workers=3, memory=5)) == 5
    assert processes._limit_memory([], [], processes.Readers(scheduler="tcp://a:1")) is None


def bomb(path, rows):
    return write(path, f'{{"traceEvents": [{",".join([LEAST] * rows)}]}}')


def test_rows_end_where_the_budget_does(tmp_path):
    path = bomb(tmp_path / "rank0.json.gz", 200_000)
    assert path.stat().st_size < MB
    assert len(read_trace(path, memory=200_000 * ROW_BYTES + 20 * MB).events) == 200_000
    tracemalloc.start()
    with pytest.raises(TooLarge, match=r"rank0.json.gz \(0.03.* MB\): .*20 MB of memory.*memory=SIZE or TRACER_MEMORY"):
        read_trace(path, memory=20 * MB)
    assert tracemalloc.get_traced_memory()[1] < 20 * MB
    tracemalloc.stop()


def names(row, count):
    return [dict(row, name=f"{'x' * 5000}{index}") for index in range(count)]


def shapes(row, count):
    return [dict(row, cat="cpu_op", name="aten::mm", args={"Input Dims": [[index] * 300]}) for index in range(count)]


def groups(row, count):
    said = [{"Collective name": "allreduce", "Process Group Name": f"{'g' * 800}{index}"} for index in range(count)]
    return [dict(row, args=args) for args in said]


@pytest.mark.parametrize("rows", [names, shapes, groups])
def test_texts_count_where_they_differ(tmp_path, rows):
    path = write(tmp_path / "rank0.json.gz", rows(json.loads(LEAST), 2000))
    assert 2000 * ROW_BYTES < 5 * MB
    with pytest.raises(TooLarge):
        read_trace(path, memory=18 * MB)


def test_a_text_is_refused_before_it_is_decoded(tmp_path):
    nothing = ",".join(["[]"] * 500_000)
    odd = LEAST.replace('"dur":1', f'"dur":1,"args":{{"Collective name":"allreduce","dtype":[{nothing}]}}')
    path = write(tmp_path / "rank0.json.gz", f'{{"traceEvents": [{LEAST},{LEAST},{odd}]}}')
    with pytest.raises(TooLarge):
        read_trace(path, memory=20 * MB)


def test_one_rank_over_the_budget_costs_itself(tmp_path, capsys):
    write(tmp_path / "rank0.json", small_trace(0, 2))
    bomb(tmp_path / "rank1.json.gz", 50_000)
    run = analyzers.load(tmp_path, memory=20 * MB)
    lost = [str(warning) for warning in run.warnings if warning.code == Code.RANK_UNREADABLE]
    assert [rank.rank for rank in run.ranks] == [0]
    assert len(lost) == 1
    assert "rank1.json.gz" in lost[0]
    assert main(["report", str(tmp_path), "--memory", "20MB"]) == 0
    assert "rank1.json.gz" in capsys.readouterr().out


def test_a_command_says_it_in_a_line(tmp_path, capsys, monkeypatch):
    path = str(bomb(tmp_path / "rank0.json.gz", 50_000))
    code, line = fails(capsys, "report", path, "--memory", "20MB")
    assert (code, "more than 20 MB" in line) == (1, True)
    monkeypatch.setenv("TRACER_MEMORY", "0.02 GB")
    assert fails(capsys, "report", path) == (1, line)
    assert main(["report", path, "--memory", "4GB"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("TRACER_MEMORY", "much")
    code, line = fails(capsys, "report", path)
    assert (code, line) == (2, "tracer: TRACER_MEMORY: much: give a size such as 500MB or 4GB\n")


@pytest.mark.parametrize("size", ["0", "0MB", "-1GB", "1e9", "GB", ""])
def test_a_size_that_is_none_is_refused(tmp_path, size, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), f"--memory={size}"])
    assert ended.value.code == 2
    assert "give a size such as" in capsys.readouterr().err


def test_memory_that_runs_out_costs_its_rank(tmp_path, monkeypatch):
    write(tmp_path / "rank0.json", small_trace())
    monkeypatch.setattr("analyzers.run.rank_trace.healthy", lambda *_: np.empty(1 << 62, dtype=np.int8))
    with pytest.raises(TooLarge, match=r"rank0.json: memory ran out while it was read; read fewer ranks"):
        analyzers.load(tmp_path)


def many_devices(count):
    launched = [kernel("k", 10.0 * at + 2, 3.0, at, device=at) for at in range(count)]
    return [step(0, 0.0, 10.0 * count + 10), *(event for pair in launched for event in pair)]


def test_more_devices_than_a_machine_has_are_refused(tmp_path):
    write(tmp_path / "few" / "rank0.json", many_devices(MOST_DEVICES))
    write(tmp_path / "many" / "rank0.json", many_devices(MOST_DEVICES + 1))
    analyzers.load(tmp_path / "few")
    with pytest.raises(TooLarge, match="1,025 devices, where one process has 1,024 at most"):
        analyzers.load(tmp_path / "many")


def test_windows_count(tmp_path):
    events = [step(number, 10.0 * number, 10.0) for number in range(2000)]
    events += [event for number in range(2000) for event in kernel("k", 10.0 * number + 2, 3.0, number)]
    path = write(tmp_path / "rank0.json", events)
    assert 6000 * ROW_BYTES < 15 * MB
    assert len(read_trace(path, memory=20 * MB).events) == 6000
    with pytest.raises(TooLarge, match="2,000 windows"):
        analyzers.load(path, memory=18 * MB)
    analyzers.load(path, memory=40 * MB)


@given(st.lists(st.floats(-1e300, 1e300) | st.integers(-(2**53), 2**53).map(float), min_size=1, max_size=12))
@settings(max_examples=cases(200))
def test_quartiles_are_numpys_to_the_last_bit(values):
    spread = spreads({"a": np.array(values)})["a"]
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    assert (spread.low, spread.median, spread.high) == (low, median, high)
    assert (spread.minimum, spread.maximum) == (min(values), max(values))


def named_by_character(kernel_name):
    name, depth = [], 0
    for character in kernel_name:
        if character == "(" and not depth:
            break
        depth += character == "<"
        if not depth:
            name.append(character)
        depth -= character == ">" and depth > 0
    return "".join(name).rstrip().rpartition(" ")[2].lstrip("*&")


@given(st.text("<>(a: )*", max_size=14))
@settings(max_examples=cases(300))
def test_a_kernels_own_name_is_what_reading_by_character_finds(text):
    assert kernel_names._without_types(text) == named_by_character(text)


def test_codes_count_what_they_keep():
    codes = arguments.Codes[str]()
    few, more = (effort(partial(list, map(codes.__getitem__, map(str, range(count))))) for count in (100, 400))
    assert more < 4.5 * few
    assert codes.nbytes > 400 * 50
