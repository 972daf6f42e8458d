"""Light windows of made device activity, written and read again."""

from types import SimpleNamespace

import numpy as np
import pytest

from analyzers.trace import Category, read_trace
from tracer.errors import TracerError
from tracer.recording.windows import CuptiUnusable, CuptiWindow, cupti_window
from tracer.recording.windows.records import DeviceRow

# Past 2^60, where no float64 has nanoseconds any more.
NOW_NS = 1_795_357_906_178_731_695


def kernel(name, start_ns, dur_ns, stream=7):
    where = {"device": 0, "context": 1, "stream": stream, "correlation": 5}
    return DeviceRow("kernel", name, NOW_NS + start_ns, NOW_NS + start_ns + dur_ns, 0, stream, where)


@pytest.fixture
def activity(monkeypatch):
    """What the GPU did; marks are 1000 ns apart. `fails` raises where it is told to."""
    made = SimpleNamespace(rows=[], marks=0, fails=None)

    class MadeActivity:
        def __init__(self):
            self.fail("init")

        def __enter__(self):
            self.fail("enter")
            return self

        def __exit__(self, *error):
            self.fail("exit")

        def now_ns(self):
            made.marks += 1
            return NOW_NS + 1000 * (made.marks - 1)

        def rows(self):
            self.fail("rows")
            return made.rows

        def fail(self, where):
            if made.fails == where:
                raise CuptiUnusable(f"no {where}")

    monkeypatch.setattr(cupti_window, "checked_activity", MadeActivity)
    return made


def recorded(folder, steps=4, warmup=2):
    with CuptiWindow(warmup) as window:
        for _ in range(steps):
            window.step()
    window.write(folder, 3)
    return window


def test_a_window_is_read_as_it_was_recorded(tmp_path, activity):
    activity.rows = [kernel("warm", -10, 5), kernel("gemm", 100, 250), kernel('a "b" <c>', 1007, 3, stream=9)]
    assert recorded(tmp_path).failure is None
    trace = read_trace(tmp_path / "rank3.json.gz")
    events = trace.events
    assert trace.lost == ()
    rows = np.flatnonzero(events.category == Category.KERNEL)
    assert [events.names[code] for code in events.name[rows]] == ["gemm", 'a "b" <c>']
    assert (events.start_ns[rows] - NOW_NS).tolist() == [100, 1007]
    assert events.dur_ns[rows].tolist() == [250, 3]
    assert events.stream[rows].tolist() == [7, 9]
    marks = np.flatnonzero(events.category == Category.ANNOTATION)
    assert [events.names[code] for code in events.name[marks]] == ["LightStep#2", "LightStep#3"]
    assert (events.start_ns[marks] - NOW_NS).tolist() == [0, 1000]


def test_a_self_check_that_cannot_be_decoded_costs_the_window_alone(tmp_path, monkeypatch):
    def fail():
        raise OSError("libstdc++.so.6: cannot open shared object file")

    monkeypatch.setattr(cupti_window, "checked_activity", fail)
    assert "libstdc++" in recorded(tmp_path).failure
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["init", "enter", "exit", "rows"])
def test_whatever_cupti_has_against_it_costs_the_window_alone(tmp_path, activity, where):
    activity.fails = where
    assert recorded(tmp_path / "light").failure == f"no {where}"
    assert not (tmp_path / "light").exists()


def test_a_window_that_was_left_early_is_not_written(tmp_path, activity):
    recorded(tmp_path / "light", steps=2)
    assert not (tmp_path / "light").exists()


def test_a_full_disk_is_said(tmp_path, activity):
    (tmp_path / "file").touch()
    with pytest.raises(TracerError, match=r"rank3\.json\.gz: cannot be written"):
        recorded(tmp_path / "file")
