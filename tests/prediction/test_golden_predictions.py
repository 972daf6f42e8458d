"""No prediction of a recorded run moves unnoticed."""

import pytest

from tests.support.golden import identity
from tests.support.predictions import known, moved, predictions
from tests.support.samples import REPORTED

AGREED = known()


@pytest.mark.slow
@pytest.mark.parametrize("run", REPORTED)
def test_no_prediction_has_moved(run):
    then = AGREED.get(identity(run))
    if then is None:
        pytest.skip("its predictions were never agreed on")
    assert not moved(then, predictions(run))
