"""The two tiers of tests: what every change pays, and what else is run before it is done.

The first leaves out what is slow: what is marked so by hand, or by `samples` where a parameter is a run that lies
beside the checkout, or uses a fixture that asks for `second_tier`. Random tests draw a quarter of their cases in it.
The rest is what it leaves out, and the random tests again, with all of their cases.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import is_hypothesis_test

FIRST, REST, ALL = TIERS = ("first", "rest", "all")
SLOW_FIXTURE = "second_tier"
# The first tier draws one of so many cases.
ONE_IN = 4
# All that was collected, of whatever tier.
COLLECTED = pytest.StashKey[list[pytest.Item]]()
_entered = FIRST


def enter(tier: str) -> None:
    """Say which tier this process runs, before tests are imported."""
    global _entered
    _entered = tier


def is_first() -> bool:
    """Whether this process runs the first tier."""
    return _entered == FIRST


def cases(count: int) -> int:
    """How many of so many random cases a test draws: a quarter in the first tier."""
    return -(-count // ONE_IN) if is_first() else count


def quarters(values: Sequence[object]) -> list[ParameterSet]:
    """Parameters, tuples where a test has several; of what is not slow the first tier takes the first quarter."""
    sets = [
        value if isinstance(value, ParameterSet) else pytest.param(*(value if isinstance(value, tuple) else (value,)))
        for value in values
    ]
    fast = [number for number, value in enumerate(sets) if pytest.mark.slow not in value.marks]
    for number in fast[-(-len(fast) // ONE_IN) :]:
        sets[number] = pytest.param(
            *sets[number].values, id=sets[number].id, marks=[*sets[number].marks, pytest.mark.slow]
        )
    return sets


def is_of(item: pytest.Item, tier: str) -> bool:
    """Whether a tier has a test."""
    is_slow = item.get_closest_marker("slow") is not None or SLOW_FIXTURE in getattr(item, "fixturenames", ())
    if tier == REST:
        return is_slow or is_hypothesis_test(getattr(item, "obj", None))
    return tier == ALL or not is_slow


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of this process's tier."""
    config.stash[COLLECTED] = [*items]
    left_out = [item for item in items if not is_of(item, _entered)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_of(item, _entered)]
