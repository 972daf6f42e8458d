"""Pictures of runs and sweeps: what is drawn of every sample, in the palette's colors, with no word upon another."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analyzers.lazy_fields import replaced as replace
from analyzers.reporting.build import report
from analyzers.reporting.document import Report, Window
from analyzers.statistics import Spread
from analyzers.units import ms
from tests.support.commands import fails
from tests.support.drawing import meet
from tests.support.pictures import HEADS, assert_readable, drawn_words
from tests.support.samples import RUNS, params, reported, summarized
from tests.support.sweeping import cell, studied, write_cell, write_sweep
from tests.support.tiers import quarters
from tests.support.typical_steps import control_ns, typical_of_sample
from tracer.cli import main
from tracer.errors import TracerError
from tracer.views import palette
from tracer.views.choices import KINDS
from tracer.views.palette import DARK, LIGHT
from tracer.views.plots import layout
from tracer.views.plots.axes import style, words
from tracer.views.plots.layout import TEXT_PT, hatch
from tracer.views.plots.pictures import OF_REPORT, figure, report_picture, scaling_picture
from tracer.views.plots.scaling import speedups

pytestmark = pytest.mark.usefixtures("remembered")

SAMPLES = Path(__file__).resolve().parents[2] / "traces"
DDP4 = SAMPLES / "resnet18-ddp4"
OF_RUN = KINDS[:-1]
EVIL = "$\\frac{1}{0}$ \x1b[31m\u202e <b> " + "W" * 300 + " 模型 \n %s {}"


def calibration(path: Path):
    return summarized(path).calibration


# Of the largest runs lines and bars are as those of smaller ones, and take seconds to lay out.
SMALLER = params(run for run in RUNS if sum(file.stat().st_size for file in run.glob("*.json*")) < 4e6)


@pytest.mark.parametrize("path", quarters(SMALLER))
def test_every_sample_has_a_picture_or_one_clear_line_of_each_kind(path):
    for kind in OF_RUN:
        try:
            with style(LIGHT, TEXT_PT):
                assert_readable(figure(reported(path), kind, calibration(path), LIGHT))
        except TracerError as error:
            assert f": no {kind}" in str(error)
            assert "\n" not in str(error)
            assert kind in ("buckets", "layers", "bandwidth")


@pytest.mark.parametrize("form", quarters([*HEADS]))
def test_the_same_report_gives_the_same_bytes(form):
    first, again = (report_picture(reported(DDP4), "breakdown", form) for _ in range(2))
    assert first == again
    assert first.startswith(HEADS[form])
    assert len(first) > 4000


def renamed(found: Report) -> Report:
    """A report whose names are another's ill will."""
    return replace(
        found,
        run=replace(found.run, name=EVIL, model=EVIL, devices=[EVIL], links=replace(found.run.links, source=EVIL)),
        summary=replace(
            found.summary,
            layers=[replace(layer, layer=EVIL, measures=layer.measures) for layer in found.summary.layers],
        ),
        timeline=replace(
            found.timeline,
            lanes=[replace(lane, label=EVIL, marks=lane.marks) for lane in found.timeline.lanes],
        ),
    )


@pytest.mark.parametrize("kind", quarters([*OF_RUN]))
def test_names_cannot_break_a_picture(kind):
    with style(DARK, TEXT_PT):
        made = figure(renamed(reported(DDP4)), kind, calibration(DDP4), DARK)
        assert_readable(made)
        for text in drawn_words(made):
            assert "\x1b" not in text.get_text()
            assert "\u202e" not in text.get_text()


def test_of_a_name_without_end_little_is_measured(monkeypatch):
    measured = []
    monkeypatch.setattr(layout, "length", lambda text, size: measured.append(len(text)) or len(text))
    assert 20 < len(layout.shortened("n" * 10**6, 8, 30)) <= 30
    assert max(measured) <= 1_001


def test_what_has_no_glyph_is_replaced():
    assert words("a\n\x00模\u202eé±") == "a" + "\N{REPLACEMENT CHARACTER}" * 4 + "é±"


def test_layers_without_work_in_most_steps_are_said_to_be_none():
    found = reported(DDP4)
    idle = [
        replace(layer, measures={name: Spread(8, 0.0) for name in layer.measures}) for layer in found.summary.layers
    ]
    with pytest.raises(TracerError, match="no layers to draw: most steps have no work that a layer launched"):
        report_picture(replace(found, summary=replace(found.summary, layers=idle)), "layers", "svg")


def test_buckets_whose_kernels_take_no_time_are_a_line():
    found = reported(DDP4)
    empty = [replace(row, overlapped_ns=0, exposed_ns=0) for row in found.buckets]
    with pytest.raises(TracerError, match="no buckets to draw: their kernels take no time"):
        report_picture(replace(found, buckets=empty), "buckets", "svg")


def shades() -> set[str]:
    parts = [part.color for part in vars(palette).values() if isinstance(part, palette.StepPart)]
    return {
        to_hex(color) for color in (*parts, *(part.over(LIGHT.ground) for part in palette.IDLE_LOOKS), LIGHT.ground)
    }


def patches(made: Figure) -> Iterator[Rectangle]:
    for axis in made.axes:
        yield from (patch for patch in axis.patches if isinstance(patch, Rectangle))


@pytest.mark.parametrize("kind", ["breakdown", "buckets", "layers"])
def test_the_colors_are_the_palettes(kind):
    with style(LIGHT, TEXT_PT):
        made = figure(reported(DDP4), kind, None, LIGHT)
        drawn = {to_hex(patch.get_facecolor()) for patch in patches(made)}
    assert len(drawn) >= 2
    assert drawn <= shades()


def test_bars_are_the_mean_steps_of_ranks_and_end_where_these_do():
    with style(LIGHT, TEXT_PT):
        made = figure(reported(DDP4), "breakdown", None, LIGHT)
    blue = [each for each in patches(made) if to_hex(each.get_facecolor()) == palette.COMPUTE.color.lower()]
    windows = [rows_of(rank) for rank in range(4)]
    means = [sum(row.compute_ns for row in of_rank) / len(of_rank) / 1e6 for of_rank in windows]
    assert [bar.get_width() for bar in blue] == pytest.approx(means)
    spans = [sum(row.span_ns for row in of_rank) / len(of_rank) for of_rank in windows]
    assert [ms(span) for span in spans] == [text.get_text() for text in made.axes[0].texts[-4:]]


PARTS = ("compute_ns", "exposed_copy_ns")


def rows_of(rank: int, path: Path = DDP4) -> list[Window]:
    return [row for row in typical_of_sample(path) if row.rank == rank]


def test_small_parts_have_their_numbers_below():
    with style(LIGHT, TEXT_PT):
        made = figure(reported(SAMPLES / "resnet50-ddp4-bf16"), "breakdown", None, LIGHT)
        texts = [text.get_text() for text in drawn_words(made)]
    means = [
        {name: f"{sum(getattr(row, name) for row in of_rank) / len(of_rank) / 1e6:.2f}" for name in PARTS}
        for of_rank in (rows_of(rank, SAMPLES / "resnet50-ddp4-bf16") for rank in range(4))
    ]
    assert means[1]["compute_ns"] in texts
    assert f"exposed copy {', '.join(mean['exposed_copy_ns'] for mean in means)}" in " ".join(texts)


def test_numbers_that_have_room_in_their_bars_are_not_repeated_below():
    with style(LIGHT, TEXT_PT):
        texts = [text.get_text() for text in drawn_words(figure(reported(DDP4), "breakdown", None, LIGHT))]
    below = " ".join(texts[next(at for at, text in enumerate(texts) if text.startswith("Narrow parts")) :])
    assert set(re.findall(r"\d+\.\d\d\b", below)).isdisjoint(texts)


def test_the_facts_take_one_line_and_leave_versions_out():
    with style(LIGHT, TEXT_PT):
        made = figure(reported(SAMPLES / "resnet50-ddp4-bf16"), "timeline", None, LIGHT)
    facts = [text.get_text() for text in made.texts if text.get_text().startswith("resnet50-ddp4-bf16")]
    assert facts == ["resnet50-ddp4-bf16 · resnet50 ddp · batch 64 per device · 4 ranks · NVIDIA H200"]


def test_kinds_of_one_size_are_drawn_side_by_side():
    with style(LIGHT, TEXT_PT):
        made = figure(reported(SAMPLES / "every-collective4"), "bandwidth", None, LIGHT)
    places = [line.get_xdata()[0] for line in made.axes[0].lines if len(line.get_xdata())]
    assert len(set(places)) == len(places)


def test_waiting_is_hatched_and_causes_of_idle_time_look_different():
    with style(LIGHT, TEXT_PT):
        made = figure(reported(DDP4), "breakdown", None, LIGHT)
    looks = {(to_hex(bar.get_facecolor()), bar.get_hatch()) for bar in patches(made)}
    assert (palette.WAITING.color.lower(), "////") in looks
    idle = [(part.over(LIGHT.ground), hatch(part)) for part in palette.IDLE_LOOKS]
    assert len(set(idle)) == len(idle)
    # This run neither loads input nor waits for its devices.
    assert looks >= set(idle[2:])
    assert looks.isdisjoint(idle[:2])


@pytest.mark.parametrize(
    ("distortion", "said"),
    [(None, "Uncertain: "), (1.4, "Distorted: "), (1.01, None)],
)
def test_what_the_profiler_did_is_said(distortion, said):
    found = reported(DDP4)
    said = said or f"Without the profiler a step takes {ms(control_ns(summarized(DDP4).manifest.controls.unprofiled))}"
    controls = replace(found.run.controls, distortion=distortion)
    found = replace(found, run=replace(found.run, controls=controls))
    for kind in OF_REPORT if distortion is None else ("timeline",):
        with style(LIGHT, TEXT_PT):
            texts = [text.get_text() for text in figure(found, kind, None, LIGHT).texts]
        assert any(text.startswith(said) for text in texts), kind


def test_a_pictured_step_says_its_own_length_beside_the_factor_of_all():
    found = reported(DDP4)
    with style(LIGHT, TEXT_PT):
        said = " ".join(text.get_text() for text in drawn_words(figure(found, "timeline", None, LIGHT)))
    assert f": of median length, {ms(found.timeline.span_ns)}. Heights" in said
    assert f"{found.run.controls.distortion:.2f} times that" in said and "as shown" not in said


def test_bounds_are_marked():
    bounded = [replace(row, bound=True) for row in reported(DDP4).collectives]
    with style(LIGHT, TEXT_PT):
        made = figure(replace(reported(DDP4), collectives=bounded), "bandwidth", None, LIGHT)
        texts = [text.get_text() for text in drawn_words(made)]
    assert "~ all_reduce, 4 ranks" in texts
    assert {line.get_markerfacecolor() for line in made.axes[0].lines if line.get_marker() != "None"} == {"none"}


def test_collectives_of_one_size_have_an_axis_with_figures():
    (row, *_) = [row for row in reported(DDP4).collectives if row.busbw_gbps and row.kind == "all_reduce"]
    with style(LIGHT, TEXT_PT):
        made = figure(replace(reported(DDP4), collectives=[row]), "bandwidth", None, LIGHT)
        texts = [text.get_text() for text in drawn_words(made)]
    assert {"1", "10", "message size, MB", "100", "1,000"} <= set(texts)


def test_many_ranks_fit():
    found = reported(DDP4)
    devices = [replace(found.summary.by_device[0], rank=rank) for rank in range(150)]
    with style(LIGHT, TEXT_PT):
        made = figure(replace(found, summary=replace(found.summary, by_device=devices)), "breakdown", None, LIGHT)
        assert made.get_size_inches()[1] < 9
        assert_readable(made)


def test_a_silent_run_has_no_buckets_and_no_bandwidth():
    silent = report(meet("..", compute=("aa",)))
    for kind in ("buckets", "bandwidth"):
        with pytest.raises(TracerError, match=r"no communication was found|nothing communicates here"):
            report_picture(silent, kind, "png")


BY_STRATEGY = [cell(name, gpus, 32, 8.0 + gpus / 2, 1.0) for name in ("ddp", "dp", "fsdp") for gpus in (2, 4)]
STUDY = studied(
    [
        *(cell("single", 1, batch, float(batch) / 4) for batch in (32, 64, 128)),
        *BY_STRATEGY,
    ]
)


def test_a_sweeps_picture():
    assert scaling_picture(STUDY, "png").startswith(HEADS["png"])
    with style(LIGHT, TEXT_PT):
        assert_readable(speedups(STUDY, LIGHT))


def test_a_baseline_alone_is_no_line_of_speedup():
    """One device at every global batch, as --strong has them recorded, is a point of weak scaling that says nothing."""
    baselines = [cell("single", 1, batch, 10.0) for batch in (32, 64, 128, 256)]
    study = studied([*baselines, cell("ddp", 2, 32, 12.0), cell("ddp", 2, 128, 14.0), cell("dp", 2, 32, 40.0)])
    with style(LIGHT):
        made = speedups(study, LIGHT)
        shown = [text.get_text() for text in drawn_words(made)]
    assert [words for words in shown if words.endswith("a GPU")] == ["batch 32 a GPU", "batch 128 a GPU"]
    # One device has a point for each line, of the batches that its strategy has on two.
    marks = [[line.get_xdata() for line in axis.get_lines() if line.get_linestyle() == "None"] for axis in made.axes]
    assert [sum(1 in x for x in of_axis) for of_axis in marks] == [2, 1, 2, 1]


def test_a_sweep_with_nothing_to_compare_has_none():
    with pytest.raises(TracerError, match="no cells on 1 and on more GPUs"):
        scaling_picture(studied([cell("single", 1, 8, 1.0)]), "png")


# The command.


def test_the_command_writes_what_the_ending_says(tmp_path, capsys):
    for ending in ("png", "SVG"):
        file = tmp_path / f"picture.{ending}"
        assert main(["plot", str(DDP4), "--kind", "timeline", "-o", str(file)]) == 0
        assert file.read_bytes().startswith(HEADS[ending.lower()])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"{file}: written (")


def test_nothing_is_replaced_without_force(tmp_path, capsys):
    file = tmp_path / "a.png"
    file.write_text("precious")
    arguments = ["plot", str(DDP4), "--kind", "breakdown", "-o", str(file)]
    code, err = fails(capsys, *arguments)
    assert (code, file.read_text()) == (1, "precious")
    assert "--force" in err
    assert main([*arguments, "--force"]) == 0
    assert file.read_bytes().startswith(HEADS["png"])
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "png"])
def test_another_ending_is_a_usage_error(name, tmp_path, capsys):
    code, err = fails(capsys, "plot", str(tmp_path), "--kind", "breakdown", "-o", str(tmp_path / name))
    assert code == 2
    assert ".png, .svg, .pdf" in err


def test_links_of_another_picture_are_a_usage_error(tmp_path, capsys):
    arguments = ["plot", str(DDP4), "--links", str(tmp_path / "links.json"), "-o", str(tmp_path / "a.png"), "--kind"]
    assert fails(capsys, *arguments, "timeline")[0] == 2
    code, err = fails(capsys, *arguments, "bandwidth")
    assert code == 1
    assert "tracer calibrate" in err


def test_what_a_run_has_not_is_one_line(tmp_path, capsys):
    for name, kind in (("resnet18-dp4", "buckets"), ("resnet18-ddp1", "bandwidth")):
        code, err = fails(capsys, "plot", str(SAMPLES / name), "--kind", kind, "-o", str(tmp_path / "a.png"))
        assert code == 1
        assert f"{name}: no {kind}" in err
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_drawn_by_the_command(tmp_path, capsys):
    folder = tmp_path / "sweep"
    write_sweep(folder, [write_cell(folder, "single", 1, 8, (4, 4, 4)), write_cell(folder, "ddp", 2, 8, (5, 5, 5))])
    file = tmp_path / "scaling.svg"
    assert main(["plot", str(folder), "--kind", "scaling", "-o", str(file)]) == 0
    assert b"</svg>" in file.read_bytes()
    *warnings, written = capsys.readouterr().err.splitlines()
    assert written.startswith(f"{file}: written (") and all(line.startswith("warning: ") for line in warnings)
    code, err = fails(capsys, "plot", str(folder), str(folder), "--kind", "scaling", "-o", str(tmp_path / "b.png"))
    assert (code, "one folder" in err) == (2, True)
    code, err = fails(capsys, "plot", str(DDP4), "--kind", "scaling", "-o", str(tmp_path / "b.png"))
    assert (code, "no sweep.json" in err) == (1, True)
