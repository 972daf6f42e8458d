"""Links that are slower than like groups', and devices that another process shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.notices import Code
from analyzers.scenarios.links import _others, _places
from analyzers.scenarios.time_slices import _slices
from tests.support.samples import REPORTED, ROOT, reported

MS = 1e6
CELLS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=12)


@given(CELLS)
def test_others_are_the_median_of_all_in_a_part_but_oneself(cells):
    values, part = np.array([value for value, _ in cells], dtype=float), np.array([part for _, part in cells])
    for own, found in enumerate(_others(values, part).tolist()):
        others = [value for number, value in enumerate(values) if part[number] == part[own] and number != own]
        assert np.isnan(found) if not others else found == np.median(others)


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ([(2, 3)], "links among ranks 2, 3"),
        ([(2, 3), (1, 3)], "links of rank 3"),
        ([(2, 3), (0, 1)], "links among ranks 2, 3 and among ranks 0, 1"),
        ([(2, 3), (2, 3)], "links among ranks 2, 3"),
    ],
)
def test_slow_links_are_named_by_the_rank_that_all_share_else_by_their_groups(slow, words):
    assert _places(slow) == words


def slices(starts_ms: list[float], lengths_ms: list[float]) -> object:
    return _slices(np.array(starts_ms) * MS, np.array(lengths_ms) * MS)


def test_even_pauses_are_another_process_and_others_are_not():
    even, uneven = [4.6 * number for number in range(20)], [4.6 * number**2 for number in range(20)]
    found = slices(even, [2.4, 2.5] * 10)
    assert str(found).startswith("stands still for 2.45 ms at a time, 56 % of the time")
    assert slices(even, [1.1, 2.4, 4.0, 7.0] * 5) is None
    assert slices(uneven, [2.4] * 20) is None
    assert slices([100 * start for start in even], [2.4] * 20) is None  # half a per cent of the time
    assert slices(even[:5], [2.4] * 5) is None


@given(st.integers(0, 10_000))
def test_pauses_by_chance_are_no_other_process(seed):
    rng = np.random.default_rng(seed)
    assert _slices(np.cumsum(rng.exponential(5, 40)) * MS, rng.exponential(1.5, 40) * MS + MS) is None


@pytest.mark.parametrize("path", REPORTED)
def test_no_device_but_that_of_the_one_run_is_called_shared(path):
    codes = [notice.code for notice in reported(path).run.warnings]
    assert (Code.DEVICE_IS_SHARED in codes) == (path.name == "sharedgpu")


@pytest.mark.slow
def test_what_shares_a_gpu_is_the_remedy():
    if not (run := ROOT.parent / "shared" / "traces-advice" / "sharedgpu").is_dir():
        pytest.skip("the runs with planted faults are not here")
    first = reported(run).summary.advice[0]
    assert first.at == "rank 1"
    assert "stop the process that shares rank 1's GPU" in first.text
    assert "another process shares it" in first.because
