"""Which devices are slowed: clocks against one another, and what NVML says holds them down."""

from statistics import median_high

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.notices import Code, Weight
from analyzers.run.machine_states import BELOW, device_notices, find_slowed
from analyzers.run.manifest import DeviceState


def busy(sm_mhz=1980, *reasons, device=0, number=1, name="H200"):
    return DeviceState(device, name, number, sm_mhz=sm_mhz, sm_max_mhz=1980, reasons=list(reasons))


def ranks(*readings):
    return {str(rank): [reading] for rank, reading in enumerate(readings)}


def said(states):
    return [(notice.code, notice.text) for notice in device_notices(states)]


def test_a_clock_below_the_others_is_named_with_its_reason():
    states = ranks(busy(), busy(), busy(), busy(1200, "hw_slowdown", "hw_thermal_slowdown"))
    words = "GPU runs at 1,200 MHz where the others run at 1,980: hw_slowdown, hw_thermal_slowdown"
    assert find_slowed(states) == {3: f"its {words}"}
    assert said(states) == [(Code.DEVICE_IS_SLOWED, f"rank 3's {words}")]
    assert "nvidia-smi -q -d" in device_notices(states)[0].remedy


@pytest.mark.parametrize("count", [2, 3, 4])
def test_without_a_reason_a_clock_is_low_all_the_same(count):
    states = ranks(busy(1200), *[busy()] * (count - 1))
    assert find_slowed(states) == {0: "its GPU runs at 1,200 MHz where the others run at 1,980: NVML names no reason"}


def test_clocks_that_are_nearly_alike_and_one_device_alone_are_nothing():
    assert said(ranks(busy(1890), busy(), busy())) == []
    assert said(ranks(busy(1200))) == []
    assert said(None) == said({}) == []


def test_heat_is_said_where_all_have_it():
    states = ranks(busy(1500, "sw_thermal_slowdown"), busy(1500, "sw_thermal_slowdown", "sw_power_cap"))
    assert find_slowed(states) == {
        0: "its GPU is throttled at 1,500 of 1,980 MHz: sw_thermal_slowdown",
        1: "its GPU is throttled at 1,500 of 1,980 MHz: sw_thermal_slowdown, sw_power_cap",
    }
    unknown = DeviceState(0, "H200", 1, reasons=["hw_power_brake_slowdown"])
    assert find_slowed(ranks(unknown)) == {0: "its GPU is throttled: hw_power_brake_slowdown"}


def test_a_limit_that_all_run_under_is_a_note():
    assert Code.CLOCKS_ARE_LIMITED.facts.weight is Weight.NOTE
    assert Code.DEVICE_IS_SLOWED.facts.weight is Weight.WARNING
    states = ranks(*[busy(1755, "sw_power_cap")] * 9, busy())
    assert find_slowed(states) == {}
    text = "GPUs of 9 ranks (0, 1, 2, 3, 4, 5, 6, 7, ...) run under a limit at 1,755 of 1,980 MHz: sw_power_cap"
    assert said(states)[-1] == (Code.CLOCKS_ARE_LIMITED, text)
    (alone,) = device_notices(ranks(busy(None, "applications_clocks_setting")))
    assert alone.text == "rank 0's GPUs run under a limit at an unknown clock: applications_clocks_setting"


def test_a_limit_of_one_rank_alone_is_why_it_is_slow():
    found = find_slowed(ranks(busy(), busy(1410, "sw_power_cap"), busy()))
    assert found == {1: "its GPU runs at 1,410 MHz where the others run at 1,980: sw_power_cap"}


def test_an_idle_device_says_nothing():
    states = {"0": [busy(345, "gpu_idle"), busy(1980, number=2)], "1": [busy()], "2": [busy(345, "gpu_idle")]}
    assert said(states) == []


def test_one_odd_round_is_no_reason():
    odd = [busy(1200, "sw_thermal_slowdown"), busy(number=2), busy(number=3)]
    assert said({"0": odd, "1": [busy()]}) == []
    assert list(find_slowed({"0": [*odd[:2], busy(1100, "sw_thermal_slowdown", number=3)], "1": [busy()]})) == [0]


def test_devices_of_other_names_are_not_compared():
    assert said(ranks(busy(1410, name="A100"), busy(), busy())) == []


def test_devices_of_one_rank_are_told_apart():
    one_process = {"0": [busy(device=0), busy(device=1), busy(1000, device=2), busy(900, device=3), busy(device=4)]}
    others = "MHz where the others run at 1,980: NVML names no reason"
    assert find_slowed(one_process) == {0: f"its GPU 2 runs at 1,000 {others}; its GPU 3 runs at 900 {others}"}
    assert [text for _, text in said(one_process)] == [
        f"rank 0's GPU 2 runs at 1,000 {others}",
        f"rank 0's GPU 3 runs at 900 {others}",
    ]


@pytest.mark.parametrize("mhz", [0, -1, 10**9, 2**62])
def test_what_no_clock_can_be_is_not_believed(mhz):
    assert said(ranks(busy(mhz), busy(), busy())) == []
    assert said(ranks(busy(), busy(mhz))) == []


@pytest.mark.parametrize("key", ["", "a", "-1", "9" * 5000])
def test_what_no_rank_can_be_is_left_aside(key):
    assert said({key: [busy(100)], "0": [busy()], "1": [busy()]}) == []
    assert said({"0": []}) == []


@given(st.lists(st.integers(300, 2000), min_size=1, max_size=12))
def test_ranks_are_slow_by_the_median_alone(clocks):
    typical = sorted(clocks)[len(clocks) // 2]
    assert typical == median_high(clocks)
    slow = {rank for rank, mhz in enumerate(clocks) if mhz < (1 - BELOW) * typical}
    assert find_slowed(ranks(*map(busy, clocks))).keys() == slow
    assert len(device_notices(ranks(*map(busy, clocks)))) == len(slow)
