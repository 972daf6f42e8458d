"""FIFOs, sockets and devices where a run's files are looked for: refused at once, each for itself."""

import gc
import gzip
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import analyzers
from analyzers.errors import AnalysisError, UnreadableCalibration, UnreadableDocument, UnreadableTrace
from analyzers.notices import Code
from analyzers.run import read_calibration, read_sweep
from tests.support.kineto_files import small_trace, write_run
from tracer.cli import main

ROOT = Path(__file__).resolve().parents[2]
# FIFOs, each with what answers its readers: they get nothing, instead of waiting, and then say something else of it.
ANSWERED = {}


@pytest.fixture(autouse=True)
def no_waiting():
    """When a test has ended, nobody answers any more."""
    yield
    while ANSWERED:
        path, answering = ANSWERED.popitem()
        while answering.is_alive():
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            answering.join(0.01)


def fifo(path):
    def answer():
        while path in ANSWERED:
            path.open("wb").close()

    if path not in ANSWERED:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        ANSWERED[path] = threading.Thread(target=answer, daemon=True)
        ANSWERED[path].start()


def listener(path):
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def device(path):
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root makes devices")


def link(path):
    fifo(path.with_name("fifo"))
    path.unlink(missing_ok=True)
    path.symlink_to("fifo")


KINDS = {fifo: "a FIFO", listener: "a socket", device: "a device", link: "a FIFO"}


@pytest.fixture(params=KINDS)
def special(request, monkeypatch):
    """Makes a file that is none, and what it is to be called."""

    def made(path):
        monkeypatch.chdir(path.parent)  # a socket's name has 100 characters at most
        request.param(path if request.param is not listener else path.relative_to(path.parent))
        return path

    return made, KINDS[request.param]


def test_one_among_the_ranks_costs_itself(tmp_path, special):
    make, kind = special
    make(write_run(tmp_path / "run", [0, 1], 2) / "rank1.json")
    run = analyzers.load(tmp_path / "run")
    assert [trace.rank for trace in run.ranks] == [0]
    (left_out,) = [str(each) for each in run.warnings if each.code == Code.RANK_UNREADABLE]
    assert left_out == f"left out: {tmp_path / 'run' / 'rank1.json'}: cannot be read (is {kind}, not a regular file)"


def test_by_its_name_a_socket_or_device_is_refused_with_a_line(tmp_path, special, capsys):
    make, kind = special
    file = make(tmp_path / "rank0.json")
    if kind == "a FIFO":
        return  # whose name the user gave: it is read, below
    with pytest.raises(UnreadableTrace, match=f"is {kind}, not a regular file"):
        analyzers.load(file)
    assert main(["report", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@contextmanager
def written(file, data):
    """A FIFO that somebody writes into once, as a shell's `<(zcat trace)`."""
    os.mkfifo(file)

    def write():
        with suppress(BrokenPipeError), file.open("wb") as end:
            end.write(data)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield file
    gc.collect()  # what an error's traceback holds open
    writer.join()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_fifo_is_read_where_the_user_names_it(tmp_path, capsys, pack):
    file = tmp_path / "rank0.json"
    file.write_text(json.dumps(small_trace(rank=0)))
    assert main(["report", str(file), "--json", "--no-cache"]) == 0
    expected = capsys.readouterr().out
    text = file.read_bytes()
    file.unlink()
    with written(file, pack(text)):
        assert main(["report", str(file), "--json"]) == 0
    assert capsys.readouterr().out == expected


def test_a_shells_pipes_are_the_ranks_of_one_run(tmp_path):
    """`/dev/fd/N` is seen in this process alone, which therefore reads them all."""
    folder = write_run(tmp_path / "run", [0, 1], 2)
    command = f"{sys.executable} -m tracer report <(cat rank0.json) <(cat rank1.json) --json --workers 2"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=-1)
    assert done.returncode == 0
    assert json.loads(done.stdout)["run"]["ranks"] == [0, 1]


def test_memory_bounds_what_is_read_of_a_fifo(tmp_path, capsys):
    trace = small_trace(rank=0)
    trace["traceEvents"] *= 2000
    with written(tmp_path / "fifo", json.dumps(trace).encode()) as file:
        assert main(["report", str(file), "--memory", "1MB"]) == 1
    assert "--memory" in capsys.readouterr().err


def test_links_may_come_from_a_fifo_that_the_user_names(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [0, 1], 2)
    row = b'{"collective": "all_reduce", "group_size": 2, "bytes": 8, "time_ns": 9}'
    with written(tmp_path / "fifo", b'{"schema": "tracer.calibration/1", "rows": [%s]}' % row) as file:
        assert main(["report", str(folder), "--links", str(file)]) == 0
    assert capsys.readouterr().err == ""


def test_a_document_larger_than_any_is_not_taken_into_memory(tmp_path):
    (tmp_path / "links.json").touch()
    os.truncate(tmp_path / "links.json", 1 << 40)
    with pytest.raises(UnreadableCalibration, match="is larger than 1,000 MB, the most that is read of it"):
        read_calibration(tmp_path / "links.json")


def test_as_manifest_and_calibration_of_a_run_it_is_said(tmp_path, special):
    make, kind = special
    folder = write_run(tmp_path / "run", [0, 1], 2)
    for name in ("run.json", "links.json"):
        make(folder / name)
    run = analyzers.load(folder)
    assert [trace.rank for trace in run.ranks] == [0, 1]
    said = {each.code: str(each) for each in run.warnings}
    assert f"is {kind}, not a regular file" in said[Code.RUN_JSON_UNREADABLE]
    assert f"is {kind}, not a regular file" in said[Code.CALIBRATION_UNREADABLE]


@pytest.mark.parametrize(
    ("read", "name", "error"),
    [(read_calibration, "links.json", UnreadableCalibration), (read_sweep, "sweep.json", UnreadableDocument)],
)
def test_as_another_document_it_is_refused(tmp_path, special, read, name, error):
    make, kind = special
    file = make(tmp_path / name)
    with pytest.raises(error, match=f"is {kind}, not a regular file"):
        read(file.parent if read is read_sweep else file)


def test_torchs_validator_is_not_shown_it(tmp_path, capsys):
    pytest.importorskip("torch")
    folder = write_run(tmp_path / "run", [0, 1], 2)
    fifo(folder / "rank1.json")
    assert main(["report", str(folder), "--validate", "--notes"]) == 0
    assert "rank1.json: cannot be read (is a FIFO" in capsys.readouterr().out


def test_a_folder_is_still_called_a_folder(tmp_path):
    (write_run(tmp_path / "run", [0], 1) / "rank1.json").mkdir()
    (left_out,) = [str(each) for each in analyzers.load(tmp_path / "run").warnings if "rank1" in str(each)]
    assert "a folder, not a trace file" in left_out
    with pytest.raises(AnalysisError):
        read_calibration(tmp_path)


@pytest.mark.parametrize("window", ["light", "nosync"])
def test_a_window_that_is_a_link_to_itself_is_none(tmp_path, window):
    folder = write_run(tmp_path / "run", [0, 1], 2)
    (folder / "run.json").write_text('{"schema": "tracer.run/1"}')
    (folder / window).symlink_to(window)
    assert [trace.rank for trace in analyzers.load(folder).ranks] == [0, 1]
