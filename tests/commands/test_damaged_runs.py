"""Runs that are slightly damaged, or oddly named: every command says what it can, and none ends in a traceback."""

import shutil

import pytest

from analyzers.reporting.document import from_json
from tests.support.damage import read_run, shift_clock, write_run
from tests.support.samples import SAMPLES
from tracer.cli import main

DDP4, SKEW = SAMPLES / "resnet18-ddp4", SAMPLES / "skew-memory"
NO_EPOCHS = ["-1", "...", 1.5, None, [], {}, 10**30, -1]


def test_clocks_of_one_host_that_lie_apart_match_nothing_and_do_no_harm(tmp_path, capsys):
    first, second, *others = read_run(DDP4)
    run = write_run(tmp_path / "run", [first, shift_clock(second, 5_000_000), *others])
    for name in ("run.json", "links.json"):
        shutil.copy(DDP4 / name, run)
    page = tmp_path / "run.html"
    assert main(["report", str(run), "--json", "--html", str(page)]) == 0
    assert from_json(capsys.readouterr().out).collectives == []
    assert main(["whatif", str(run), "--json"]) == 0


@pytest.mark.parametrize("epoch", NO_EPOCHS, ids=repr)
def test_an_epoch_that_is_none_costs_its_own_rank_the_clock_alone(tmp_path, capsys, epoch):
    first, second = read_run(SKEW)
    run = write_run(tmp_path, [first, second | {"baseTimeNanoseconds": epoch}])
    assert main(["report", str(run), "--json"]) == 0
    found = from_json(capsys.readouterr().out)
    assert found.run.ranks == [0, 1]
    assert [str(said) for said in found.run.warnings if "baseTimeNanoseconds" in str(said)]


def test_a_rank_without_an_epoch_is_compared_and_drawn(tmp_path):
    first, second = read_run(SKEW)
    del second["baseTimeNanoseconds"]
    run = write_run(tmp_path / "run", [first, second])
    shutil.copy(SKEW / "run.json", run)
    page = tmp_path / "compare.html"
    assert main(["compare", str(run), str(SKEW), "--html", str(page)]) == 0
    assert page.stat().st_size > 10_000
