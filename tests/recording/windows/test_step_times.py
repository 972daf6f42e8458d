"""Step times of the host's clock, and of made events."""

from types import SimpleNamespace

import torch

from tracer.recording.windows import StepTimes


def test_on_a_cpu_steps_are_timed_by_the_host(monkeypatch):
    instants = iter([100, 130, 190])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(instants))
    times = StepTimes(None)
    for _ in range(3):
        times.mark(0)
    assert times.steps_ns() == [30, 60]


def test_on_a_gpu_they_are_timed_by_events_on_the_current_stream(monkeypatch):
    at_ms = iter([1.0, 1.5, 4.25])

    class MadeEvent:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            assert stream == "the stream of 2"
            self.at_ms = next(at_ms)

        def elapsed_time(self, end):
            return end.at_ms - self.at_ms

    made = SimpleNamespace(Event=MadeEvent, current_stream=lambda gpu: f"the stream of {gpu}")
    monkeypatch.setattr(torch, "cuda", made)
    times = StepTimes(2)
    for _ in range(3):
        times.mark(0)
    assert times.steps_ns() == [500_000, 2_750_000]


def test_without_marks_there_are_no_steps():
    assert StepTimes(None).steps_ns() == []
