"""`Session(on_report=...)`: the report reaches the training, and never ends it."""

import logging

import pytest

import tracer
from tests.support.loops import PLAN, new_training, train


def record(output, on_report, steps=None, plan=PLAN):
    model, optimizer = new_training()
    with tracer.Session(output, model, plan=plan, on_report=on_report) as session:
        train(model, optimizer, session.step, *([steps] if steps else []))
    return session


def test_the_report_of_the_recording_is_handed_over(tmp_path):
    reports = []
    session = record(tmp_path / "run", reports.append)
    (report,) = reports
    assert session.recorded == (tmp_path / "run",)
    assert report.name == "run"
    assert report.figures()["tracer/step_ms"] > 0
    assert report.document == tracer.report(tmp_path / "run").document


@pytest.mark.slow
def test_each_of_several_recordings_is_reported(tmp_path):
    reports = []
    plan = tracer.Plan(wait=0, warmup=1, active=1, rounds=1, every=8)
    record(tmp_path / "run", reports.append, steps=17, plan=plan)
    assert [report.name for report in reports] == ["step0", "step8"]


@pytest.mark.slow
def test_rounds_of_a_training_that_ended_early_are_reported(tmp_path):
    reports = []
    plan = tracer.Plan(wait=0, warmup=1, active=2, rounds=2)
    with pytest.warns(tracer.IncompleteRecording, match=r"15 steps; this recording takes 18, .* has what there was"):
        record(tmp_path / "run", reports.append, steps=15, plan=plan)
    assert [report.name for report in reports] == ["run"]


def test_an_exception_is_logged_and_training_goes_on(tmp_path, caplog):
    def fail(report):
        raise ConnectionError("no route to host")

    with caplog.at_level(logging.WARNING, "tracer"):
        session = record(tmp_path / "run", fail)
    assert session.recorded == (tmp_path / "run",)
    assert "run: on_report failed (ConnectionError: no route to host)" in caplog.text


@pytest.mark.slow
def test_a_report_that_cannot_be_made_is_logged_too(tmp_path, caplog, monkeypatch):
    def refuse(*arguments, **options):
        raise MemoryError("no room")

    monkeypatch.setattr("tracer.sessions.session.report", refuse)
    record(tmp_path / "run", print)
    assert "on_report failed (MemoryError: no room)" in caplog.text


@pytest.mark.slow
def test_other_ranks_report_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.sessions.session.rank_and_size", lambda: (1, 2))
    reports = []
    record(tmp_path / "run", reports.append)
    assert reports == []


@pytest.mark.slow
def test_an_interrupt_is_no_failure_of_the_callback(tmp_path):
    def interrupt(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "run", interrupt)
