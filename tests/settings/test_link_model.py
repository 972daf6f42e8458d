"""What all-reduces take over links that were measured, given or fitted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.run.calibration import Calibration, calibration_row
from analyzers.settings.link_model import Affine, Hosts, LinkModel, calibrated, fitted

MB = 1_000_000
SIZES = np.array([0.1, 1, 10, 100]) * MB
GIVEN = LinkModel({4: Affine(4, 20_000, 300)}, "given")


def test_time_is_latency_and_what_a_ring_moves():
    assert GIVEN.collective_ns([300 * MB], 4)[0] == pytest.approx(20_000 + 1.5e6)


def test_one_gpu_does_not_communicate():
    assert GIVEN.collective_ns(SIZES, 1).tolist() == [0, 0, 0, 0]


def test_more_gpus_take_more_of_a_tree_and_of_a_ring():
    assert GIVEN.collective_ns([0], 16)[0] == pytest.approx(40_000)
    assert GIVEN.collective_ns([300 * MB], 16)[0] == pytest.approx(40_000 + 1.5e6 * (15 / 16) / (3 / 4))


def test_between_hosts_the_network_cards_set_the_bandwidth():
    over = LinkModel(GIVEN.timings, "given", hosts=Hosts(gpus=8, gbps=50))
    assert over.collective_ns([300 * MB], 8)[0] == pytest.approx(GIVEN.collective_ns([300 * MB], 8)[0])
    assert over.collective_ns([300 * MB], 16)[0] == pytest.approx(40_000 + 300 * MB * (2 * 15 / 16) / 50)
    slow = LinkModel({4: Affine(4, 20_000, 30)}, "given", hosts=Hosts(gpus=8, gbps=50))
    assert slow.collective_ns([300 * MB], 16)[0] == pytest.approx(40_000 + 300 * MB * (2 * 15 / 16) / 30)


def test_a_measured_group_size_is_taken_as_it_is_and_the_nearest_below_for_others():
    rows = [calibration_row("all_reduce", n, None, 1 << k, 1000 * n << (k - 20)) for n in (2, 4) for k in (20, 22, 24)]
    links = calibrated(Calibration(rows=rows), "file")
    assert links is not None
    assert links.collective_ns([1 << 21], 4)[0] == pytest.approx(8000)
    assert [links.nearest(n) for n in (2, 3, 4, 1024)] == [2, 2, 4, 4]
    assert calibrated(Calibration(rows=[calibration_row("broadcast", 2, None, 1, 1)]), "file") is None


@given(st.floats(0, 1e5), st.floats(1, 1000))
def test_a_fit_finds_what_transfers_were_made_of(latency_ns, busbw_gbps):
    made = Affine(4, latency_ns, busbw_gbps)
    found = fitted(SIZES, made.time_ns(SIZES), 4, "transfers").collective_ns(SIZES, 4)
    np.testing.assert_allclose(found, made.time_ns(SIZES), rtol=1e-3)


def test_transfers_of_one_size_tell_bandwidth_alone():
    links = fitted(np.array([10.0 * MB, 10.0 * MB]), np.array([1e6, 1.2e6]), 4, "transfers")
    assert links.collective_ns([20 * MB], 4)[0] == pytest.approx(2.2e6)


@given(st.lists(st.integers(2, 512), min_size=2, max_size=2), st.floats(1, 500), st.integers(0, 10**9))
def test_more_gpus_and_slower_links_are_never_faster(gpus, busbw_gbps, nbytes):
    few, many = sorted(gpus)
    links = [LinkModel({4: Affine(4, 10_000, gbps)}, "") for gbps in (busbw_gbps, 2 * busbw_gbps)]
    assert links[0].collective_ns(nbytes, few) <= links[0].collective_ns(nbytes, many) * (1 + 1e-12)
    assert links[1].collective_ns(nbytes, few) <= links[0].collective_ns(nbytes, few)
