"""The study on a terminal, in markdown, as pictures and as a page; and the command that makes them."""

import json
import re
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from analyzers.comparison.scaling_document import CellRow, scaling_from_json
from tests.support.commands import fails
from tests.support.hostile import EVIL_CELL
from tests.support.sweeping import cell, entry, studied, timed, write_cell, write_sweep
from tracer.cli import main
from tracer.views.html.scaling_page import scaling_html
from tracer.views.html.templates import POLICY
from tracer.views.palette import DARK
from tracer.views.plots.scaling import PICTURES, plots
from tracer.views.sections.results.scaling import as_markdown, scaling_tables, scaling_text

STUDY = studied(
    [
        cell("single", 1, 32, timed(10.0, scatter=0.2)),
        cell("single", 1, 64, 16.0),
        cell("ddp", 2, 32, 12.0, exposed_ms=1.0),
        cell("ddp", 4, 32, 9.0, exposed_ms=2.0),
        cell("ddp", 2, 64, 17.0, exposed_ms=1.0),
        cell("dp", 2, 32, timed(40.0, source="profiled"), exposed_ms=0.5),
        CellRow("dp2-batch64", "dp", 2, 64, "out_of_memory", "CUDA out of memory"),
    ]
)
ONLY_ONE = studied([cell("single", 1, 8, 1.0)], EVIL_CELL)
NOTHING = studied([CellRow("a", "ddp", 2, 8, "failed", EVIL_CELL)], EVIL_CELL)


def line(shown: str, title: str, *first: str) -> list[str]:
    """The words of a row of a table."""
    below = shown[shown.index(title) :].splitlines()
    return next(words for row in below if (words := row.split())[: len(first)] == list(first))


def test_weak_and_strong_have_tables_of_their_own():
    shown = scaling_text(STUDY, 120)
    assert line(shown, "Weak scaling", "ddp", "2", "32")[3:7] == ["10.000", "12.000", "x1.67", "?"]
    assert line(shown, "Strong scaling", "ddp", "2", "64")[3:8] == ["32", "16.000", "12.000", "x1.33", "66.7"]
    assert "- ddp4-batch32, ddp2-batch64: no 1-GPU cell of batch 128" in shown
    assert "- dp2-batch64: CUDA out of memory" in shown


def test_the_sentence_comes_first_and_says_what_limits_scaling():
    study = studied(
        [
            cell("single", 1, 32, 10.0),
            cell("ddp", 2, 32, 12.0, exposed_ms=1.0),
            cell("ddp", 4, 32, 16.0, exposed_ms=4.0),
        ]
    )
    assert study.verdict == "4 GPUs train 2.50 times as fast as one (ddp, 32 samples per GPU): an efficiency of 62.5 %."
    assert study.limits == [
        "ddp on 4 GPUs at batch 32: exposed transfer grew most, by about 3.00 ms per profiled step of 16.00 ms. "
        "The links limit it: larger batch, compressed gradients, faster links."
    ]
    assert study.verdict in " ".join(scaling_text(study, 100).split())[:200]
    html = scaling_html(study, {}, {})
    assert html.index(study.verdict) < html.index(study.limits[0]) < html.index('id="efficiency"')
    assert html.count('<polyline class="joined"') == html.count('<polyline class="dashed"') == 1
    assert html.count('<div class="bar">') == 3


def test_what_scales_or_cannot_be_compared_is_said():
    even = studied([cell("single", 1, 32, 10.0), cell("ddp", 2, 32, 10.1)])
    assert even.limits == ["ddp on 2 GPUs at batch 32: nothing limits it by more than 5.0 %."]
    assert NOTHING.verdict.startswith("0 cells are timed")
    assert 'id="efficiency"' not in scaling_html(NOTHING, {}, {})


def test_subtraction_is_shown_as_it_is():
    shown = scaling_text(STUDY, 120)
    row = line(shown, "Exposed communication", "ddp", "4", "32")
    assert row[3:7] == ["2.000", "-1.000", "?", "-3.000"]
    assert "- ddp4-batch32: the subtracted time is not positive (T_N - T_1)" in shown


def test_uncertain_and_profiled_times_are_marked():
    shown = scaling_text(STUDY, 120)
    assert line(shown, "Time of", "single", "1", "32")[4:6] == ["10.000", "?"]
    assert line(shown, "Time of", "dp", "2", "32")[4:6] == ["40.000", "p"]
    assert "? uncertain" in shown
    assert "p timed under the profiler" in shown


def test_a_distortion_of_steps_that_scatter_is_marked():
    cells = [
        cell("single", 1, 8, 1.0, distortion=1.3),
        cell("single", 1, 16, 1.0, distortion=1.5, distortion_uncertain=True),
    ]
    shown = scaling_text(studied(cells), 120)
    assert line(shown, "Time of", "single", "1", "8")[7:9] == ["x1.300", "-"]
    assert line(shown, "Time of", "single", "1", "16")[7:9] == ["x1.500", "?"]
    assert "? uncertain" in shown
    assert "the profiler stretches steps, up to about 1.50 times" in shown


@pytest.mark.parametrize("study", [STUDY, ONLY_ONE, NOTHING, studied([])])
def test_every_view_of_every_study_fits(study):
    for width in (80, 105, 160):
        shown = scaling_text(study, width)
        assert max(map(len, shown.splitlines())) <= width
        assert "\x1b" not in shown
    assert "\x1b[" in scaling_text(study, 80, color=True)


def test_markdown_and_page_show_what_the_terminal_shows():
    document, shown = scaling_html(STUDY, {}, {}), as_markdown(STUDY).replace("\\", "")
    on_page = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in document.split("<tr>")]
    on_page = [row for row in on_page if row]
    rows = [list(row) for shown in scaling_tables(STUDY) for row in shown.table.rows]
    assert sorted(on_page) == sorted(rows)
    for row in rows:
        assert "| " + " | ".join(row) + " |" in shown
    for words in STUDY.definitions.values():
        assert words in shown


def test_words_of_a_sweep_cannot_write_the_page():
    for study in (ONLY_ONE, NOTHING):
        document, shown = scaling_html(study, {}, {}), as_markdown(study)
        for found in (document, shown):
            assert "<script>" not in found
            assert "\x1b" not in found
            assert "\u202e" not in found
        assert "&lt;script&gt;" in document
    assert "\\| \\*x\\*" in as_markdown(NOTHING)


def test_the_page_loads_nothing():
    light = {"time.png": b"light"}
    document = scaling_html(STUDY, light, {"time.png": b"dark"})
    assert re.findall(r'(?:src|srcset|href)="(?!#)([^,"]*)', document) == ["data:image/png;base64"] * 2
    assert "url(" not in document
    assert POLICY.format(scripts="'none'") in unescape(document)
    assert '<meta name="referrer" content="no-referrer">' in document
    assert "prefers-color-scheme: dark" in document


def test_pictures_are_drawn_of_what_there_is():
    drawn = plots(STUDY)
    assert set(drawn) == set(PICTURES)
    for data in drawn.values():
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(data[16:20], "big") == 1600
    assert set(plots(ONLY_ONE, DARK)) == {"shares.png"}
    assert plots(NOTHING) == plots(studied([])) == {}


# The command.


@pytest.fixture
def sweep(tmp_path) -> Path:
    folder = tmp_path / "sweep"
    cells = [write_cell(folder, "single", 1, 8, (4, 4, 4)), write_cell(folder, "ddp", 2, 8, (5, 5, 5))]
    return write_sweep(folder, [*cells, entry("ddp", 2, 16, "pending")])


def test_the_study_is_printed_and_written(sweep, capsys):
    assert main(["sweep", "--report", str(sweep)]) == 0
    out, err = capsys.readouterr()
    assert line(out, "Weak scaling", "ddp", "2", "8")[5:7] == ["x1.60", "80.0"]
    assert err == ""
    files = {file.name for file in (sweep / "report").iterdir()}
    assert files >= {"scaling.html", "scaling.md", "scaling.json", "cells.csv", "weak.csv", "strong.csv", "weak.png"}
    written = out[out.index("written to ") :].splitlines()[0].partition(": ")[2]
    assert set(written.split(", ")) == files
    found = scaling_from_json((sweep / "report" / "scaling.json").read_text())
    assert pd.read_csv(sweep / "report" / "weak.csv")["efficiency"][1] == 0.8
    assert "![" in (sweep / "report" / "scaling.md").read_text()
    assert len(found.cells) == 3


def test_json_is_one_document_and_writes_nothing(sweep, capsys):
    assert main(["sweep", "--report", str(sweep), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "tracer.scaling/2"
    assert not (sweep / "report").exists()


def test_files_are_replaced_only_with_force(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tracer.views.plots.plots", lambda study, theme: {})
    out = tmp_path / "out"
    out.mkdir()
    (out / "strong.csv").write_text("precious")
    (out / "strong.png").write_text("of an earlier report")
    (out / "other").write_text("x")
    arguments = ["sweep", "--report", str(sweep), "--json", "-o", str(out)]
    assert fails(capsys, *arguments)[0] == 1
    assert len(list(out.iterdir())) == 3
    assert main([*arguments, "--force"]) == 0
    assert (out / "strong.csv").read_text().startswith("cell,")
    assert (out / "other").exists()
    assert not (out / "strong.png").exists()


def test_what_is_no_sweep_is_one_line(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "none"):
        code, err = fails(capsys, "sweep", "--report", str(folder))
        assert code == 1
        assert "no sweep.json" in err
