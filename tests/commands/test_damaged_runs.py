"""Runs that are slightly damaged, or oddly named: every command says what it can, and none ends in a traceback."""

import json
import os
import shutil
from pathlib import Path

import pytest

from analyzers.reporting.document import from_json
from tests.support.damage import read_run, shift_clock, write_run
from tests.support.samples import SAMPLES
from tracer.cli import main
from tracer.views.choices import KINDS

DDP2, DDP4, SKEW = (SAMPLES / name for name in ("resnet18-ddp2", "resnet18-ddp4", "skew-memory"))
NO_EPOCHS = ["-1", "...", 1.5, None, [], {}, 10**30, -1]


def runs_all(run: Path, out: Path) -> None:
    """Have every command that reads one run write what it can of it."""
    out.mkdir()
    page, document = out / "run.html", out / "run.json"
    words = [
        ["report", run, "--json", "--html", page, "-o", document, "--csv", out],
        ["report", run, "--full"],
        ["whatif", run],
        ["export", run, "-o", out / "run.pftrace"],
        ["export", run, "-o", out / "run.zip"],
        *(["plot", run, "--kind", kind, "-o", out / f"{kind}.svg"] for kind in KINDS[:-1]),
        ["compare", run, run, "--html", out / "compare.html"],
        ["compare", document, document, "--json"],
        ["tensorboard", run, "--logdir", out / "logs"],
    ]
    for line in words:
        assert main([*map(str, line), "--workers", "1"] if line[0] != "tensorboard" else [*map(str, line)]) == 0, line


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


@pytest.mark.slow
def test_names_that_are_no_utf8_are_shown_by_every_command(tmp_path, capsys):
    run = tmp_path / os.fsdecode(b"run\xff")
    shutil.copytree(DDP2, run)
    for file in run.glob("rank*.json.gz"):
        file.rename(run / os.fsdecode(b"h\xff-" + os.fsencode(file.name)))
    (run / os.fsdecode(b"junk\xff.json")).write_text("{")
    runs_all(run, tmp_path / os.fsdecode(b"out\xfe"))
    capsys.readouterr()
    assert main(["report", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["name"] == "run\ufffd"
    assert "junk\ufffd.json" in json.dumps(found["run"]["warnings"], ensure_ascii=False)
