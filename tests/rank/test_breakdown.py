import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.rank.columns.activity import activities
from analyzers.rank.columns.time_breakdown import breakdown
from analyzers.rank.columns.windows import profiler_steps, windows
from tests.support.brute_force import MEASURES, sweep
from tests.support.drawing import draw


def only(result, name):
    (value,) = getattr(result, name).tolist()
    return value


def test_exposed_communication_is_what_no_compute_hides():
    result = breakdown(draw(compute="##..", comm=".##."))
    assert only(result, "exposed_comm_ns") == only(result, "overlapped_comm_ns") == 1
    assert (only(result, "compute_ns"), only(result, "span_ns")) == (2, 3)


def test_a_copy_is_exposed_only_beside_neither_compute_nor_communication():
    result = breakdown(draw(compute="aa......", comm="..bb....", copy="cccccc.d"))
    assert only(result, "copy_ns") == 7
    assert only(result, "exposed_copy_ns") == 3
    assert only(result, "idle_ns") == 1


def test_kernels_that_overlap_on_a_device_count_once():
    assert only(breakdown(draw(compute="aaaa..", compute2="..bbbb")), "compute_ns") == 6
    assert only(breakdown(draw(comm="aaaa..", comm2=".bb...")), "comm_ns") == 4


def test_no_communication_has_no_overlap():
    result = breakdown(draw(compute="aa"))
    assert np.isnan(result.overlap).all()
    assert result.to_frame()["overlap"].isna().all()


def tiles(trace):
    (activity,) = activities(trace)
    found = windows(activity, profiler_steps(trace.timed))
    return list(zip(found.step.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True))


def test_a_window_begins_with_its_first_event_and_ends_where_the_next_begins():
    #                          launches lead their kernels: the step is the launch's
    trace = draw(step="333444...", compute="..aabb.cc", launch={"compute": "^.^^....."})
    assert tiles(trace) == [(3, 2, 7), (4, 7, 9)]


def test_steps_without_device_events_have_no_window():
    assert tiles(draw(step="3344556", compute="a...b.c")) == [(3, 0, 4), (5, 4, 6), (6, 6, 7)]


def test_the_last_window_ends_with_the_last_event_of_its_step_not_of_the_trace():
    trace = draw(step="3344...", compute="a..b..c", copy="..dddd.")
    assert tiles(trace) == [(3, 0, 2), (4, 2, 6)]
    assert only(breakdown(draw(step="33...", compute="a...b")), "outside_ns") == 1


def test_what_runs_before_the_first_window_is_left_out_and_counted():
    trace = draw(step="...333", compute="aa..bb")
    assert tiles(trace) == [(3, 4, 6)]
    assert only(breakdown(trace), "outside_ns") == 2


def test_activity_is_clipped_by_time_not_attributed_by_launch():
    # The first step's long copy runs into the second step's window.
    result = breakdown(draw(step="334444", compute="a.b.bb", copy="cccc.."))
    assert result.copy_ns.tolist() == [2, 2]


def test_without_steps_or_launches_there_is_one_window_over_all():
    trace = draw(compute=".aa..b")
    assert tiles(trace) == [(0, 1, 6)]
    assert breakdown(trace).unmarked.all()


def test_a_later_step_that_starts_early_leaves_an_empty_window_and_no_negative_one():
    trace = draw(step="334455", compute="....a.", comm="..b..", copy="......c", launch={"compute": "^", "comm": "..^"})
    assert all(end >= start for _, start, end in tiles(trace))
    starts = [start for _, start, _ in tiles(trace)]
    assert starts == sorted(starts)


lane = st.text("ab.", min_size=1, max_size=24)


@given(lane, lane, lane, lane)
def test_measures_are_those_of_a_sweep_and_conserve_time(compute, compute2, comm, copy):
    lanes = {"compute": compute, "compute2": compute2, "comm": comm, "copy": copy}
    if not any(set(picture) - {"."} for picture in lanes.values()):
        return
    trace = draw(**lanes)
    result = breakdown(trace)
    spans = [
        ((at, at + 1), name.rstrip("2"))
        for name, picture in lanes.items()
        for at, mark in enumerate(picture)
        if mark != "."
    ]
    start = only(result, "start_ns")
    expected = sweep(spans, start, start + only(result, "span_ns"))
    for name in MEASURES:
        assert only(result, f"{name}_ns") == expected[f"{name}_ns"], name
    parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    assert sum(only(result, part) for part in parts) == only(result, "span_ns")


@pytest.mark.parametrize("device", [0, 3])
def test_frames_name_the_device(device):
    frame = breakdown(draw(compute="aa", device=device)).to_frame()
    assert frame["device"].tolist() == [device]
