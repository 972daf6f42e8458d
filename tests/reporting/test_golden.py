"""No number of a recorded run changes unnoticed."""

import pytest

from tests.support.golden import figures, identity, known
from tests.support.samples import RUNS, SAMPLES

GOLDEN = known()
HELD = {identity(run): run for run in RUNS}


def test_every_sample_has_its_golden_numbers():
    assert {identity(run) for run in RUNS if run.parent == SAMPLES} <= set(GOLDEN)


@pytest.mark.parametrize("run", [pytest.param(HELD[key], id=key) for key in sorted(HELD.keys() & GOLDEN.keys())])
def test_no_number_has_changed(run):
    then, now = GOLDEN[identity(run)], figures(run)
    assert then.keys() == now.keys()
    for name, columns in then.items():
        kept = {column: now[name][column] for column in columns} if isinstance(columns, dict) else now[name]
        assert kept == columns, f"{name} of {run}"
