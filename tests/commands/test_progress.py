"""How far a command is, on a terminal that can be drawn on and on others."""

import io
import time
from contextlib import redirect_stderr

import pytest

from tracer.commands.options import progress_bar as progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


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


def test_a_dumb_one_has_a_line_for_each_phase_and_none_for_reading(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    read(terminal)
    train(terminal)
    assert terminal.getvalue() == "step 0 of 10: settling\nstep 3 of 10: round 1\n"


def test_what_is_read_at_once_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", 60.0)
    read(terminal)
    assert terminal.getvalue() == ""
