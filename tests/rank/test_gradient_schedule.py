"""How far steps have come when gradients are ready: waits told apart, on drawings and on every recorded run."""

import numpy as np
import pytest

from analyzers.intervals import union_of
from analyzers.rank.device_work import NEVER, able_to_start, waits
from analyzers.rank.gradient_schedule import _DeviceReductions
from tests.support.samples import REPORTED, SAMPLES, summarized


def told_apart(busy: str, comm: str, launched: list[int]):
    """Waits for communication and for launches, of a drawing of what a device computes and communicates."""

    def drawn(row: str):
        on = np.flatnonzero(np.array(list(row)) == "#")
        return union_of(on, on + 1)

    runs = drawn(busy)
    stalls, host = waits(runs, runs.start, np.array(launched), drawn(comm).end)
    return [*zip(stalls.start, stalls.end, strict=True)], [*zip(host.start, host.end, strict=True)]


@pytest.mark.parametrize(
    ("busy", "comm", "launched", "stalls", "host"),
    [
        ("##...##", "..###..", [NEVER, NEVER], [(2, 5)], []),  # goes on right after communication
        ("##...##", "..##...", [NEVER, NEVER], [(2, 4)], []),  # a little later
        ("##...##", "..###..", [NEVER, 4], [(4, 5)], [(2, 4)]),  # was launched while it still communicated
        ("##...##", "..#....", [NEVER, 5], [], [(2, 5)]),  # the launch came last
        ("##...##", "##.....", [NEVER, NEVER], [], []),  # a gap of its own
        ("##...##", "......#", [NEVER, NEVER], [], []),  # communication goes on
    ],
)
def test_a_gap_is_the_launchs_until_it_came_and_communications_until_it_ended(busy, comm, launched, stalls, host):
    assert told_apart(busy, comm, launched) == (stalls, host)


def test_what_was_launched_late_starts_a_usual_gap_after_it_could():
    # The first three follow one another, with gaps of 2 and 3; the last two were launched when nothing ran, and started
    # 7 and 20 later: all but a usual gap was waiting for the host.
    start, end = np.array([1, 103, 206, 407, 620]), np.array([101, 203, 306, 507, 720])
    launched, never = np.array([0, 1, 2, 400, 600]), np.array([], dtype=np.int64)
    able = able_to_start(union_of(start, end), start, launched, never)
    assert able.tolist() == [1, 2, 3, 407 - 2, 620 - 2]
    none, host = waits(union_of(start, end), start, able, never)
    assert len(none) == 0
    assert [*zip(host.start, host.end, strict=True)] == [(306, 405), (507, 618)]
    # Communication that ends in a gap explains it.
    assert able_to_start(union_of(start, end), start, launched, np.array([550])).tolist() == [1, 2, 3, 405, 601]


def test_work_leaves_waits_out_and_gaps_in():
    none = union_of([], [])
    device = _DeviceReductions(
        start_ns=np.array([0, 20]),
        launched_ns=np.array([NEVER, NEVER]),
        packs=np.array([False, False]),
        busy=union_of([0, 20], [10, 30]),
        comm=union_of([5], [18]),
        stalls=union_of([10], [18]),
        host_gaps=none,
    )
    assert device.work_ns(0, np.array([10, 20, 30])).tolist() == [10, 12, 22]
    assert device.beside_ns(0, np.array([10, 20, 30])).tolist() == [5, 5, 5]


@pytest.mark.parametrize("path", REPORTED)
def test_work_grows_from_gradient_to_gradient_and_fits_into_its_step(path):
    for measured in summarized(path).measured:
        for pace in (measured.schedules or {}).values():
            for place in range(len(pace)):
                own = slice(pace.first[place], pace.first[place + 1])
                work = np.r_[0, pace.work_ns[own], pace.total_ns[place]]
                assert (np.diff(work) >= 0).all()
                assert (pace.beside_ns[own] <= pace.work_ns[own]).all()
                # What is neither work nor waiting for launches is waiting for communication.
                waited = pace.span_ns[place] - pace.total_ns[place] - pace.host_gap_ns[place]
                assert waited >= pace.buffers_ns[place] >= 0


def test_every_gradient_of_a_step_is_there():
    summary = summarized(SAMPLES / "resnet50-ddp4-bf16")
    for measured in summary.measured:
        (pace,) = (measured.schedules or {}).values()
        assert np.diff(pace.first).tolist() == [161] * 2
        assert pace.elements[:161].sum() == sum(np.prod(each.shape) for each in summary.manifest.parameters)
        assert (pace.copy_ns > 0).all()
        assert set(pace.reduction) == {0, 1, 2, 3}
        assert set(pace.norms) == {53}
