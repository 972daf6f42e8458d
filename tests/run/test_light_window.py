from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import UNKNOWN
from analyzers.rank.columns.time_breakdown import breakdown
from analyzers.run.light_window import Joined, Mismatch, retime
from analyzers.trace.kernel_names import Category
from analyzers.trace.range_names import LIGHT_STEP, STEP
from tests.support.drawing import draw


def light(trace):
    """What a light profile by Kineto keeps of a drawing: device rows and their launches."""
    return trace.events.take(trace.events.category != Category.ANNOTATION)


def bare(trace):
    """What CUPTI's own records keep of a drawing: device rows, and the marks of steps."""
    events = trace.events
    kept = events.take(events.category != Category.LAUNCH)
    names = tuple(name.replace(STEP, LIGHT_STEP) for name in kept.names)
    return replace(kept, launched_ns=np.full(len(kept), UNKNOWN), names=names)


def joined(full, quick):
    """A drawing at a light window's times."""
    retimed = retime(full.events, quick)
    assert isinstance(retimed, Joined), retimed
    marks = retimed.marks if len(retimed.marks[0]) else None
    return replace(full, events=retimed.full, timed=retimed.light, joining=retimed.joining, light_marks=marks)


def rows(trace):
    """Name, start and length of each device event of the light window, by start."""
    timed = trace.timed
    chosen = np.flatnonzero(timed.on_device)
    chosen = chosen[np.argsort(timed.start_ns[chosen])]
    return [(timed.names[timed.name[row]][-1], int(timed.start_ns[row]), int(timed.dur_ns[row])) for row in chosen]


def test_times_come_from_the_light_window_and_steps_from_the_full_one():
    full = draw(step="33334444", compute="aa..b...", comm=".cc...d.")
    result = breakdown(joined(full, light(draw(compute="ab", comm=".cd"))))
    assert result.step.tolist() == [3, 4]
    assert result.start_ns.tolist() == [0, 1]


def test_the_light_windows_own_marks_tell_in_which_step_a_pause_is():
    """The pause is step 4's on the host, and in the window of step 3; in the full window there is none."""
    full = draw(step="333444555", compute="aaabbbccc")
    paused = draw(step="33344444444555", compute="aaa.....bbbccc")
    assert breakdown(joined(full, bare(paused))).pause_in.tolist() == [4, -1, -1]
    assert breakdown(joined(full, light(paused))).pause_in.tolist() == [-1, -1, -1]
    assert breakdown(joined(full, bare(draw(step="33344444444445", compute="aaa.....bbbccc")))).step.tolist() == [
        3,
        4,
        5,
    ]
    fewer = draw(step="33333333333555", compute="aaa.....bbbccc")  # not the full window's steps
    assert breakdown(joined(full, bare(fewer))).pause_in.tolist() == [-1, -1, -1]


def test_other_kernels_are_a_mismatch_that_names_them():
    full = draw(compute="aa.b")
    for other in (draw(compute="a.cc"), draw(compute="a..."), draw(compute="a.b", device=1)):
        assert isinstance(retime(full.events, light(other)), Mismatch)
    mismatch = retime(full.events, light(draw(compute="a.cc")))
    assert mismatch.reason == (
        "of 2 device events in the light window and 2 in the full one less than nine tenths are the same in the same "
        "order; first 'compute c' (device 0, stream -1) for 'compute b' (device 0, stream -1)"
    )


def test_host_rows_keep_their_own_times():
    full = draw(step="3333", compute="a..b")
    trace = joined(full, light(draw(compute=".ab.")))
    host = full.events.category == Category.ANNOTATION
    assert np.array_equal(trace.timed.start_ns[host], full.events.start_ns[host])


def on_streams(trace, *streams):
    """A drawing's events, the device's on these streams in the order of their launches."""
    events = trace.events
    ran = np.flatnonzero(events.on_device)
    stream = events.stream.copy()
    stream[ran[np.argsort(events.correlation[ran])]] = streams
    return replace(trace, events=replace(events, stream=stream), timed=replace(events, stream=stream))


def test_streams_of_a_pool_are_other_ones_in_each_window():
    full = on_streams(draw(step="33333333", compute="aabbccdd"), 7, 17, 21, 7)
    trace = joined(full, light(on_streams(draw(compute="abcd"), 7, 25, 17, 7)))
    ran = np.flatnonzero(trace.timed.on_device)
    assert trace.timed.start_ns[ran].tolist() == [0, 1, 2, 3]
    assert trace.timed.stream[ran].tolist() == [7, 17, 21, 7]


def test_other_kernels_on_a_stream_are_a_mismatch_on_whatever_stream():
    full = on_streams(draw(compute="aabbcc"), 7, 17, 21)
    for other in (on_streams(draw(compute="acb"), 7, 17, 21), on_streams(draw(compute="abd"), 7, 21, 25)):
        assert isinstance(retime(full.events, light(other)), Mismatch)


# Windows that differ by at most a tenth.


def test_events_without_a_partner_are_in_one_window_alone():
    full = draw(step="3333333333334444444444", compute="abcdefghij..klmnopqrst")
    trace = joined(full, light(draw(compute="abcdefgxij..klmnopqrst")))
    assert (trace.joining.both, trace.joining.only_full, trace.joining.only_light) == (19, 1, 1)
    assert ("x", 7, 1) in rows(trace)
    assert "h" not in {name for name, _, _ in rows(trace)}
    assert "x" not in {name for name, _, _ in rows(trace.in_full())}
    assert len(trace.events) == len(trace.timed) == len(full.events) + 1
    result, in_full = breakdown(trace), breakdown(trace.in_full())
    assert result.compute_ns.tolist() == in_full.compute_ns.tolist() == [10, 10]
    assert np.array_equal(breakdown(full).compute_ns, in_full.compute_ns)
    assert trace.events.start_ns.min() == full.events.start_ns.min()


def test_nine_of_ten_must_join():
    full = draw(step="33333333333333333333", compute="abcdefghijklmnopqrst")
    for other, count in (("abcdefghijkmnopqrst", 19), ("abcdefghijklmnopqrstx", 21), ("abcdefghiyklmnopqrst", 20)):
        assert len(rows(joined(full, light(draw(compute=other))))) == count
    assert isinstance(retime(full.events, light(draw(compute="abcdefgxyzklmnopqrst"))), Mismatch)


@pytest.mark.parametrize(
    ("begins", "length"),
    [
        (None, 20),  # without marks it is of the step of what ran before it
        (20, 20),  # the next step had not begun when it was launched
        (19, 19),  # it had
    ],
)
def test_the_step_of_an_event_is_its_neighbors_or_what_the_marks_say(begins, length):
    full = draw(step="333333333334444444444", compute="abcdefghij.klmnopqrst")
    marks = "3" * begins + "4" * 30 if begins else ""
    trace = joined(full, bare(draw(step=marks, compute="abcdefghij.........xklmnopqrst")))
    assert ("x", 19, 1) in rows(trace)
    result = breakdown(trace)
    assert result.step.tolist() == [3, 4]
    assert result.span_ns.tolist() == [length, 30 - length]
    assert result.compute_ns.sum() == 21


def test_launches_that_the_light_window_lacks_have_the_lead_of_the_full_one():
    full = draw(step="3" * 30, compute="aaaa......bbbb...cc", launch={"compute": "^......^.^"})
    assert joined(full, light(full)).joining.launches_are_estimated is False
    trace = joined(full, bare(draw(compute="aa..........bb..............c")))
    assert trace.joining.launches_are_estimated
    assert trace.timed.launched_ns[trace.timed.on_device].tolist() == [0, 12 - 3, 28 - 8]


@given(
    kernels=st.text("abc", min_size=30, max_size=60),
    edits=st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["x", "", "a x", "xy"])), max_size=3),
    second=st.integers(1, 29),
    marked=st.booleans(),
)
def test_time_is_conserved_whatever_differs(kernels, edits, second, marked):
    apart = [f"{letter}{'.' * (place % 3)}" for place, letter in enumerate(kernels)]
    full = draw(step="3" * len("".join(apart[:second])) + "4" * 200, compute="".join(apart))
    edited = list(kernels)
    for place, instead in edits:
        edited[place % len(edited)] = instead
    quick = draw(step="1" * second + "2" * 99 if marked else "", compute=".".join(edited))
    retimed = retime(full.events, bare(quick))
    if isinstance(retimed, Mismatch):
        return
    trace = replace(full, events=retimed.full, timed=retimed.light)
    assert (
        retimed.joining.both + retimed.joining.only_light == quick.events.on_device.sum() == trace.timed.on_device.sum()
    )
    assert retimed.joining.both + retimed.joining.only_full == full.events.on_device.sum()
    assert sorted(rows(trace)) == sorted(rows(quick))
    result, before = breakdown(trace), breakdown(full)
    assert (result.compute_ns + result.idle_ns == result.span_ns).all()
    assert result.compute_ns.sum() + result.outside_ns.sum() == quick.events.dur_ns[quick.events.on_device].sum()
    for column in ("step", "start_ns", "span_ns", "compute_ns"):
        assert np.array_equal(getattr(breakdown(trace.in_full()), column), getattr(before, column))


def test_kernels_of_another_stream_keep_no_others_from_their_partners():
    full = on_streams(draw(step="3" * 24, compute="abcdefghijklmnopqrstuvwx"), *[7] * 20, 17, 21, 25, 29)
    quick = on_streams(draw(compute="abcdeyghijklmnopqrstuvwx"), *[7] * 20, 21, 25, 29, 17)
    trace = joined(full, light(quick))
    assert (trace.joining.both, trace.joining.only_full, trace.joining.only_light) == (23, 1, 1)
