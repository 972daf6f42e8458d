"""Many pairs of members are aligned and paired together as each pair is alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import medians
from analyzers.collectives.alignment import common_offset
from analyzers.collectives.alignment.common_offset import find_offsets
from analyzers.collectives.alignment.pairing import Apart, match, match_at
from analyzers.collectives.alignment.sequences import Kernels

MS = 1_000_000


def member(random: np.random.Generator, ends: np.ndarray, steps: int, later_ns: int, lost: float) -> Kernels:
    """One member of a group whose clock is later, and which lost some of its kernels."""
    kept = np.flatnonzero(random.random(len(ends)) >= lost)
    kept = kept if len(kept) else np.array([0])
    count = len(kept)
    return Kernels(
        end_ns=ends[kept] + later_ns + random.integers(0, 3_000, count),
        dur_ns=random.integers(20_000, 200_000, count),
        step=np.repeat(np.arange(steps), len(ends) // steps)[kept],
        sequence=np.full(count, -1),
        signature=(np.arange(len(ends)) % 3 > 0).astype(np.int64)[kept],
        synchronizes=np.ones(count, dtype=bool),
        complete=np.full(count, not lost),
        sure=np.full(count, not lost),
    )


def stacked(members: list[Kernels]) -> Kernels:
    """Members in one, a pair each."""
    names = ("end_ns", "dur_ns", "step", "sequence", "signature", "synchronizes", "complete", "sure")
    columns = {name: np.concatenate([getattr(one, name) for one in members]) for name in names}
    pair = np.repeat(np.arange(len(members)), [len(one) for one in members])
    return Kernels(**columns, of_pair=pair, pairs=len(members))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Kernels, list[Kernels]]:
    """A reference and other members, with clocks of their own."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    steps, each = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    gap = draw(st.sampled_from([60_000, MS, 5 * MS]))
    ends = 1_700_000_000 * 10**9 + np.cumsum(random.integers(gap // 2, gap, steps * each))
    late = draw(st.lists(st.sampled_from([0, 20_000, 7 * MS, -40 * MS, 10**9]), min_size=1, max_size=4))
    lost = draw(st.sampled_from([0.0, 0.0, 0.2]))
    return member(random, ends, steps, 0, 0.0), [member(random, ends, steps, ns, lost) for ns in late]


COMPATIBLE = np.eye(2, dtype=bool)


@given(worlds(), st.booleans())
def test_together_as_alone(world, one_clock):
    reference, others = world
    a, b = stacked([reference] * len(others)), stacked(others)
    together = find_offsets(a, b, COMPATIBLE, np.full(len(others), one_clock))
    assert together == [find_offsets(reference, other, COMPATIBLE, np.array([one_clock]))[0] for other in others]
    chosen = np.array([place for place, offset in enumerate(together) if offset is not None], dtype=np.int64)
    known = [offset for offset in together if offset is not None]
    apart = Apart(*(np.array([getattr(each, name) for each in known], dtype=int) for name in ("ns", "deviation_ns")))
    if len(chosen):
        of_b = b.of_pairs(chosen)
        partner = match_at(a.of_pairs(chosen), of_b, COMPATIBLE, apart).reshape(len(chosen), -1)
        for line, place, offset in zip(partner, chosen.tolist(), known, strict=True):
            first = int(np.flatnonzero(of_b.pair == chosen.tolist().index(place))[0])
            alone = match(reference, others[place], COMPATIBLE, offset)
            assert np.where(line >= 0, line - first, -1).tolist() == alone.tolist()


@given(worlds())
def test_what_cannot_deny_an_offset_changes_nothing(world):
    reference, others = world
    a, b = stacked([reference] * len(others)), stacked(others)
    one_clock = np.zeros(len(others), dtype=bool)
    bounded = find_offsets(a, b, COMPATIBLE, one_clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_offset, "_may_be_denied", lambda a, b, in_turn, most_ns: np.ones(len(in_turn), dtype=bool))
        assert find_offsets(a, b, COMPATIBLE, one_clock) == bounded


@given(st.lists(st.lists(st.integers(-(2**60), 2**60), max_size=6), min_size=1, max_size=4))
def test_medians_of_parts_are_numpys(parts):
    values = np.array([value for part in parts for value in part], dtype=np.int64)
    part = np.repeat(np.arange(len(parts)), [len(one) for one in parts])
    expected = [np.median(one) if one else np.nan for one in parts]
    np.testing.assert_array_equal(medians(values, part, len(parts)), expected)
