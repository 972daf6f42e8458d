"""More of what people's traces were seen to hold, two kinds in one file among it, with the right values."""

from __future__ import annotations

import pytest

from tests.support.kineto_files import Event
from tests.support.reported import FAR, LAST, WHOLE, Case, changed, check, steps, window


def lost(rows: list[Event], *steps: int, marks_alone: bool = False) -> list[Event]:
    """The rows with those of steps at time 0; `steps` count from the first one, which begins at FAR."""

    def is_lost(row: Event) -> bool:
        is_mark = row["cat"] == "user_annotation"
        return int(row["ts"] - FAR) // 1000 in steps and (is_mark or not marks_alone)

    return changed(rows, is_lost, ts=0, dur=0)


FIVE, AGAIN = steps(1, 2, 3, 4, 5, at=FAR), steps(1, 2, 3, at=FAR) + steps(1, 2, 3, at=FAR + 100_000)
TWO = window(2000, 900)
CASES = [
    # K3 and K6: marks at time 0, and cycles in one file.
    Case("zero_mark_in_the_middle", "K3 K6", lost(FIVE, 2, marks_alone=True), {
        (0, 1): WHOLE, (0, 2): TWO, (0, 4): WHOLE, (0, 5): LAST}, {"times_are_lost": ["1 of 35", "steps 3"]}),
    Case("zero_marks_in_the_middle", "K3 K6", lost(FIVE, 1, 3, marks_alone=True), {
        (0, 1): TWO, (0, 3): TWO, (0, 5): LAST}, {"times_are_lost": ["2 of 35", "steps 2, 4"]}),
    Case("zero_step_in_the_middle", "K3 K6", lost(FIVE, 2), {
        (0, 1): WHOLE, (0, 2): window(2000, 450), (0, 4): WHOLE, (0, 5): LAST},
        {"times_are_lost": ["7 of 35", "steps 3"], "times_are_corrupt": ["3 of 15"]}),
    Case("zero_mark_of_the_first", "K3 K6", lost(FIVE, 0, marks_alone=True), {
        **{(0, k): WHOLE for k in (2, 3, 4)}, (0, 5): LAST}, {"times_are_lost": ["1 of 35", "steps 1"]}),
    Case("zero_mark_of_a_cycle", "K3 K6", lost(AGAIN, 1, marks_alone=True), {
        (0, 1): TWO, **dict.fromkeys([(0, 3), (0, 6)], LAST), **dict.fromkeys([(0, 4), (0, 5)], WHOLE)},
        {"times_are_lost": ["1 of 42"], "several_cycles": ["2 cycles", "1 to 3, 4 to 6"]}),
    Case("zero_mark_of_the_second_cycle", "K3 K6", lost(AGAIN, 101, marks_alone=True), {
        **dict.fromkeys([(0, 1), (0, 2)], WHOLE), (0, 3): LAST, (0, 4): TWO, (0, 6): LAST},
        {"times_are_lost": ["1 of 42"], "several_cycles": ["2 cycles", "1 to 3, 4 to 6"]}),
    Case("zero_step_between_cycles_that_go_on", "K3 K6", lost(
        steps(1, 2, 3, at=FAR) + steps(7, 8, 9, at=FAR + 100_000), 101), {
        **dict.fromkeys([(0, 1), (0, 2)], WHOLE), (0, 3): LAST, (0, 7): window(2000, 450), (0, 9): LAST},
        {"times_are_lost": ["7 of 42"], "times_are_corrupt": [], "several_cycles": ["2 cycles", "1 to 3, 7 to 9"]}),
    Case("no_mark_in_the_middle", "K6", [row for row in FIVE if row["name"] != "ProfilerStep#3"], {
        (0, 1): WHOLE, (0, 2): TWO, (0, 4): WHOLE, (0, 5): LAST}, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_reported_trace_has_the_right_windows_and_says_what_is_wrong(tmp_path, case):
    check(case, tmp_path)
