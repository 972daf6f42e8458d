"""A run of one large file: other processes help to read it, and what is said of it is the same."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.paths import size
from analyzers.rank import summarize
from analyzers.reporting import report, to_json
from analyzers.run import find
from tests.support.generator import Run, write_run
from tracer.reading import processes as workers
from tracer.reading.processes import Readers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Large enough for more than one piece of each process."""
    return write_run(tmp_path_factory.mktemp("run"), Run(ranks=1, steps=6000, compute="aabb..c.", comm=".xx.yy.."))


@pytest.fixture(autouse=True)
def forking(monkeypatch):
    """As in a plain script, whatever the tests before have imported."""
    monkeypatch.setattr(workers, "start_method", lambda *_: "fork")


def helping(path, count=3, by=None):
    return workers._count_helpers([path], find(path).files, by or Readers(workers=count))


def test_only_a_single_large_file_is_split(large, monkeypatch, tmp_path):
    assert helping(large) == 0
    monkeypatch.setattr(workers, "SPLIT_FROM", size(large / "rank0.json") - 1)
    assert helping(large) == 2
    assert helping(large, 1) == 0
    assert helping(write_run(tmp_path, Run(ranks=2, steps=2))) == 0
    monkeypatch.setattr(workers, "start_method", lambda *_: "spawn")
    assert helping(large) == 0


def reported_beneath(pipe, path):
    pipe.send(to_json(report(workers.read_run(path, by=Readers(workers=3)))))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_process_that_may_have_none_reads_alone(ranks, monkeypatch, tmp_path):
    """As a worker of a Pool, of a DataLoader or of Dask, which are daemons."""
    monkeypatch.setattr(workers, "SPLIT_FROM", 0)
    run = write_run(tmp_path, Run(ranks=ranks, steps=3, compute="aabb..c.", comm=".xx.yy.."))
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=reported_beneath, args=(there, run), daemon=True)
    process.start()
    there.close()
    assert here.recv() == to_json(report(summarize(run, causes=False)))
    process.join()


@pytest.mark.slow
def test_helpers_say_what_one_process_says(large, monkeypatch):
    monkeypatch.setattr(workers, "SPLIT_FROM", 0)
    bytes_read = []

    def progress(done, total):
        bytes_read.append((done, total))
        return workers.silent(done, total)

    told = to_json(report(workers.read_run(large, by=Readers(workers=3, progress=progress))))
    assert told == to_json(report(summarize(large, causes=False)))
    ((done, total),) = bytes_read
    assert done() == total == size(large / "rank0.json")


def started(path, workers=3):
    """A report whose processes help each other, however small its file."""
    # Begun in a shell's background, or by nohup, the tests ignore SIGINT, and so would what they start.
    code = (
        "import signal, sys, tracer.cli, tracer.reading.processes as processes;"
        "processes.SPLIT_FROM = 0;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"sys.exit(tracer.cli.main(['report', {str(path)!r}, '--workers', '{workers}']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(children(process.pid)) < workers - 1:
        assert process.poll() is None
    return process


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if Path(f"/proc/{pid}").exists() else ""
    return [int(child) for child in text.split()]


def test_an_interrupt_ends_helpers_at_once(large):
    process = started(large)
    helpers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == b"tracer: interrupted\n"
    assert not [pid for pid in helpers if Path(f"/proc/{pid}").exists()]


def test_a_killed_helper_is_one_line(large):
    process = started(large)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    said = "a process that read its ranks was killed (out of memory?); report fewer ranks at once"
    assert errors.decode() == f"tracer: {large}: {said}\n"


def test_helpers_end_with_what_they_help(large):
    process = started(large)
    process.kill()
    process.communicate(timeout=10)  # which helpers have open, too
