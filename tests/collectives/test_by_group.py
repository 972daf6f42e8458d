"""Exposed communication by process group, drawn, by brute force, and on every sample."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analyzers.collectives import GroupWindow, exchange, group_rows
from analyzers.collectives.by_group import spread
from analyzers.rank import Breakdown, RunSummary
from analyzers.trace import Call, Collective, Group
from tests.support.drawing import meet
from tests.support.samples import REPORTED, reported
from tests.support.tiers import cases

TP = Group("1", 2, (0, 1), "mesh_tp")
FSDP = Group("2", 2, (0, 1), "mesh_fsdp")
PLAIN = Group("0", 2, (0, 1), "default_pg")
CALLS = {
    "t": Call(Collective.ALL_REDUCE, 250, 250, "Float", TP),
    "f": Call(Collective.ALL_GATHER, 250, 500, "Float", FSDP),
    "p": Call(Collective.ALL_REDUCE, 100, 100, "Float", PLAIN),
}


def lines(run: RunSummary) -> list[GroupWindow]:
    """The lines of a drawn run's first rank."""
    windows = Breakdown.joined([measured.windows for measured in run.measured])
    return [row for row in group_rows(exchange(run), windows) if row.rank == 0]


def lengths(run: RunSummary) -> dict[str, tuple[int, int, int]]:
    """Communication, exposed transfer and all that is exposed of each line, by its description or name."""
    return {row.description or row.group: (row.comm_ns, row.exposed_transfer_ns, row.exposed_ns) for row in lines(run)}


def test_a_group_is_exposed_while_it_alone_is():
    #        compute hides the first; then mesh_tp alone, both at once, mesh_fsdp alone
    lanes = {"comm2": ("..ffff....",) * 2, "compute": ("#.........",) * 2}
    drawn = meet("tttt......", "tttt......", calls=CALLS, **lanes)
    assert lengths(drawn) == {"mesh_tp": (4, 1, 1), "mesh_fsdp": (4, 2, 2), "several": (2, 2, 2)}
    assert {row.description: row.role for row in lines(drawn) if row.description} == {
        "mesh_tp": "tensor",
        "mesh_fsdp": "fsdp",
    }


def test_a_group_that_nobody_described_is_said_by_its_ranks():
    (line,) = {(row.group, row.description, row.role) for row in lines(meet("pp..", "pp..", calls=CALLS))}
    assert line == ("0", None, "2 ranks, stride 1")


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((0, 1, 2, 3), "4 ranks, stride 1"), ((0, 2), "2 ranks, stride 2"), ((0, 1, 5), "3 ranks"), ((3,), "1 rank")],
)
def test_ranks_in_words(ranks, words):
    assert spread(ranks) == words
    assert spread(()) == "ranks unknown"


LANE = st.text("tfp.", min_size=8, max_size=8)
NAMES = {"t": "mesh_tp", "f": "mesh_fsdp", "p": "0"}


@given(LANE, LANE, st.text("#.", min_size=8, max_size=8))
@settings(max_examples=cases(50))
def test_the_lines_are_those_of_brute_force(first, second, compute):
    assume("#" in compute and {*first, *second} != {"."})
    drawn = meet(first, first, comm2=(second, second), compute=(compute, compute), calls=CALLS)
    expected: Counter[str] = Counter()
    for cells in zip(first, second, compute, strict=True):
        running = {*cells[:2]} - {"."}
        if running and cells[2] == ".":
            expected["several" if len(running) > 1 else NAMES[running.pop()]] += 1
    assert {name: exposed for name, (_, _, exposed) in lengths(drawn).items() if exposed} == dict(expected)


@pytest.mark.parametrize("path", REPORTED)
def test_groups_add_up_to_what_is_exposed(path):
    document = reported(path)
    for name in ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns"):
        by_group, by_window = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for row in document.groups:
            by_group[row.rank, row.step] += getattr(row, name)
        for window in document.windows:
            by_window[window.rank, window.step] += getattr(window, name)
        assert +by_group == +by_window
