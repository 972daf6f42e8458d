"""Reports of many ranks: how they are spread, who stands out, and who is drawn."""

import base64
import dataclasses
import gzip
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from analyzers.notices import Code, Notice
from analyzers.rank import Breakdown
from analyzers.rank.summary import summarize, with_lanes
from analyzers.ranks import MANY
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import drawn_ranks, lanes
from analyzers.reporting.document import from_json
from analyzers.run.layout import find
from tests.support.drawing import meet
from tests.support.generator import Run, write_run
from tracer.cli import main
from tracer.commands.options.run import _ranks
from tracer.views.html import report_page as html
from tracer.views.sections.overview import report_text
from tracer.views.sections.ranks import folded

ROWS = Breakdown.joined([each.windows for each in meet("..aa", "..aa").measured])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two steps of 40 ranks on disk, of which rank 17 computes longer than the others."""
    folder = write_run(tmp_path_factory.mktemp("many") / "run", Run(40, 2, compute="aaaaaa....", comm="......cccc"))
    slow = write_run(tmp_path_factory.mktemp("slow") / "run", Run(40, 2, compute="aaaaaaaaa.", comm=".........c"))
    (slow / "rank17.json").replace(folder / "rank17.json")
    return folder


@cache
def found(folder):
    return report(summarize(folder))


def report_of(capsys, *arguments: str) -> str:
    assert main(["report", *arguments]) == 0
    return capsys.readouterr().out


def test_who_waits_least_is_slowest(run, capsys):
    over = found(run).summary.over_devices
    assert (over.devices, over.slowest.rank) == (40, 17)
    assert {(each.rank, each.measure) for each in over.outliers} == {
        (17, "compute_ns"), (17, "exposed_comm_ns"), (17, "exposed_wait_ns"),
    }  # fmt: skip
    assert over.medians["compute_ns"].median == 6000 and over.medians["compute_ns"].maximum == 9000


def test_the_text_shows_the_spread_and_who_stands_out(run, capsys):
    out = report_of(capsys, str(run), "--full")
    assert "the spread over 40 devices" in out
    (row,) = [line for line in out.splitlines() if "outlier: " in line]
    assert row.split()[0] == "17" and "slowest" in row
    assert len(out.splitlines()) < 90
    shown = [line for line in out.splitlines() if line.endswith(("slowest", "median", "fastest")) or "outlier:" in line]
    assert f"and {40 - len(shown)} more devices" in out


def test_few_ranks_have_a_row_each():
    few = report(meet(*["..aa"] * MANY))
    assert "are spread" not in report_text(few) and drawn_ranks(few) == list(range(MANY))
    assert few.summary.over_devices.outliers == []


def test_of_many_ranks_those_that_stand_out_are_drawn(run, tmp_path, capsys):
    assert 17 in drawn_ranks(found(run)) and len(drawn_ranks(found(run))) <= 12
    assert main(["export", str(run), "-o", str(tmp_path / "run.pftrace")]) == 0
    assert (
        f"{40 - len(drawn_ranks(found(run)))} of 40 ranks are left out; --ranks names others" in capsys.readouterr().out
    )
    assert groups(tmp_path / "run.pftrace") == sorted(drawn_ranks(found(run)))


@pytest.mark.slow
def test_others_are_drawn_where_they_are_named(run, tmp_path, capsys):
    assert main(["export", str(run), "--ranks", "3,20-22", "-o", str(tmp_path / "run.pftrace")]) == 0
    assert groups(tmp_path / "run.pftrace") == [3, 20, 21, 22]
    report_of(capsys, str(run), "--ranks", "3,20-22", "--html", str(tmp_path / "page.html"))
    assert "Drawn are the devices of 4 of 40 ranks" in (tmp_path / "page.html").read_text()


def groups(file) -> list[int]:
    """The ranks that have tracks."""
    trace = Trace()
    trace.ParseFromString(file.read_bytes())
    named = [packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")]
    return sorted(int(name.split()[1]) for name in named if name.startswith("rank "))


def test_a_rank_that_is_not_there_is_a_line(run, tmp_path, capsys):
    assert main(["export", str(run), "--ranks", "3,77", "-o", str(tmp_path / "run.pftrace")]) == 2
    assert "--ranks 77: run has no such rank; it has 0 to 39" in capsys.readouterr().err
    assert main(["report", str(run), "--ranks", "3"]) == 2
    assert "--ranks only applies to --html" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["", "x", "-1", "3-", "5-2", "0-99999999", "1,,2"])
def test_what_is_no_list_of_ranks_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["view", "run", f"--ranks={words}"])
    assert ended.value.code == 2 and "ranks" in capsys.readouterr().err


def test_ranges_of_ranks():
    assert _ranks("7,0-2,2") == [0, 1, 2, 7]


def shown_of(*notices: Notice) -> list[str]:
    return folded(notices)


def test_warnings_of_many_ranks_are_thinned_by_their_code_whatever_their_words():
    many = [Notice(Code.TRACE_INCOMPLETE, f"{'abc'[rank % 3]}: {rank} lost") for rank in range(30)]
    first, last = Notice(Code.RUN_JSON_MISSING, "first"), Notice(Code.CLOCKS_DIFFER, "last")
    thinned = f"{many[2]} (and 27 more like it: --json)"
    assert shown_of(first, *many, last) == ["first", *map(str, many[:2]), thinned, "last"]


def test_warnings_that_differ_in_a_number_alone_are_all_shown_where_they_are_of_different_things():
    controls = [Notice(Code.CONTROL_IS_NULL, f"control {number}: no samples") for number in range(5)]
    saved = [Notice(Code.SAVED, f"rank {rank} is lost") for rank in range(5)]
    assert shown_of(*controls, *saved) == [*map(str, controls), *map(str, saved)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=30))
def test_windows_by_device_are_those_of_a_mask(places):
    rank, device = np.array(places, dtype=np.int64).reshape(-1, 2).T
    many = ROWS.take(np.zeros(len(places), dtype=np.int64))
    many = type(many)(**{**vars(many), "rank": rank, "device": device})
    expected = {place: [row for row, each in enumerate(places) if each == place] for place in sorted(set(places))}
    assert {place: own.tolist() for place, own in many.by_device()} == expected
    assert [place for place, _ in many.by_device()] == sorted(expected)


def test_a_rank_that_cannot_be_read_again_to_be_drawn_is_said(run, tmp_path):
    summary, lost = summarize(run), dataclasses.replace(find(run).files[3], path=tmp_path / "rank3.json")
    again = with_lanes(summary, [lost])
    assert again.ranks == summary.ranks
    assert all(measured.graph for measured in with_lanes(summary, find(run).files[:1]).measured)
    assert [
        warning for warning in again.warnings if warning.code == Code.RANK_NOT_DRAWN and "rank3.json" in str(warning)
    ]


def test_a_page_of_very_many_ranks_holds_those_that_are_drawn(run, monkeypatch):
    monkeypatch.setattr(html, "MOST_ROWS_OF_RANKS", 20)
    summary, few = summarize(run), {3, 17}
    again = with_lanes(summary, [file for file in find(run).files if file.path.stem in ("rank3", "rank17")])
    written = html.report_html(found(run), lanes(again, found(run)))
    inside = from_json(gzip.decompress(base64.b64decode(re.search(r'id="report">([^<]*)<', written)[1])))
    assert {row.rank for row in inside.windows} == few and len(inside.run.ranks) == 40
    assert {member.rank for row in inside.collectives for member in row.members} == few
    assert "with the rows of the ranks that are drawn" in written and "of 40 ranks; --ranks names others." in written
