"""The skill's commands run, and its evals expect what the commands say."""

import json
import re
import subprocess
import sys
from typing import get_args

import pytest

from analyzers.scenarios import KINDS
from analyzers.units import ms
from tests.support.docs import ROOT, commands
from tests.support.samples import reported
from tracer.cli import main, parse
from tracer.views import By

pytestmark = pytest.mark.usefixtures("remembered")

SKILL = ROOT / "skills" / "tracer"
PAGE = (SKILL / "SKILL.md").read_text()
EVALS = json.loads((SKILL / "evals.json").read_text())["evals"]
NAMED = [pytest.param(expected, id=expected["run"]) for expected in EVALS]
RUNS = {
    "RUN": "traces/resnet18-ddp2-sick",
    "BEFORE": "traces/resnet18-ddp2-sick",
    "AFTER": "traces/resnet18-ddp2-cured",
}
SHOWN = [[RUNS.get(word, word) for word in words] for words in commands(PAGE)]


def answer(expected):
    headline = reported(ROOT / expected["run"]).summary.headline
    return f"{headline.problem}: {headline.remedy or 'the cause is not known'}"


def checked(tmp_path, answers):
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(answers))
    done = subprocess.run([sys.executable, SKILL / "check.py", file], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_the_page_is_short_and_names_every_kind_of_finding():
    assert len(PAGE.splitlines()) <= 120
    assert not {kind.name for kind in KINDS if f"`{kind.name}`" not in PAGE}


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_every_command_parses_and_what_reads_runs(words, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    if words[0] in ("record", "doctor"):
        parse(words)
    else:
        assert main(words) == 0
        assert capsys.readouterr().out


def test_every_table_that_the_page_names_is_one():
    rows = [line.split(" | ") for line in PAGE.split("| table |")[1].split("\n\n")[0].splitlines()[2:]]
    tables = {table.strip("`") for row in rows for table in row[1].split(", ")}
    assert len(rows) > 10 and tables <= set(get_args(By))


@pytest.mark.parametrize("expected", NAMED)
def test_the_summary_says_what_the_evals_expect(expected, capsys):
    assert main(["report", str(ROOT / expected["run"]), "--json", "--summary"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["headline"]["code"] == expected["code"]
    # Figures of low trust must not be said.
    graded = [summary["headline"], *summary["advice"]]
    doubtful = [ms(each["gain_ns"]) for each in graded if each["trust"] == "low" and each["gain_ns"]]
    assert {figure.replace(".", "\\.") for figure in doubtful} <= set(expected["never"])


def test_answers_without_figures_are_found(tmp_path):
    code, lines = checked(tmp_path, {expected["run"]: _without_figures(answer(expected)) for expected in EVALS})
    assert (code, lines) == (0, [f"{expected['run']}: found" for expected in EVALS])


def _without_figures(text):
    return re.sub(r"(at most )?[\d.]+ ms of [^)]*\)", "", text)


def test_answers_with_faults_are_not(tmp_path):
    sick = answer(EVALS[0])
    code, lines = checked(tmp_path, {EVALS[0]["run"]: f"{sick} Buy faster links.", EVALS[1]["run"]: "Pin memory."})
    assert code == 1
    assert "says: 3" in lines[0] and "faster" in lines[0]
    assert "lacks the problem: pageable" in lines[1] and "lacks the remedy: non_blocking" in lines[1]
