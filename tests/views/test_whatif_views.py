"""Predictions as text, pictures, the page's section, JSON and rows: every number is the model's."""

import re
from functools import cache

import pytest

from analyzers.lazy_fields import replaced as replace
from analyzers.prediction import (
    SCENARIOS,
    Options,
    WhatIf,
    doubts,
    from_json,
    is_own,
    to_json,
    usual,
    whatif,
)
from analyzers.settings import USUAL_MB, Affine, Hosts, LinkModel
from analyzers.statistics import LEAST_SHARE
from tests.support.pages import Page
from tests.support.pictures import HEADS, assert_readable
from tests.support.samples import SAMPLES, reported, summary_of, without_causes
from tests.support.saved import saved
from tests.support.tiers import quarters
from tracer.views.html.chart import FRAME
from tracer.views.html.charts import by_gpus, cap_places, caps_chart, rows_chart
from tracer.views.html.report_page import report_html
from tracer.views.palette import DARK, LIGHT
from tracer.views.plots.axes import style
from tracer.views.plots.layout import TEXT_PT
from tracer.views.plots.prediction import figure, prediction_picture
from tracer.views.sections.results.prediction import (
    no_longer_hidden,
    prediction_text,
    row_words,
    rows_besides_caps,
    within,
)

RESNET50 = SAMPLES / "resnet50-ddp4-bf16"
EVIL = "</script><img src=x onerror=alert(1)> \x1b[31m$\\frac{1}{0}$"
SHOWN_EVIL = "</script><img src=x onerror=alert(1)> \ufffd[31m$\\frac{1}{0}$"


@cache
def found(*gpus: int) -> WhatIf:
    return whatif(summary_of(RESNET50), Options(bucket_mb=USUAL_MB, gpus=gpus, hosts=Hosts(8, 3.0)))


@cache
def own_caps() -> WhatIf:
    return whatif(summary_of(RESNET50), Options(bucket_mb=USUAL_MB))


@cache
def one_gpu() -> WhatIf:
    links = LinkModel({4: Affine(4, 0.0, 300.0)}, "given")
    return whatif(summary_of(SAMPLES / "resnet18-ddp1"), Options(gpus=(4,)), links)


@cache
def sharded() -> WhatIf:
    return whatif(summary_of(SAMPLES / "resnet18-fsdp4"))


@cache
def changed() -> WhatIf:
    return whatif(summary_of(RESNET50))


MADE = {"own": found, "scaling": lambda: found(4, 8, 64, 1024), "single": one_gpu}
ALL = pytest.mark.parametrize("made", MADE.values(), ids=MADE, indirect=True)


@pytest.fixture
def made(request) -> WhatIf:
    return request.param()


def rows(shown: str) -> list[str]:
    """The rows of the settings' table, marks left out."""
    table = shown[shown.index("Predicted steps") : shown.index("What this rests on")].split("Scaling out")[0]
    words = [" ".join(line.replace("*", "").replace("?", "").split()) for line in table.splitlines()]
    return [row for row in words if re.match(r"(default|[\d.]+ MB|-) ", row)]


@ALL
def test_the_table_has_every_settings_figures(made):
    shown = rows(prediction_text(made))
    assert len(shown) == len(made.of_settings)
    for row, each in zip(shown, made.of_settings, strict=True):
        cap = "default" if each.bucket_mb is None else f"{each.bucket_mb:g} MB"
        step, gain, exposed = (
            f"{ns / 1e6:,.3f}" for ns in (each.step_ns, each.gain_ns, each.predicted_exposed_comm_ns or 0)
        )
        figures = f"{cap} {len(each.buckets)} {each.gpus:,} {step} {gain} {within(each)} {exposed}"
        assert row.startswith(f"{figures} {100 * (each.efficiency or 0):.1f} %")


@pytest.mark.parametrize("made", [changed, sharded], ids=["ddp", "fsdp"])
def test_what_else_would_change_the_step_is_listed_and_what_would_not_is_named(made):
    shown = prediction_text(made())
    listed = rows_besides_caps(made())
    for each in made().others:
        assert each.words in shown.replace("\n", " ")
        if each in listed:
            line = next(line for line in shown.splitlines() if line.lstrip(" ?").startswith(f"{each.words} "))
            assert f"{each.gain_ns / 1e6:,.3f}" in line


@pytest.mark.parametrize("made", [*MADE.values(), changed, sharded], ids=[*MADE, "ddp", "fsdp"])
def test_what_is_not_to_be_trusted_has_its_reason_below_once(made):
    shown = prediction_text(made())
    for reason in doubts([*rows_besides_caps(made()), *made().of_settings]):
        assert shown.count(f"? {reason}\n") == 1
    assert shown.count("\n?") >= sum(not each.reliable for each in made().of_settings)


@ALL
def test_what_is_said_of_the_model_is_shown(made):
    shown = prediction_text(made)
    for words in (made.run, made.links, made.baseline.measured_from, *made.assumptions, *map(str, made.warnings)):
        assert words in shown
    assert made.headline[1:] in shown
    assert f"Trust is {made.grade}" in shown


def test_the_runs_own_settings_are_marked_where_they_are_among_the_scenarios():
    marked = [line for line in prediction_text(own_caps()).splitlines() if re.match(r"\??\*\s+\d", line)]
    assert [line.replace("?", "").split()[1] for line in marked] == ["25"]
    assert sum(is_own(each, own_caps()) for each in own_caps().scenarios) == 1


def test_prose_is_wrapped_and_a_name_steers_no_terminal():
    narrow = prediction_text(replace(found(), run=EVIL), width=60)
    assert SHOWN_EVIL[:30] in narrow
    assert "\x1b" not in narrow


def test_scaling_out_has_the_best_cap_of_each_number_of_gpus_and_says_where_hiding_ends():
    made = found(4, 8, 64, 1024)
    out = made.scale_out
    assert out is not None
    for row in out.rows:
        own = [each for each in made.scenarios if each.gpus == row.gpus]
        assert row.predicted_step_ns == min(each.predicted_step_ns for each in own)
        limit_ns = max(made.uncertainty_ns, LEAST_SHARE * row.predicted_step_ns)
        assert row.hidden == (row.predicted_exposed_comm_ns <= limit_ns)
    assert [row.hidden for row in out.rows] == [True, True, False, False]
    assert out.exposed_from_gpus == 64
    assert no_longer_hidden(out) in prediction_text(made)
    assert no_longer_hidden(out).startswith("On 64 GPUs communication is no longer hidden")
    assert found().scale_out is None
    assert "Scaling out" not in prediction_text(found())


def test_communication_that_stays_hidden_is_said_to():
    out = found(4, 8).scale_out
    assert out is not None
    assert no_longer_hidden(out) == "Communication stays hidden up to 8 GPUs."


@ALL
def test_json_comes_back_as_it_was_and_rows_are_its_scenarios(made):
    back = from_json(to_json(made))
    assert back.scenarios == saved(made.scenarios)
    assert back.baseline == made.baseline
    assert back.scale_out == made.scale_out
    frame = SCENARIOS.frame(made)
    assert frame["predicted_step_ns"].tolist() == [each.predicted_step_ns for each in made.scenarios]
    assert [bytes_.split() for bytes_ in frame["buckets"]] == [[*map(str, each.buckets)] for each in made.scenarios]


@ALL
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_picture_can_be_read(made, theme):
    with style(theme, TEXT_PT):
        drawn = figure(made, theme)
        assert_readable(drawn)
    assert len(drawn.axes) == (1 if made.scale_out is None else 2)


@pytest.mark.parametrize(("made", "caps"), quarters([(changed, 1), (sharded, 0)]))
def test_what_has_no_place_over_caps_is_a_row_of_its_own(made, caps):
    prediction = made()
    scenarios = rows_besides_caps(prediction)
    with style(LIGHT, TEXT_PT):
        drawn = figure(prediction, LIGHT)
        assert_readable(drawn)
    assert len(drawn.axes) == caps + 1
    labels = [label.get_text().replace("\n", " ") for label in drawn.axes[-1].get_yticklabels()]
    assert labels == [row_words(each) for each in scenarios]
    chart = rows_chart(prediction)
    assert chart is not None
    marks, frame = chart.series[0].marks, chart.frame
    order = sorted(range(len(scenarios)), key=lambda place: scenarios[place].predicted_step_ns)
    across = [marks[place].x for place in order]
    assert across == sorted(across)
    for mark, tick, each in zip(marks, chart.up, scenarios, strict=True):
        assert frame.left <= mark.low <= mark.x <= mark.high <= frame.right
        assert mark.y == tick.at
        assert mark.hollow is not each.reliable
    ends = [tuple(map(float, point.split(","))) for point in chart.lines[0].points.split()]
    assert [y for _, y in ends] == [frame.top, frame.bottom]
    assert all(frame.left < x < frame.right for x, _ in ends)
    assert rows_chart(found()) is None


def test_one_gpu_alone_has_no_cap_to_stand_over():
    prediction = whatif(summary_of(RESNET50), Options(gpus=(1,)))
    assert [row_words(each) for each in rows_besides_caps(prediction)] == ["one GPU"]
    with style(LIGHT, TEXT_PT):
        drawn = figure(prediction, LIGHT)
    assert [axis.get_xlabel() for axis in drawn.axes] == ["step, ms"]


@pytest.mark.slow
def test_a_long_row_is_cut_short_where_it_is_drawn_and_said_in_full():
    asked = Options(prefetch=False, reshard_after_forward=False, separate_reduce_scatter_group=True, gpus=(8,))
    prediction = whatif(summary_of(SAMPLES / "resnet18-fsdp4"), asked)
    chart = rows_chart(prediction)
    assert chart is not None
    label, words = chart.up[-1].label, chart.series[0].marks[-1].words
    assert label.endswith("...") and len(label) <= 52
    assert words.startswith(f"{asked.sharding(8).words} on 8 GPUs: ")


def test_the_picture_has_every_form_and_the_same_bytes():
    for form, head in HEADS.items():
        assert prediction_picture(found(), form).startswith(head)
    assert prediction_picture(found(), "png") == prediction_picture(found(), "png")


@ALL
def test_the_pages_picture_has_a_point_for_each_scenario_in_its_place(made):
    drawn = caps_chart(made)
    *series, measured, noise = drawn.series
    assert (measured.label, noise.label) == ("measured", "noise")
    for each, (_, own) in zip(series, by_gpus(made), strict=True):
        assert [mark.hollow for mark in each.marks] == [not scenario.reliable for scenario in own]
        by_step = sorted(zip(own, each.marks, strict=True), key=lambda pair: pair[0].predicted_step_ns)
        heights = [mark.y for _, mark in by_step]
        assert heights == sorted(heights, reverse=True)
        assert [mark.x for mark in each.marks] == sorted(mark.x for mark in each.marks)
        assert all(FRAME.top <= mark.high < mark.y < mark.low <= FRAME.bottom for mark in each.marks)
        assert all(FRAME.left < mark.x < FRAME.right and FRAME.top < mark.y < FRAME.bottom for mark in each.marks)
    assert len(drawn.across) == len(cap_places(made))
    assert len(drawn.up) > 2
    assert drawn.band.height > 0


def test_one_cap_and_no_noise_still_make_a_picture():
    one = replace(found(), scenarios=found().of_settings[:1], uncertainty_ns=0)
    assert caps_chart(one).series[0].marks
    with style(LIGHT, TEXT_PT):
        assert_readable(figure(one, LIGHT))


def test_the_page_has_a_section_where_the_run_can_be_replayed():
    made = replace(found(), links=EVIL)
    parsed = Page(report_html(reported(RESNET50), (), None, made))
    assert parsed.sections.index("whatif") == parsed.sections.index("about") - 1
    assert "#whatif" in [attributes["href"] for tag, attributes in parsed.elements if tag == "a"]
    steps = {cell for row in parsed.rows["whatif"] for cell in row}
    assert {f"{each.step_ns / 1e6:,.3f}" for each in made.scenarios} <= steps
    assert f"links: {SHOWN_EVIL}" in "".join(parsed.words)
    assert "img" not in [tag for tag, _ in parsed.elements]


def test_a_run_that_was_read_without_its_graph_has_no_section():
    assert usual(without_causes(RESNET50)) is None
    assert 'id="whatif"' not in report_html(reported(RESNET50))
