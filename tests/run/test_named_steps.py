"""Steps by an annotation's name, of torch before 1.9, and the name that a trace without steps suggests."""

from __future__ import annotations

from pathlib import Path

import pytest

import analyzers
from analyzers.errors import UnusableRun
from analyzers.notices import Code
from tests.support.brute_force import windows
from tests.support.kineto_files import Event, kernel, write


def mark(name: str, ts: float, dur: float, category: str = "user_annotation", tid: int = 9) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur}


def traced(tmp_path: Path, *marks: Event) -> Path:
    """Three kernels, launched at 1, 11 and 21 us, between annotations."""
    kernels = [event for at in (2, 12, 22) for event in kernel("gemm", at, 3, correlation=at)]
    return write(tmp_path / "rank0.json", {"traceEvents": [*marks, *kernels]})


def steps(path: Path, name: str | None = None) -> list[tuple[int, int, int]]:
    found = analyzers.breakdown(analyzers.load(path, name))
    return list(zip(found.step.tolist(), found.start_ns.tolist(), found.span_ns.tolist(), strict=True))


THREE = [(0, 2000, 10_000), (1, 12_000, 10_000), (2, 22_000, 3000)]


def test_repeats_are_numbered_from_0_in_order_of_start(tmp_path):
    marks = [mark("train", at, 9) for at in (20, 0, 10)]
    assert steps(traced(tmp_path, *marks), "train") == THREE


def test_a_name_may_be_what_several_begin_with(tmp_path):
    marks = [mark(f"execute_{number}(8)", 10 * number, 9) for number in range(3)]
    assert steps(traced(tmp_path, *marks), "execute_") == THREE


def test_a_whole_name_comes_before_what_others_begin_with(tmp_path):
    marks = [mark("step", 0, 30), mark("step_inside", 5, 1), mark("step_inside", 15, 1)]
    assert [row[0] for row in steps(traced(tmp_path, *marks), "step")] == [0]


def test_repeats_within_one_another_are_one(tmp_path):
    marks = [mark("train", at, 9) for at in (0, 10, 20)] + [mark("train", 12, 2)]
    assert steps(traced(tmp_path, *marks), "train") == THREE


def test_steps_that_are_in_no_file_have_places_of_their_own(tmp_path):
    """HTA's frames have a row for each place."""
    (rank,) = analyzers.load(traced(tmp_path, *(mark("train", at, 9) for at in (0, 10, 20))), "train").ranks
    assert len({*rank.events.position.tolist()}) == len(rank.events)


def test_the_profilers_own_steps_are_none_then(tmp_path):
    marks = [mark("ProfilerStep#7", 0, 30), *(mark("train", at, 9) for at in (0, 10, 20))]
    path = traced(tmp_path, *marks)
    assert [row[0] for row in steps(path)] == [7]
    assert steps(path, "train") == THREE


def test_a_name_that_nothing_has_is_told_in_one_line_with_candidates(tmp_path):
    path = traced(tmp_path, *(mark("train", at, 9) for at in (0, 10, 20)), mark("save", 29, 1))
    with pytest.raises(UnusableRun, match=r"rank0\.json: no annotation is called 'trian', .* candidates: 'train'$"):
        analyzers.load(path, "trian")
    with pytest.raises(UnusableRun, match="candidates: none that repeats"):
        analyzers.load(traced(tmp_path), "train")


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        ([mark("train", at, 9) for at in (0, 10, 20)], "train"),
        ([mark(f"execute_{at}(8)", at, 9) for at in (0, 10, 20)], "execute_"),
        ([mark("train", at, 9) for at in (0, 10, 20)] + [mark("log", at, 1) for at in (9, 19)], "train"),
        ([mark("train", 0, 30)], None),
        ([mark("log", at, 0.5) for at in (9, 19)], None),
    ],
)
def test_a_trace_without_steps_says_which_name_to_give(tmp_path, marks, name):
    (notice,) = [
        notice
        for notice in analyzers.report(analyzers.load(traced(tmp_path, *marks))).run.warnings
        if notice.code == Code.STEPS_ARE_NOT_MARKED
    ]
    repeat = f"annotations called {name!r} repeat (3 times, every 0.010 ms), and may be the steps: --steps {name}"
    assert notice.remedy == ("call profiler.step() in the loop" if name is None else repeat)


def test_steps_of_torch_before_1_9_are_operators(tmp_path):
    marks = [mark(f"ProfilerStep#{number}", 10 * number, 9, "Operator") for number in range(3)]
    path = traced(tmp_path, *marks)
    assert steps(path) == THREE
    assert [(row["step"], row["start_ns"], row["span_ns"]) for row in windows(path)] == THREE


def test_operators_of_later_versions_are_no_steps(tmp_path):
    assert [row[0] for row in steps(traced(tmp_path, mark("ProfilerStep#4", 0, 30, "cpu_op")))] == [0]
