"""Communication by process group in words: --by group, the default report, lanes, the page, a comparison."""

from __future__ import annotations

import re
import shutil

import pytest

from analyzers.collectives import GroupWindow
from analyzers.comparison.runs import compare
from analyzers.lazy_fields import replaced as replace
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import lanes
from analyzers.reporting.document import Report
from analyzers.reporting.frames import TABLES
from analyzers.reporting.per_step import series
from analyzers.trace import Call, Collective, Group
from tests.support.drawing import meet
from tests.support.hostile import EVIL
from tests.support.pages import Page
from tests.support.samples import REPORTED, SAMPLES, reported, summarized
from tracer.views.html.report_page import report_html
from tracer.views.html.timeline_data import strips
from tracer.views.sections.groups import by_group, groups_section
from tracer.views.sections.overview import report_text
from tracer.views.sections.results.comparison import comparison_text
from tracer.views.tensorboard.event_files import scalars

EVERY = SAMPLES / "every-collective4"


def meeting(description: str = "mesh_tp", **more: object) -> RunSummary:
    """Two ranks whose mesh_tp and mesh_fsdp communicate, alone and at once."""
    calls = {
        "t": Call(Collective.ALL_REDUCE, 250, 250, "Float", Group("1", 2, (0, 1), description)),
        "f": Call(Collective.ALL_GATHER, 250, 500, "Float", Group("2", 2, (0, 1), "mesh_fsdp")),
    }
    drawn = {"comm2": ("..ffff....",) * 2, "compute": ("#.........",) * 2} | more
    return meet("tttt......", "tttt......", calls=calls, **drawn)


def of_two(description: str = "mesh_tp", **more: object) -> Report:
    """The report on these."""
    return report(meeting(description, **more))


def rows_of(text: str, title: str) -> dict[str, list[str]]:
    """The cells of a table's rows, by their first: what stands below its title down to what is no row."""
    lines = text[text.index(title) :].splitlines()[1:]
    cells = [re.split(r"  +", line.strip()) for line in lines[: lines.index("") if "" in lines else None]]
    return {row[0]: row[1:] for row in cells if len(row) > 3}


def test_lines_add_up_in_words():
    shown = report_text(of_two(), "group")
    rows = rows_of(shown, "whose exposed communication adds up")
    assert {name: row[-1] for name, row in rows.items() if name != "group"} == {
        "mesh_fsdp (FSDP)": "40.0 %",
        "mesh_tp (tensor parallel)": "20.0 %",
        "several at once": "40.0 %",
        "all": "100.0 %",
    }
    assert "several at once: while more than one does" in shown


@pytest.mark.parametrize("path", REPORTED)
def test_the_step_of_median_length_adds_up_to_its_exposed_communication(path):
    document = reported(path)
    window = document.representative_window
    windows = [one for one in document.windows if (one.rank, one.step) == (window.rank, window.step)]
    rows = [one for one in document.groups if (one.rank, one.step) == (window.rank, window.step)]
    assert sum(one.exposed_ns for one in rows) == sum(one.exposed_comm_ns for one in windows)
    assert by_group(document)
    assert bool(groups_section(document)) == (len(document.summary.groups) > 1)
    assert ("by process group" in report_text(document)) == (len(document.summary.groups) > 1)


def test_one_group_has_no_table_in_the_default_report_and_one_by_group():
    document = reported(SAMPLES / "resnet18-ddp4")
    assert "process group" not in report_text(document)
    assert rows_of(report_text(document, "group"), "Communication by process group")["DDP"][0] == "0-3"


def test_a_run_without_communication_says_so():
    assert "No groups: no communication" in report_text(reported(SAMPLES / "resnet18-ddp1"), "group")


def test_parts_of_a_mesh_are_one_line_and_each_is_listed():
    shown = report_text(reported(EVERY), "group")
    assert rows_of(shown, "Communication by process group")["mesh_row"][0] == "2 groups of 2 ranks"
    below = shown[shown.index("Each group") :].splitlines()[1:]
    listed = [line.split()[:3] for line in below[: below.index("")]]
    assert ["mesh_row", "3", "0,1"] in listed and ["mesh_row", "4", "2,3"] in listed


@pytest.mark.parametrize("left", [(1,), (0, 2)])
def test_where_ranks_are_missing_groups_are_unresolved_and_it_is_said(left, tmp_path):
    gone = [f"rank{rank}.json.gz" for rank in set(range(4)) - set(left)]
    shutil.copytree(EVERY, tmp_path / "left", ignore=shutil.ignore_patterns(*gone))
    document = report(summarize(tmp_path / "left"))
    assert all(row.rank in left for row in document.groups)
    of_rows = {row.description: row for row in document.groups if row.description and row.role}
    # Of mesh_column ranks 0 and 2 are one group; of mesh_row nobody's partner is here.
    assert of_rows["mesh_row"].exposed_transfer_ns == of_rows["mesh_row"].exposed_wait_ns == 0
    assert bool(of_rows["mesh_column"].exposed_transfer_ns) == (left == (0, 2))
    shown = report_text(document, "group")
    assert "Unresolved: waiting or transfer, not known which" in shown
    assert "unre-" in shown


def test_names_of_a_trace_are_harmless():
    summary = meeting(EVIL)
    document = report(summary)
    assert EVIL in [lane.label for lane in document.timeline.lanes]
    text = report_text(document, "group") + report_text(document)
    assert all(character.isprintable() or character == "\n" for character in text)
    page = Page(report_html(document, lanes(summary, document)))
    assert page.open == []
    assert [attributes for tag, attributes in page.elements if EVIL in str(attributes)] == []
    assert not any("onerror" in attributes for _, attributes in page.elements)


def test_lanes_are_named_by_group_in_the_same_order_on_all_ranks():
    document = reported(EVERY)
    lines = [lane.label for lane in document.timeline.lanes if lane.kind == "comm"]
    assert lines[:1] == ["group 0: 4 ranks, stride 1"]
    assert {"mesh_row", "mesh_column", "pipeline (stream 19)", "pipeline (stream 35)"} <= set(lines)
    found = lanes(summarized(EVERY), document)
    orders = {tuple(dict.fromkeys(name.group for name in one.collectives.lanes)) for one in found}
    assert len(orders) == 1
    for one in found:
        marks = one.collectives
        assert set(marks.lane.tolist()) == set(range(len(marks.lanes)))


def test_the_pages_timeline_has_each_kernels_group():
    document, found = reported(EVERY), lanes(summarized(EVERY), reported(EVERY))
    text = b"".join(strips(document, found).steps.values()).decode()
    assert '"groups":["group 0: 4 ranks, stride 1","group 5: 4 ranks, stride 1"' in text


def test_a_table_has_a_row_for_each_line_of_each_step():
    frame = TABLES["groups"].frame(reported(EVERY))
    assert list(frame) == list(GroupWindow.__struct_fields__)
    assert len(frame) == len(reported(EVERY).groups)
    assert set(frame["ranks"]) == {"0 1 2 3", "0 2", "1 3", "0 1", "2 3"}


def test_runs_are_compared_by_group_and_what_one_alone_has_is_said():
    a, b = of_two(), of_two("mesh_pp")
    shown = comparison_text(compare(a, b), full=True)
    assert "Only in A: mesh_tp (exposed 0.000)." in shown
    assert "Only in B: mesh_pp (exposed 0.000)." in shown
    (line,) = [one for one in compare(a, b).groups if one.name == "mesh_fsdp"]
    assert (line.measures["exposed_ns"].a, line.measures["exposed_ns"].difference) == (2.0, 0.0)


def test_runs_of_one_group_each_and_reports_of_old_have_no_groups_compared():
    one = reported(SAMPLES / "resnet18-ddp4")
    assert compare(one, one).groups == []
    several = of_two()
    old = replace(several, groups=[], summary=replace(several.summary, groups=[]))
    assert compare(old, several).groups == []


def test_tensorboard_has_each_groups_exposed_time():
    all_devices, *others = series(of_two())
    (figures,) = all_devices.steps
    tags = {tag: ns for tag, ns in scalars(figures).items() if tag.startswith("exposed by process group")}
    assert {tag.split("/")[1] for tag in tags} == {"mesh_tp, ms", "mesh_fsdp, ms", "several at once, ms"}
    assert not any(step.groups_ns for one in others for step in one.steps)
