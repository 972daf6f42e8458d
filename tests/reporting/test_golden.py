"""No number of a recorded run changes unnoticed."""

import pytest

from tests.support.golden import figures, identity, known
from tests.support.samples import OWN, REPORTED

GOLDEN = known()


def test_every_sample_has_its_golden_numbers():
    assert {identity(run) for run in OWN} <= set(GOLDEN)


@pytest.mark.parametrize("run", REPORTED)
def test_no_number_has_changed(run):
    then = GOLDEN.get(identity(run))
    if then is None:
        pytest.skip("its numbers were never agreed on")
    now = figures(run)
    assert then.keys() == now.keys()
    for name, columns in then.items():
        kept = {column: now[name][column] for column in columns} if isinstance(columns, dict) else now[name]
        assert kept == columns, f"{name} of {run}"
