"""No phase of a report grows faster than n log n: in events, steps, layers, collectives and ranks.

Effort is counted (`tests/support/effort.py`): calls of Python functions, with the entries of the arrays that they are
given. What numpy does inside one call of its own, such as a table of all pairs, is not seen until something is given
it; `benchmarks/growth.py` measures time and memory.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from analyzers.collectives.alignment import candidates, common_offset
from tests.support.effort import effort
from tests.support.growing import GROWING, Size, phases, write_run
from tests.support.tiers import quarters

# Twice as many, sorted: what comes on top from 2n to 4n, over what came from n to 2n.
MOST = 2.3
# Growth by less, of what there was at first, is none.
LEAST_SHARE = 0.05
# Where each begins to grow. Few collectives are aligned with less effort for each: there is less to choose from.
FIRST = Size(collectives=16)


@pytest.fixture(autouse=True)
def _few_candidates(monkeypatch):
    """Pairs of collectives that may be one are all compared up to a bound, which runs as small as these never reach."""
    for module in (common_offset, candidates):
        monkeypatch.setattr(module, "MOST_CANDIDATES", 32)


@pytest.fixture(scope="module", autouse=True)
def _made_once(tmp_path_factory):
    """What is made once in a process, such as tables of patterns, is made before anything is counted."""
    for _, compute in phases(write_run(tmp_path_factory.mktemp("first") / "run", Size())):
        compute()


def efforts(folder: Path, growing: str) -> dict[str, list[int]]:
    """The effort of each phase at n, 2n and 4n."""
    found: dict[str, list[int]] = {}
    for times in (1, 2, 4):
        size = replace(Size(), **{growing: times * getattr(FIRST, growing)})
        for name, compute in phases(write_run(folder / str(times), size)):
            found.setdefault(name, []).append(effort(compute))
    return found


@pytest.mark.parametrize("growing", quarters(GROWING))
def test_no_phase_grows_faster_than_n_log_n(growing, tmp_path):
    for name, found in efforts(tmp_path, growing).items():
        first, second = (more - less for less, more in pairwise(found))
        assert second < MOST * max(first, LEAST_SHARE * found[0]), f"{name} in {growing}: {found}"
