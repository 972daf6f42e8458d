"""Runs that are slightly damaged, or oddly named: every command says what it can, and none ends in a traceback."""

import shutil

from analyzers.reporting.document import from_json
from tests.support.damage import read_run, shift_clock, write_run
from tests.support.samples import SAMPLES
from tracer.cli import main

DDP4 = SAMPLES / "resnet18-ddp4"


def test_clocks_of_one_host_that_lie_apart_match_nothing_and_do_no_harm(tmp_path, capsys):
    first, second, *others = read_run(DDP4)
    run = write_run(tmp_path / "run", [first, shift_clock(second, 5_000_000), *others])
    for name in ("run.json", "links.json"):
        shutil.copy(DDP4 / name, run)
    page = tmp_path / "run.html"
    assert main(["report", str(run), "--json", "--html", str(page)]) == 0
    assert from_json(capsys.readouterr().out).collectives == []
    assert main(["whatif", str(run), "--json"]) == 0
