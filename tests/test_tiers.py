"""The two tiers together are all tests; and what a tier took is counted to the last process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from tests.support.samples import OWN, RUNS, each_once
from tests.support.tiers import ALL, COLLECTED, FIRST, REST, TIERS, is_of, quarters

ROOT = Path(__file__).resolve().parents[1]


def test_each_test_is_in_one_tier_and_random_ones_are_in_the_second_too(request):
    for item in request.config.stash[COLLECTED]:
        first, rest, everything = (is_of(item, tier) for tier in (FIRST, REST, ALL))
        assert everything
        assert first + rest == 1 + (first and is_hypothesis_test(item.obj)), item.nodeid


def test_runs_beside_the_checkout_are_in_the_second_tier_alone(request):
    others = [run for run in RUNS if run not in OWN]
    for item in request.config.stash[COLLECTED]:
        given = getattr(item, "callspec", None)
        if given is not None and any(value in others for value in given.params.values() if isinstance(value, Path)):
            assert not is_of(item, FIRST), item.nodeid


def collected(tier: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--tier", tier]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if line.startswith("tests/")]


@pytest.mark.slow
def test_both_tiers_collect_everything():
    """Nothing that is left out when tests are collected, such as a parameter, depends on the tier."""
    first, rest, everything = (set(collected(tier)) for tier in TIERS)
    assert first | rest == everything
    assert min(len(first), len(rest)) > len(everything) / 10


def test_every_number_of_random_cases_goes_by_the_tier():
    for file in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"max_examples=\d", file.read_text()), file


def test_a_quarter_of_some_parameters_is_in_the_first_tier():
    for count in range(1, 8):
        marked = [bool(getattr(value, "marks", ())) for value in quarters(range(count))]
        assert marked == sorted(marked)
        assert marked.count(False) == -(-count // 4)


def test_a_run_that_is_there_twice_is_read_once(tmp_path):
    for name, text in (("a", "[1]"), ("b", "[1]"), ("c", "[2]"), ("d", "[1, 2]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.json").write_text(text)
    assert [run.name for run in each_once(sorted(tmp_path.iterdir()))] == ["a", "c", "d"]


# The first starts another, which works on when its parent has ended, and which nobody waits for.
WORKS = "import sys, time; sum(range(5 * 10**6)); open(sys.argv[1], 'w').write(str(time.process_time()))"
LEAVES = f"""
import os, subprocess, sys, time
subprocess.run(["sh", "-c", '"$0" -c "$1" "$2" &', sys.executable, {WORKS!r}, sys.argv[1]], check=True)
while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


def spent(tmp_path, code: int, **environment: str) -> tuple[int, str, float]:
    """The exit status of a command that leaves a process behind, what is said of it, and what that process took."""
    said = tmp_path / f"took{code}"
    command = [sys.executable, "-m", "tests.support.cpu_seconds", sys.executable, "-c", LEAVES, str(said), str(code)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, float(said.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="who waits for orphans is said on Linux alone")
def test_cpu_seconds_are_those_of_orphans_too(tmp_path):
    code, said, took_s = spent(tmp_path, 0)
    assert code == 0
    counted_s, here_s, slower = map(float, re.findall(r"\d+\.\d+", said))
    assert here_s >= took_s - 0.1
    assert counted_s == pytest.approx(here_s / slower, rel=0.1, abs=0.1)


@pytest.mark.parametrize(("code", "most", "expected"), [(0, "1000", 0), (0, "0.01", 1), (7, "1000", 7), (7, "0.01", 7)])
def test_more_than_it_may_take_fails(tmp_path, code, most, expected):
    ended, said, _ = spent(tmp_path, code, MOST_CPU_S=most)
    assert (ended, "too many" in said) == (expected, most == "0.01")
