"""How much longer all-reduces take beside compute and after it, from transfers that were made so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.collectives import exchange
from analyzers.prediction.link_model import Affine, LinkModel
from analyzers.prediction.strain import REDUCTIONS, Strain, Transferred, transfers_of
from tests.support.samples import SAMPLES, summarized

LINKS = LinkModel({2: Affine(2, 10_000, 50)}, "given")
SIZES = np.array([30e6, 26e6, 27e6, 9e6])
BESIDE = np.array([0.8, 1.0, 0.9, 0.0])


def made(beside: float, after: float, shares=BESIDE, steps: int = 3) -> Transferred:
    """Steps of four reductions that take so much longer than alone while they are so."""
    shares = np.tile(shares, steps)
    sizes = np.tile(SIZES, steps)
    time_ns = LINKS.collective_ns(sizes, 2) / (shares / beside + (1 - shares) / after)
    return Transferred(REDUCTIONS, np.repeat(np.arange(steps), len(SIZES)), sizes, time_ns, shares, bound=False)


@given(st.floats(0.8, 1.2), st.floats(1.01, 2))
def test_both_are_found(after, more):
    found = made(after * more, after).strain(LINKS, 2)
    assert (found.beside, found.after) == pytest.approx((after * more, after))
    assert found.reach == pytest.approx(0, abs=1e-9)


@given(st.floats(0.8, 2))
def test_transfers_that_all_have_compute_beside_them_tell_one_ratio(ratio):
    found = made(ratio, 1.0, shares=np.ones(4)).strain(LINKS, 2)
    assert found.beside == found.after == pytest.approx(ratio)


def test_compute_makes_no_transfer_faster():
    found = made(1.0, 1.3).strain(LINKS, 2)
    assert found.beside == found.after
    assert 1 < found.beside < 1.3


def test_one_step_that_was_disturbed_changes_little():
    transfers = made(1.2, 1.0, steps=5)
    transfers.time_ns[4:8] *= 3
    found = transfers.strain(LINKS, 2)
    assert (found.beside, found.after) == pytest.approx((1.2, 1.0))
    # A fifth of them is far off.
    assert found.reach == pytest.approx(np.log(3))


def test_reach_is_what_a_tenth_lies_beyond():
    transfers = made(1.0, 1.0, steps=25)
    transfers.time_ns[::12] *= 1.5
    assert transfers.strain(LINKS, 2).reach == pytest.approx(0, abs=1e-9)
    transfers = made(1.0, 1.0, steps=25)
    transfers.time_ns[transfers.step % 5 == 0] *= 1.25
    assert transfers.strain(LINKS, 2).reach == pytest.approx(np.log(1.25))


def test_links_at_the_end_of_their_reach_are_slower_by_it():
    assert Strain(1.2, 1.0, 0.1).slowed() == Strain(1.2 * 1.1, 1.1)
    sizes = np.array([1e6, 1e8])
    slowed = LinkModel(LINKS.timings, "given", Strain(1.0, 1.0, 0.5)).slowed()
    assert slowed.collective_ns(sizes, 2) == pytest.approx(1.5 * LINKS.collective_ns(sizes, 2))


def test_a_bucket_after_the_backward_has_no_compute_beside_it():
    found = transfers_of(exchange(summarized(SAMPLES / "resnet50-ddp4-bf16"), None), REDUCTIONS)
    assert np.diff(found.step).min() == 0 <= np.diff(found.step).max()
    assert (found.beside[found.nbytes < 10e6] < 0.1).all()
    assert (found.beside[found.nbytes > 10e6] > 0.7).all()
