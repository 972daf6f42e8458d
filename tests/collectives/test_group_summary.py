"""Medians of process groups, drawn and on every sample: which groups are one line, and what a missing step counts."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.collectives.by_group import OF_GROUPS, Line, line_names
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.trace import Call, Collective, Group
from tests.support.drawing import meet
from tests.support.samples import REPORTED, reported
from tests.support.tiers import quarters

ROW = {rank: Group(f"r{rank // 2}", 2, (rank // 2 * 2, rank // 2 * 2 + 1), "mesh_row") for rank in range(4)}
COLUMN = {rank: Group(f"c{rank % 2}", 2, (rank % 2, rank % 2 + 2), "mesh_tp") for rank in range(4)}


def line(group: str, ranks: tuple[int, ...], description: str = "", role: str = "tensor") -> Line:
    return Line(group, description, role, ranks)


def test_groups_of_one_name_that_share_no_rank_are_one_line():
    lines = [line("1", (0, 1), "mesh_tp"), line("2", (2, 3), "mesh_tp"), line("3", (0, 2), "mesh_fsdp", "fsdp")]
    assert list(line_names(lines).values()) == ["mesh_fsdp", "mesh_tp", "mesh_tp"]


def test_groups_of_one_name_over_the_same_ranks_are_told_apart_by_theirs():
    lines = [line("5", (0, 1)), line("12", (0, 1)), line("6", (2, 3))]
    names = line_names(lines)
    assert {one.group: names[one] for one in lines} == {
        "5": "group 5: tensor parallel",
        "6": "group 5: tensor parallel",
        "12": "group 12: tensor parallel",
    }


def test_groups_whose_ranks_are_not_known_stand_alone():
    lines = [line("1", (), role="ranks unknown"), line("2", (), role="ranks unknown")]
    assert len(set(line_names(lines).values())) == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.integers(0, 5))), max_size=9))
def test_no_rank_is_in_two_groups_of_a_line(drawn):
    lines = {line(str(number), tuple(sorted(ranks)), name) for number, (name, ranks) in enumerate(drawn)}
    together = defaultdict(list)
    for one, name in line_names(lines).items():
        together[name, one.description].extend(one.ranks)
    assert all(len(ranks) == len(set(ranks)) for ranks in together.values())
    assert {one.description for one in lines} == {description for _, description in together}


def two_groups() -> Report:
    """Two ranks in two steps: mesh_tp in both, the norms' all-reduce in the second alone."""
    calls = {
        "t": Call(Collective.ALL_REDUCE, 250, 250, "Float", Group("1", 2, (0, 1), "mesh_tp")),
        "n": Call(Collective.ALL_REDUCE, 1, 1, "Float", Group("0", 2, (0, 1), "default_pg")),
    }
    compute = ("#.....#.....",) * 2
    return report(meet(".tt....tt.n.", ".tt....tt.n.", calls=calls, compute=compute, step="000000111111"))


def test_a_step_without_a_line_counts_as_none():
    lines = {one.name: one for one in two_groups().summary.groups}
    assert {name: one.measures["comm_ns"].median for name, one in lines.items()} == {
        "mesh_tp": 2.0,
        "2 ranks, stride 1": 0.5,
    }
    assert lines["mesh_tp"].measures["comm_ns"].count == 4
    assert lines["mesh_tp"].role == "tensor"
    assert [(one.group, one.ranks, one.exposed_ns) for one in lines["mesh_tp"].groups] == [("1", [0, 1], 2.0)]


@pytest.mark.parametrize("path", quarters(REPORTED))
def test_summaries_are_medians_of_the_rows(path):
    document = reported(path)
    names = line_names(row.line for row in document.groups)
    rows = defaultdict(dict)
    for row in document.groups:
        rows[names[row.line]][row.rank, row.step] = row
    assert set(rows) == {one.name for one in document.summary.groups}
    steps = {(window.rank, window.step) for window in document.windows}
    for one in document.summary.groups:
        ranks = {rank for rank, _ in rows[one.name]}
        places = [place for place in steps if place[0] in ranks]
        for measure in OF_GROUPS:
            values = [getattr(rows[one.name][place], measure) if place in rows[one.name] else 0 for place in places]
            assert one.measures[measure].median == np.median(values)
            assert one.measures[measure].count == len(values)
        assert one.groups or one.role is None
    carried = {purpose for one in document.summary.groups for purpose in one.purposes}
    assert carried >= {row.purpose for row in document.collectives if row.step is not None} or not document.groups


@pytest.mark.parametrize("path", REPORTED)
def test_one_rank_of_several_has_nothing_but_unresolved_time(path):
    document = reported(path)
    alone = len(document.run.ranks) < 2 <= document.run.world_size
    for row in document.groups if alone else ():
        assert (row.exposed_wait_ns, row.exposed_transfer_ns) == (0, 0)


def test_no_two_lines_have_one_name_whatever_programs_call_their_groups():
    lines = [
        Line("", "mesh", "2 ranks, stride 1", (0, 1)),
        Line("", "mesh", "2 ranks, stride 2", (0, 2)),
        Line("7", "several", "tensor", (0, 1)),
        Line("8", "x" * 5000, "tensor", (0, 1)),
        Line("several", "", "", ()),
    ]
    names = line_names(lines)
    assert len(set(names.values())) == len(lines)
    assert names[lines[-1]] == "several"
    assert max(map(len, names.values())) < 80


def test_a_group_of_unknown_ranks_joins_no_other():
    lines = [Line("1", "mesh_tp", "tensor", (0, 1)), Line("2", "mesh_tp", "tensor", ())]
    assert len(set(line_names(lines).values())) == 2
