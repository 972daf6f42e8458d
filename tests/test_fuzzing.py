"""Damaged files of each kind: every command ends in a report, or in one line."""

import pytest

from tests.support.fuzzing_commands import fuzz_commands
from tests.support.mutators import KINDS, MUTATORS

CASES, SEED = 200, 1


def test_each_change_fits_some_kind():
    assert all(set(kinds) <= set(KINDS) and kinds for _, kinds in MUTATORS.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_commands_end_in_a_report_or_in_one_line(tmp_path, kind):
    _, wrong = fuzz_commands(kind, range(CASES), SEED, tmp_path)
    assert wrong == []
