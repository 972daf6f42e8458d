"""What launching threads did, drawn by hand: in the full window, and in proportion in a light one."""

from dataclasses import replace

import numpy as np
import pytest

from analyzers.rank.dependencies import HostTrack, RankGraph, host_track
from analyzers.rank.idle import Cause
from analyzers.rank.summary import summarize
from tests.support.kineto_files import Event, write
from tests.support.samples import SAMPLES, summarized
from tests.support.training import ENGINE, document, host, kernel, ranged, step


def graph_of(tmp_path, *rows: Event) -> RankGraph:
    write(tmp_path / "rank0.json", document(rows, 0, 1))
    graph = summarize(tmp_path, causes=True).in_full[0].graph
    assert graph is not None
    return graph


def told(track: HostTrack, origin_ns: int) -> list[tuple[float, float, str, str | None]]:
    """Beginning and end in us, cause, name."""
    names = [*track.names, None]
    columns = (track.start_ns - origin_ns, track.end_ns - origin_ns, track.cause, track.name)
    return [
        (start / 1000, end / 1000, Cause(cause).label, names[name])
        for start, end, cause, name in zip(*(column.tolist() for column in columns), strict=True)
    ]


@pytest.fixture
def drawn(tmp_path) -> RankGraph:
    """A convolution, Python, autograd's thread for which the main one waits, a synchronization."""
    sync = host("cudaDeviceSynchronize", 20, 12, category="cuda_runtime")
    backward = [host("conv_backward", 10, 4, tid=ENGINE), *kernel("b", 12, 14, 16, tid=ENGINE)]
    forward = [host("aten::conv2d", 1, 4), *kernel("a", 2, 5, 6)]
    between = [sync, ranged("augment", 34, 4), *kernel("c", 40, 41, 2)]
    return graph_of(tmp_path, step(1, 0, 50), *forward, *backward, *between)


ORIGIN_NS = 1_700_000_000_000_000_000


def test_it_is_the_main_thread_and_who_it_waits_for(drawn):
    assert told(host_track(drawn, is_light=False), ORIGIN_NS) == [
        (2, 2.5, "launch_latency", "cudaLaunchKernel"),
        (2.5, 10, "python", None),
        (10, 12, "operator", "conv_backward"),
        (12, 12.5, "launch_latency", "cudaLaunchKernel"),
        (12.5, 20, "python", None),
        (20, 32, "synchronize", "cudaDeviceSynchronize"),
        (32, 34, "python", None),
        (34, 38, "python", "augment"),
        (38, 40, "python", None),
        (40, 40.5, "launch_latency", "cudaLaunchKernel"),
    ]


def in_light(graph: RankGraph, start_us: list[float], us: list[float]) -> RankGraph:
    starts, lengths = (np.rint(1000 * np.array(values)).astype(np.int64) for values in (start_us, us))
    ran = replace(graph.activities, light_start_ns=np.where(starts < 0, -1, starts + ORIGIN_NS), light_ns=lengths)
    return replace(graph, activities=ran)


def test_a_light_window_places_launches_that_the_device_waited_for(drawn):
    # The device begins a and c as soon as they are launched, 2.5 and 0.5 us later; it is done with b at 25.
    graph = in_light(drawn, [5, 9, 31.75], [4, 16, 2])
    found = told(host_track(graph, is_light=True), ORIGIN_NS)
    assert found[0][1] == 2.5
    assert found[-1][1] == 31.25
    # The call returns 2 us after b has ended, as in the full window.
    (waits,) = [part for part in found if part[2] == "synchronize"]
    assert waits[1] == 27
    # What lies between is in proportion: 8.5 us are 4.25.
    (augments,) = [part for part in found if part[3] == "augment"]
    assert augments[:2] == (28, 30)


def test_no_launch_is_later_than_what_it_launched(drawn):
    # In the full window the device waited for b; in the light one b begins at once behind a.
    graph = in_light(drawn, [5, 5.5, 60], [0.5, 16, 2])
    track = host_track(graph, is_light=True)
    assert track.by_proportion
    launches = [part for part in told(track, ORIGIN_NS) if part[2] == "launch_latency"]
    assert launches[1][0] <= 5.5


def test_a_light_window_without_a_known_activity_has_none(drawn):
    assert host_track(in_light(drawn, [-1, -1, -1], [-1, -1, -1]), is_light=True) is None


@pytest.mark.parametrize("name", ["resnet18-ddp2-sick", "resnet18-fsdp4", "resnet18-dp4"])
@pytest.mark.parametrize("is_light", [False, True])
def test_stretches_follow_one_another(name, is_light):
    run = summarized(SAMPLES / name)
    for measured in run.in_full:
        assert measured.graph is not None
        track = host_track(measured.graph, is_light=is_light and run.is_light)
        assert track is not None
        assert (track.end_ns > track.start_ns).all()
        assert (track.start_ns[1:] >= track.end_ns[:-1]).all()
        if not is_light:
            calls = measured.graph.calls.take(measured.graph.calls.thread == measured.graph.main_thread)
            assert (track.start_ns[0], track.end_ns[-1]) == (calls.begin_ns[0], calls.end_ns[-1])
