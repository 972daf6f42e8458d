"""Results print as a few lines at a prompt, however many rows they hold."""

import pytest

import analyzers
from analyzers.comparison.condition_names import LOGGED
from tests.support.samples import SAMPLES, reported, summary_of

RUN = SAMPLES / "resnet18-ddp4"


@pytest.fixture(scope="module")
def results():
    summary = analyzers.summarize(RUN, lanes=True, causes=True)
    report, run = analyzers.report(summary), analyzers.load(RUN)
    other = reported(SAMPLES / "resnet18-ddp2")
    return [
        *(summary, summary.ranks[0], summary.ranks[0].timed, analyzers.exchange(summary)),
        *(report, report.summary, report.run, report.summary.headline, analyzers.lanes(summary, report)[0]),
        *(analyzers.compare(other, report), analyzers.whatif(summary, analyzers.WhatIfOptions(bucket_mb=[None, 10]))),
        *(run, run.ranks[0], run.ranks[0].events, run.manifest, analyzers.breakdown(run)),
    ]


def test_every_result_is_short_and_names_its_kind(results):
    for result in results:
        assert type(result).__name__ in repr(result)
        assert len(repr(result)) < 1500, type(result)


def test_a_report_prints_its_headline():
    report = reported(RUN)
    assert repr(report).splitlines() == ["Report(resnet18-ddp4)", f"Main problem: {report.summary.headline.sentence}"]


def test_rows_are_counted_and_long_texts_cut():
    summary = summary_of(RUN)
    assert "ranks=<4 RankSummary>" in repr(summary)
    assert "name='resnet18-ddp4'" in repr(summary)


def test_logged_figures_are_floats_under_the_conditions_names():
    report = reported(RUN)
    figures = analyzers.headline_figures(report)
    assert figures["step_ms"] == report.summary.windows["span_ns"].median / 1e6
    assert figures["exposed_share"] == report.summary.shares["exposed_comm_ns"]
    assert all(type(value) is float for value in figures.values())
    assert {name.removesuffix("_ms") for name in figures} <= {name.removesuffix("_ns") for name in LOGGED}


def test_figures_that_nobody_measured_are_left_out():
    figures = analyzers.headline_figures(reported(SAMPLES / "resnet18-ddp1"))
    assert not [name for name, value in figures.items() if value is None]
    assert "busbw_gbps" not in figures
