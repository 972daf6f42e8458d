"""More of what people's traces were seen to hold, two kinds in one file among it, with the right values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import analyzers
from analyzers.errors import UnusableRun
from tests.support.kineto_files import Event, step, write
from tests.support.many_processes import document, rows
from tests.support.reported import FAR, LAST, THREE, WHOLE, Case, Windows, call, changed, check, steps, window


def lost(rows: list[Event], *steps: int, marks_alone: bool = False) -> list[Event]:
    """The rows with those of steps at time 0; `steps` count from the first one, which begins at FAR."""

    def is_lost(row: Event) -> bool:
        is_mark = row["cat"] == "user_annotation"
        return int(row["ts"] - FAR) // 1000 in steps and (is_mark or not marks_alone)

    return changed(rows, is_lost, ts=0, dur=0)


def launched_by(call_name: str, name: str, cat: str = "cuda_runtime", at: float = 10_000) -> list[Event]:
    """Three steps whose third row on the device, of category kernel, is what a call launched."""
    rows = changed(steps(1, 2, 3, at=at), lambda row: row["ts"] % 1000 == 460, name=name)
    return changed(rows, lambda row: row["ts"] % 1000 == 65, name=call_name, cat=cat)


COPIES: Windows = {
    (0, 1): window(1000, 300, 0, 150),
    (0, 2): window(1000, 300, 0, 150),
    (0, 3): window(510, 300, 0, 150),
}
FIVE, AGAIN = steps(1, 2, 3, 4, 5, at=FAR), steps(1, 2, 3, at=FAR) + steps(1, 2, 3, at=FAR + 100_000)
TWO = window(2000, 900)
CASES = [
    # K3 and K6: marks at time 0, and cycles in one file.
    Case("zero_mark_in_the_middle", "K3 K6", lost(FIVE, 2, marks_alone=True), {
        (0, 1): WHOLE, (0, 2): TWO, (0, 4): WHOLE, (0, 5): LAST}, {"times_are_lost": ["1 of 35", "steps 3"]}),
    Case("zero_marks_in_the_middle", "K3 K6", lost(FIVE, 1, 3, marks_alone=True), {
        (0, 1): TWO, (0, 3): TWO, (0, 5): LAST}, {"times_are_lost": ["2 of 35", "steps 2, 4"]}),
    Case("zero_step_in_the_middle", "K3 K6", lost(FIVE, 2), {
        (0, 1): WHOLE, (0, 2): window(2000, 450), (0, 4): WHOLE, (0, 5): LAST},
        {"times_are_lost": ["7 of 35", "steps 3"], "times_are_corrupt": ["3 of 15"]}),
    Case("zero_mark_of_the_first", "K3 K6", lost(FIVE, 0, marks_alone=True), {
        **{(0, k): WHOLE for k in (2, 3, 4)}, (0, 5): LAST}, {"times_are_lost": ["1 of 35", "steps 1"]}),
    Case("zero_mark_of_a_cycle", "K3 K6", lost(AGAIN, 1, marks_alone=True), {
        (0, 1): TWO, **dict.fromkeys([(0, 3), (0, 6)], LAST), **dict.fromkeys([(0, 4), (0, 5)], WHOLE)},
        {"times_are_lost": ["1 of 42"], "several_cycles": ["2 cycles", "1 to 3, 4 to 6"]}),
    Case("zero_mark_of_the_second_cycle", "K3 K6", lost(AGAIN, 101, marks_alone=True), {
        **dict.fromkeys([(0, 1), (0, 2)], WHOLE), (0, 3): LAST, (0, 4): TWO, (0, 6): LAST},
        {"times_are_lost": ["1 of 42"], "several_cycles": ["2 cycles", "1 to 3, 4 to 6"]}),
    Case("zero_step_between_cycles_that_go_on", "K3 K6", lost(
        steps(1, 2, 3, at=FAR) + steps(7, 8, 9, at=FAR + 100_000), 101), {
        **dict.fromkeys([(0, 1), (0, 2)], WHOLE), (0, 3): LAST, (0, 7): window(2000, 450), (0, 9): LAST},
        {"times_are_lost": ["7 of 42"], "times_are_corrupt": [], "several_cycles": ["2 cycles", "1 to 3, 7 to 9"]}),
    # K9: copies in rows of category kernel, by the call that launched them.
    Case("memset_as_a_kernel", "K9", launched_by("cudaMemsetAsync", "fill_buffer"), COPIES, {}),
    Case("copy_by_the_drivers_call", "K9", launched_by("cuMemcpyDtoHAsync_v2", "CopyDeviceToHost", "cuda_driver"),
         COPIES, {}),
    Case("copy_between_peers_of_rocm", "K9", launched_by("hipMemcpyPeerAsync", "CopyDeviceToDevice"), COPIES, {}),
    Case("copy_that_blocks", "K9", launched_by("hipMemcpyWithStream", "__amd_rocclr_copyBuffer"), COPIES, {}),
    Case("kernel_called_like_a_copy", "none", launched_by("hipExtModuleLaunchKernel", "CopyHostToDevice"), THREE, {}),
    Case("copy_without_a_correlation", "K9 K10", [
        row | {"args": row["args"] | {"correlation": -1, "External id": int(row["ts"]) // 20}}
        if row["name"] == "hipMemcpyAsync" else
        row | {"args": row["args"] | {"correlation": -1, "External id": (int(row["ts"] // 1000) * 1000 + 65) // 20}}
        if row["name"] == "copy" else row for row in launched_by("hipMemcpyAsync", "copy")], COPIES, {}),
    Case("copies_beside_lost_times", "K3 K9", lost(
        launched_by("hipMemcpyAsync", "copy", at=FAR), 1), {(0, 1): window(2000, 300, 0, 150), (0, 3): COPIES[0, 3]},
        {"times_are_lost": ["7 of 21", "steps 2"], "times_are_corrupt": ["3 of 9"]}),
    Case("no_mark_in_the_middle", "K6", [row for row in FIVE if row["name"] != "ProfilerStep#3"], {
        (0, 1): WHOLE, (0, 2): TWO, (0, 4): WHOLE, (0, 5): LAST}, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_reported_trace_has_the_right_windows_and_says_what_is_wrong(tmp_path, case):
    check(case, tmp_path)


STEP = step(1, 0, 900)
PROPERTIES = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([STEP, *(call("cudaLaunchKernelExC_v11060", 9 * k, 5, k) for k in range(1, 5))], "4 launches never reached"),
        ([STEP, *(call("hipExtModuleLaunchKernel", 9 * k, 5, k) for k in range(1, 5))], "4 launches never reached"),
        ([STEP, call("cuLaunchKernelEx", 9, 5, 1) | {"cat": "cuda_driver"}], "1 launches never reached"),
        ([STEP, *(call("cudaMemcpyAsync", 9 * k, 5, k) for k in range(1, 4))], "3 launches never reached"),
        ([STEP, call("hipMemsetAsync", 9, 5, 1), call("hipGraphLaunch", 19, 5, 2)], "2 launches never reached"),
        ([STEP, call("cudaStreamSynchronize", 9, 5, 1), call("cudaMalloc", 29, 5, 2)], "ProfilerActivity.CUDA"),
        ([STEP], "ProfilerActivity.CUDA"),
    ],
)
def test_k11_who_launched_something_is_not_told_to_profile_the_device(tmp_path, events: list[Any], why):
    with pytest.raises(UnusableRun, match=why) as refused:
        analyzers.load(write(tmp_path / "rank0.json", {"traceEvents": events} | PROPERTIES))
    assert ("ProfilerActivity" in str(refused.value)) == ("ProfilerActivity" in why)


def starting_late(folder: Path, late_us: tuple[int, ...], before: tuple[Event, ...] = ()) -> Path:
    """Ranks whose profiles begin so much later than the first: all wait in step 1's all-reduce for the last one.

    `before` are rows of the last rank, by their distance to its first mark.
    """
    group, last_us = tuple(range(len(late_us))), max(late_us)
    for rank, late in enumerate(late_us):
        first = rows(rank, group=group, device=rank, steps=(1,), since_us=10_000 + late)
        wait = last_us - late
        first = [row | {"dur": row["dur"] + wait * (row["name"].startswith(("nccl", "ProfilerStep")))} for row in first]
        others = rows(rank, group=group, device=rank, steps=(1, 2, 3, 4), since_us=10_000 + last_us)
        others = [row for row in others if row["ts"] >= 11_000 + last_us]
        made = [*first, *others]
        if not wait:
            made += [row | {"pid": rank, "ts": 10_000 + late + row["ts"]} for row in before]
        write(folder / f"rank{rank}.json", document(made, rank, len(late_us)))
    return folder


OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "tid": 1, "ts": -200, "dur": 9, "args": {}}


@pytest.mark.parametrize(
    ("late_us", "before", "unresolved", "waiting"),
    [
        ((0, 50_000), (), {0: 49_450}, 500),
        ((50_000, 0), (), {1: 49_450}, 500),
        ((0, 0, 50_000), (), {0: 49_450, 1: 49_450}, 500),
        ((0, 30_000, 50_000), (), {0: 49_450, 1: 19_450}, 500),
        ((0, 50_000), (OPERATOR,), {0: 49_250}, 700),  # a row of any kind
        ((0, 50_000), (OPERATOR | {"cat": "overhead"},), {0: 49_450}, 500),  # but the profiler's own
        ((0, 200), (), {}, 150),  # at once: the first row is before the all-reduce
    ],
)
def test_k8_what_is_waited_before_another_ranks_first_row_is_unresolved(tmp_path, late_us, before, unresolved, waiting):
    report = analyzers.report(analyzers.load(starting_late(tmp_path, late_us, before)))
    assert not report.unmatched
    for row in report.windows:
        parts = (row.exposed_unresolved_ns / 1000, row.exposed_wait_ns / 1000, row.exposed_transfer_ns / 1000)
        if row.step == 1 and late_us[row.rank] < max(late_us):
            assert parts == (unresolved.get(row.rank, 0), waiting, 300)
        else:
            assert parts == (0, 0, 250)
    spoken = " ".join([report.summary.verdict, report.summary.headline.sentence, *map(str, report.run.warnings)])
    assert "causes" not in spoken and "wait for one another" not in spoken
