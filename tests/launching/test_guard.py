"""Launchers that are killed leave nothing running."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import killing
from tests.support.launching import environment_of_training
from tests.support.tiers import quarters
from tracer.config import Hook, Plan
from tracer.launching import guard_process
from tracer.launching.elastic import GUARD, guarded, launch_command
from tracer.launching.guard_process import end_all, marked, started_by

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show processes' environments")
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def start():
    started = []

    def run(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_all_that_was_started_is_found_and_ended_the_rest_is_left_alone(start):
    # The shell becomes its last sleep: were it to wait for a child, it could end by itself between two signals.
    shell = start("sh", "-c", "sleep 600 & env -i sleep 600 & exec sleep 600", **{GUARD: "one"})
    other = start("sleep", "600", **{GUARD: "another"})
    while len(found := marked(f"{GUARD}=one".encode())) < 3:
        time.sleep(0.01)
    assert shell.pid in found
    assert started_by(shell.pid) == found - {shell.pid}
    end_all(f"{GUARD}=one".encode(), 60)
    assert marked(f"{GUARD}=one".encode()) == set()
    assert shell.wait() == -signal.SIGTERM
    assert other.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("stopped", quarters([False, True]))
def test_what_does_not_listen_is_killed(start, stopped):
    deaf = start(sys.executable, "-S", "-c", DEAF, **{GUARD: "one"})
    deaf.stdout.readline()
    if stopped:
        deaf.send_signal(signal.SIGSTOP)
    end_all(f"{GUARD}=one".encode(), 0.3)
    assert deaf.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("released", "code"), [(True, None), (False, -signal.SIGTERM)])
def test_what_is_left_of_a_launch_goes_on_if_it_ended_well(start, released, code):
    with guarded() as guard:
        left = start("sleep", "600", **{GUARD: guard.token})
        if released:
            guard.release()
    assert left.poll() == code


def test_a_script_s_ranks_end_though_their_launcher_is_killed_before_they_run_any_of_our_code(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path)!r} + '/begun', 'w').close()\nimport time\ntime.sleep(600)\n")
    command = [sys.executable, "-m", "tracer", "record", "-o", str(tmp_path / "out"), "--ranks", "2", str(script)]
    launcher = subprocess.Popen(command, env=environment_of_training(), stderr=subprocess.DEVNULL)
    while not (tmp_path / "begun").exists():
        assert launcher.poll() is None
        time.sleep(0.02)
    ranks = {pid for pid in started_by(launcher.pid) if runs(pid, str(script))}
    assert ranks
    launcher.kill()
    launcher.wait()
    ended_by = time.monotonic() + 10
    while any(runs(pid, str(script)) for pid in ranks):
        assert time.monotonic() < ended_by
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 5), (signal.SIGTERM, 143), (signal.SIGHUP, 7)])
def test_a_command_hears_what_a_scheduler_sends_and_nothing_under_nohup(tmp_path, number, code):
    begun = tmp_path / "begun"
    wait_s = 0.5 if number == signal.SIGHUP else 60
    words = (
        "import os, signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: os._exit(5));"
        f"open({str(begun)!r}, 'w').close(); time.sleep({wait_s}); os._exit(7)"
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sender = threading.Thread(target=send_when_there, args=(begun, number))
    sender.start()
    try:
        hook = Hook(str(tmp_path), "", 0, [], Plan())
        assert launch_command([sys.executable, "-S", "-c", words], hook, print) == code
    finally:
        sender.join()
        signal.signal(signal.SIGHUP, before)


DEAF_SCRIPT = """
import pathlib, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("started_by_it", [True, False], ids=["its ranks", "a command's"])
def test_a_second_interrupt_ends_at_once_what_hears_none(tmp_path, started_by_it):
    script, begun = tmp_path / "script.py", tmp_path / "begun"
    script.write_text(DEAF_SCRIPT)
    words = ["--ranks", "2", str(script)] if started_by_it else [sys.executable, str(script)]
    command = [sys.executable, "-m", "tracer", "record", "-o", str(tmp_path / "out"), *words, str(begun)]
    launcher = subprocess.Popen(command, env=environment_of_training(), stderr=subprocess.PIPE, text=True)
    while not begun.exists():
        assert launcher.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)  # the other rank's
    launcher.send_signal(signal.SIGINT)
    assert "Ctrl-C again ends all at once" in next(line for line in launcher.stderr if "waiting" in line)
    asked = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    launcher.communicate()
    assert time.monotonic() - asked < 15
    assert launcher.returncode == 128 + (signal.SIGINT if started_by_it else signal.SIGKILL)
    assert not any(runs(int(entry.name), str(script)) for entry in Path("/proc").iterdir() if entry.name.isdigit())


@pytest.mark.slow
def test_our_own_ranks_that_do_not_end_are_killed_before_torchrun_would(tmp_path):
    process, mark = killing.start("workload", tmp_path / "out")
    while len(ranks := {pid for pid in marked(mark) if runs(pid, "tracer.workload")}) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 128 + signal.SIGINT
    assert time.monotonic() - asked < 20
    assert not marked(mark)


def send_when_there(file: Path, number: int) -> None:
    while not file.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), number)


def runs(pid: int, script: str) -> bool:
    try:
        return script.encode() in Path(guard_process.PROC, str(pid), "cmdline").read_bytes()
    except OSError:
        return False
