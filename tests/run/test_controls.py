"""Controls: medians of single steps, pairs of blocks, and what older recordings have."""

from statistics import median

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.notices import Code
from analyzers.run.controls import LONGEST_NS, Control, Controls, control, controls_of_launches, joined_controls
from tests.support.typical_steps import samples, typical_samples

TIME = st.one_of(st.integers(1, 10**6), st.integers(90, 130), st.sampled_from([0, -5, LONGEST_NS]))
STEPS = st.lists(st.lists(TIME, max_size=4), max_size=5)


def of(*blocks):
    """A control of one rank."""
    return control({0: [list(block) for block in blocks]})


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 3), STEPS, max_size=3))
def test_a_control_is_the_median_of_the_typical_steps_each_the_longest_over_ranks(ranks):
    """Ranks have blocks and steps that others lack, and times that no step can have."""
    found = control(ranks)
    blocks = typical_samples(found)
    every = [step for block in blocks for step in block]
    if not every:
        assert (found.median_ns, found.interval_ns, found.blocks_ns) == (None, None, [])
        return
    assert found.median_ns == round(median(every))
    assert found.blocks_ns == [median(block) for block in blocks if block]
    assert found.odd_steps == sum(map(len, samples(found))) - len(every)
    assert (found.interval_ns is None) == (len(every) == 1)


def test_hosts_times_are_their_ranks_and_no_steps():
    """What is no rank and what no sample can be are left out."""
    timed = Control({"0": [[4, 2], [3]], "1": [[8, -1]], "2": [[]], "x": [[5]]})
    controls = Controls(unprofiled=of([10, 12]), host=timed)
    assert controls.host_samples_ns() == {0: [4, 2, 3], 1: [8]}
    assert controls.blocks_ns() == {"unprofiled": [11.0]}
    assert Controls().host_samples_ns() == {}
    joined = joined_controls([controls, Controls(host=control({7: [[6]]}))])
    assert joined.host_samples_ns() == {0: [4, 2, 3], 1: [8], 7: [6]}


def test_a_hosts_step_is_of_typical_ones():
    # Of the typical ones: 9 is odd.
    assert Controls(host=control({0: [[4, 2], [9]], 1: [[1]]})).host_step_ns() == {0: 3}


def test_a_control_is_read_as_it_was_written_and_older_ones_have_blocks_of_one_step():
    found = of([1, 2], [3])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Control) == found
    assert msgspec.json.encode(found) == b'{"steps_ns":{"0":[[1,2],[3]]}}'
    older = '{"samples_ns": {"0": [10, 30], "1": [11, 31]}, "median_ns": null, "spread": 0.9, "reason": "wide"}'
    read = msgspec.json.decode(older, type=Control)
    assert read.by_rank() == {"0": [[10], [30]], "1": [[11], [31]]}
    # A block's mean is a sample; the longest over ranks is the step, and of two steps none is odd.
    assert (read.median_ns, read.blocks_ns) == (21, [11.0, 31.0])
    joined = joined_controls([Controls(unprofiled=read), Controls(unprofiled=control({2: [[12], [32]]}))]).unprofiled
    assert joined and joined.steps_ns == {"0": [[10], [30]], "1": [[11], [31]], "2": [[12], [32]]}


def launch(*steps: int, odd: tuple[int, ...] = (), first: int = 1) -> Controls:
    """The controls of one launch of two ranks: the second is slower by 1, each step in `odd` by 90 more."""
    slow = [ns + 90 * (place in odd) for place, ns in enumerate(steps)]
    blocks = {0: [slow[:2], slow[2:]], 1: [[ns + 1 for ns in slow], []]}
    return Controls(unprofiled=control(blocks, [[*range(first, first + 2)], [*range(first + 2, first + len(steps))]]))


LAUNCHES = st.lists(st.lists(st.integers(90, 130), min_size=1, max_size=9), min_size=1, max_size=4)


@given(LAUNCHES)
def test_a_launch_is_a_block_of_all_its_steps(launches):
    """By brute force: what is odd is odd in its launch; the median is of all launches' typical steps."""
    found = controls_of_launches([launch(*steps) for steps in launches]).unprofiled
    assert found and found.by_launch
    alone = [[ns + 1 for ns in steps] for steps in launches]
    typical = [[ns for block in typical_samples(of(steps)) for ns in block] for steps in alone]
    assert found.blocks_ns == [median(steps) for steps in typical]
    assert found.median_ns == round(median(ns for steps in typical for ns in steps))
    assert found.odd_steps == sum(map(len, alone)) - sum(map(len, typical))


def test_a_slow_launch_is_not_odd_and_widens_the_interval():
    controls = controls_of_launches([launch(*[100, 101] * 8), launch(*[120, 121] * 8), launch(*[101, 100] * 8)])
    assert controls.unprofiled and controls.unprofiled.odd_steps == 0
    assert controls.interval_ns("unprofiled") == (101.5, 121.5)


def test_numbers_of_launches_are_no_one_sequence():
    """Every fifth step is odd, in either launch after a beginning of its own."""
    launches = [launch(*[100] * 12, odd=(1, 6, 11)), launch(*[100] * 12, odd=(3, 8), first=7)]
    joined = controls_of_launches(launches)
    assert joined.odd_distance() == 5
    assert joined.unprofiled and joined.unprofiled.odd_longer_ns == 90
    one = msgspec.structs.replace(joined.unprofiled, by_launch=False)
    assert Controls(unprofiled=one).odd_distance() is None


def test_a_launch_that_lacks_a_control_has_an_empty_block():
    both = controls_of_launches([Controls(unprofiled=of([100]), light=of([110])), Controls(unprofiled=of([90]))])
    assert both.distortion("light") == 1.1
    assert both.light and both.light.steps_ns == {"0": [[110], []]}
    assert both.nosync is None


@pytest.mark.parametrize(
    ("unprofiled", "light", "ratios"),
    [
        ([[10], [12], [14]], [[11], [15], [14]], [1.1, 1.25, 1.0]),
        # The last round is not whole: its unprofiled block, or its profiled one, is alone.
        ([[10], [20], [500]], [[11], [24]], [1.1, 1.2]),
        ([[10], [20]], [[11], [24], [999]], [1.1, 1.2]),
        # A block that nobody timed is beside nothing.
        ([[10], [], [14]], [[11], [12], [14]], [1.1, 1.0]),
        # A block of which all steps are odd is beside nothing, and an odd step is left out of its block.
        ([[10], [10, 90], [40]], [[11], [12], [11]], [1.1, 1.2]),
        ([], [[11]], []),
    ],
)
def test_distortion_is_of_blocks_of_one_round(unprofiled, light, ratios):
    found = Controls(unprofiled=of(*unprofiled), light=of(*light))
    assert found._ratios("light") == pytest.approx(ratios)
    expected = sorted(ratios)[len(ratios) // 2] if len(ratios) % 2 else sum(ratios) / 2 if ratios else None
    assert found.distortion("light") == (None if expected is None else pytest.approx(expected))
    assert found.distortion("full") is None


def test_drift_that_both_share_is_no_distortion_and_widens_no_interval():
    drift = [100, 110, 125, 140, 160, 190]
    found = Controls(unprofiled=of(*([ns] * 8 for ns in drift)), light=of(*([round(1.1 * ns)] * 8 for ns in drift)))
    low, high = found.distortion_interval("light")
    assert 1.09 < low <= high < 1.11
    plain_low, plain_high = found.interval_ns("unprofiled")
    assert plain_high / plain_low > 1.4


def test_one_pair_of_blocks_has_the_interval_that_its_steps_allow():
    found = Controls(unprofiled=of([100, 101, 99, 100]), light=of([110, 111, 109, 110]))
    low, high = found.distortion_interval("light")
    assert low < 1.1 < high < 1.2
    assert Controls(unprofiled=of([100]), light=of([110])).distortion_interval("light") is None


def test_a_missing_control_is_a_notice_and_one_that_scatters_is_not():
    found = Controls(unprofiled=of([1], [1000]), light=of(), reasons={"nosync": "scripts have none"})
    said = [(notice.code, notice.text) for notice in found.why_null()]
    assert said == [
        (Code.CONTROL_IS_NULL, "control nosync: scripts have none"),
        (Code.CONTROL_IS_NULL, "control light: no samples"),
    ]


def test_what_synchronization_costs_holds_nothing_where_intervals_overlap():
    apart = Controls(unprofiled=of([100], [101], [100]), nosync=of([80], [81], [80]))
    assert apart.sync_cost_ns() == 20
    low, high = apart.sync_cost_interval_ns()
    assert 0 < low < 20 < high
    near = Controls(unprofiled=of([100], [110], [105]), nosync=of([99], [108], [104]))
    low, high = near.sync_cost_interval_ns()
    assert low < 0 < high
    assert near.sync_cost_ns() == 1


def test_steps_of_impossible_lengths_are_left_out_and_said():
    found = Controls(unprofiled=of([10, -5, 12], [0, 2**60]), light=of([10]))
    assert found.step_ns("unprofiled") == 11
    assert [str(notice) for notice in found.why_null()] == [
        "control unprofiled: 3 of 5 steps have impossible lengths, and are left out"
    ]


def test_a_run_that_was_timed_but_not_unprofiled_says_so():
    assert [str(notice) for notice in Controls(full=of([10])).why_null()] == ["control unprofiled: run.json has none"]
    assert Controls().why_null() == []
