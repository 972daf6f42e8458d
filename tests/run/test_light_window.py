from dataclasses import replace

import numpy as np

from analyzers.rank.time_breakdown import breakdown
from analyzers.run.light_window import Mismatch, retime
from analyzers.trace.kernel_names import Category
from tests.support.drawing import draw


def light(trace):
    """What a light profile keeps of a drawing: device rows and their launches."""
    return trace.events.take(trace.events.category != Category.ANNOTATION)


def test_times_come_from_the_light_window_and_steps_from_the_full_one():
    full = draw(step="33334444", compute="aa..b...", comm=".cc...d.")
    quick = draw(compute="ab", comm=".cd")
    timed = retime(full.events, light(quick))
    assert not isinstance(timed, Mismatch)
    result = breakdown(replace(full, timed=timed))
    assert result.step.tolist() == [3, 4]
    assert result.start_ns.tolist() == [0, 1]


def test_other_kernels_are_a_mismatch_that_names_them():
    full = draw(compute="aa.b")
    for other in (draw(compute="a.cc"), draw(compute="a..."), draw(compute="a.b", device=1)):
        assert isinstance(retime(full.events, light(other)), Mismatch)
    reason = retime(full.events, light(draw(compute="a.cc")))
    assert "first 'compute c' (device 0, stream -1) for 'compute b' (device 0, stream -1)" in reason.reason


def test_host_rows_keep_their_own_times():
    full = draw(step="3333", compute="a..b")
    timed = retime(full.events, light(draw(compute=".ab.")))
    host = full.events.category == Category.ANNOTATION
    assert np.array_equal(timed.start_ns[host], full.events.start_ns[host])


def on_streams(trace, *streams):
    """A drawing's events, the device's on these streams in the order of their launches."""
    events = trace.events
    rows = np.flatnonzero(events.on_device)
    stream = events.stream.copy()
    stream[rows[np.argsort(events.correlation[rows])]] = streams
    return replace(trace, events=replace(events, stream=stream))


def test_streams_of_a_pool_are_other_ones_in_each_window():
    full = on_streams(draw(step="33333333", compute="aabbccdd"), 7, 17, 21, 7)
    quick = on_streams(draw(compute="abcd"), 7, 25, 17, 7)
    timed = retime(full.events, light(quick))
    assert not isinstance(timed, Mismatch)
    rows = np.flatnonzero(timed.on_device)
    assert timed.start_ns[rows].tolist() == [0, 1, 2, 3]
    assert timed.stream[rows].tolist() == [7, 17, 21, 7]


def test_other_kernels_on_a_stream_are_a_mismatch_on_whatever_stream():
    full = on_streams(draw(compute="aabbcc"), 7, 17, 21)
    for other in (on_streams(draw(compute="acb"), 7, 17, 21), on_streams(draw(compute="abd"), 7, 21, 25)):
        assert isinstance(retime(full.events, light(other)), Mismatch)
