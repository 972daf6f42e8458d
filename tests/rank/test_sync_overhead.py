"""What synchronization costs beside its exposed communication: packing, gaps, and slower kernels."""

from pathlib import Path

import msgspec
import pytest

from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.reporting.measures.synchronization import IdleFrom
from tests.support.drawn_steps import ddp_step
from tests.support.kineto_files import Event, write
from tests.support.training import all_reduce, document, forward, kernel, step

PACKS = ("ncclDevKernel", "copy_into_bucket")


def quiet(rows: list[Event], shorter: float) -> list[Event]:
    """The device's rows and their launches without synchronization; what was named `beside` is shorter."""
    left = {row["args"]["correlation"] for row in rows if row["name"].startswith(PACKS)}
    kept = [row for row in rows if row["cat"] in ("kernel", "cuda_runtime") and row["args"]["correlation"] not in left]
    beside = ("relu_backward", "linear_backward")
    return [row | {"dur": row["dur"] - shorter * (row["name"] in beside)} for row in kept]


def told(folder: Path, rows: list[Event], nosync: list[Event] | None = None) -> Report:
    if nosync is not None:
        # Other windows belong to recorded runs.
        write(folder / "run.json", {"schema": "tracer.run/1"})
    for rank in (0, 1):
        write(folder / f"rank{rank}.json", document(rows, rank))
        if nosync is not None:
            write(folder / "nosync" / f"rank{rank}.json", document(nosync, rank))
    return report(summarize(folder))


def test_a_window_without_synchronization_tells_contention_launch_by_launch(tmp_path):
    rows = ddp_step()
    found = told(tmp_path, rows, quiet(rows, 0.25))
    # Three kernels were longer, but the first linear's backward ran beside no communication.
    assert [window.contention_ns for window in found.windows] == [500, 500]
    cost = found.summary.sync_cost
    assert (cost.contention_ns, cost.contention_is_estimate, cost.contention_compared) == (500, False, 1.0)
    assert cost.idle_from == "the window without synchronization"
    assert not any("contention" in str(warning) for warning in found.run.notices)


def test_idle_time_and_span_are_compared_with_the_window_without_synchronization(tmp_path):
    rows = ddp_step()
    found = told(tmp_path, rows, quiet(rows, 0))
    # Both windows run from 12 to 159; the first has 40 us of communication and 2 us of copies in its place.
    (window, _), cost = found.windows, found.summary.sync_cost
    assert window.span_ns == 147_000
    assert cost.profiled_ns == 0
    assert cost.idle_ns == -(window.exposed_comm_ns + window.packing_ns) + (2000 - cost.packing_ns)
    parts = (cost.exposed_wait_ns, cost.exposed_transfer_ns, cost.packing_ns, cost.packing_copies_ns, cost.idle_ns)
    assert cost.accounted_ns == sum(parts) + cost.contention_ns == 0


def test_another_kernel_there_is_a_mismatch_that_is_said(tmp_path):
    rows = ddp_step()
    other = [row | {"name": row["name"].replace("relu_backward", "gelu_backward")} for row in quiet(rows, 0)]
    found = told(tmp_path, rows, other)
    assert found.summary.sync_cost.contention_is_estimate
    (warning,) = [each for each in found.run.notices if each.code == Code.CONTENTION_IS_ESTIMATED]
    assert "rank 0: of 9 device events in the nosync window and 9 in the full one less than nine tenths" in str(warning)
    assert "'gelu_backward'" in str(warning)


def alike(grids: tuple[int, ...], lengths: tuple[float, ...]) -> list[Event]:
    """Kernels of one name within forwards of one name, 20 us apart; the last runs beside communication."""
    rows = [step(0, 0, 400)]
    for place, (grid, dur) in enumerate(zip(grids, lengths, strict=True)):
        at = 10 + 20 * place
        op, *_ = forward(at, "relu", place)
        rows += [op, *kernel("relu", at + 1, at + 2, dur, grid=[grid, 1, 1], block=[64, 1, 1])]
    return rows + all_reduce(10 + 20 * (len(grids) - 1), 100, 10 + 20 * (len(grids) - 1), 30)


ALIKE = {
    "the median of three": ((8, 8, 8, 8), (4, 5, 9, 7), 2000, 1.0),
    "shorter than usual": ((8, 8, 8, 8), (4, 5, 9, 3), -2000, 1.0),
    "too few": ((8, 8, 8), (4, 5, 7), None, 0.0),
    "other grids": ((8, 8, 9, 8), (4, 5, 9, 7), None, 0.0),
}


@pytest.mark.parametrize(("grids", "lengths", "longer", "compared"), ALIKE.values(), ids=ALIKE)
def test_without_such_a_window_like_kernels_tell_an_estimate(tmp_path, grids, lengths, longer, compared):
    found = told(tmp_path, alike(grids, lengths))
    assert [window.contention_ns for window in found.windows] == [longer, longer]
    cost = found.summary.sync_cost
    assert (cost.contention_ns, cost.contention_is_estimate, cost.contention_compared) == (longer, True, compared)
    assert cost.idle_from == "idle time right before packing and communication"


def test_kernels_without_grids_are_compared_with_none(tmp_path):
    rows = alike((8, 8, 8, 8), (4, 5, 9, 7))
    for row in rows:
        row.get("args", {}).pop("grid", None)
        row.get("args", {}).pop("block", None)
    assert [window.contention_ns for window in told(tmp_path, rows).windows] == [None, None]


def test_packing_beside_compute_costs_no_time_of_its_own(tmp_path):
    rows = ddp_step()
    alone = told(tmp_path / "alone", rows).summary.sync_cost
    beside = told(tmp_path / "beside", rows + kernel("long", 74, 74.5, 10, stream=8)).summary.sync_cost
    # Four copies of half a microsecond, two of them while the long kernel runs.
    assert (alone.packing_ns, beside.packing_ns) == (2000, 1000)
    assert alone.packing_copies_ns == 0


def test_gaps_right_before_packing_and_communication_count_where_they_are_short(tmp_path):
    rows = ddp_step()
    cost = told(tmp_path, rows).summary.sync_cost
    assert cost.idle_ns > 0
    later = [row | {"ts": row["ts"] + 60} if row["ts"] >= 110 else row for row in rows]
    assert told(tmp_path / "later", later).summary.sync_cost.idle_ns < cost.idle_ns


def test_a_run_without_communication_has_no_cost(tmp_path):
    rows = [row for row in ddp_step() if not row["name"].startswith("nccl")]
    assert told(tmp_path, rows).summary.sync_cost is None


def test_where_idle_time_is_from_is_one_of_two_things_and_documents_hold_their_words():
    assert [each.value for each in IdleFrom] == [
        "the window without synchronization",
        "idle time right before packing and communication",
    ]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode('"somewhere else"', type=IdleFrom)
