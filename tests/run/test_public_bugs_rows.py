"""What people's traces were seen to hold: rows that their neighbours contradict, by kind, with the right values.

Each row is an input, the kind of its damage (issue 46), and what is right by docs/measuring.md. Inputs are drawn here;
those that lie beside the checkout (shared/public-bugs) are read where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import analyzers
from analyzers.errors import UnusableRun
from tests.support.kineto_files import Event, step, write
from tests.support.reported import (
    FAR,
    LAST,
    SHARED,
    THREE,
    WHOLE,
    Case,
    call,
    changed,
    check,
    is_row,
    on_device,
    overhead,
    steps,
    window,
)


def joined_by_id(row: Event, correlation: int) -> Event:
    """A row without a correlation, of the External id that all of its step have."""
    said = {"External id": int(row["ts"] // 1000), "correlation": correlation}
    return row | {"args": row["args"] | said} if "args" in row else row


def graphs(*kernels: int, at: float = 10_000) -> list[Event]:
    """Steps of a kernel, and of a graph with so many kernels each."""
    rows: list[Event] = []
    for number, count in enumerate(kernels):
        begin, known = at + 1000 * number, 100 * (number + 1)
        rows += [step(number, begin, 999), call("cudaLaunchKernel", begin + 20, 5, known)]
        rows += [on_device("small", begin + 100, 50, known), call("cudaGraphLaunch", begin + 60, 30, known + 1)]
        rows += [on_device(f"gemm_{k}", begin + 200 + 130 * k, 120, known + 1) for k in range(count)]
    return rows


LONG = changed(steps(1, 2, 3), is_row("kernel", 10_460), dur=3_000_000)
CASES = [
    # K1: a row lasts longer than its stream allows.
    Case("long_kernel_first_step", "K1", LONG, {**THREE, (0, 1): window(1000, 940)},
         {"rows_too_long": ["1 of 9"]}, trust="low"),
    Case("long_rows_that_enclose_one_another", "K1",
         changed(LONG, is_row("kernel", 10_280), dur=2_000_000), {**THREE, (0, 1): window(1000, 970)},
         {"rows_too_long": ["2 of 9"]}, trust="low"),
    Case("long_last", "K1", changed(steps(1, 2, 3), is_row("kernel", 12_460), dur=1_600_000),
         {(0, 1): WHOLE, (0, 2): WHOLE}, {"rows_too_long": ["1 of 9"]}, trust="fair"),
    Case("long_over_a_synchronization", "K1", [*LONG, call("cudaDeviceSynchronize", 11_900, 50, 77)],
         {**THREE, (0, 1): window(1000, 940)}, {"rows_too_long": ["1 of 9"]}, ["drifts"], "low"),
    Case("long_last_of_its_only_window", "K1", changed(steps(1, each=5), is_row("kernel", 10_820), dur=1_600_000),
         {(0, 1): window(870, 750)}, {"rows_too_long": ["1 of 5"]}, trust="low"),
    Case("late_by_100_s", "K1", changed(steps(1, 2, 3), is_row("kernel", 10_460), ts=100_010_460),
         {**THREE, (0, 1): window(1000, 300)}, {"times_are_corrupt": ["1 of 9", "after their own"]}, trust="low"),
    Case("overlaps_of_early_launches", "none", changed(steps(1, 2, 3), is_row("kernel", 10_280), dur=180.9), {
        **THREE, (0, 1): window(1000, 480)}, {}),
    Case("long_copy", "K1", "long_copy.json", {
        (0, 1): window(1000, 450, 0, 400), (0, 2): window(1000, 510), (0, 3): LAST},
        {"rows_too_long": ["1 of 11"]}, ["copies are not hidden"], "low"),
    Case("long_kernel_last", "K1", "long_kernel_last.json", {(0, 1): WHOLE, (0, 2): WHOLE},
         {"rows_too_long": ["1 of 9"]}, ["99.9 %", "1,600 ms the"], "fair"),
    # K2: graphs whose kernels are lost, steps without device rows.
    Case("graphs_without_kernels", "K2", graphs(6, 0, 6, 0, 6), {
        (0, 0): window(1000, 770), (0, 1): window(1000, 50), (0, 2): window(1000, 770), (0, 3): window(1000, 50),
        (0, 4): window(870, 770)}, {"launches_are_lost": ["2 launches of graphs"]}, ["the CPU"], "low",
        {1: {"unknown_ns": 950}, 3: {"unknown_ns": 950}}),
    Case("graphs_lack_kernels", "K2", graphs(6, 4, 6, 6, 1), {
        (0, 0): window(1000, 770), (0, 1): window(1000, 530), (0, 2): window(1000, 770), (0, 3): window(1000, 770),
        (0, 4): window(220, 170)}, {"graph_kernels_are_lost": ["7 kernels of 2"]}, (), "low",
        {1: {"unknown_ns": 470}, 4: {"unknown_ns": 50}}),
    Case("no_graph_has_kernels", "K2", graphs(0, 0, 0), {
        (0, 0): window(1000, 50), (0, 1): window(1000, 50), (0, 2): window(50, 50)},
        {"launches_are_lost": ["3 launches of graphs"]}, ["the CPU"], "low", {0: {"unknown_ns": 950}}),
    Case("graphs_whose_kernels_have_no_launch", "none", [
        *graphs(0, 0), on_device("gemm", 10_400, 100, 901), on_device("gemm", 11_400, 100, 902)],
        {(0, 0): window(1000, 150), (0, 1): window(50, 50)}, {}),
    Case("graphs_of_other_batches", "none", changed(graphs(6, 6, 1), is_row("kernel", 12_200), name="gemm_of_less"),
         {(0, 0): window(1000, 770), (0, 1): window(1000, 770), (0, 2): window(220, 170)}, {}),
    Case("graph_kernels_lost", "K2", "graph_kernels_lost.json", {
        (0, 0): window(1000, 770), **{(0, k): window(1000, 50) for k in range(1, 5)}, (0, 5): window(50, 50)},
        {"launches_are_lost": ["5 launches of graphs"]}, ["the CPU"], "low",
        {k: {"unknown_ns": 950} for k in range(1, 5)}),
    Case("graph_kernels_partly_lost", "K2", "graph_kernels_partly_lost.json", {
        **{(0, k): window(1000, 770) for k in range(3)}, **{(0, k): window(1000, 170) for k in (3, 4)},
        (0, 5): window(220, 170)}, {"graph_kernels_are_lost": ["15 kernels of 3"]}, ["because the CPU"], "low",
        {3: {"unknown_ns": 830}, 4: {"unknown_ns": 830}, 5: {"unknown_ns": 50}}),
    Case("steps_without_device_rows", "K2", [
        row for row in steps(1, 2, 3, 4) if row["cat"] == "user_annotation" or not 11_000 <= row["ts"] < 13_000],
        {(0, 1): window(3000, 450), (0, 4): LAST}, {"steps_without_device_rows": ["2 of 4", "2, 3"]}),
    Case("launches_of_the_last_steps_lost", "K2", [
        row for row in steps(1, 2, 3, 4) if row["cat"] != "kernel" or row["ts"] < 12_000],
        {(0, 1): WHOLE, (0, 2): LAST}, {"steps_without_device_rows": ["2 of 4", "3, 4"], "launches_are_lost": ["6 "]},
        (), "low"),
    # K2b: kernels of a stream out of the order of their launches.
    Case("burst_at_the_end", "K2b", changed(steps(1, 2, 3), is_row("kernel", 10_460), ts=12_900), {
        **THREE, (0, 1): window(1000, 300), (0, 3): window(510, 450)}, {"stream_out_of_order": ["6 of 9", "stream 7"]}),
    # K3: rows at time 0.
    Case("zero_kernels", "K3", changed(
        steps(1, 2, 3, at=FAR), lambda row: row["cat"] == "kernel" and row["ts"] > FAR + 2000, ts=0, dur=0),
        {(0, 1): WHOLE, (0, 2): LAST}, {"times_are_lost": ["3 of 21"], "times_are_corrupt": ["3 of 9"],
                                         "steps_without_device_rows": ["1 of 3"]}, (), "low"),
    Case("zero_marks", "K3", changed(
        steps(1, 2, 3, at=FAR), lambda row: row["cat"] != "kernel" and row["ts"] >= FAR + 1000, ts=0, dur=0),
        {(0, 1): LAST}, {"times_are_lost": ["8 of 21", "2, 3"], "activity_outside_steps": ["0.900 ms"]}),
    Case("zero_is_a_time", "none", steps(0, 1, at=0), {(0, 0): WHOLE, (0, 1): LAST}, {}),
    Case("zero_half_host", "K3", "zero_half_host.json", THREE, {"times_are_lost": ["21 of 60", "4, 5, 6"]}),
    Case("zero_half_unmarked", "K3", "zero_half_unmarked.json", {(0, 0): window(2510, 1350)},
         {"times_are_lost": ["27 of 54"], "times_are_corrupt": ["9 of 18"]}, ["5,000,003"], "low"),
    # K4b: a step's number twice.
    Case("cycles_in_one_file", "K4b", [*steps(2, 3), *steps(2, 3, at=500_000), *steps(2, 3, at=900_000)], {
        **{(0, k): WHOLE for k in (2, 4, 6)}, **{(0, k): LAST for k in (3, 5, 7)}},
        {"several_cycles": ["3 cycles", "2 to 3, 4 to 5, 6 to 7"]}),
    Case("cycles_that_go_on", "K4b", [*steps(2, 3), *steps(7, 8, at=500_000)], {
        (0, 2): WHOLE, (0, 3): LAST, (0, 7): WHOLE, (0, 8): LAST}, {"several_cycles": ["2 to 3, 7 to 8"]}),
    Case("stub_after_the_step", "K4b", [*steps(1, 2, 3), step(2, 11_999.2, 0.3)], THREE, {}),
    Case("two_cycles_one_file", "K4b", "two_cycles_one_file.json", {
        **{(0, k): WHOLE for k in (1, 2, 4, 5)}, (0, 3): LAST, (0, 6): LAST}, {"several_cycles": ["1 to 3, 4 to 6"]},
        ["outside of the"]),
    Case("stub_of_a_step", "K4b", "stub_of_a_step.json", THREE, {}),
    # K9: copies in rows of category kernel. K10: no correlation.
    Case("copies_as_kernels", "K9", changed(
        changed(steps(1, 2, 3), lambda row: row["ts"] % 1000 == 460, name="CopyHostToDevice"),
        lambda row: row["ts"] % 1000 == 65, name="hipMemcpyWithStream"),
        {(0, 1): window(1000, 300, 0, 150), (0, 2): window(1000, 300, 0, 150), (0, 3): window(510, 300, 0, 150)}, {}),
    Case("copies_as_kernels_hip", "K9", "copies_as_kernels_hip.json", {
        (0, 1): window(1000, 300, 0, 300), (0, 2): window(1000, 300, 0, 300), (0, 3): window(700, 300, 0, 300)}, {}),
    Case("correlation_minus_one", "K10", [
        joined_by_id(row, -1) for row in steps(1, 2, 3)], THREE, {}, ["no event on the device"]),
    Case("an_id_with_more_calls_than_rows", "K10", [
        joined_by_id(row, 0) for row in steps(1, 2, 3) if not is_row("kernel", 11_280)(row)],
        {(0, 1): window(2000, 750), (0, 3): LAST}, {"steps_without_device_rows": ["1 of 3"]}),
    Case("all_correlation_zero", "K10", "all_correlation_zero.json", THREE, {}, ["no event on the device"]),
    Case("comm_correlation_zero", "K10", "comm_correlation_zero", {
        (0, 1): window(1000, 450, 400, 0, 220), (0, 2): window(1000, 450, 400, 0, 220),
        (0, 3): window(800, 450, 400, 0, 20), (1, 1): window(1000, 450, 350, 0, 220),
        (1, 2): window(1000, 450, 350, 0, 220), (1, 3): window(800, 450, 350, 0, 20)}, {}, ["no event on the device"]),
    # K17: the profiler's own work.
    Case("buffer_request_on_another_thread", "K17", [*steps(1, 2, 3), overhead("Activity Buffer Request", 10_600, 420)],
         THREE, {}, idle={1: {"profiler_ns": 410}, 2: {"profiler_ns": 0}}),
    Case("flush_on_its_own_thread", "none", [*steps(1, 2, 3), overhead("Buffer Flush", 10_600, 420)],
         THREE, {}, idle={1: {"profiler_ns": 0}}),
    Case("overhead_buffer_request", "K17", "overhead_buffer_request.json", {
        (0, 2): window(1000, 900), (0, 3): window(1800, 900), (0, 4): window(950, 900)}, {}, ["launches too slowly"],
        idle={2: {"profiler_ns": 0}, 3: {"profiler_ns": 791, "launch_latency_ns": 79}, 4: {"profiler_ns": 0}}),
    # K12: texts that are not escaped.
    Case("win_args_all", "K12", "win_args_all.json", THREE, {"trace_is_no_json": ["not escaped"]}, (), "fair"),
    Case("win_python", "K12", "win_python.json", THREE, {"trace_is_no_json": ["not escaped"]}, ["missing"], "fair"),
    Case("quotes_in_python", "K12", "quotes_in_python.json", THREE, {"trace_is_no_json": ["not escaped"]}, (), "fair"),
    # K15: names.
    Case("said_by_its_call", "K15", [
        row | {"args": row["args"] | {"Collective name": "allreduce", "In msg nelems": 8, "Group size": 2,
                                      "Process Group Name": "0", "dtype": "Float"}}
        if row["cat"] == "kernel" and row["ts"] % 1000 == 460 else row for row in steps(1, 2, 3)],
        {(0, 1): window(1000, 300, 150), (0, 2): window(1000, 300, 150), (0, 3): window(510, 300, 150)}, {}),
    Case("ep_nccl_jit", "K15", "ep_nccl_jit.json", {
        (0, 0): window(1000, 200, 240), (0, 1): window(1000, 200, 240), (0, 2): window(470, 200, 240)}, {},
        ["looks like communication"]),
    Case("lower_case_nccl", "K15", "lower_case_nccl", {
        (0, 1): window(1000, 450, 300, 0, 360), (0, 2): window(1000, 450, 300, 0, 360),
        (0, 3): window(700, 450, 300, 0, 60), (1, 1): window(1000, 450, 250, 0, 360),
        (1, 2): window(1000, 450, 250, 0, 360), (1, 3): window(700, 450, 250, 0, 60)}, {},
        ["looks like communication", "no communication found"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_reported_trace_has_the_right_windows_and_says_what_is_wrong(tmp_path, case):
    check(case, tmp_path)


LAUNCHED = [step(1, 0, 900), *(call("hipLaunchKernel", 100 * k, 5, k + 1) for k in range(1, 8))]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (LAUNCHED, "7 launches never reached the device"),
        ([step(1, 0, 900), call("cudaGraphLaunch", 20, 5, 3)], "1 launches never reached the device"),
        ([step(1, 0, 900), call("cudaDeviceSynchronize", 20, 5, 3)], "profile with ProfilerActivity.CUDA"),
        ([], "nothing was recorded"),
    ],
)
def test_k11_a_refusal_of_no_device_rows_says_why(tmp_path, rows, why):
    path = write(tmp_path / "rank0.json", rows)
    with pytest.raises(UnusableRun, match=why) as refused:
        analyzers.load(path)
    assert ("ProfilerActivity" in str(refused.value)) == ("ProfilerActivity" in why)


def test_k11_a_rank_without_device_rows_is_left_out_with_the_reason(tmp_path):
    said = {"backend": "nccl", "world_size": 2}
    for rank, rows in enumerate((steps(1, 2), LAUNCHED)):
        write(tmp_path / f"rank{rank}.json", {"distributedInfo": said | {"rank": rank}, "traceEvents": rows})
    (lost,) = [one for one in analyzers.load(tmp_path).warnings if one.code == "rank_unreadable"]
    assert "7 launches never reached the device" in lost.text


def reduced(at: float, starts: Sequence[float], dur: float, long: int | None = None) -> list[Event]:
    """Kernels of an all-reduce of two ranks, one a step, the k-th of which may be said to last 2 s."""
    said = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float"}
    said |= {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "stream": 20}
    rows = []
    for k, start in enumerate(starts):
        rows.append(call("cudaLaunchKernel", at + 1000 * k + 300, 5, 900 + k))
        length = 2_000_000 if k == long else dur
        rows.append(on_device("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, length, 900 + k, **said))
    return rows


@pytest.mark.parametrize("long", [0, 1])
def test_k1_a_cut_collective_has_the_end_of_its_other_members(tmp_path, long):
    """Rank 1 comes 50 us later, and its kernel is said to last until the end of time."""
    starts = [10_500, 11_500, 12_500]
    for rank, late in ((0, 0), (1, 50)):
        rows = steps(1, 2, 3) + reduced(10_000, [at + late for at in starts], 300 - late, long if rank else None)
        said = {"backend": "nccl", "world_size": 2, "rank": rank}
        write(tmp_path / f"rank{rank}.json", {"host_name": "a", "distributedInfo": said, "traceEvents": rows})
    report = analyzers.report(analyzers.load(tmp_path))
    assert [(row.kind, row.transfer_ns) for row in report.collectives] == [("all_reduce", 250_000)] * 3
    waits = [[member.wait_ns for member in row.members] for row in report.collectives]
    assert (waits, list(report.unmatched)) == ([[50_000, 0]] * 3, [])
    cut = next(row for row in report.windows if (row.rank, row.step) == (1, long + 1))
    assert (cut.exposed_transfer_ns, cut.exposed_wait_ns) == (190_000, 0)
    for row in report.windows:
        parts = row.exposed_transfer_ns + row.exposed_wait_ns + row.exposed_unresolved_ns
        groups = [one for one in report.groups if (one.rank, one.step) == (row.rank, row.step)]
        by_group = sum(one.exposed_transfer_ns + one.exposed_wait_ns + one.exposed_unresolved_ns for one in groups)
        assert parts == row.exposed_comm_ns == by_group
    assert report.summary.headline.trust == "low"


@pytest.mark.skipif(not SHARED.is_dir(), reason="no runs beside the checkout")
def test_no_graph_is_advised_where_kernels_are_lost_nor_for_the_profilers_own_work():
    lost, buffers = (
        analyzers.report(analyzers.load(SHARED / f"{name}.json"))
        for name in ("graph_kernels_partly_lost", "overhead_buffer_request")
    )
    advised = {piece.code for piece in (*lost.summary.advice, *lost.summary.of_degree)}
    assert advised.isdisjoint({"graph", "host"})
    (graph,) = [piece for piece in (*buffers.summary.advice, *buffers.summary.of_degree) if piece.code == "graph"]
    typical = [row for row in buffers.windows if row.typical]
    assert graph.gain_ns <= sum(row.idle_ns - row.idle.profiler_ns for row in typical) / len(typical)
