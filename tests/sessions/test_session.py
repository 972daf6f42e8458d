"""A session that cannot begin."""

import pytest

import tracer
from tests.support.loops import PLAN, new_training


def test_a_session_that_cannot_begin_has_ended(tmp_path):
    (tmp_path / "mine").touch()
    session = tracer.Session(tmp_path, new_training()[0], plan=PLAN, force=True)
    with pytest.raises(tracer.TracerError, match="is not a recording"):
        session.step()
    assert session.step() is False
    session.close()
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
