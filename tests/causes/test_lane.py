"""The critical path of a recorded step as a lane: drawn by hand, and against the lanes of all devices."""

import numpy as np
import pytest

from analyzers.causes.charges import Charge
from analyzers.causes.lane import PathLane
from analyzers.errors import AnalysisError
from analyzers.intervals import Intervals, union_of
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.device_lanes import lanes, path_lanes
from tests.support import once
from tests.support.kineto_files import Event, write
from tests.support.samples import SAMPLES
from tests.support.training import all_reduce, document, host, kernel, ranged, step

pytestmark = pytest.mark.slow

# Three with light windows, two with full ones alone; of the fourth a rank has several devices.
RUNS = ["resnet18-ddp2-pageable", "resnet50-ddp4-bf16", "resnet18-fsdp4", "resnet18-dp4", "every-collective4"]
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def drawn(tmp_path, *ranks: list[Event]) -> dict[int, PathLane]:
    for number, rows in enumerate(ranks):
        write(tmp_path / f"rank{number}.json", document(rows, number, len(ranks)))
    run = summarize(tmp_path, causes=True)
    return path_lanes(run, report(run))


def told(lane: PathLane) -> list[tuple[int, float, float, str]]:
    """Rank, beginning and end in us from the lane's beginning, and cause."""
    at = [(values - lane.start_ns[0]) / 1000 for values in (lane.start_ns, lane.end_ns)]
    causes = [Charge(cause).label for cause in lane.cause.tolist()]
    return [*zip(lane.rank.tolist(), at[0].tolist(), at[1].tolist(), causes, strict=True)]


def test_one_rank_alternates_between_host_and_device(tmp_path):
    sync = host("cudaDeviceSynchronize", 10, 22, category="cuda_runtime")
    first = [step(1, 0, 50), *kernel("a", 1, 2, 8), *kernel("b", 3, 12, 20), sync, ranged(LOADER, 34, 10)]
    found = drawn(tmp_path, [*first, step(2, 50, 20), *kernel("a", 50.5, 52, 8)])
    lane = told(found[1])
    assert lane[0] == (0, 0, 8, "compute")
    assert lane[1] == (0, 8, 10, "kernel_gap")
    assert lane[2] == (0, 10, 30, "compute")
    # The host waits for b, and what it does then is the path until the next step's first kernel.
    assert [part[3] for part in lane[3:]] == ["python", "input", "python", "launch"]
    assert lane[4][1:3] == (32, 42)
    assert lane[-1][1:3] == (48.5, 50)


def test_it_goes_over_to_the_rank_that_came_last(tmp_path):
    def rows(compute: float) -> list[Event]:
        return [step(1, 0, 100), *kernel("a", 1, 2, compute), *all_reduce(5, 100, 2 + compute, 110 - compute)]

    lane = drawn(tmp_path, rows(20), rows(78))[1]
    shown = told(lane)
    assert shown == [(1, 0, 78, "compute"), (-1, 78, 110, "transfer")]
    assert lane.group.tolist() == [-1, 0]
    assert len(lane.groups) == 1


@pytest.mark.parametrize("name", RUNS)
def test_it_fills_the_step_and_runs_where_devices_do(name):
    def made():
        run = summarize(SAMPLES / name, lanes=True, causes=True)
        document_ = report(run)
        return lanes(run, document_), path_lanes(run, document_), document_.windows

    devices, found, windows = once.pickled(f"path of {name}", made)
    assert set(found) == {row.step for row in windows}
    for number, lane in found.items():
        own = [row for row in windows if row.step == number]
        begin, end = min(row.start_ns for row in own), max(row.start_ns + row.span_ns for row in own)
        assert (lane.end_ns > lane.start_ns).all()
        assert (lane.start_ns[1:] >= lane.end_ns[:-1]).all()
        assert begin <= lane.start_ns[0]
        assert lane.end_ns[-1] <= end
        # A trace that begins with its first step does not tell what came before its first call.
        assert (lane.end_ns - lane.start_ns).sum() > (0.89 if number == min(found) else 0.999) * (end - begin)
        check_devices(lane, devices)


def check_devices(lane: PathLane, devices) -> None:
    """What is compute, a copy or a transfer lies where a device of that rank has such.

    But for a rounded ns, and where two that overlap follow one another otherwise in the light window.
    """
    kinds = {Charge.COMPUTE: "compute", Charge.COPY: "copies", Charge.TRANSFER: "communication"}
    for charge, name in kinds.items():
        for rank in np.unique(lane.rank[lane.cause == charge]).tolist():
            rows = lane.take((lane.cause == charge) & (lane.rank == rank))
            of_rank = [device for device in devices if rank in (-1, device.rank)]
            times = [getattr(device, name) for device in of_rank]
            there = union_of(np.concatenate([t.start for t in times]), np.concatenate([t.end for t in times]))
            beyond = union_of(rows.start_ns, rows.end_ns) - Intervals(there.start - 1, there.end + 1)
            assert beyond.length_ns() < 1000, (charge, rank)


def test_without_a_model_there_is_none(tmp_path):
    write(tmp_path / "rank0.json", document([step(1, 0, 50), *kernel("a", 1, 2, 8)], 0, 1))
    run = summarize(tmp_path, causes=False)
    assert path_lanes(run, report(run)) == {}
    other = summarize(SAMPLES / "resnet18-ddp1")
    with pytest.raises(AnalysisError, match="another run"):
        path_lanes(run, report(other))


def test_in_a_light_window_no_waiting_is_called_a_transfer():
    run = summarize(SAMPLES / "resnet18-ddp4", lanes=True, causes=True)
    found = report(run)
    devices, path = lanes(run, found), path_lanes(run, found)
    assert run.is_light
    for lane in path.values():
        rows = lane.take(lane.cause == Charge.TRANSFER)
        assert len(rows)
        for device in devices:
            waits = device.exposed_wait
            overlap = union_of(rows.start_ns, rows.end_ns) & Intervals(waits.start, waits.end)
            assert overlap.length_ns() <= len(rows)
