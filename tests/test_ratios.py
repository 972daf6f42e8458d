"""`benchmarks/ratios.py` compares the tree with a commit: what it prints and refuses, nothing by the clock."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
IN_CLONE = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: there is no commit to compare with")
RATIO = r"\s+\d+\.\d{3} \d+\.\d{3}\.\.\d+\.\d{3}"


def compared(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "ratios.py"), *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def git(*words: str, given: str = "", **environment: str) -> str:
    asked = subprocess.run(
        ["git", *words], cwd=ROOT, env=os.environ | environment, input=given, capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("ratios")


@IN_CLONE
def test_prints_a_line_for_each_phase_and_a_verdict():
    found = compared("--against", "HEAD", "--phases", "version", "--rounds", "1")
    assert not found.returncode, found.stderr
    head, _, row, verdict = found.stdout.splitlines()
    assert git("rev-parse", "--short", "HEAD") in head
    assert re.match(rf"version{3 * RATIO}\s+\d+\.\d{{3}}\s+\d+", row)
    assert re.match("(Nothing got slower|Slower or larger: version)", verdict)
    assert "Fewer than 7 rounds" in verdict


@pytest.mark.slow
@IN_CLONE
def test_a_phase_that_the_commit_lacks_is_not_compared(tmp_path):
    # Objects of its own: the repository keeps none of this.
    objects = git("rev-parse", "--path-format=absolute", "--git-path", "objects")
    place = {"GIT_OBJECT_DIRECTORY": str(tmp_path), "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects}
    blob = git("hash-object", "-w", "--stdin", given="", **place)
    package = git("mktree", given=f"100644 blob {blob}\t__init__.py\n", **place)
    tree = git("mktree", given=f"040000 tree {package}\tanalyzers\n040000 tree {package}\ttracer\n", **place)
    people = {f"GIT_{who}_{what}": "nobody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    commit = git("commit-tree", "-m", "Begin", tree, **place, **people)
    found = compared("--against", commit, "--phases", "import,help", "--rounds", "1", "--json", **place)
    assert not found.returncode, found.stderr
    document = json.loads(found.stdout)
    missing = document["phases"]["help"]
    assert missing["ratios"] == {}
    assert "No module named tracer.__main__" in missing["missing"]
    assert document["phases"]["import"]["ratios"].keys() == {"CPU", "wall", "memory"}


@IN_CLONE
@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (("--against", "nonsense"), {}, "--against nonsense: .* has no such commit"),
        (("--against", "HEAD"), {"PATH": ""}, "git is not installed"),
        (("--against", "HEAD", "--phases", "version,nap"), {}, "--phases nap: there are version, help"),
        (("--against", "HEAD", "--samples", "nap"), {}, "--samples nap: not in "),
        (("--against", "HEAD", "--rounds", "0"), {}, "--rounds 0: at least 1"),
    ],
)
def test_refuses_in_one_line(words, environment, said):
    found = compared(*words, **environment)
    assert found.returncode
    assert re.fullmatch(rf"ratios\.py: {said}.*\n", found.stderr)


def test_says_so_where_nothing_could_be_compared(ratios):
    missing = [ratios.Compared(ratios.Row("help"), missing="Begin: there is no command help")]
    assert re.fullmatch(r"help\s+- Begin: there is no command help", ratios.table(missing)[-1])
    assert ratios.verdict(missing, 7) == "Nothing could be compared."


def test_more_is_what_lies_above_one_with_its_whole_interval(ratios):
    def more(*pairs: float, word: str = "CPU") -> bool:
        return ratios.ratio_of(word, pairs).more

    assert more(1.02, 1.03, 1.02, 1.05, 1.04, 1.02, 1.03)
    # Once in seven no slower.
    assert not more(1.02, 1.03, 0.99, 1.05, 1.04, 1.02, 1.03)
    # Too little to be noticed.
    assert not more(*[1.004] * 7)
    assert not more(*[1.03] * 7, word="memory")
    assert more(*[1.06] * 7, word="memory")
    assert not more(*[0.9] * 7)


def test_of_many_rounds_some_may_be_odd(ratios):
    # Of 2,048 equally likely ways in which eleven fall above and below a median, 12 have at most one below.
    assert [ratios.outliers(rounds) for rounds in (1, 7, 10, 11, 20)] == [0, 0, 0, 1, 4]
    assert ratios.ratio_of("CPU", [0.5, *[1.05] * 10]) == ratios.Ratio(1.05, 1.05, 1.05, more=True)
