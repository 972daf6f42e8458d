"""Typical and odd steps: drawings of each rule, and a brute force of the definition."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.notices import Code
from analyzers.rank.columns.time_breakdown import Breakdown
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.reporting.typical_steps import Steps, TypicalWindows, odd_gain, odd_words, typical_windows
from analyzers.run.controls import Control, Controls, control
from analyzers.run.loading import Run
from analyzers.run.manifest import HostStates, Manifest
from analyzers.step_parts import PARTS
from tests.support import typical_steps as brute_force
from tests.support.drawing import draw
from tests.support.samples import REPORTED, reported
from tests.support.tiers import cases
from tracer.views.html.report_page import report_html
from tracer.views.sections.overview import report_text
from tracer.views.sections.screen import first_screen_text

EVEN, UNEVEN = control({0: [[10, 10, 10, 10]]}), control({0: [[10, 10, 10, 20]]})


def told(*ranks: dict[str, str], unprofiled: Control | None = None) -> Report:
    """The report of ranks as drawn: lanes by name."""
    traces = tuple(draw(rank=number, device=number, **lanes) for number, lanes in enumerate(ranks))
    return report(Run("drawn", Manifest(controls=Controls(unprofiled=unprofiled)), traces))


def lasting(*lengths: int, first: int = 1) -> dict[str, str]:
    """Lanes of steps that last so long each, which compute for one unit and are idle for the rest."""
    numbers = [str((first + index) % 10) for index in range(len(lengths))]
    return {
        "step": "".join(number * length for number, length in zip(numbers, lengths, strict=True)),
        "compute": "".join("a" + "." * (length - 1) for length in lengths),
    }


def timed_as(*blocks: str) -> Control:
    """Unprofiled blocks of steps of 10 ms, and of 30 where `|` stands."""
    return control({0: [[30_000_000 if step == "|" else 10_000_000 for step in block] for block in blocks]})


def steps_of(found: Report) -> tuple[list[int], list[int]]:
    steps = found.summary.steps
    return steps.typical, [step.step for step in steps.odd]


def test_the_last_window_of_a_device_does_not_count():
    """It ends with its last device event: what its host does behind that is in no window."""
    found = told({"step": "111222333", "compute": "aa.bb.c.."})
    assert [(window.span_ns, window.typical) for window in found.windows] == [(3, True), (3, True), (1, False)]
    assert steps_of(found) == ([1, 2], [])
    assert found.summary.shares["compute_ns"] == 4 / 6
    assert found.summary.windows["span_ns"].count == 2


def test_no_share_is_above_that_of_the_steps_that_count():
    """Three equal steps of one short kernel, the last of which ends with it: nineteen of twenty parts are idle."""
    found = told(lasting(20, 20, 20))
    assert (found.summary.shares["idle_ns"], found.summary.headline.share) == (0.95, pytest.approx(0.95))


def test_an_only_window_counts():
    found = told({"step": "333", "compute": "a.b"})
    assert (steps_of(found), found.summary.shares["idle_ns"]) == (([3], []), 1 / 3)


def test_a_rank_that_goes_on_counts_where_another_has_ended():
    """Step 3 is the last of rank 0, and one of rank 1's that counts."""
    found = told(
        {"step": "111222333", "compute": "a..a..a.."},
        {"step": "111222333444", "compute": "aa.aa.aa.aa."},
    )
    counted = [(window.rank, window.step) for window in found.windows if window.typical]
    assert counted == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    assert steps_of(found) == ([1, 2, 3], [])
    assert found.summary.shares["compute_ns"] == 8 / 15


def test_a_step_is_as_long_as_on_the_rank_where_it_is_longest():
    """Rank 1 alone is long in step 2: the step is odd on rank 0, too."""
    found = told(lasting(4, 4, 4, 4, 4), lasting(4, 7, 4, 4, 4))
    (odd,) = found.summary.steps.odd
    assert (odd.step, odd.span_ns) == (2, 7)
    assert [window.step for window in found.windows if window.typical] == [1, 3, 4] * 2
    assert "longer than the typical step" in odd.why
    assert odd.why.endswith("idle time")


def test_a_checkpoint_every_third_step_is_odd_with_its_distance():
    found = told(lasting(3, 3, 8, 3, 3, 9, 3, 3, 3))
    assert steps_of(found) == ([1, 2, 4, 5, 7, 8], [3, 6])
    assert found.summary.steps.every == 3
    assert found.summary.shares["compute_ns"] == 1 / 3
    assert found.summary.representative.step in (1, 2, 4, 5, 7, 8)
    assert "2 of 8 steps are odd (every third), and left out of these shares: the longest, step 6," in (
        found.summary.verdict
    )


def drawn_rows(spans: dict[int, Sequence[int]], first: Sequence[int] = ()) -> Breakdown:
    """Windows of ranks with these spans, all of them idle; each rank's steps go on from its first."""
    ranks = []
    for rank, of_rank in spans.items():
        count = len(of_rank)
        start = first[rank] if first else 1
        none = np.zeros(count, dtype=np.int64)
        ranks.append(
            Breakdown(
                **dict.fromkeys(
                    ("compute_ns", "comm_ns", "copy_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns"),
                    none,
                ),
                rank=none + rank,
                device=none,
                step=np.arange(start, start + count),
                start_ns=np.cumsum([0, *of_rank[:-1]]),
                span_ns=np.array(of_rank),
                idle_ns=np.array(of_rank),
                outside_ns=none,
                unmarked=none > 0,
                ends_cycle=np.arange(count) == count - 1,
                pause_in=none - 1,
                mark_ns=none,
                doubted=none > 0,
            )
        )
    return Breakdown.joined(ranks)


def of(*spans: int, unprofiled: Control | None = None) -> Steps:
    """Steps of one rank, which a last window that does not count follows."""
    return typical_windows(drawn_rows({0: [*spans, 1]}), unprofiled).steps


def test_a_pause_that_one_rank_makes_and_others_wait_for_is_one_step():
    spans = {
        0: [240 if step in (3, 9) else 100 for step in range(1, 20)],
        1: [240 if step in (4, 10) else 100 for step in range(1, 20)],
    }
    rows = drawn_rows(spans)
    assert typical_windows(rows, None).steps.every is None
    paused = replace(rows, pause_in=np.where((rows.rank == 0) & (rows.span_ns == 240), rows.step + 1, -1))
    found = typical_windows(paused, None).steps
    assert (found.every, found.pauses, len(found.odd)) == (6, 2, 4)
    # Without marks the next step's waiting tells it.
    waits = (rows.rank == 1) & (rows.span_ns == 240)
    waited_ns = np.where(waits, 140, 0)
    waited = replace(rows, exposed_comm_ns=waited_ns, comm_ns=waited_ns, idle_ns=rows.idle_ns - waited_ns)
    found = typical_windows(waited, None).steps
    assert (found.every, found.pauses, len(found.odd)) == (6, 2, 4)
    assert next(odd_words(found)).startswith("4 of 18 steps are odd (every 6th) by 2 pauses, and left out")


@pytest.mark.parametrize(
    ("parts", "pauses"),
    [
        ("ic", 1),  # idle, and then others wait
        ("ii", 2),
        ("ci", 2),
        ("cc", 2),
        ("i.c", 2),
        ("icic", 2),
        ("iic", 2),
    ],
)
def test_odd_steps_side_by_side_are_of_one_pause_where_the_second_waits_for_the_first(parts, pauses):
    spans = [100] * 9 + [100 if part == "." else 300 for part in parts] + [100] * 3
    rows = drawn_rows({0: spans})
    waited_ns = np.array([0] * 9 + [200 * (part == "c") for part in parts] + [0] * 3)
    rows = replace(rows, exposed_comm_ns=waited_ns, comm_ns=waited_ns, idle_ns=rows.idle_ns - waited_ns)
    found = typical_windows(rows, None).steps
    assert (found.pauses, len(found.odd)) == (pauses, len(parts.replace(".", "")))


def test_a_checkpoint_every_sixth_step():
    spans = [240 if step % 6 == 0 else 100 for step in range(1, 20)]
    found = of(*spans)
    assert ([step.step for step in found.odd], found.every) == ([6, 12, 18], 6)


@pytest.mark.parametrize(
    ("spans", "every"),
    [
        ([100, 100, 200, 100, 100], None),  # of one alone no distance is said
        ([200, 100, 100, 200, 100, 100, 100], 3),
        ([200, 100, 100, 200, 100, 200, 100, 100], None),
        ([100] * 5, None),
    ],
)
def test_the_distance_is_told_where_it_is_one(spans, every):
    assert of(*spans).every == every


@pytest.mark.parametrize(
    ("unprofiled", "odd", "start"),
    [
        (EVEN, [], 1),  # as no step without the profiler is
        (UNEVEN, [1], None),  # which are odd as well
        (None, [1], None),
        (control({0: [[], [-4]]}), [1], None),  # there are none
    ],
)
def test_a_long_first_step_is_the_profiles_start_where_no_unprofiled_step_is_odd(unprofiled, odd, start):
    found = of(300, 100, 100, 100, unprofiled=unprofiled)
    assert [step.step for step in found.odd] == odd
    assert (found.profile_start and found.profile_start.step) == start
    assert found.typical == [2, 3, 4]


@pytest.mark.parametrize(("first", "is_start"), [(109, False), (110, True), (130, True)])
def test_the_profiles_start_is_a_tenth_longer_than_the_others(first, is_start):
    found = of(first, 90, 100, 110, unprofiled=EVEN)
    assert (found.profile_start is not None) == is_start
    assert found.typical == ([2, 3, 4] if is_start else [1, 2, 3, 4])


def test_the_profiles_start_does_not_hide_another_odd_step():
    found = of(500, 100, 100, 100, 180, 100, unprofiled=EVEN)
    assert ([step.step for step in found.odd], found.typical) == ([5], [2, 3, 4, 6])


def test_the_profiles_start_is_named():
    found = told(lasting(9, 3, 3, 3, 3), unprofiled=EVEN)
    (note,) = [note for note in found.run.notes if note.code == Code.PROFILE_START_LEFT_OUT]
    assert "step 1, in which the profile starts, counts in no figure: it is" in str(note)
    assert "Step 1, in which the profile starts, is" in found.summary.verdict
    assert steps_of(found) == ([2, 3, 4], [])
    assert not any(note.code == Code.PROFILE_START_LEFT_OUT for note in told(lasting(9, 3, 3, 3, 3)).run.notes)


def test_from_eight_steps_on_five_deviations_and_a_tenth_make_a_step_odd():
    # With the last one the median of nine is 100, and the median deviation 2.
    close = [98, 98, 100, 100, 100, 100, 102, 102]
    assert [step.step for step in of(*close, 111).odd] == [9]
    assert [step.step for step in of(*close, 110).odd] == []  # no more than a tenth
    assert [step.step for step in of(*close[:3], *close[5:], 111).odd] == []  # of seven
    # The median deviation is 4: five are 20.
    wide = [96, 96, 100, 100, 100, 100, 104, 104]
    assert [step.step for step in of(*wide, 120).odd] == []
    assert [step.step for step in of(*wide, 121).odd] == [9]


@pytest.mark.parametrize(
    ("blocks", "slow"),
    [
        (["....", ".|||"], (2, 2)),
        ([".....", "|||..", "....."], (2, 3)),
        (["..|.", ".|||"], None),
        (["........", "..|||..."], None),
        (["....", "..||"], None),
        ([".......|||"], None),
    ],
)
def test_odd_steps_of_one_block_alone_are_a_slow_while(blocks, slow):
    """A checkpoint is in each block; what holds for half of one block and for no other is no part of the training."""
    assert timed_as(*blocks).slow_block == slow


def test_a_slow_while_is_looked_for_beside_the_training():
    typical = TypicalWindows(Steps([1], []), np.array([True]), {1: 10})
    slow, odd = (
        odd_gain(typical, Manifest(controls=Controls(unprofiled=timed_as(*blocks)))).scenario.told
        for blocks in (["....", ".|||"], ["..|.", ".|||"])
    )
    assert slow.problem.startswith("3 of 8 timed steps, all in block 2 of 2, take 20.00 ms longer")
    assert slow.remedy.startswith("record again") and "checkpoint" in odd.remedy


@pytest.mark.parametrize(("collected_ms", "is_told"), [(18, True), (9, False), (25, True)])
def test_odd_steps_in_which_python_collects_garbage_say_so(collected_ms, is_told):
    """Steps 14 and 17 take 20 ms longer; so long of it, and 1 ms in each step, the host collects garbage."""
    controls = Controls(
        unprofiled=msgspec.structs.replace(timed_as(".|.", ".|."), numbers=[[13, 14, 15], [16, 17, 18]])
    )
    collected = [1_000_000 * (1 + (collected_ms if step in (14, 17) else 0)) for step in range(13, 19)]
    states = {"0": HostStates(step=[*range(13, 19)], gc_ns=collected), "x": HostStates()}
    typical = TypicalWindows(Steps([1], [], every=3), np.array([True]), {1: 10})
    told = odd_gain(typical, Manifest(controls=controls, host_states=states)).scenario.told
    of_it = f", {min(collected_ms, 20)}.00 ms of it in Python's garbage collector" if is_told else ""
    assert told.problem == f"every third step takes 20.00 ms longer than the typical one{of_it}"
    assert told.remedy.startswith("collect less") == is_told


def test_of_two_steps_none_is_odd():
    assert of(100, 900).typical == [1, 2]


def test_every_device_of_a_process_has_a_last_window():
    rows = drawn_rows({0: [100, 100, 300, 100, 20]})
    other = drawn_rows({0: [110, 110, 310, 30]})
    other.device[:] = 1
    found = typical_windows(Breakdown.joined([rows, other]), None)
    assert (found.steps.typical, [step.step for step in found.steps.odd]) == ([1, 2, 4], [3])
    assert found.windows.tolist() == [True, True, False, True, False, True, True, False, False]


def test_cycles_of_one_file_each_have_a_last_window():
    rows = drawn_rows({0: [100, 100, 50, 100, 60, 70]})
    rows.ends_cycle[:] = [False, False, True, False, True, True]
    # The cycles are of three steps, of two, and of one, which is the only one of its cycle.
    assert typical_windows(rows, None).windows.tolist() == [True, True, False, True, False, True]


SPANS = st.lists(st.one_of(st.integers(90, 130), st.sampled_from([100, 150, 151, 225])), min_size=1, max_size=12)
TIMED = st.none() | st.sampled_from([EVEN, UNEVEN, control({0: []})])


@settings(max_examples=cases(150), deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=3), st.lists(st.integers(0, 3), min_size=3, max_size=3), TIMED)
def test_steps_are_told_apart_as_by_brute_force(spans, first, unprofiled):
    """Ranks have different steps, and some but one."""
    rows = drawn_rows(dict(enumerate(spans)), first)
    found = typical_windows(rows, unprofiled)
    windows = [*rows.to_frame().itertuples()]
    typical, odd, start = brute_force.split(windows, unprofiled)
    assert (found.steps.typical, [step.step for step in found.steps.odd]) == (typical, odd)
    assert ([found.steps.profile_start.step] if found.steps.profile_start else []) == start
    counted = {(window.rank, window.step) for window in brute_force.counted(windows) if window.step in typical}
    assert [(window.rank, window.step) in counted for window in windows] == found.windows.tolist()
    distances = {after - before for before, after in pairwise(odd)}
    assert found.steps.every == (distances.pop() if len(distances) == 1 else None)


def test_a_pause_is_in_the_step_whose_mark_holds_it():
    """Step 3's host reads a file before it launches: window 2 is long, and the pause is step 3's."""
    before = told({"step": "111222333333333444555", "compute": "a..b........c..d..e.."})
    (odd,) = before.summary.steps.odd
    assert (odd.step, odd.span_ns) == (2, 9)
    assert odd.why.endswith("idle time (on the CPU in ProfilerStep#3)")
    behind = told({"step": "111222222222333444555", "compute": "a..b........c..d..e.."})
    (odd,) = behind.summary.steps.odd
    assert (odd.step, odd.why.endswith("idle time")) == (2, True)


def test_what_an_odd_step_is_longer_by_is_told_by_its_part():
    """Step 3 computes for 6 units instead of 2: 4 of the 5 that it is longer."""
    found = told({"step": "1111222233333333344445555", "compute": "aa..bb..cccccc...dd..ee.."})
    (odd,) = found.summary.steps.odd
    assert (odd.step, odd.span_ns) == (3, 9)
    assert "compute" in odd.why


def test_bar_parts_and_shares_are_of_typical_windows():
    found = told(lasting(4, 4, 9, 4, 4), {"step": "1111222233333333344445555", "compute": "aaa.bbb.ccccccccc...eee."})
    windows = brute_force.typical_windows(found)
    total = sum(window.span_ns for window in windows)
    shares = found.summary.shares
    for part in PARTS:
        assert shares[part.field] == sum(getattr(window, part.field) for window in windows) / total
    assert sum(shares[part.field] for part in PARTS) == pytest.approx(1)


def test_a_rank_whose_steps_are_all_odd_is_in_no_figure_and_in_all_rows():
    found = told(lasting(3, 3, 9, 3, 3), {"step": "......333333333", "compute": "......aaaa....b"})
    assert [(row.rank, row.step) for row in found.windows if row.typical] == [(0, 1), (0, 2), (0, 4)]
    assert [device.rank for device in found.summary.by_device] == [0]
    assert {row.rank for row in found.windows} == {0, 1}
    for text in (report_text(found), first_screen_text(found, width=200), report_html(found)):
        assert "1 of 4 steps is odd, and left out of these shares: step 3 is " in " ".join(text.split())


@pytest.mark.parametrize("path", REPORTED)
def test_layers_and_buckets_are_medians_over_typical_windows(path):
    document = reported(path)
    places = {(window.rank, window.device, window.step) for window in brute_force.typical_of_sample(path)}
    layers, buckets = (
        [row for row in rows if (row.rank, row.device, row.step) in places]
        for rows in (document.layers, document.buckets)
    )
    devices = {(row.rank, row.device) for row in layers}
    windows = {device: {row.step for row in layers if (row.rank, row.device) == device} for device in devices}
    for line in document.summary.layers:
        mine = [row for row in layers if row.layer == line.layer]
        without = sum(len(windows[device]) for device in {(row.rank, row.device) for row in mine}) - len(mine)
        for name in ("forward_ns", "backward_ns", "exposed_ns"):
            assert line.measures[name].median == median([getattr(row, name) for row in mine] + [0] * without)
    for bucket in document.summary.buckets:
        lengths = [row.dur_ns for row in buckets if row.bucket == bucket.bucket]
        assert bucket.measures["dur_ns"].count == len(lengths)
        assert bucket.measures["dur_ns"].median == (median(lengths) if lengths else None)
