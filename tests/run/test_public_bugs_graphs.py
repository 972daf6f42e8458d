"""CUDA graphs that take turns, and graphs of which kernels were lost (K2): which is which, by pictures of launches.

Each word is a launch, each letter a kernel that came of it, `.` a launch of which nothing came; each text is a step.
"""

from __future__ import annotations

import pytest

import analyzers
from tests.support.kineto_files import Event, step, write
from tests.support.reported import call, on_device

WHOLE, PART = "abcde", "abc"


def replayed(steps: list[str], ids: dict[str, int], length: float = 20, streams: tuple[int, ...] = (7,)) -> list[Event]:
    """Steps of 1 ms, of a kernel and of launches of graphs; `ids` are graphs' ids by what is launched of each."""
    rows: list[Event] = []
    for number, text in enumerate(steps):
        begin, known = 10_000 + 1000 * number, 100 * (number + 1)
        rows += [step(number, begin, 999), call("cudaLaunchKernel", begin + 10, 5, known)]
        rows.append(on_device("small", begin + 50, 20, known))
        for place, launched in enumerate(text.split()):
            at, stream = begin + 100 + 200 * place, streams[place % len(streams)]
            rows.append(call("cudaGraphLaunch", at - 50, 10, known + 1 + place))
            said = {"stream": stream} | ({"graph id": ids[launched]} if launched in ids else {})
            for k, letter in enumerate(launched.strip(".")):
                rows.append(on_device(letter, at + length * k, length - 1, known + 1 + place, **said))
    return rows


TURNS = [WHOLE, PART] * 3
CASES: dict[str, tuple[list[str], dict[str, int], int]] = {
    # steps, graphs' ids by what was launched, and how many kernels are missing
    "two_by_turns": (TURNS, {}, 0),
    "two_by_turns_of_an_odd_number": ([*TURNS, WHOLE], {}, 0),
    "three_by_turns": ([WHOLE, PART, "ab"] * 3, {}, 0),
    "one_of_three_by_turns": ([WHOLE, WHOLE, PART] * 3, {}, 0),
    "in_the_same_place_of_every_step": ([f"{WHOLE} {PART}"] * 3, {}, 0),
    "three_in_some_steps_and_two_in_others": ([f"{WHOLE} {PART}", f"{PART} {WHOLE} {PART}"] * 4, {}, 0),
    "one_in_a_step_and_two_in_the_next": ([WHOLE, f"{PART} {WHOLE}", PART] * 2, {}, 0),
    "by_turns_with_a_launch_of_which_nothing_came": (["abcde", "abc", ".", *TURNS[3:], *TURNS], {}, 0),
    "by_turns_with_one_that_lost": ([*TURNS, "abd", PART, *TURNS], {}, 2),
    "by_turns_with_one_that_lost_of_the_short": ([*TURNS, WHOLE, "a", *TURNS], {}, 2),
    "one_launch_of_many": ([WHOLE] * 5 + [PART] + [WHOLE] * 2, {}, 2),
    "in_the_middle": ([WHOLE] * 3 + ["abe"] * 2 + [WHOLE], {}, 4),
    "half_of_the_launches": ([WHOLE] * 3 + [PART] * 3, {}, 6),
    "half_of_the_launches_here_and_there": ([WHOLE, PART, PART, WHOLE, WHOLE, PART], {}, 6),
    "other_kernels_each_time": ([WHOLE, "ab", WHOLE, "cde", WHOLE, WHOLE], {}, 5),
    "a_short_run": ([WHOLE, PART, WHOLE], {}, 2),
    "ids_of_two_by_turns": (TURNS, {WHOLE: 3, PART: 4}, 0),
    "ids_of_two_here_and_there": ([WHOLE, PART, PART, WHOLE, WHOLE, PART], {WHOLE: 3, PART: 4}, 0),
    "ids_of_one_that_lost_by_turns": (["abcde", "abc", "abcde"] * 3, {WHOLE: 3, PART: 3}, 6),
    "ids_of_two_in_one_step": ([f"{WHOLE} {PART}", f"{PART} {WHOLE}"] * 3, {WHOLE: 3, PART: 4}, 0),
    "ids_of_two_and_one_that_lost": ([*TURNS, "abd", PART, *TURNS], {WHOLE: 3, PART: 4, "abd": 3}, 2),
    "ids_of_none": (TURNS, {WHOLE: 0, PART: 0}, 0),
}  # fmt: skip


def queued(launches: list[str], each: int) -> list[Event]:
    """Launches of one step long before they run, one right behind the other, each so many us at least after one."""
    rows, at = [step(0, 10_000, 900), step(1, 10_900, 90_000)], 11_000.0
    for place, launched in enumerate(launches):
        rows.append(call("cudaGraphLaunch", 10_901 + 2 * place, 2, place + 1))
        rows += [on_device(letter, at + 20 * k, 20, place + 1) for k, letter in enumerate(launched)]
        at += max(20 * len(launched), each) + 1
    return rows


def missing(rows: list[Event], tmp_path) -> str:
    report = analyzers.report(analyzers.load(write(tmp_path / "rank0.json", rows)))
    (text,) = [one.text for one in report.run.warnings if one.code == "graph_kernels_are_lost"] or [""]
    unknown = [row.idle.unknown_ns for row in report.windows]
    assert any(unknown) == any(code in {str(one.code) for one in report.run.warnings} for code in (
        "graph_kernels_are_lost", "launches_are_lost"))  # fmt: skip
    return text


@pytest.mark.parametrize(
    ("name", "streams"), [*((name, (7,)) for name in CASES), *((name, (7, 13)) for name in [*CASES][::4])]
)
def test_graphs_that_take_turns_have_lost_nothing_and_lost_kernels_are_counted(tmp_path, name, streams):
    steps, ids, lost = CASES[name]
    text = missing(replayed(steps, ids, streams=streams), tmp_path)
    assert text.startswith(f"rank0.json: {lost} kernels of ") if lost else not text


@pytest.mark.parametrize(
    ("launches", "each", "lost"),
    [
        ([WHOLE, PART, PART, WHOLE, WHOLE, PART], 0, 0),  # no time for five kernels where three are seen
        ([WHOLE, PART, PART, WHOLE, WHOLE, PART], 95, 6),
        ([WHOLE, WHOLE, "abe", WHOLE, WHOLE], 0, 0),
        ([WHOLE, WHOLE, "abe", WHOLE, WHOLE], 100, 2),
        ([WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, "abc"], 0, 2),  # nothing follows the last
    ],
)
def test_a_stream_that_goes_on_before_a_whole_graph_could_end_has_run_another(tmp_path, launches, each, lost):
    text = missing(queued(launches, each), tmp_path)
    assert text.startswith(f"rank0.json: {lost} kernels of ") if lost else not text
