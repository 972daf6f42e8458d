"""The digest of a report: small, and the report's own figures."""

import json

import pytest

from analyzers.reporting import digest, to_summary_json
from tests.support.commands import fails
from tests.support.samples import SAMPLES, reported
from tracer.cli import main

DDP4 = SAMPLES / "resnet18-ddp4"


def test_a_digest_has_the_reports_figures():
    report = reported(DDP4)
    brief = digest(report)
    assert (brief.headline, brief.verdict, brief.advice) == (
        report.summary.headline,
        report.summary.verdict,
        report.summary.advice,
    )
    assert brief.of_degree == [piece for piece in report.summary.of_degree if piece.share >= 0.01] != []
    assert sum(brief.warnings.values()) == len(report.run.warnings)
    assert sum(brief.notes.values()) == len(report.run.notes)
    assert brief.groups_left_out + len(brief.groups) == len(report.summary.groups)


@pytest.mark.parametrize("name", ["resnet18-ddp1", "resnet18-ddp4", "resnet50-ddp4-bf16", "every-collective4"])
def test_a_digest_is_small_enough_to_be_read_whole(name):
    assert len(to_summary_json(reported(SAMPLES / name)).encode()) < 6_000


def test_the_command_prints_it(capsys):
    assert main(["report", str(DDP4), "--json", "--summary"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["run"]) == ("tracer.summary/1", "resnet18-ddp4")


def test_a_summary_without_json_is_refused(capsys):
    assert fails(capsys, "report", str(DDP4), "--summary") == (
        2,
        "tracer: --summary shortens the JSON: give --json --summary\n",
    )
