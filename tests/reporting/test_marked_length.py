"""How long a step is marked, and what of it its windows are.

host     |ProfilerStep#1                    |         999 us
device               kkkkkkkkkkkkk                    one window of 398 us: the device's part
"""

import pytest

import analyzers
from tests.support.kineto_files import kernel, step, write
from tracer.views.sections import report_text
from tracer.views.sections.screen import first_screen_text, step_sentence, step_words

HEADER = {"schemaVersion": 1, "baseTimeNanoseconds": 0, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}


def reported(tmp_path, *events):
    file = write(tmp_path / "trace.json", HEADER | {"traceEvents": [event for each in events for event in each]})
    return analyzers.report(analyzers.summarize(file))


def test_a_window_that_is_a_part_of_its_mark_is_called_the_devices_part(tmp_path):
    report = reported(tmp_path, [step(1, 1000, 999)], kernel("gemm", 1500, 398, 1))
    headline = report.summary.headline
    assert (headline.mark_ns, headline.profiled_step_ns) == (999_000, 398_000)
    assert step_sentence(report).startswith(
        "0.999 ms per step while profiled, of which the device's part is 0.398 ms; how long"
    )
    assert report.summary.verdict.startswith(
        "A step takes 0.999 ms under the profiler, and the device's part of it 0.398 ms (medians): 100.0 % compute"
    )


def test_steps_of_which_devices_use_little_are_idle(tmp_path):
    report = reported(tmp_path, [step(1, 1000, 13_000_000)], kernel("gemm", 1500, 2, 1))
    headline = report.summary.headline
    assert headline.sentence == (
        "GPUs are idle for more than 99.9 % of the step: all that they do lies within 0.002 ms of 13,000 ms"
    )
    assert (headline.code, headline.share, headline.gain_ns) == ("idle", pytest.approx(1, abs=1e-6), None)
    why = "the profile, replayed, was 50.0 % longer than the profiled step: record more steps"
    assert (headline.trust, headline.why) == ("low", why)


def test_shares_of_the_devices_part_are_said_to_be_of_it(tmp_path):
    report = reported(tmp_path, [step(1, 1000, 1000)], kernel("gemm", 1300, 700, 1))
    assert report.summary.headline.sentence == "compute: 100 % of the device's part"
    assert step_words(report).endswith("is not known. Of the device's part:")


def test_a_trace_without_marked_steps_is_called_a_trace_throughout(tmp_path):
    report = reported(tmp_path, *(kernel("gemm", 1000 + 100 * number, 2, number) for number in range(1, 30)))
    (advice,) = [piece for piece in report.summary.advice if piece.code == "graph"]
    assert advice.because.startswith("29 launches per trace; ")
    shown = report_text(report)
    for words in ("what each change would save per trace", "The critical path of a profiled trace is"):
        assert words in shown
    assert "per step" not in first_screen_text(report)


@pytest.mark.parametrize("dur", [900, 1000, 1500])
def test_windows_of_nine_tenths_are_the_step(tmp_path, dur):
    report = reported(tmp_path, [step(1, 1000, 1000)], kernel("gemm", 1500, dur, 1))
    assert report.summary.headline.mark_ns is None
    assert report.summary.verdict.startswith("A step takes")


def test_windows_from_step_to_step_cover_their_marks_though_the_last_is_short(tmp_path):
    steps = [[step(k, 1000 * k, 999), *kernel("gemm", 1000 * k + 100, 50, k)] for k in (1, 2, 3)]
    report = reported(tmp_path, *steps)
    assert [window.typical for window in report.windows] == [True, True, False]
    assert report.summary.headline.mark_ns is None
    assert report.summary.shares["idle_ns"] == pytest.approx(0.95)
