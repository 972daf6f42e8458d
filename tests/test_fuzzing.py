"""Damaged files of each kind: every command ends in a report, or in one line."""

import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.support import fuzzing_commands
from tests.support.fuzzing_commands import Kind, fuzz_commands
from tests.support.mutators import KINDS, MANIFESTS, MUTATORS

CASES, SEED = 200, 1


def test_each_change_fits_some_kind():
    assert all(set(kinds) <= set(KINDS) and kinds for _, kinds in MUTATORS.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_commands_end_in_a_report_or_in_one_line(tmp_path, kind):
    _, wrong = fuzz_commands(kind, range(CASES), SEED, tmp_path)
    assert wrong == []


def _stray(words):
    (Path(words[1]).parent / "stray").touch()
    return 0


def _says(text, code=0, file=None):
    def command(words):
        print(text, file=file and getattr(sys, file))
        return code

    return command


def _fails(words):
    raise KeyError("name")


FORBIDDEN = [
    (_fails, "KeyError"),
    (_says("Traceback (most recent call last):", 1, "stderr"), "ended with 1"),
    (_says("tracer: no such thing", 1, "stderr"), "names no file"),
    (_says("run.json is no JSON", 1, "stderr"), "names no file"),
    (_says("", 3), "ended with 3"),
    (_says('{"share": NaN}'), "no JSON"),
    (_stray, "stray"),
]


@pytest.mark.parametrize(
    ("warnings", "windows", "is_wrong"),
    [([], [1], False), (["lost"], [2], False), (["lost"], [1], False), ([], [2], True)],
)
def test_other_figures_need_a_word(warnings, windows, is_wrong):
    whole, report = {"run": {"warnings": []}, "windows": [1]}, {"run": {"warnings": warnings}, "windows": windows}
    assert fuzzing_commands.compared(report, whole).startswith("wrong") == is_wrong


@pytest.mark.parametrize(("command", "told"), FORBIDDEN)
def test_the_law_tells_what_is_forbidden(tmp_path, command, told):
    words = ("report {run} --json",) if told == "no JSON" else ("report {run}",)
    kind = Kind(MANIFESTS, "run.json", [b"{}"], words)
    with mock.patch.object(fuzzing_commands, "main", command):
        said = fuzzing_commands.judged(kind, 0, 1, tmp_path)
    assert said.startswith("wrong: ") and told in said
