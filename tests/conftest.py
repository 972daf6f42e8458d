"""What all tests share.

Files that launch ranks wait more than they compute: begun first, they end beside the others, not after them.
"""

import atexit
import compileall
import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")
ROOT = Path(__file__).resolve().parents[1]
# Several workers and the ranks that they launch share the cores: threads of each would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is tested is what the code says now; tests of the cache have folders of their own.
os.environ["TRACER_CACHE"] = "off"
# A trace that is read as JSON is a million small objects and no cycles: looking for some takes longer than reading it.
gc.set_threshold(50_000, 100, 100)
# What tests import is two million objects and no garbage.
gc.disable()
# Each worker would rewrite and compile all tests anew.
WRITES_BYTECODE, sys.dont_write_bytecode = not sys.dont_write_bytecode, False

LAUNCHING = ("test_record", "test_grid", "test_recorded_scripts", "test_processes", "test_calibrate", "test_variants")
# Files are given to workers whole: the longest come early, so that all workers end together.
LONG = ("test_hta", "test_samples", "test_matching", "test_pictures", "test_laws")


def pytest_addoption(parser: pytest.Parser) -> None:
    from tests.support import tiers

    parser.addoption("--tier", choices=tiers.TIERS, default=tiers.FIRST, help="which tests: tests/support/tiers.py")
    parser.addoption("--cpu", action="store_true", help="print CPU seconds by room")


def pytest_configure(config: pytest.Config) -> None:
    from tests.support import cpu_seconds, once, tiers  # behind the rewriting of its package's assertions

    tiers.enter(config.option.tier)
    # How long a case takes says how busy the machine is.
    settings.register_profile("untimed", deadline=None, max_examples=tiers.cases(settings().max_examples))
    settings.load_profile("untimed")
    if config.option.cpu:
        config.pluginmanager.register(cpu_seconds.Rooms())
    if hasattr(config, "workerinput"):
        return
    # xdist would begin with the files that have most tests, not with those that are first here.
    config.option.loadscopereorder = False
    once.begin()
    config.add_cleanup(once.end)
    if not WRITES_BYTECODE:
        # Every process that a test starts would compile the packages for itself.
        for package in ("analyzers", "tracer"):
            compileall.compile_dir(ROOT / package, quiet=2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.support import tiers

    tiers.select(config, items)
    first = (*LAUNCHING, *LONG)
    items.sort(key=lambda item: first.index(item.path.stem) if item.path.stem in first else len(first))


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="session")
def second_tier() -> None:
    """Asked for by a fixture that takes long: tests that use it are slow."""


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take samples' summaries from those that this session has made."""
    from tests.support.commands import remember_samples

    remember_samples(monkeypatch)


def pytest_sessionfinish() -> None:
    # pytest, and Python after it, look for cycles again and again at the end; once is enough for all that tests keep.
    gc.collect()
    gc.freeze()
    # Some libraries complain of what is still there when Python has ended.
    atexit.register(gc.unfreeze)
