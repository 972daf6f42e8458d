"""Runs that are slightly damaged, or oddly named: every command says what it can, and none ends in a traceback."""

import json
import os
import re
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


def test_an_archive_of_times_before_the_epoch_is_a_line(tmp_path, capsys):
    """Perfetto's format has no negative times, which a .pftrace counts from the run's start."""
    first, second = read_run(DDP2)
    for event in first["traceEvents"]:
        event["ts"] = event.get("ts", 0) - 2 * 10**15
    run = write_run(tmp_path / "run", [first, second])
    assert main(["export", str(run), "-o", str(tmp_path / "run.zip")]) == 1
    assert "no times before 1970" in capsys.readouterr().err
    assert not (tmp_path / "run.zip").exists()
    assert main(["export", str(run), "-o", str(tmp_path / "run.pftrace")]) == 0


def test_hta_s_queue_without_launches_is_a_line(tmp_path, capsys):
    launches = ("cuda_runtime", "cuda_driver")
    traces = [
        trace | {"traceEvents": [event for event in trace["traceEvents"] if event.get("cat") not in launches]}
        for trace in read_run(DDP2)
    ]
    run = write_run(tmp_path / "run", traces)
    assert main(["hta", str(run), "queue"]) == 1
    assert "tracer: " in (said := capsys.readouterr().err) and "Traceback" not in said


@pytest.mark.parametrize("words", ["plot {run} --kind breakdown -o {out}/p.svg", "export {run} -o {out}/p.pftrace"])
def test_pictures_and_timelines_say_on_stderr_what_was_lost(capsys, tmp_path, words):
    run = Path(shutil.copytree(SKEW, tmp_path / "run"))
    assert main(words.format(run=run, out=tmp_path).split()) == 0
    assert "warning" not in capsys.readouterr().err
    whole = (run / "rank1.json.gz").read_bytes()
    (run / "rank1.json.gz").write_bytes(whole[: len(whole) // 2])
    assert main([*words.format(run=run, out=tmp_path).split(), "--force"]) == 0
    lost = r"^warning: .*rank1\.json\.gz: .*not read: the end of the gzip stream"
    assert re.search(lost, capsys.readouterr().err, re.MULTILINE)


def test_a_comparison_says_what_was_lost_of_each_run(capsys, tmp_path):
    run = Path(shutil.copytree(SKEW, tmp_path / "run"))
    (run / "links.json").write_text("{")
    assert main(["compare", str(SKEW), str(run), "--json"]) == 0
    said = [(warning["code"], warning["text"]) for warning in json.loads(capsys.readouterr().out)["warnings"]]
    assert [code for code, _ in said if code == "calibration_unreadable"]
    assert all(text.startswith("B: ") for code, text in said if code == "calibration_unreadable")
