"""For whom the others wait step after step: the witness of a late rank."""

from __future__ import annotations

import pytest

from analyzers.collectives.waits import awaited
from analyzers.reporting.analyses import Analyses
from analyzers.trace import Collective
from tests.support.drawing import called, meet

STEPS = "000000111111222222333333"
# In the first step rank 0 began to profile later: rank 1 waits for that.
FIRST = ("...aaa", "aaaaaa")
RANK_1_LATE = ("bbbbbb", "...bbb")


def drawn(*steps: tuple[str, str]) -> frozenset[int]:
    letters = "abcdefgh"
    rows = ["", ""]
    for number, step in enumerate(steps):
        for rank, picture in enumerate(step):
            rows[rank] += picture.replace(picture[-1], letters[number])
    return awaited(Analyses(meet(*rows, step=STEPS[: 6 * len(steps)]), None).exchanged)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((FIRST, RANK_1_LATE, RANK_1_LATE, RANK_1_LATE), {1}),  # the profile's start is no step of four
        ((FIRST, RANK_1_LATE, RANK_1_LATE), set()),  # but one of three
        ((RANK_1_LATE, RANK_1_LATE, RANK_1_LATE), {1}),
        ((RANK_1_LATE, RANK_1_LATE, FIRST, RANK_1_LATE), set()),
        ((FIRST, FIRST, FIRST, FIRST), {0}),
    ],
)
def test_a_rank_is_waited_for_in_all_steps_but_the_profiles_start(steps, found):
    assert drawn(*steps) == found


def test_a_step_in_which_it_is_hardly_waited_for_says_nothing():
    """Rank 1 is last by a tenth of what it is late in the other two."""
    late, hardly = ("b" * 16, "." * 10 + "b" * 6), ("b" * 16, "." + "b" * 15)
    rows = ["", ""]
    for letter, pictures in zip("abcd", (late, late, hardly, late), strict=True):
        rows = [row + picture.replace("b", letter) for row, picture in zip(rows, pictures, strict=True)]
    step = "".join(str(number) * 16 for number in range(4))
    assert awaited(Analyses(meet(*rows, step=step), None).exchanged) == set()


@pytest.mark.parametrize(("compute", "found"), [("..........", {0}), ("..cccc....", {1})])
def test_waiting_is_passed_on_to_whom_the_last_to_come_waited_for_but_not_beside_compute(compute, found):
    """Rank 2 waits for rank 1, and that meanwhile for rank 0."""
    pairs = {"a": called(Collective.ALL_REDUCE, 1000, (0, 1)), "b": called(Collective.ALL_REDUCE, 2000, (1, 2))}
    pictures = ("......aa..", "aaaaaaaabb", "bbbbbbbbbb")
    run = meet(*pictures, calls=pairs, compute=("cccccc....", compute, ".........."))
    assert awaited(Analyses(run, None).exchanged) == found
