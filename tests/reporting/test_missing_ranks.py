"""Runs of which ranks are missing: a rank's number is not its index, and its own figures stay its own."""

import itertools
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from analyzers.comparison.runs import compare
from analyzers.prediction import Options, whatif
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import TIMES, lanes
from analyzers.reporting.document import Report, from_json
from tests.support.samples import REPORTED, SAMPLES, reported, summarized
from tracer.cli import main

DDP, FSDP = SAMPLES / "resnet18-ddp4", SAMPLES / "resnet18-fsdp4"
LEFT = [(1, 2, 3), (1, 3), (2,)]
CASES = [pytest.param(run, left, id=f"{run.name}-{left}") for run in (DDP, FSDP) for left in LEFT]
# What a rank says by itself, in each list of the report; the rest is learnt from the others.
OWN = {
    "windows": ("step", "span_ns", "compute_ns", "comm_ns", "copy_ns", "exposed_comm_ns", "idle_ns", "contention_ns"),
    "buckets": ("step", "bucket", "bytes", "parameters", "dur_ns", "queued_ns", "late_launch_ns", "exposed_ns"),
    "layers": ("step", "layer", "type", "forward_ns", "backward_ns", "parameters", "bucket", "exposed_ns"),
}


@pytest.fixture(scope="module")
def left_of(tmp_path_factory):
    """A copy of a run in which only some ranks' files are left; each made once."""

    @cache
    def copied(run: Path, left: tuple[int, ...]) -> Path:
        folder = tmp_path_factory.mktemp("left") / run.name
        gone = [f"rank{rank}.json.gz" for rank in set(range(4)) - set(left)]
        shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*gone))
        return folder

    return copied


@pytest.fixture(scope="module")
def summary_left(left_of):
    @cache
    def summarized_left(run: Path, left: tuple[int, ...]) -> RunSummary:
        return summarize(left_of(run, left), lanes=True)

    return summarized_left


@pytest.fixture(scope="module")
def report_left(summary_left):
    @cache
    def reported_left(run: Path, left: tuple[int, ...]) -> Report:
        return report(summary_left(run, left))

    return reported_left


def own(found, name, left):
    return [
        (row.rank, *(getattr(row, column) for column in OWN[name])) for row in getattr(found, name) if row.rank in left
    ]


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("run", "left"), CASES)
def test_each_rank_has_the_figures_that_it_has_among_all(run, left, name, report_left):
    found = report_left(run, left)
    assert {row.rank for row in found.windows} == set(left)
    assert own(found, name, left) == own(reported(run), name, left)


@pytest.mark.parametrize(("run", "left"), CASES)
def test_members_of_collectives_are_of_the_ranks_that_are_here(run, left, report_left):
    found = report_left(run, left)
    members = [member for row in found.collectives for member in row.members]
    assert {member.rank for member in members} == set(left)
    assert {row.rank for row in found.waiting} <= set(left)
    whole = {(member.rank, member.exposed_ns) for row in reported(run).collectives for member in row.members}
    assert {(member.rank, member.exposed_ns) for member in members} <= whole


@pytest.mark.parametrize(("run", "left"), CASES)
def test_the_timeline_is_of_the_rank_that_it_names(run, left, report_left):
    shown = report_left(run, left).timeline
    (window,) = [row for row in reported(run).windows if (row.rank, row.step) == (shown.rank, shown.step)]
    marks = sorted((mark.start_ns, mark.start_ns + mark.dur_ns) for lane in shown.lanes for mark in lane.marks)
    ends = itertools.accumulate((end for _, end in marks), max, initial=0)
    covered = sum(max(0, end - max(start, before)) for (start, end), before in zip(marks, ends, strict=False))
    assert (shown.span_ns, covered) == (window.span_ns, window.comm_ns)


@pytest.mark.parametrize(("run", "left"), CASES)
def test_lanes_are_of_the_rank_that_they_name(run, left, summary_left, report_left):
    found = lanes(summary_left(run, left), report_left(run, left))
    whole = {lane.rank: lane for lane in lanes(summarized(run), reported(run))}
    assert [lane.rank for lane in found] == list(left)
    for lane in found:
        for name in set(TIMES) - {"exposed_wait", "exposed_transfer", "exposed_unresolved"}:
            length_ns = getattr(lane, name).length_ns()
            assert length_ns == getattr(whole[lane.rank], name).length_ns()
        assert lane.layers.names == whole[lane.rank].layers.names
        assert lane.collectives.exposed_ns.tolist() == whole[lane.rank].collectives.exposed_ns.tolist()
        assert lane.collectives.bucket.tolist() == whole[lane.rank].collectives.bucket.tolist()


@pytest.mark.parametrize("left", LEFT)
def test_predictions_and_comparisons_do_without_rank_0(left, summary_left, report_left):
    found = whatif(summary_left(DDP, left), Options())
    assert found.baseline.predicted_step_ns > 0
    assert compare(report_left(DDP, left), reported(DDP))


@pytest.mark.slow
@pytest.mark.parametrize("left", LEFT)
def test_every_command_does_without_rank_0(left, left_of, tmp_path, capsys):
    run, page, document = str(left_of(DDP, left)), tmp_path / "page.html", tmp_path / "report.json"
    assert main(["report", run, "--html", str(page), "--workers", "1"]) == 0
    assert main(["export", run, "-o", str(tmp_path / "run.pftrace"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["report", run, "--json", "--workers", "1"]) == 0
    document.write_text(capsys.readouterr().out)
    assert {row.rank for row in from_json(document.read_bytes()).windows} == set(left)
    assert page.read_text().startswith("<!doctype html>")
    assert msgspec.json.decode(document.read_bytes())["run"]["ranks"] == list(left)


@pytest.mark.parametrize("path", REPORTED)
def test_one_rank_alone_neither_waits_nor_transfers_but_may_do_either(path):
    run = summarized(path)
    if len(run.ranks) < 2:
        pytest.skip("one rank")
    found = report(replace(run, ranks=run.ranks[:1]))
    for window in found.windows:
        assert (window.exposed_wait_ns, window.exposed_transfer_ns) == (0, 0)
        assert window.exposed_unresolved_ns == window.exposed_comm_ns
    assert not {each.code for each in found.summary.advice} & {"straggler", "ranks_apart", "last_bucket", "fewer_bytes"}
