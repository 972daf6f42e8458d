"""The study on a terminal, in markdown, as pictures and as a page; and the command that makes them."""

import json
import re
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from analyzers.comparison import SWEEP_TABLES
from analyzers.comparison.scaling_document import CellRow, EpochTime, Ratio, scaling_from_json
from analyzers.notices import Code, Notice
from analyzers.run.manifest import Epoch
from tests.support.commands import fails
from tests.support.hostile import EVIL_CELL
from tests.support.sweeping import cell, entry, studied, timed, write_cell, write_sweep
from tracer.cli import main
from tracer.views.html.charts import panel_charts
from tracer.views.html.scaling_page import scaling_html
from tracer.views.html.templates import POLICY
from tracer.views.palette import DARK, LIGHT
from tracer.views.plots.axes import Panel, PlotLine, PlotPoint, grid
from tracer.views.plots.scaling import PICTURES, plots
from tracer.views.sections.results.scaling import as_markdown, scaling_tables, scaling_text
from tracer.views.sections.results.scaling_panels import epoch_over_batch

STUDY = studied(
    [
        cell("single", 1, 32, timed(10.0, scatter=0.3)),
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
    assert line(shown, "Weak scaling", "ddp", "2", "64")[3:10] == [
        "16.000", "17.000", "x1.88", "x1.88", "to", "x1.88", "94.1",
    ]  # fmt: skip
    assert line(shown, "Strong scaling", "ddp", "2", "64")[3:6] == ["32", "16.000", "12.000"]
    assert "- ddp2-batch64, ddp4-batch32: no 1-GPU cell of batch 128" in shown
    assert "- dp2-batch64: CUDA out of memory" in shown


def test_the_page_shows_what_a_study_is_made_for_unfolded():
    html = scaling_html(STUDY)
    folds = dict(re.findall(r'<details class="fold" id="(\w+)"( open)?>', html))
    assert {name for name, is_open in folds.items() if is_open} == {"time", "weak", "strong", "bandwidth"} < set(folds)
    assert '<details class="fold" open><summary>Figures</summary>' in html


def test_no_two_lines_of_the_efficiency_look_alike():
    batches = (8, 16, 32, 64, 128, 256, 512)
    cells = [cell("single", 1, batch, 10.0) for batch in batches]
    study = studied([*cells, *(cell(name, 2, batch, 12.0) for batch in batches for name in ("dp", "ddp"))])
    html = scaling_html(study)
    html = html[html.index('id="efficiency"') :].partition("</section>")[0]
    looks = re.findall(r'<g class="series" style="--own:([^"]+)">.*?<path d="([^"]+)" transform', html, re.S)
    assert len(looks) == len(set(looks)) == 14
    lines = re.findall(r'style="--own:([^"]+)"><polyline class="(joined[^"]*)"', html)
    assert len(set(lines[:12])) == 12, "also where their marks lie on one another"


def test_a_speedup_that_cannot_be_told_is_no_figure():
    """Its interval reaches further than a tenth of it; the CSV keeps the numbers."""
    shown = scaling_text(STUDY, 120)
    row = " ".join(line(shown, "Weak scaling", "ddp", "2", "32"))
    assert row == "ddp 2 32 10.000 12.000 cannot be told: x1.42 to x1.92 70.8 % to 95.8 %"
    assert "cannot be told: its 95 % interval reaches further than a tenth of it" in shown
    assert "cannot be told: x1.42 to x1.92" in as_markdown(STUDY)
    assert "cannot be told: x1.42 to x1.92" in scaling_html(STUDY)
    assert SWEEP_TABLES["weak"].frame(STUDY)["scaled_speedup"][2] == pytest.approx(2 * 10 / 12)
    edge = [
        Ratio(1.0, 0.91, 1.09, True),
        Ratio(1.0, 0.89, 1.0, True),
        Ratio(1.0, 1.0, 1.11, True),
        Ratio(1.0, None, None, True),
    ]
    assert [ratio.is_told for ratio in edge] == [True, False, False, False]


def test_a_sentence_says_what_cannot_be_told():
    cells = [cell("single", 1, 32, timed(10.0, scatter=0.4)), cell("ddp", 2, 32, 11.0)]
    study = studied(cells)
    assert study.verdict == (
        "2 GPUs train 1.45 to 2.18 times as fast as one (ddp, 32 samples per GPU): nothing nearer can be told."
    )
    assert study.limits == ["ddp on 2 GPUs at batch 32: whether anything limits it cannot be told."]
    both = studied([*cells, cell("single", 1, 64, timed(10.0, scatter=0.9)), cell("ddp", 2, 64, 9.0)])
    assert both.verdict.startswith(study.verdict), "the narrower one"
    told = studied(
        [cell("single", 1, 32, timed(10.0, scatter=0.4)), cell("single", 1, 64, 20.0), cell("ddp", 2, 32, 12.0)]
    )
    assert told.verdict.endswith(" With the global batch of 64 fixed it is 1.67 times as fast.")


@pytest.mark.parametrize(("launches", "said"), [((3, 2), "so few launches"), ((1, 1), "one launch each")])
def test_few_launches_tell_no_speedup(launches, said):
    """They may agree by chance; blocks of steps within one launch do not say how launches differ."""
    cells = [
        cell(name, gpus, 8, gpus * 10.0, blocks_ns=[gpus * 1e7] * 8, launches=each)
        for name, gpus, each in zip(("single", "ddp"), (1, 2), launches, strict=True)
    ]
    study = studied(cells)
    assert study.verdict == (
        f"2 GPUs train about 1.00 times as fast as one (ddp, 8 samples per GPU) in {said}: it is not known whether "
        "other launches would."
    )
    assert study.limits == ["ddp on 2 GPUs at batch 8: whether anything limits it cannot be told."]
    shown = scaling_text(study, 120)
    assert " ".join(line(shown, "Weak scaling", "ddp")) == "ddp 2 8 10.000 20.000 cannot be told: few launches -"
    assert "few launches: what launches differ by is known from three on" in shown
    assert "weak scaling, ddp on 2" not in shown


def test_ranks_on_a_cpu_are_called_ranks():
    """In every word and picture; what limits them is not links."""
    study = studied(
        [
            cell("single", 1, 32, 10.0, on_cpu=True),
            cell("ddp", 2, 32, 19.0, exposed_ms=8.0, on_cpu=True),
            cell("ddp", 2, 64, 40.0, on_cpu=True),
        ]
    )
    assert study.verdict.startswith("2 ranks train 1.05 times as fast as one (ddp, 32 samples per rank)")
    assert study.limits == [
        "ddp on 2 ranks at batch 32: exposed transfer grew most, by about 6.00 ms in the mean, "
        "per profiled step of 19.00 ms. "
        "The cores that ranks share limit it, not links: more cores, or fewer ranks."
    ]
    for shown in (scaling_text(study), as_markdown(study), scaling_html(study)):
        assert "no 1-rank cell of batch 64" in shown
        assert "GPU" not in shown


def test_no_interval_makes_an_axis():
    """One over decades is cut beside its point, and an arrow says so."""
    panel = Panel(
        "", "x", "y", [PlotLine("", 0.0, [PlotPoint(1, 1.0, 0.01, 100.0, True), PlotPoint(2, 1.2, 1.1, 1.3)])]
    )
    (axis,) = grid([[panel]], LIGHT).axes
    low, high = axis.get_ylim()
    assert 0.5 < low < high < 2
    assert [line.get_marker() for line in axis.lines if line.get_marker() in ("v", "^")] == ["v", "^"]


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
        "ddp on 4 GPUs at batch 32: exposed transfer grew most, by about 3.00 ms in the mean, "
        "per profiled step of 16.00 ms. "
        "The links limit it: larger batch, compressed gradients, faster links."
    ]
    assert study.verdict in " ".join(scaling_text(study, 100).split())[:200]
    html = scaling_html(study)
    assert html.index(study.verdict) < html.index(study.limits[0]) < html.index('id="efficiency"')
    efficiency = html[html.index('id="efficiency"') :].partition("</section>")[0]
    assert efficiency.count('<polyline class="joined"') == efficiency.count('<polyline class="dashed"') == 1
    assert html.count('<div class="bar">') == 3


@pytest.mark.parametrize(
    ("ddp", "said"),
    [
        (timed(12.0), "use DDP: 2.50 times as fast."),
        (timed(30.0), "exposed transfer grew most"),  # as long as DataParallel
        (timed(28.0, 0.2), "exposed transfer grew most"),  # which one is faster is not told
        (timed(12.0, 0.5), "use DDP: 2.00 to 3.33 times as fast."),
    ],
)
def test_data_parallel_is_told_to_be_ddp_where_that_is_faster(ddp, said):
    study = studied(
        [cell("single", 1, 32, 10.0), cell("ddp", 2, 32, ddp), cell("dp", 2, 32, timed(30.0), exposed_ms=20.0)]
    )
    assert study.limits[1].startswith(f"dp on 2 GPUs at batch 32: {said}")


def test_few_launches_tell_no_faster_strategy():
    blocks = [1.2e7] * 8
    cells = [
        cell("single", 1, 32, 10.0, launches=1),
        cell("ddp", 2, 32, 12.0, blocks_ns=blocks, launches=1),
        cell("dp", 2, 32, 30.0, blocks_ns=[2.5 * ns for ns in blocks], launches=1),
    ]
    assert "use DDP" not in " ".join(studied(cells).limits)


def test_what_scales_or_cannot_be_compared_is_said():
    even = studied([cell("single", 1, 32, 10.0), cell("ddp", 2, 32, 10.1)])
    assert even.limits == ["ddp on 2 GPUs at batch 32: nothing limits it by more than 5.0 %."]
    assert NOTHING.verdict.startswith("0 cells are timed")
    assert 'id="efficiency"' not in scaling_html(NOTHING)


def test_windows_of_the_full_profile_are_marked_where_their_times_stand():
    why = (
        "times come from the full profile, which slows steps: the light profile cannot be used (rank 0: there is none)"
    )
    full = cell("dp", 2, 32, 9.0, warnings=[Notice(Code.LIGHT_WINDOW_DOES_NOT_FIT, why)])
    shown = scaling_text(studied([cell("single", 1, 32, 10.0), full]))
    assert line(shown, "Where the step's", "dp")[3:7] == ["9.000", "f", "8.100", "f"]
    assert line(shown, "Where the step's", "single")[3:5] == ["10.000", "9.000"]
    assert f"\nf {why}\n" in shown


def epochs(step_ms: float, measured_s: float | None, samples: int = 950) -> EpochTime:
    """Ten steps of 100 samples, of which the last has half as many."""
    measured_ns = None if measured_s is None else measured_s * 1e9
    return EpochTime("noise", True, False, samples, 10, 10 * step_ms * 1e6, measured_ns, 1)


@pytest.mark.parametrize(
    ("measured_s", "is_outside"),
    [(0.899, True), (0.9, False), (1.05, False), (1.1, False), (1.101, True), (None, False)],
)
def test_an_epoch_outside_of_its_steps_interval_is_marked(measured_s, is_outside):
    """Nine whole batches at 100 ms at least, ten of 110 at most."""
    row = cell("single", 1, 100, timed(105.0, scatter=1 / 10.5), epoch=epochs(105.0, measured_s))
    assert row.contradicts_epoch == is_outside
    shown = scaling_text(studied([row]), 120)
    assert ("! outside of what the 95 % interval of its step makes of an epoch" in shown) == is_outside


def test_epochs_are_drawn_over_the_batch_with_a_line_for_each_number_of_devices():
    cells = [
        cell("single", 1, 100, timed(105.0, scatter=0.1), epoch=epochs(105.0, None)),
        cell("single", 1, 50, 60.0, epoch=epochs(60.0, None)),
        cell("ddp", 2, 100, 80.0, epoch=epochs(80.0, None)),
    ]
    panel = epoch_over_batch(studied(cells), "ddp")
    drawn = {line.label: [(point.x, point.y) for point in line.points] for line in panel.lines}
    assert drawn == {"1 GPU": [(100, 1.05), (50, 0.6)], "2 GPUs": [(100, 0.8)]}
    first = panel.lines[0].points[0]
    assert (first.low, first.high) == pytest.approx((9 * 0.09975, 10 * 0.11025))
    assert panel.lines[1].ideal == [(100, 1.05)], "one device's step, as often"
    (chart,) = panel_charts([panel])
    assert [tick.label for tick in chart.across] == ["50", "100"]
    marks = chart.series[0].marks
    assert marks[0].x < marks[1].x and marks[1].high < marks[1].y < marks[1].low
    assert marks[1].words == "1 GPU; batch per GPU: 100; epoch, s: 1.05 (0.898 to 1.1)"


def test_of_many_cells_as_many_are_drawn_as_are_told_apart():
    batches = range(8, 408, 4)
    study = studied([cell(name, gpus, batch, 9.0) for name, gpus in (("single", 1), ("ddp", 2)) for batch in batches])
    html, drawn = scaling_html(study), plots(study)
    assert html.count("Of 100 lines 16 are drawn, evenly spread; the tables have all.") == 2
    assert "Of 100 cells 60 are drawn" in html
    assert int.from_bytes(drawn["shares.png"][20:24], "big") < 4000


def test_an_epoch_is_cited_with_what_it_is_and_what_steps_make_of_it():
    several = [
        cell("single", 1, batch, timed(105.0, scatter=1 / 10.5), devices=["card"], epoch=epochs(105.0, 1.0), launches=4)
        for batch in (100, 500)
    ]
    cited = (
        "For your report: on one card whole epochs, timed in one launch, took 1.000 s at batch 100 (by the steps of 4"
    )
    assert cited in scaling_text(studied(several))
    assert "cite both" not in scaling_text(studied(several))
    assert cited not in scaling_text(studied([replace(row, launches=1) for row in several]))
    assert cited not in scaling_text(studied([replace(row, step=timed(9.0, source="profiled")) for row in several]))


@pytest.mark.parametrize("is_synthetic", [True, False])
def test_accuracy_on_random_labels_is_not_printed(is_synthetic):
    trained = [Epoch(number, 10**9, 10, 1.5, 0.25, 0.1) for number in (1, 2)]
    epoch = replace(epochs(105.0, 1.0), is_synthetic=is_synthetic)
    shown = scaling_text(studied([cell("single", 1, 100, 105.0, epoch=epoch, epochs=trained)]), 120)
    row = line(shown, "Epochs as trained", "single")
    assert row[3:] == ["1", "1.000", "w", "1.5000", *([] if is_synthetic else ["25.0", "%"]), "0.1"]
    assert ("No accuracy: on synthetic data labels are random" in shown) == is_synthetic


def test_subtraction_is_shown_as_it_is():
    shown = scaling_text(STUDY, 120)
    row = line(shown, "Exposed communication", "ddp", "4", "32")
    assert row[3:7] == ["2.000", "-1.000", "?", "-3.000"]
    assert "- ddp4-batch32: the subtracted time is not positive (T_N - T_1)" in shown


def test_a_study_that_exposes_nothing_has_a_page():
    cells = [cell("single", 1, 32, 10.0), cell("ddp", 2, 32, 10.0, exposed_ms=0.0)]
    assert "Exposed communication, measured and subtracted" in scaling_html(studied(cells))


def test_uncertain_and_profiled_times_are_marked():
    shown = scaling_text(STUDY, 120)
    assert line(shown, "Time of", "single", "1", "32")[4:9] == ["10.000", "?", "8.500", "to", "11.500"]
    assert line(shown, "Time of", "single", "1", "64")[4:7] == ["16.000", "±0.0", "%"]
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
    document, shown = scaling_html(STUDY), as_markdown(STUDY).replace("\\", "")
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
        document, shown = scaling_html(study), as_markdown(study)
        for found in (document, shown):
            assert "<script>" not in found
            assert "\x1b" not in found
            assert "\u202e" not in found
        assert "&lt;script&gt;" in document
    assert "\\| \\*x\\*" in as_markdown(NOTHING)


def test_the_page_loads_nothing():
    document = scaling_html(STUDY)
    assert not re.search(r'(?:src|srcset|href)="(?!#)', document)
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
    assert line(out, "Weak scaling", "ddp", "2", "8")[5:7] == ["x1.60", "x1.60"]
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
    monkeypatch.setattr("tracer.views.plots.plots", lambda study: {})
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
