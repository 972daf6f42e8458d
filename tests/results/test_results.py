"""`tracer.report` and `tracer.compare`: one call from a folder to figures, frames and pages."""

import inspect
import re
import subprocess
import sys
import threading
from html import escape

import msgspec
import pytest

import analyzers
import tracer
from analyzers.comparison import CHANGES, SWEEP_TABLES
from analyzers.comparison.condition_names import LOGGED
from analyzers.lazy_fields import replaced
from analyzers.prediction import SCENARIOS
from analyzers.reporting import TABLES
from analyzers.reporting.document import from_json
from analyzers.units import percent
from tests.support.docs import DOCS, tables
from tests.support.samples import REPORTED, SAMPLES, reported
from tracer.results.run_report import RunReport
from tracer.results.source import Paged, Source
from tracer.views.html.notebook_cell import comparison_cell, report_cell
from tracer.views.sections.screen import step_sentence

RUN = SAMPLES / "resnet18-ddp4"


@pytest.fixture(scope="module")
def report():
    return tracer.report(str(RUN))


@pytest.fixture(scope="module")
def comparison(report):
    return tracer.compare(SAMPLES / "resnet18-ddp2", report)


def test_a_report_has_what_analyzers_say(report):
    document = analyzers.report(analyzers.summarize(RUN, causes=True))
    assert document.charges
    assert report.document == document
    assert report.headline == document.summary.headline
    assert report.verdict == document.summary.verdict
    assert report.advice == document.summary.advice
    assert report.warnings == document.run.warnings
    assert from_json(report.json()) == document


@pytest.mark.parametrize("table", [TABLES[name] for name in TABLES if name != "advice"], ids=lambda table: table.name)
def test_frames_are_analyzers_own_and_say_their_columns_and_units(report, table):
    method = getattr(report, table.name)
    frame = method()
    assert frame.equals(table.frame(report.document))
    assert frame.attrs == {"about": table.about, "units": table.units}
    assert method.__name__ == table.name
    assert table.about in inspect.getdoc(method)
    assert ", ".join(frame.columns) in inspect.getdoc(method)


@pytest.mark.parametrize("path", REPORTED)
def test_every_column_of_a_frame_can_be_grouped_by(path):
    for table in TABLES.values():
        frame = table.frame(reported(path))
        for column in frame:
            assert frame.groupby(column, dropna=False).size().sum() == len(frame), (table.name, column)


def test_frames_of_what_is_compared_predicted_and_swept_say_the_same(report, comparison):
    results = [(comparison, CHANGES), (tracer.whatif(report), SCENARIOS)]
    swept = tracer.sweep(SAMPLES / "sweep-resnet18-h200x2")
    for result, table in results + [(swept, table) for table in SWEEP_TABLES.values()]:
        method = getattr(result, table.name)
        frame = method()
        facts = {name: getattr(result.document, name) for name in table.facts}
        assert frame.attrs == {"about": table.about, "units": table.units, **facts}
        assert ", ".join(frame.columns) in inspect.getdoc(method)
        for column in frame:
            assert frame.groupby(column, dropna=False).size().sum() == len(frame), (table.name, column)


def test_members_are_what_collectives_add_up(report):
    collectives, members = report.collectives(), report.members().groupby("index")
    assert collectives["waited_ns"].tolist() == members["wait_ns"].sum().tolist()
    assert collectives["exposed_ns"].tolist() == members["exposed_ns"].sum().tolist()
    assert members.size().sum() == collectives["group_size"].sum()


def test_kernels_have_a_short_name_beside_the_full_one(report):
    kernels = report.kernels()
    assert all(short in full for short, full in zip(kernels["short_name"], kernels["name"], strict=True))
    assert kernels["short_name"].str.len().max() < kernels["name"].str.len().max()


def test_steps_are_of_all_ranks_together(report):
    steps = report.steps()
    assert steps["step"].tolist() == sorted(set(report.windows()["step"]))
    parts = steps[[name for name in steps if name.endswith("_share")]]
    assert parts.sum(axis=1).tolist() == pytest.approx([1] * len(steps))


def test_it_prints_in_four_lines(report):
    title, problem, step, trust = repr(report).splitlines()
    assert title == "RunReport(resnet18-ddp4)"
    assert problem == f"Main problem: {report.headline.sentence}"
    assert step == step_sentence(report.document)
    assert trust.startswith(f"Trust is {report.headline.trust}")


def test_several_hosts_folders_are_one_run(report):
    assert tracer.report([RUN]).document == report.document


def test_ranks_are_read_here_where_a_fork_may_hang(monkeypatch):
    assert Source(RUN)._readers().workers is (None if sys.platform == "linux" and "torch" not in sys.modules else 1)
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    assert Source(RUN)._readers().workers == 1
    assert Source(RUN, workers=3)._readers().workers == 3
    waiting.set()
    thread.join()


def test_links_may_be_a_file(report):
    given = tracer.report(RUN, links=RUN / "links.json")
    assert given.document.collectives == report.document.collectives


@pytest.mark.slow
def test_a_page_is_written_once(report, tmp_path):
    path = report.html(tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    assert 'id="timeline"' in path.read_text()
    with pytest.raises(tracer.TracerError, match="already exists: give force=True"):
        report.html(path)
    assert report.html(path, force=True) == path


class Page(Paged):
    def _page(self):
        return "<p>page</p>"


def test_a_page_opens_from_a_temporary_folder(monkeypatch):
    addresses = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    path = Page().open()
    assert addresses == [path.as_uri()]
    assert path.read_text() == "<p>page</p>"


def test_a_picture_is_shown_and_saved(report, tmp_path):
    drawn = report.plot("bandwidth")
    assert drawn._repr_png_().startswith(b"\x89PNG")
    assert drawn.save(tmp_path / "drawn.svg").read_text().startswith("<?xml")
    with pytest.raises(tracer.TracerError, match="give force=True"):
        drawn.save(tmp_path / "drawn.svg")
    with pytest.raises(tracer.TracerError, match=r"ends in \.png"):
        drawn.save(tmp_path / "drawn")
    with pytest.raises(tracer.TracerError, match="'scaling': a report has pictures of breakdown, "):
        report.plot("scaling")


def test_lanes_are_written_for_perfetto(report, tmp_path):
    assert b"exposed" in report.perfetto(tmp_path / "run.pftrace").read_bytes()
    with pytest.raises(tracer.TracerError, match=r"end the name in \.pftrace"):
        report.perfetto(tmp_path / "run.zip")


def test_predictions_are_analyzers_own(report):
    predicted = tracer.whatif(report, bucket_mb=25, gpus=[8, 4, 8])
    options = analyzers.WhatIfOptions(bucket_mb=[25], gpus=[4, 8])
    assert predicted.document == analyzers.whatif(analyzers.summarize(RUN, causes=True), options)
    assert predicted.headline in repr(predicted)
    assert len(predicted.scenarios()) == 2
    assert tracer.whatif(report, bucket_mb=25, links=RUN / "links.json").document.links == "the given calibration"
    assert msgspec.json.decode(predicted.json())["headline"] == predicted.headline
    slow = tracer.whatif(RUN, bucket_mb=25, bus_gbps=1, latency_us=50)
    assert slow.document.links == "as given"
    assert slow.scenarios()["gain_ns"][0] < 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpus": 0}, "gpus=0: give whole numbers from 1 to"),
        ({"gpus": 2.5}, "gpus=2.5: give whole numbers"),
        ({"gpus": "4"}, "gpus='4': give whole numbers"),
        ({"grad_accumulation": 10**20}, "grad_accumulation=1000"),
        ({"bucket_mb": float("inf")}, "bucket_mb=inf: give numbers"),
        ({"host_time": 1e300}, "host_time=1e\\+300: give numbers"),
        ({"bus_gbps": -100, "gpus": 64}, "bus_gbps=-100: give numbers"),
        ({"bus_gbps": 100, "latency_us": -200}, "latency_us=-200: give numbers from 0"),
        ({"latency_us": 50}, "latency_us requires bus_gbps"),
        ({"host_gbps": float("nan"), "gpus_per_host": 2}, "host_gbps=nan: give numbers"),
        ({"gpus": True}, "gpus=True: give whole numbers from 1"),
        ({"host_time": 2}, "host_time=2: give numbers from 0 to 1"),
        ({"steps": "forward"}, "steps='forward': a report is read as tracer.report was told to"),
        ({"grad_dtype": ["bf16"]}, "is not one of bf16"),
        ({"host_gbps": 10}, "give both"),
        ({"links": RUN / "links.json", "bus_gbps": 10}, "give one of them"),
        ({"grad_dtype": "fp8"}, "'fp8' is not one of bf16, fp16, fp32"),
        ({"straggler": 9}, "straggler=9: there is no such rank"),
        ({"only": "speed"}, "only=speed: there is no such kind"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_pythons_words(report, asked, words):
    with pytest.raises(tracer.TracerError, match=words):
        tracer.whatif(report, **asked)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": "two"}, "workers='two': give a number of processes, 1 or more"),
        ({"workers": 0}, "workers=0: give a number of processes"),
        ({"workers": True}, "workers=True: give a number of processes"),
        ({"memory": True}, "memory=True: give a size such as 500MB or 4GB, or bytes"),
        ({"memory": "much"}, "memory: much: give a size such as 500MB or 4GB"),
        ({"steps": ""}, "steps='': give the name of the annotation"),
        ({"cache": 3}, "cache=3: give a folder, True or False"),
        ({"links": {}}, "links={}: give a calibration, or its file"),
        ({"memory": 0}, "memory=0: give a size such as 500MB or 4GB, or bytes"),
    ],
)
def test_what_no_run_can_be_read_with_is_one_clear_line(asked, words):
    for read in (tracer.report, tracer.whatif):
        with pytest.raises(tracer.TracerError, match=words):
            read(RUN, **asked)


def test_a_sweep_is_its_study(tmp_path):
    swept = tracer.sweep(SAMPLES / "sweep-resnet18-h200x2")
    assert swept.document == analyzers.study(SAMPLES / "sweep-resnet18-h200x2", analyzers.summarize)
    assert swept.verdict in repr(swept)
    assert len(swept.weak()) == len(swept.document.weak)
    assert msgspec.json.decode(swept.json())["verdict"] == swept.verdict
    assert swept.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_rank_may_take_so_much_memory(tmp_path):
    with pytest.raises(tracer.TracerError, match="give it more with memory=SIZE or TRACER_MEMORY"):
        tracer.report(RUN, memory="1MB")


@pytest.mark.parametrize("call", [tracer.report, tracer.compare, tracer.whatif, tracer.sweep])
def test_help_has_an_example_and_what_its_result_offers(call):
    text = inspect.getdoc(call)
    assert f"= tracer.{call.__name__}(" in text
    result = getattr(tracer, inspect.signature(call).return_annotation)
    offered = {name for name in dir(result) if not name.startswith("_")}
    assert offered <= {*re.findall(r"`(\w+)[(`]", text)}


def test_a_comparison_takes_places_and_reports(report, comparison):
    assert comparison.b is report
    assert comparison.a.name == "resnet18-ddp2"
    assert comparison.document == analyzers.compare(comparison.a.document, report.document)
    assert repr(comparison) == f"RunComparison(resnet18-ddp2 -> resnet18-ddp4)\n{comparison.verdict}"
    assert len(comparison.changes()) == len(list(comparison.document.figures()))
    assert msgspec.json.decode(comparison.json())["verdict"] == comparison.verdict


def test_a_comparisons_page_is_written(comparison, tmp_path):
    assert comparison.verdict.split(",")[0] in comparison.html(tmp_path / "page.html").read_text().replace("&#39;", "'")


def test_what_is_no_run_is_refused_in_a_line(tmp_path):
    with pytest.raises(tracer.TracerError):
        tracer.report(tmp_path / "nothing")


def test_a_cell_shows_the_headline_and_is_small(report):
    cell = report._repr_html_()
    assert step_sentence(report.document) in cell
    bar = report.document.summary.bar
    assert f"idle or waiting {percent(bar.idle_or_wait_ns / bar.step_ns)}" in cell
    assert len(cell) < 8000


def test_cells_hold_no_script_and_escape_names(report, comparison):
    evil = "<script>alert(1)</script>"
    run = msgspec.structs.replace(report.document.run, name=evil)
    cells = [
        report_cell(replaced(report.document, run=run)),
        comparison_cell(msgspec.structs.replace(comparison.document, a=evil, verdict=evil)),
    ]
    for cell in cells:
        assert "<script" not in cell
        assert "&lt;script&gt;" in cell
        assert "http" not in cell


def test_importing_tracer_is_light_and_reporting_needs_no_torch():
    code = (
        "import sys, tracer; early = {'torch', 'pandas', 'numpy', 'jinja2'} & sys.modules.keys();"
        "report = tracer.report('traces/resnet18-ddp1'); print(early or 'light', 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=SAMPLES.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "light False\n"


def test_every_name_that_tracer_offers_is_there():
    assert {*tracer.__all__} == {name for name in dir(tracer) if not name.startswith("_")}
    assert all(getattr(tracer, name) is not None for name in tracer.__all__)
    assert tracer.RunReport is RunReport
    with pytest.raises(AttributeError, match="no attribute 'reprot'"):
        getattr(tracer, "reprot")  # noqa: B009


@pytest.mark.parametrize("path", REPORTED)
def test_every_run_has_a_short_cell(path):
    document = reported(path)
    cell = report_cell(document)
    assert escape(document.summary.headline.sentence, quote=False) in cell.replace("&#39;", "'").replace("&#34;", '"')
    assert len(cell) < 8000


def test_the_page_on_python_names_every_figure_and_every_member():
    sections = tables((DOCS / "python.md").read_text())
    members = [
        row[0]
        for heading, rows in sections.items()
        for row in rows
        if heading.startswith(("`tracer.report(", "Frames"))
    ]
    named = re.findall(r"`(\w+)[(`]", " ".join(members))
    arguments = {*inspect.signature(tracer.report).parameters}
    public = {name for name in dir(RunReport) if not name.startswith("_")} | {"document"}
    assert {*named} == (public - {"name"}) | arguments
    keys = re.findall(r"`tracer/(\w+)`", " ".join(row[0] for row in sections["Log the figures"]))
    assert sorted(keys) == sorted(name.replace("_ns", "_ms") for name in LOGGED)
