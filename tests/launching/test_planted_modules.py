"""Modules in the current folder: none is imported by a process that tracer starts for itself.

They have the names of all that tracer imports, and leave a note when they are run.
"""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.generator import Run, write_run
from tests.support.launching import run_here
from tests.support.ports import answers, free_port
from tracer import own_python
from tracer.cli import main
from tracer.doctor.trials import KINETO, try_profiler
from tracer.own_python import safe_environment
from tracer.reading import Readers, processes, read_run

ROOT = Path(__file__).resolve().parents[2]
RUN = Run(ranks=3, steps=2, compute="aabb..", comm="..ccc.")
NOTE = "with open(__file__.rpartition('/')[0] + '/imported', 'a') as note:\n    note.write(__name__ + ' ')\n"
QUICK = ["--device", "cpu", "--ranks", "2"]
TRAINING = ["--batch", "2", "--wait", "1", "--warmup", "1", "--active", "1", "--rounds", "1", "--no-calibrate"]


def imported_anywhere() -> set[str]:
    """The first part of each module's name that ours import, wherever, and of what those need to start."""
    found = {"absl", "sitecustomize", "usercustomize", "pickle", "random", "google"}
    for file in (path for package in ("analyzers", "tracer") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """The current folder: a run with a module of every name beside it."""
    folder = write_run(tmp_path / "run", RUN)
    for name in imported_anywhere():
        (folder / f"{name}.py").write_text(NOTE)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield folder
    assert not (folder / "imported").exists(), (folder / "imported").read_text()


def test_the_modules_would_be_imported(planted):
    """What each process here would do if it were started as any other."""
    subprocess.run([sys.executable, "-c", "import msgspec"], check=True)
    assert (planted / "imported").read_text().split() == ["msgspec"]
    (planted / "imported").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("viewer", ["--html", "--tensorboard"])
def test_viewing_runs_none(planted, viewer):
    port = free_port()
    command = [sys.executable, "-P", "-m", "tracer", "view", ".", viewer, "--no-open", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as viewing:
        while not answers(port) and viewing.poll() is None:
            time.sleep(0.05)
        ended, _ = viewing.poll(), viewing.send_signal(signal.SIGINT)
        assert (ended, viewing.communicate()[1].count(b"Traceback")) == (None, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["calibrate", *QUICK, "--min", "1K", "--max", "1K", "-o", "measured.json"],
        ["record", *QUICK, *TRAINING, "-o", "recorded"],
        ["sweep", *QUICK[:2], "--ranks", "1", *TRAINING, "-o", "swept"],
    ],
    ids=lambda words: words[0],
)
def test_our_own_ranks_run_none(planted, words):
    done = run_here(*words)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_picture_is_drawn_without_the_folders_matplotlibrc(planted):
    os.mkfifo("matplotlibrc")
    command = [sys.executable, "-P", "-m", "tracer", "plot", ".", "--kind", "breakdown", "-o", "drawn.png"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_trials_of_profilers_run_none(planted):
    assert "numpy" not in str(try_profiler(KINETO).why)


@pytest.mark.slow
def test_a_notebooks_processes_run_none(planted, monkeypatch):
    """They are spawned, by a command that has the current folder first in its path."""
    monkeypatch.setattr(processes, "start_method", lambda *_: "spawn")
    assert len(read_run(".", by=Readers(workers=2)).ranks) == RUN.ranks


@pytest.mark.slow
def test_a_dask_worker_that_is_started_as_we_say_runs_none(planted, capsys):
    import distributed

    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as scheduler:
        address = scheduler.scheduler_address
        command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
        with subprocess.Popen(command, env=os.environ | safe_environment(), stderr=subprocess.DEVNULL) as worker:
            assert main(["report", ".", "--scheduler", address, "--json"]) == 0
            worker.terminate()


@pytest.mark.parametrize(("checkout", "added"), [(ROOT, [str(ROOT)]), (ROOT / "tests", [])])
def test_what_the_user_put_into_pythonpath_stays(monkeypatch, checkout, added):
    """Behind it a checkout, which may not be installed; nothing where tracer is."""
    monkeypatch.setattr(own_python, "_CHECKOUT", checkout)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "a", "", "/b c", ""]))
    assert safe_environment() == {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(["a", "/b c", *added])}


@pytest.mark.slow
def test_a_recorded_script_imports_what_python_gives_it(tmp_path, monkeypatch):
    (tmp_path / "beside.py").touch()
    (tmp_path / "train.py").write_text("import sys, beside\nsys.exit(7 if sys.flags.safe_path else 0)\n")
    monkeypatch.chdir(tmp_path)
    assert run_here("record", "--device", "cpu", "--ranks", "1", "--", "train.py").returncode == 0
