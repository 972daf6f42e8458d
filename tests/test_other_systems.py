"""What reads runs works without what only POSIX has, and names files as every system takes them."""

import mimetypes
import ntpath
import os
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import memory
from analyzers.texts import file_name, typed
from tests.support import without_posix
from tests.support.commands import fails
from tests.support.samples import SAMPLES
from tracer.atomic_files import hidden_name
from tracer.errors import TracerError, refuse_windows
from tracer.reading.cache import identity
from tracer.reading.processes import Readers, _count_workers
from tracer.serving import files

ROOT = Path(__file__).resolve().parents[1]
RUN = SAMPLES / "resnet18-ddp2"
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]|[. ]$')


def outputs(folder: Path, **environment: str) -> dict[str, bytes]:
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-W", "error", "-P", "-m", without_posix.__name__, str(RUN)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TRACER_CACHE": "off"} | environment,
        check=True,
        capture_output=True,
    )
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.slow
def test_commands_that_read_say_the_same_without_what_windows_lacks(tmp_path):
    here = outputs(tmp_path / "here")
    assert here.keys() >= {*without_posix.COMMANDS, "report.html", "compare.html", "breakdown.svg"}
    assert outputs(tmp_path / "there", **{without_posix.IS_HIDDEN: "1"}) == here


@pytest.fixture
def on_windows(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.parametrize("words", [["record"], ["record", "train.py"], ["sweep"], ["calibrate"], ["doctor"]])
def test_recording_is_refused_in_a_line(capsys, on_windows, words):
    code, line = fails(capsys, *words)
    assert code == 1
    assert line.startswith(f"tracer: tracer {words[0]}: recording needs Linux")


def test_a_session_is_refused_in_a_line(on_windows):
    with pytest.raises(TracerError, match=r"tracer\.Session: recording needs Linux"):
        refuse_windows("tracer.Session")


def test_a_pool_has_no_more_processes_than_windows_waits_for(on_windows):
    assert _count_workers([RUN], 1 << 40, 1000, Readers(workers=100)) == 61


def test_words_are_quoted_for_the_systems_own_shell(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert typed("tracer", "a b", "c") == "tracer 'a b' c"
    monkeypatch.setattr(sys, "platform", "win32")
    assert typed("tracer", r"C:\my runs\a", r"C:\b") == r'tracer "C:\my runs\a" C:\b'


def test_a_file_that_windows_says_was_made_then_is_known_by_all_of_its_bytes(tmp_path, on_windows):
    """Its ctime stays where a file is written to, and its mtime can be set back."""
    file = tmp_path / "rank0.json"
    file.write_bytes(bytes(100_000))
    before = identity._of_file(file)
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(30_000)
        opened.write(b"x")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identity._of_file(file)[0][-1] != before[0][-1]


def test_memory_is_known_without_proc(tmp_path):
    """The C library says what /proc does, to a page."""
    if not Path("/proc/meminfo").exists():
        pytest.skip("no /proc to compare with")
    (known,) = memory._installed(Path("/"))
    assert [*memory._of_system()] == [pytest.approx(known, rel=0.05)]


def test_types_of_served_files_are_no_systems_own(monkeypatch):
    monkeypatch.setitem(mimetypes.types_map, ".js", "text/plain")
    assert mimetypes.guess_type("a.js")[0] == "text/plain"
    assert str(files._TYPES.guess_type("a.js")[0]).endswith("/javascript")


def is_of_windows(name: str) -> bool:
    """Whether Windows takes a name as it is: a file of its own, and no device."""
    is_device = getattr(ntpath, "isreserved", lambda name: PureWindowsPath(name).is_reserved())(name)
    return not FORBIDDEN.search(name) and PureWindowsPath(name).parts == (name,) and not is_device


@given(st.text(min_size=1) | st.sampled_from(["aux", "NUL.txt", "com1", "run.", "a:b", ".x", "lpt\xb2.a", "CON"]))
def test_a_name_made_of_a_runs_is_one_on_windows(name):
    made = file_name(name)
    assert is_of_windows(made)
    assert file_name(made) == made


@pytest.mark.parametrize("words", [("aux.py",), ("-m", "pack.nul"), ("torchrun", "a: b?.py"), ("./con",)])
def test_a_recordings_name_is_one_on_windows(words):
    script = pytest.importorskip("tracer.launching.script", exc_type=ImportError)  # it needs torch
    assert is_of_windows(script.Script(words).name)


def test_what_recordings_hold_has_names_of_windows():
    """Folders of runs are copied there."""
    held = {path.name for path in SAMPLES.rglob("*")} | {hidden_name(RUN, "0f").name}
    assert all(map(is_of_windows, held))
