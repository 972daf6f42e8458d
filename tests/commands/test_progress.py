"""How far a command is, on a terminal that can be drawn on and on others."""

import io
import time
from contextlib import redirect_stderr

import pytest

from analyzers.units import rough_time
from tracer.commands.options import progress_bar as progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_lines_on_stderr_hold_no_secret(capsys):
    progress.say("recording env HF_TOKEN=hunter2 torchrun https://me:hunter2@host --lr 1 into traces/x")
    assert capsys.readouterr().err == "recording env HF_TOKEN=*** torchrun https://***@host --lr 1 into traces/x\n"


def test_lines_on_stderr_steer_no_terminal(capsys):
    progress.say("recording \x1b[2Ja.py\x9b1m\nsecond")
    assert capsys.readouterr().err == "recording \ufffd[2Ja.py\ufffd1m\nsecond\n"


def read(terminal, seconds=0.5):
    """Read half of ten bytes, until that is shown or so much time has gone."""
    end = time.monotonic() + seconds
    with redirect_stderr(terminal), progress.reading(lambda: 5, 10):
        while time.monotonic() < end and "5/10" not in terminal.getvalue():
            time.sleep(0.05)


def train(terminal):
    with redirect_stderr(terminal), progress.progress("step") as heard:
        for done in range(3):
            heard("settling", done, 10)
        heard("round 1", 3, 10)


def test_a_terminal_has_a_bar(terminal):
    read(terminal, 20)
    assert "reading" in terminal.getvalue()
    assert "5/10 bytes" in terminal.getvalue()
    train(terminal)
    assert "round 1" in terminal.getvalue()
    assert "step 3 of 10" not in terminal.getvalue()


def work(terminal, seconds=0.5):
    """Work at something, until that is shown or so much time has gone."""
    end = time.monotonic() + seconds
    with redirect_stderr(terminal), progress.working("charges"):
        while time.monotonic() < end and "0:00:00" not in terminal.getvalue():
            time.sleep(0.05)


def test_what_is_worked_at_is_said_with_the_time_that_it_takes(terminal):
    work(terminal, 20)
    assert "charges" in terminal.getvalue()
    assert "0:00:00" in terminal.getvalue()


def test_a_terminal_has_one_bar_at_a_time(terminal):
    with redirect_stderr(terminal), progress.working("figures"):
        while "figures" not in terminal.getvalue():
            time.sleep(0.05)
        work(terminal, 20)
        before = terminal.getvalue()
        time.sleep(0.3)
        assert terminal.getvalue() == before
    assert "charges" in before


def test_what_fails_beside_a_bar_fails(terminal):
    with redirect_stderr(terminal), pytest.raises(ZeroDivisionError), progress.working("charges"):
        raise ZeroDivisionError


def test_a_dumb_one_has_a_line_for_each_phase_and_none_for_reading(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    read(terminal)
    work(terminal)
    train(terminal)
    assert terminal.getvalue() == "step 0 of 10: settling\nstep 3 of 10: round 1\n"


def recorded(terminal, *reports):
    """What is said of a script's recording, for reports of a second, a step and a total."""
    clock, said = [0.0], []
    with redirect_stderr(terminal):
        heard = progress.script_progress(said.append, lambda: clock[0])
        for clock[0], done, total in reports:
            heard("round 1", done, total)
    return said


def test_lines_of_a_script_s_recording_tell_the_time_left_now_and_then(terminal):
    seconds = [(0.5 * half, 10 + half, 142) for half in range(24)]
    assert recorded(terminal, *seconds, (70.0, 142, 142)) == [
        "recording, step 20 of 142, about 61 s left",
        "recording, step 30 of 142, about 56 s left",
        "step 142 of 142: recorded; the script goes on",
    ]


def test_a_later_recording_of_a_long_run_has_a_pace_of_its_own(terminal):
    said = recorded(terminal, (0.0, 0, 10), (6.0, 10, 10), (900.0, 1001, 1011), (906.0, 1003, 1011))
    assert said[1:] == ["recording, step 1003 of 1011, about 24 s left"]


def test_a_recording_that_stands_still_says_nothing_of_the_time_left(terminal):
    assert recorded(terminal, (0.0, 3, 10), (60.0, 3, 10)) == []


def test_a_log_has_no_lines_of_how_far_a_script_is():
    assert recorded(io.StringIO(), (0.0, 1, 10), (60.0, 5, 10), (70.0, 10, 10)) == []


def test_what_cannot_be_said_stops_nothing(terminal):
    def broken(text):
        raise BrokenPipeError

    with redirect_stderr(terminal):
        progress.script_progress(broken)("round 1", 10, 10)


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (99, "99 s"), (170, "3 min"), (9000, "2 h")])
def test_time_left_is_said_in_whole_units(seconds, words):
    assert rough_time(seconds) == words


def test_a_line_begins_behind_one_that_a_script_has_left_open(terminal, monkeypatch):
    """Spaces up to the last column: an empty line stays, one that is not is continued in the next."""
    monkeypatch.setenv("COLUMNS", "10")
    with redirect_stderr(terminal):
        progress.begin_line()
    assert terminal.getvalue() == " " * 9 + "\r"


def test_what_is_read_at_once_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    read(terminal)
    work(terminal)
    assert terminal.getvalue() == ""
