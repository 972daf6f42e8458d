"""Reading: every layout, at any size, from any damage, over processes."""

import contextlib
import gzip
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import analyzers
from analyzers.errors import UnreadableTrace
from analyzers.rank.columns.time_breakdown import breakdown
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import to_json
from analyzers.trace.decoding import decompress as inflate
from analyzers.trace.kernel_names import Category
from analyzers.trace.reader import ANALYZED, read_trace
from tests.support.drawing import draw
from tests.support.generator import LAYOUTS, Run, document, kineto, write_run
from tests.support.tiers import quarters
from tracer.reading import processes as workers
from tracer.reading.processes import start_method

ROOT = Path(__file__).resolve().parents[2]
RUN = Run(ranks=3, steps=4, compute="aabb..c.", comm=".xx.yy..", copy="......zz", skew_us=5)


def truth(run: Run) -> list[tuple[int, ...]]:
    """Span, compute, exposed communication and idle of every window, from the drawing alone."""
    steps = "".join(str(step) * run.length for step in range(run.steps))
    lanes = {lane: getattr(run, lane) * run.steps for lane in ("compute", "comm", "copy")}
    found = breakdown(draw(step=steps, **lanes))
    return list(zip(*(1000 * values for values in measures(found)), strict=True))


def measures(found):
    return found.span_ns, found.compute_ns, found.exposed_comm_ns, found.idle_ns


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_layout_gives_the_truth(tmp_path, layout, zipped):
    run = analyzers.load(write_run(tmp_path, RUN, layout, zipped))
    for trace in run.ranks:
        assert list(zip(*measures(breakdown(trace)), strict=True)) == truth(RUN)


def test_a_summary_says_what_the_rows_say(tmp_path):
    folder = write_run(tmp_path / "run", RUN)
    with ThreadPoolExecutor(2) as executor:
        assert to_json(report(summarize(folder, executor, causes=True))) == to_json(report(analyzers.load(folder)))
    (rank, *_) = summarize(folder, causes=True).ranks
    assert rank.timed.communication.dur_ns.tolist() == [2000, 2000] * RUN.steps
    exposed = rank.timed.exposed[0]
    assert exposed.length_ns() == sum(row[2] for row in truth(RUN))


def test_rows_that_are_not_asked_for_are_not_kept(tmp_path):
    trace = document(RUN, 0)
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 5}
    python = {"ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    trace["traceEvents"] += [flow, python]
    path = tmp_path / "a.json"
    path.write_text(kineto(trace))
    plain = read_trace(path).events
    assert not {Category.PYTHON, Category.FLOW} & set(plain.category.tolist())
    assert len(read_trace(path, Category).events) == len(plain) + 2
    kernels = read_trace(path, [Category.KERNEL]).events
    assert set(kernels.category.tolist()) == {Category.KERNEL}
    assert set(ANALYZED) < set(Category)


def whole(tmp_path: Path) -> tuple[bytes, int]:
    data = kineto(document(RUN, 0)).encode()
    path = tmp_path / "whole.json"
    path.write_bytes(data)
    return data, len(read_trace(path).events)


HARMLESS = {
    "concatenated members": lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:]),
    "zeros between and behind members": lambda data: (
        gzip.compress(data[:9]) + bytes(99) + gzip.compress(data[9:]) + bytes(9)
    ),
    "a byte-order mark": lambda data: b"\xef\xbb\xbf" + data,
    "white space around": lambda data: b" \n\t" * 9999 + data + b" \n" * 9999,
    "duplicate keys": lambda data: data.replace(b'"ph": "X", ', b'"ph": "M", "ph": "X", ', 3),
    "numbers beyond 64 bits": lambda data: data.replace(b'"stream": 7', b'"stream": 7, "bytes": ' + b"9" * 40),
}


@pytest.mark.parametrize("damage", HARMLESS)
def test_what_costs_nothing(tmp_path, damage):
    data, rows = whole(tmp_path)
    path = tmp_path / "rank0.json"
    path.write_bytes(HARMLESS[damage](data))
    trace = read_trace(path)
    assert (len(trace.events), trace.lost) == (rows, ())


# What is no JSON, though nothing of it is lost; and whether it is certain that nothing is.
GUESSED = {
    "control characters": (lambda data: data.replace(b"gemm", b"ge\x01mm\t"), "control characters in texts"),
    "bytes that are no UTF-8": (lambda data: data.replace(b"gemm", b"ge\xff\xfemm"), "bytes that are no UTF-8"),
    "bytes in an argument": (
        lambda data: data.replace(b'"stream": 7', b'"stream": 7, "x": "\xff"', 1),
        "bytes that are no UTF-8",
    ),
    "a number of C++": (lambda data: data.replace(b'"stream": 7', b'"stream": 7, "x": -inf', 1), "written inf or nan"),
    "numbers of Python": (
        lambda data: data.replace(b'"stream": 7', b'"stream": 7, "x": [Infinity, NaN]'),
        "written inf or nan",
    ),
    "bytes in the header": (lambda data: data.replace(b"nccl", b"nc\xffl", 1), "bytes that are no UTF-8"),
    "characters behind the events": (lambda data: data.replace(b"rank0.j", b"rank0\n.j", 1), "control characters"),
    "a quote in a name": (lambda data: data.replace(b"void gemm<a>", b'void "gemm"<"a">'), "not escaped"),
    "a backslash in a name": (lambda data: data.replace(b"void gemm<a>", b"void \\gemm\\<a>"), "not escaped"),
    "a comma too many before the events": (lambda data: data.replace(b'"traceEvents"', b', "traceEvents"'), "one too"),
    "no comma before the events": (lambda data: data.replace(b'00,\n  "traceEvents"', b'00 "traceEvents"'), "a comma"),
    "a comma too many behind them": (lambda data: data.replace(b',\n  "traceName"', b',, "traceName"'), "one too many"),
    "no comma behind them": (lambda data: data.replace(b',\n  "traceName"', b' "traceName"'), "a comma is missing"),
    "a comma before the first event": (
        lambda data: data.replace(b'"traceEvents": [', b'"traceEvents": [,'),
        "1 places",
    ),
    "two commas": (lambda data: data.replace(b"  },\n  {", b"  },,\n  {", 1), "1 places"),
    "no comma": (lambda data: data.replace(b"  },\n  {", b"  }\n  {", 1), "1 places"),
    "a comma behind the last event": (lambda data: data.replace(b"}\n  ],", b"},\n  ],"), "1 places"),
    "zeros behind it": (lambda data: data + bytes(9), "text behind the document"),
    "a mark behind a space": (lambda data: b" \xef\xbb\xbf" + data, "1 places"),
    "two marks": (lambda data: b"\xef\xbb\xbf" * 2 + data, "1 places"),
    "a space that JSON has not": (lambda data: data.replace(b'"traceEvents": [', b'"traceEvents"\x0b: ['), "1 places"),
}


@pytest.mark.parametrize("guess", GUESSED)
@pytest.mark.parametrize("block", [50, 1 << 19])
def test_what_is_no_json_is_said_where_nothing_is_lost(tmp_path, monkeypatch, guess, block):
    data, rows = whole(tmp_path)
    monkeypatch.setattr(inflate, "BLOCK", block)
    monkeypatch.setattr(inflate, "_COMPRESSED_BLOCK", block)
    damage, said = GUESSED[guess]
    damaged = damage(data)
    assert damaged != data
    path = tmp_path / "rank0.json"
    path.write_bytes(damaged)
    trace = read_trace(path)
    assert len(trace.events) == rows
    (notice,) = trace.lost
    assert said in notice.text


COSTLY = {
    "a truncated gzip": (lambda data: gzip.compress(data)[:-40], "the end of the gzip stream"),
    "a cut in an event": (lambda data: data[:-700], "which ends early"),
    "text behind it": (lambda data: data + b"\n# recorded by hand", "18 bytes of text behind the document"),
    "another document behind it": (lambda data: data + data, "text behind the document"),
    "bytes behind the gzip stream": (lambda data: gzip.compress(data) + b"junk", "bytes behind the gzip stream"),
    "events that are no objects": (
        lambda data: data.replace(b"[\n  {", b'[\n  3, null, "x",\n  {', 1), "3 events that make no sense"
    ),
    "an event in ruins": (lambda data: data.replace(b'"ph": "X"', b'"ph" "X"', 1), "1 events that make no sense"),
    "a time that is none": (lambda data: re.sub(rb'"ts": \d+', b'"ts": NaN', data, count=1), "1 events without a time"),
    "a header in ruins": (lambda data: data.replace(b'"schemaVersion": 1', b'"schemaVersion" 1'), "the header"),
}  # fmt: skip


@pytest.mark.parametrize("damage", COSTLY)
def test_what_costs_something_is_said_and_the_rest_is_kept(tmp_path, damage):
    data, rows = whole(tmp_path)
    damaged, said = COSTLY[damage]
    path = tmp_path / "rank0.json"
    path.write_bytes(damaged(data))
    trace = read_trace(path)
    assert said in str(trace.lost[0])
    assert "\n" not in str(trace.lost[0])
    assert rows - 8 <= len(trace.events) <= rows


def event(name: str, ts: int = 1, more: str = "") -> str:
    return f'{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":1{more}}}'


INNER = ",".join(f'{{"a":{n}}}' for n in range(20))
# Documents with one fault each: the names that are still read, and a word of what is said.
FAULTS = {
    "an absurd exponent": (
        "[" + event("a", more=',"args":{"x":1e99999999999999999999,"y":NaN}') + "]",
        "a",
        "inf or nan",
    ),
    "a missing comma": ("[" + event("a") + event("b") + "," + event("c") + "]", "abc", "1 places"),
    "a comma too many": ("[" + event("a") + "," + event("b") + ",]", "ab", "1 places"),
    "a bracket for a comma": ("[" + event("a") + "]" + event("b") + "," + event("c") + "]", "abc", "1 events"),
    "an end amidst": ("[" + event("a") + "]}," + event("b") + "," + event("c") + "]", "abc", "1 events"),
    "an end amidst an object": (
        '{"traceEvents":[' + event("a") + "\n ] } ,\n" + event("b") + "," + event("c") + '],"z":1}',
        "abc",
        "1 events",
    ),
    "a brace too many": ("[" + event("a") + "}," + event("b") + "]", "ab", "1 events"),
    "a damaged event before one with many objects": (
        "[" + event('a"b') + "," + event("big", more=f',"args":{{"l":[{INNER}]}}') + "," + event("c") + "]",
        ['a"b', "big", "c"],
        "1 places",
    ),
    "a name that never ends": (
        "[" + event("a") + ',\n{"ph":"X","cat":"cpu_op","name":"aten::ad\n},\n' + event("b") + "]",
        "ab",
        "1 events",
    ),
    "a repaired name keeps its escapes": ("[" + event('a\\n"b\\"c') + "]", ['a\n"b"c'], "1 places"),
    "JSON as a name": (
        "[" + event('{"id": "3", "name": "y"}') + "," + event("b") + "]",
        ['{"id": "3", "name": "y"}', "b"],
        "not escaped",
    ),
    "a path that ends in a backslash": (
        "[" + event("a", more=',"args":{"path":"C:\\dir\\","x":1}') + "," + event("b") + "]",
        "ab",
        "not escaped",
    ),
    "a list amidst an event": (
        "[" + event("a", more='}, [], ,"args":{"x":1}') + "," + event("b") + "]",
        "ab",
        "1 events",
    ),
    "a list that ends amidst": (
        '{"traceEvents":[' + event("a") + '],"x":[{"y":1},' + event("b") + "," + event("c") + "]}",
        "abc",
        "1 places",
    ),
    "a function of Python in ruins": (
        "[" + event("a") + ',{"ph":"X","cat":"python_function","name":"f" "pid" 1},' + event("b") + "]",
        "ab",
        "1 damaged rows are not read",
    ),
    "no duration": ("[" + event("a").replace('"dur":1', '"dur":null') + "]", "a", "no duration"),
    "a ruined header": (
        '{"x":1,"y":[{"z":"x"},"baseTimeNanoseconds":5,"traceEvents":[' + event("a") + "," + event("b") + '],"z":1}',
        "ab",
        "the header before the events (but for baseTimeNanoseconds)",
    ),
    "two lists": ('{"traceEvents":[' + event("a") + '],"traceEvents":[' + event("b") + "]}", "a", "a second list"),
    "no end of the list": ('{"traceEvents":[' + event("a") + "," + event("b") + ', "z": 1}', "ab", "ends early"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("block", [7, 100, 1 << 19])
def test_one_fault_costs_nothing_else(tmp_path, monkeypatch, fault, block):
    text, names, said = FAULTS[fault]
    monkeypatch.setattr(inflate, "BLOCK", block)
    monkeypatch.setattr(inflate, "_COMPRESSED_BLOCK", block)
    path = tmp_path / "rank0.json"
    path.write_text(text)
    trace = read_trace(path)
    assert [trace.events.names[code] for code in trace.events.name] == list(names)
    assert said in "".join(map(str, trace.lost))
    assert bool(said) == bool(trace.lost)


WHOLE_END = '],"displayTimeUnit":"ms"}'
AMIDST = ',[],"x":{"y":1}},'
OPEN_ENDED = {
    "text behind the document": (event("a") + ']}]{"z":1}' + WHOLE_END, "bytes of text behind the document"),
    "a list for an event": (event("a") + AMIDST + WHOLE_END, "the file ends whole, but is damaged"),
    "a cut": (event("a") + AMIDST + event("b"), "ends early (cut short"),
}


@pytest.mark.parametrize("damage", OPEN_ENDED)
def test_a_loss_of_all_that_follows_is_measured_and_not_made_small(tmp_path, damage):
    text, said = OPEN_ENDED[damage]
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents":[' + text)
    (notice,) = read_trace(path).lost
    assert said in notice.text
    assert re.search(r"\d bytes", notice.text)
    assert "all else is kept" not in notice.text
    assert ("ends early" in notice.text) == (damage == "a cut")


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """A large document, and how many events it has."""
    path = tmp_path_factory.mktemp("whole") / "rank0.json"
    path.write_text(kineto(document(Run(steps=400, compute="aabb..c.", comm=".xx.yy.."), 0)))
    return path.read_bytes(), len(read_trace(path).events)


@pytest.mark.parametrize("seed", quarters(range(40)))
def test_damage_in_a_large_file_costs_only_what_it_touches(tmp_path, large_file, seed):
    chance = random.Random(seed)
    data, whole = large_file
    at, size = chance.randrange(400, len(data) - 400), chance.choice([1, 1, 3, 40, 300])
    damaged = data[:at] + chance.choice([b"", b'"', b"]", b"}", b"\\", b"{", b"\xff"]) + data[at + size :]
    path = tmp_path / "rank0.json"
    path.write_bytes(damaged)
    trace = read_trace(path)
    assert whole - 4 <= len(trace.events) <= whole
    # What is cut out between two events can leave one that is valid, and json would not notice either.
    assert trace.lost or len(trace.events) >= whole - 2


@pytest.mark.slow
def test_damage_everywhere_takes_linear_time(tmp_path):
    path = tmp_path / "rank0.json"
    for text in (
        '{"name":"x' * 100_000,
        (event("a") + ",").replace('"cat":', '"cat"') * 10_000,
        '},{"' * 200_000,
        (event("a") + ",") * 100 + '{"ph":"X","name":",' * 200_000,
    ):
        path.write_text("[" + text)
        began = time.monotonic()
        with contextlib.suppress(UnreadableTrace):
            read_trace(path)
        assert time.monotonic() - began < 20


def test_every_cut_of_a_gzip_gives_a_prefix(tmp_path):
    data, rows = whole(tmp_path)
    packed = gzip.compress(data)
    path = tmp_path / "rank0.json.gz"
    counts = []
    for cut in range(30, len(packed), 41):
        path.write_bytes(packed[:cut])
        try:
            counts.append(len(read_trace(path).events))
        except UnreadableTrace:
            counts.append(0)
    assert counts == sorted(counts)
    assert counts[-1] >= rows - 8


def test_a_gzip_that_contradicts_its_checksum_is_refused(tmp_path):
    packed = bytearray(gzip.compress(whole(tmp_path)[0]))
    path = tmp_path / "rank0.json.gz"
    for place in (-6, len(packed) // 2):
        path.write_bytes(bytes(packed[:place]) + bytes([packed[place] ^ 1]) + bytes(packed[place:][1:]))
        with pytest.raises(UnreadableTrace, match="nothing in it can be trusted"):
            read_trace(path)


def test_a_million_names_and_a_deep_nest(tmp_path):
    path = tmp_path / "rank0.json"
    rows = (f'{{"ph":"X","cat":"cpu_op","name":"op{n}","ts":{n},"dur":1}}' for n in range(100_000))
    path.write_text("[" + ",".join(rows) + "]")
    assert len(read_trace(path).events.names) == 100_000
    path.write_text('[{"ph":"X","cat":"cpu_op","name":"x","ts":1,"dur":1,"args":' + "[" * 99_999 + "]" * 99_999 + "}]")
    assert len(read_trace(path).events) <= 1


@pytest.mark.parametrize("filling", quarters([b" ", b'{"traceEvents": ["', b"{", b"[" + b" ", b'[{"a": "']))
def test_a_small_gzip_that_inflates_to_much_takes_little_memory(tmp_path, filling):
    path = tmp_path / "rank0.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(filling)
        for _ in range(300):
            file.write(b" " * 1_000_000)
    tracemalloc.start()
    with contextlib.suppress(UnreadableTrace):
        assert len(read_trace(path).events) == 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250e6


def test_a_folder_named_like_a_trace_is_said(tmp_path):
    write_run(tmp_path, RUN)
    (tmp_path / "rank9.json.gz").mkdir()
    run = analyzers.load(tmp_path)
    assert any("rank9.json.gz: a folder, not a trace file" in str(warning) for warning in run.warnings)


@pytest.fixture(scope="module")
def large_run(tmp_path_factory):
    """Big enough for processes."""
    run = write_run(tmp_path_factory.mktemp("large"), Run(ranks=2, steps=2200, compute="aabb..c.", comm=".xx.yy.."))
    assert sum(file.stat().st_size for file in run.iterdir()) > workers.SMALL_RUN
    return run


@pytest.fixture(scope="module")
def told(large_run):
    """What one process says of it."""
    return to_json(report(analyzers.load(large_run)))


@pytest.fixture(scope="module")
def larger_run(large_run, tmp_path_factory):
    """The same events four times: two processes read it for a while."""
    folder = tmp_path_factory.mktemp("larger")
    for file in large_run.iterdir():
        head, events, tail = re.split(r"(?<=\[\n)|(?=\n  \])", file.read_text(), maxsplit=2)
        (folder / file.name).write_text(head + ",\n".join([events] * 4) + tail)
    return folder


@pytest.mark.slow
def test_processes_say_what_one_process_says(large_run, told):
    command = [sys.executable, "-m", "tracer", "report", str(large_run), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == told + "\n"


def test_an_interrupt_ends_all_processes_at_once(larger_run):
    # Begun in a shell's background, or by nohup, the tests ignore SIGINT, and so would what they start.
    code = (
        "import signal, sys, tracer.cli;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"sys.exit(tracer.cli.main(['report', {str(larger_run)!r}]))"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
    while not children(process.pid):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == b"tracer: interrupted\n"


def children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    with suppress(FileNotFoundError):  # a thread that ended meanwhile
        return list(itertools.chain.from_iterable(task.read_text().split() for task in tasks))
    return []


@pytest.mark.parametrize(("platform", "loaded", "method"), [
    ("linux", False, "fork"), ("linux", True, "spawn"), ("darwin", False, "spawn"),
])  # fmt: skip
def test_nothing_is_forked_beside_threads(monkeypatch, platform, loaded, method):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if loaded:
        monkeypatch.setitem(sys.modules, "torch", object())
    assert start_method() == method


@pytest.mark.slow
def test_processes_may_be_spawned_too(large_run, told, monkeypatch):
    monkeypatch.setattr(workers, "start_method", lambda *_: "spawn")
    assert to_json(report(workers.read_run(large_run, causes=True))) == told


def test_a_killed_process_is_one_line(larger_run):
    command = [sys.executable, "-m", "tracer", "report", str(larger_run)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not (found := readers(process.pid)):
        assert process.poll() is None
    os.kill(int(found[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    said = "a process that read its ranks was killed (out of memory?); report fewer ranks at once"
    assert errors == f"tracer: {larger_run}: {said}\n"


def readers(pid: int) -> list[str]:
    """The processes that read ranks, once all do."""
    found = children(pid)
    return found if len(found) == 2 else []
