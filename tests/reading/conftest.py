"""A cache that is on, a run for it, and a note of what is read."""

import pytest

import analyzers.rank.summary
from tests.support.cached import RUN
from tests.support.generator import write_run
from tracer.reading.cache import identity


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder that commands use, and which takes files that were written just now."""
    monkeypatch.setenv("TRACER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "SETTLED_S", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", RUN)


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that this process reads."""
    names = []
    read = analyzers.rank.summary.read_ranks

    def noted(file, *more):
        names.append(file.path.name)
        return read(file, *more)

    monkeypatch.setattr(analyzers.rank.summary, "read_ranks", noted)
    return names
