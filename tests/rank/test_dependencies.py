"""One rank's points and edges on drawn events: what each rule joins, and what binds.

Points are named after what happens there: `conv >` is when the call that launches conv begins, `conv >>` when it ends,
`conv [` when conv starts, `conv ]` when it stops; a call that launches nothing is named after itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.causes.joining import RunGraph
from analyzers.rank.columns import attribute
from analyzers.rank.dependencies import EdgeKind, PointKind, RankGraph, rank_graph
from analyzers.rank.dependencies.device_order import FULL_QUEUE
from analyzers.rank.idle import HostRows
from analyzers.rank.summary import summarize
from analyzers.reporting.analyses import Analyses
from tests.support.kineto_files import Event, write
from tests.support.training import ENGINE, MAIN, NODE, all_reduce, document, host, kernel, step, traced

MARKS = {PointKind.BEGIN: ">", PointKind.END: ">>", PointKind.START: "[", PointKind.STOP: "]"}
CALL, LAUNCH, STREAM, WAIT, RUN, BLOCK = (
    kind.name.lower()
    for kind in (EdgeKind.CALL, EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.WAIT, EdgeKind.RUN, EdgeKind.BLOCK)
)
STRETCH = EdgeKind.STRETCH.name.lower()


@dataclass(frozen=True)
class Shown:
    """A rank's graph by names of points; times in us."""

    graph: RankGraph

    @property
    def names(self) -> list[str]:
        """The name of each point."""
        graph = self.graph
        called = [graph.names[code] for code in graph.calls.name.tolist()]
        ran = [graph.names[code] for code in graph.activities.name.tolist()]
        for activity in reversed(range(len(ran))):
            if graph.activities.call[activity] >= 0:
                called[graph.activities.call[activity]] = ran[activity]
        return [
            f"{name} {MARKS[PointKind(kind)]}"
            for name, kind in zip(np.repeat([*called, *ran], 2).tolist(), graph.points.kind.tolist(), strict=True)
        ]

    def into(self, point: str) -> dict[str, str]:
        """What a point waits for: sources, and the kinds of edges."""
        names, edges = self.names, self.graph.edges
        return {
            names[source]: EdgeKind(kind).name.lower()
            for source, target, kind in zip(
                edges.source.tolist(), edges.target.tolist(), edges.kind.tolist(), strict=True
            )
            if names[target] == point
        }

    def binds(self, point: str) -> set[str]:
        """Which of them it has waited for: those that let it come when it came."""
        names, edges, time_ns = self.names, self.graph.edges, self.graph.points.time_ns
        arrives = time_ns[edges.source] + edges.lag_ns == time_ns[edges.target]
        return {
            names[source]
            for source, target in zip(edges.source[arrives].tolist(), edges.target[arrives].tolist(), strict=True)
            if names[target] == point
        }

    def lag_us(self, source: str, target: str) -> float:
        names, edges = self.names, self.graph.edges
        (row,) = np.flatnonzero((edges.source == names.index(source)) & (edges.target == names.index(target)))
        return float(edges.lag_ns[row] / 1000)


def shown(folder: Path, *events: Event) -> Shown:
    trace = traced(folder, *events)
    attributed = attribute(trace)
    graph = rank_graph(trace, attributed, HostRows(attributed.host, attributed.nodes, attributed.modules))
    assert graph is not None
    return Shown(graph)


def called(name: str, ts: float, dur: float, correlation: int = 0, *, tid: int = MAIN) -> Event:
    """A call of the runtime."""
    more = {"correlation": correlation} if correlation else {}
    return host(name, ts, dur, tid=tid, category="cuda_runtime", **more)


def ran(name: str, ts: float, dur: float, correlation: int, *, stream: int = 7, category: str = "kernel") -> Event:
    """What a device did."""
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def test_a_kernel_follows_its_call_and_its_call_the_one_before(tmp_path: Path) -> None:
    drawn = shown(tmp_path, *kernel("conv", 10, 12, 5), *kernel("relu", 20, 22, 5))
    assert drawn.into("conv >") == {}, "a rank's first point is its source"
    assert drawn.into("conv [") == {"conv >>": LAUNCH}
    assert drawn.into("relu >") == {"conv >>": STRETCH}
    assert drawn.into("relu [") == {"relu >>": LAUNCH, "conv ]": STREAM}
    assert drawn.binds("relu [") == {"relu >>"}
    assert drawn.lag_us("relu >>", "relu [") == 1.5


def test_a_queued_kernel_follows_its_stream(tmp_path: Path) -> None:
    drawn = shown(tmp_path, *kernel("conv", 10, 12, 30), *kernel("relu", 20, 43, 5))
    assert drawn.binds("relu [") == {"conv ]"}
    assert drawn.into("relu [") == {"relu >>": LAUNCH, "conv ]": STREAM}


def test_overlapping_kernels_of_a_stream_follow_each_others_starts(tmp_path: Path) -> None:
    drawn = shown(tmp_path, *kernel("conv", 10, 12, 30), *kernel("relu", 20, 38, 9))
    assert drawn.into("relu [") == {"relu >>": LAUNCH, "conv [": STREAM}
    assert drawn.binds("relu [") == {"conv ["}
    assert drawn.lag_us("conv [", "relu [") == 26


def test_main_thread_hands_over_to_autograds_and_takes_back(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        step(0, 0, 100),
        *kernel("forward", 10, 12, 5),
        host(f"{NODE}MmBackward0", 20, 20, tid=ENGINE),
        *kernel("first", 21, 23, 5, tid=ENGINE),
        *kernel("second", 31, 33, 5, tid=ENGINE),
        *kernel("sgd", 50, 52, 5),
    )
    assert drawn.into("first >") == {"forward >>": STRETCH}
    assert drawn.into("second >") == {"first >>": STRETCH}
    assert drawn.into("sgd >") == {"second >>": STRETCH}


def test_a_thread_beside_a_busy_main_thread_takes_over_from_it_alone(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        step(0, 0, 100),
        *kernel("forward", 10, 12, 5),
        *kernel("copy", 21, 23, 5, tid=33),
        host("aten::mm", 25, 10),
        *kernel("more", 30, 32, 5, tid=33),
        *kernel("next", 50, 52, 5),
        *kernel("later", 60, 62, 5, tid=33),
    )
    assert drawn.into("next >") == {"forward >>": STRETCH}, "the main thread went on by itself"
    assert drawn.into("copy >") == {"forward >>": STRETCH}


def test_nested_calls_are_one(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        called("cudaLaunchKernelExC", 10, 6, 5),
        called("cuLaunchKernelEx", 11, 4, 5),
        ran("gemm", 18, 5, 5),
        *kernel("relu", 30, 32, 5),
    )
    assert len(drawn.graph.calls) == 2
    assert drawn.into("gemm [") == {"gemm >>": LAUNCH}
    assert drawn.lag_us("gemm >", "gemm >>") == 6


def test_a_graphs_launch_launches_all_of_it(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        called("cudaGraphLaunch", 10, 6, 5),
        ran("a", 20, 5, 5),
        ran("b", 27, 5, 5),
        ran("c", 22, 5, 5, stream=8),
    )
    assert drawn.into("a [") == {"a >>": LAUNCH}
    assert drawn.into("b [") == {"a >>": LAUNCH, "a ]": STREAM}
    assert drawn.into("c [") == {"a >>": LAUNCH}


# Calls that wait


@pytest.mark.parametrize(
    ("call", "copy"),
    [("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)"), ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)")],
)
def test_a_blocking_copy_is_launched_by_the_beginning_of_its_call_which_ends_with_it(
    call: str, copy: str, tmp_path: Path
) -> None:
    drawn = shown(
        tmp_path, *kernel("conv", 1, 3, 30), called(call, 10, 100, 77), ran(copy, 40, 65, 77, category="gpu_memcpy")
    )
    assert drawn.into(f"{copy} [") == {f"{copy} >": LAUNCH, "conv ]": STREAM}
    assert drawn.into(f"{copy} >>") == {f"{copy} >": CALL, f"{copy} ]": BLOCK}
    assert drawn.binds(f"{copy} >>") == {f"{copy} ]"}


def test_a_pinned_copy_does_not_block(tmp_path: Path) -> None:
    copy = "Memcpy HtoD (Pinned -> Device)"
    drawn = shown(
        tmp_path,
        *kernel("conv", 1, 3, 5),
        called("cudaMemcpyAsync", 10, 9, 77),
        ran(copy, 21, 65, 77, category="gpu_memcpy"),
    )
    assert drawn.into(f"{copy} >>") == {f"{copy} >": CALL}
    assert drawn.into(f"{copy} [") == {f"{copy} >>": LAUNCH, "conv ]": STREAM}


@pytest.mark.parametrize(
    ("name", "waited"),
    [
        ("cudaDeviceSynchronize", "side ]"),
        ("cudaStreamSynchronize", "own ]"),
        ("cudaEventSynchronize", "own ]"),
    ],
)
def test_synchronizing_calls_wait_for_what_their_names_say(name: str, waited: str, tmp_path: Path) -> None:
    side_end = 80 if name == "cudaDeviceSynchronize" else 300
    drawn = shown(
        tmp_path,
        *kernel("side", 5, 10, side_end - 10, tid=33, stream=8),
        *kernel("own", 10, 12, 50),
        called(name, 20, 42 if side_end == 300 else 63),
        *kernel("next", 95, 97, 1),
    )
    assert drawn.into(f"{name} >>") == {f"{name} >": CALL, waited: BLOCK}
    assert drawn.binds(f"{name} >>") == {waited}
    assert drawn.lag_us(f"{name} >", f"{name} >>") == 5


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "cudaStreamSynchronize"])
def test_a_call_does_not_wait_for_what_ends_after_it(name: str, tmp_path: Path) -> None:
    drawn = shown(tmp_path, *kernel("own", 10, 12, 500), called(name, 20, 42), *kernel("next", 95, 513, 1))
    assert drawn.into(f"{name} >>") == {f"{name} >": CALL}


def test_a_call_that_finds_nothing_to_wait_for_takes_what_it_takes(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path, *kernel("own", 10, 12, 5), called("cudaStreamSynchronize", 40, 9), *kernel("next", 95, 97, 1)
    )
    assert drawn.into("cudaStreamSynchronize >>") == {"cudaStreamSynchronize >": CALL}
    assert drawn.lag_us("cudaStreamSynchronize >", "cudaStreamSynchronize >>") == 9


def test_a_launch_into_a_full_queue_waits_for_room(tmp_path: Path) -> None:
    rows = [row for number in range(FULL_QUEUE) for row in kernel(f"k{number}", 1 + number, 5_000 + number, 0.9)]
    rows += [*kernel("first", 0.2, 1, 4_500), called("cudaLaunchKernel", 1_002, 3_500, 7), ran("last", 9_000, 1, 7)]
    drawn = shown(tmp_path, *rows)
    assert drawn.into("last >>") == {"last >": CALL, "first ]": BLOCK}
    assert drawn.binds("last >>") == {"first ]"}
    assert drawn.lag_us("last >", "last >>") == 0.5, "its own part is a usual launch's"


# Waits of streams


def waits(ts: float) -> list[Event]:
    """What `work.wait()` leaves in a trace."""
    said: dict[str, Any] = {"Collective name": "wait"}
    return [host("record_param_comms", ts, 3, **said), called("cudaStreamWaitEvent", ts + 1, 1)]


def test_a_collective_waits_for_its_callers_stream_and_the_caller_for_it(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        *kernel("conv", 10, 12, 30),
        *all_reduce(20, 64, 44, 60, tid=MAIN),
        *kernel("other", 30, 43, 5),
        *waits(40),
        *kernel("sgd", 50, 106, 5),
    )
    reduce = next(name for name in drawn.graph.names if "AllReduce" in name)
    assert drawn.into(f"{reduce} [") == {f"{reduce} >>": LAUNCH, "conv ]": WAIT}
    assert drawn.binds(f"{reduce} [") == {"conv ]"}
    assert drawn.into("sgd [") == {"sgd >>": LAUNCH, "other ]": STREAM, f"{reduce} ]": WAIT}
    assert drawn.binds("sgd [") == {f"{reduce} ]"}
    assert drawn.into("other [") == {"other >>": LAUNCH, "conv ]": STREAM}


def test_a_collective_waits_for_its_callers_stream_whoever_launched_there(tmp_path: Path) -> None:
    """The main thread sends what autograd's has computed."""
    sent = kernel("ncclDevKernel_SendRecv", 40, 62, 5, stream=20)
    drawn = shown(tmp_path, *kernel("conv", 10, 12, 5), *kernel("backward", 20, 22, 39, tid=ENGINE), *sent)
    assert drawn.into("ncclDevKernel_SendRecv [") == {"ncclDevKernel_SendRecv >>": LAUNCH, "backward ]": WAIT}


def test_a_stream_that_goes_on_soon_after_anothers_end_has_waited_for_it(tmp_path: Path) -> None:
    rows = [*kernel("gather", 5, 10, 90, stream=8), *kernel("a", 20, 22, 5)]
    late = shown(tmp_path / "late", *rows, *kernel("b", 30, 103, 5))
    assert late.into("b [") == {"b >>": LAUNCH, "a ]": STREAM, "gather ]": WAIT}
    assert late.binds("b [") == {"gather ]"}
    soon = shown(tmp_path / "soon", *rows, *kernel("b", 30, 33, 5))
    assert soon.into("b [") == {"b >>": LAUNCH, "a ]": STREAM}, "what is explained asks for no other reason"


def test_of_two_edges_that_allow_the_same_instant_both_bind(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        *kernel("zero", 1, 3, 4),
        *kernel("a", 10, 12, 8.5),
        *kernel("b", 18.5, 20.5, 5),
    )
    assert drawn.into("b [") == {"b >>": LAUNCH, "a ]": STREAM}
    assert drawn.binds("b [") == {"b >>", "a ]"}


def test_what_times_contradict_is_dropped_and_counted(tmp_path: Path) -> None:
    drawn = shown(tmp_path, *kernel("conv", 100, 12, 5), *kernel("relu", 120, 122, 5))
    assert drawn.into("conv [") == {}
    assert drawn.graph.dropped == 1


# Steps


def test_steps_are_cut_where_their_first_activity_is_launched(tmp_path: Path) -> None:
    drawn = shown(
        tmp_path,
        *kernel("before", 1, 3, 4),
        step(3, 10, 40),
        *kernel("a", 20, 48, 30),
        step(4, 50, 40),
        *kernel("b", 60, 85, 5),
    )
    by_name = dict(zip(drawn.names, drawn.graph.points.step.tolist(), strict=True))
    assert drawn.graph.steps.number.tolist() == [3, 4]
    assert (by_name["before ["], by_name["a >"], by_name["a ]"], by_name["b >"], by_name["b ]"]) == (-1, 0, 0, 1, 1)
    assert drawn.graph.steps.cut_ns.tolist() == [drawn.graph.points.time_ns[drawn.names.index(f"{n} >")] for n in "ab"]


# Several ranks


def joined(folder: Path, *ranks: Sequence[Event], world_size: int | None = None) -> RunGraph:
    """One graph of ranks that have these events each."""
    for rank, events in enumerate(ranks):
        write(folder / f"rank{rank}.json", document(events, rank, world_size or len(ranks)))
    causes = Analyses(summarize(folder, causes=True), None).causes
    assert causes is not None
    return causes.graph


def member(
    start: float, dur: float, group: Sequence[int], name: str = "0", kind: str = "allreduce", **more: Any
) -> list[Event]:
    """A collective's call and kernel."""
    said: dict[str, Any] = {"Collective name": kind, "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float"} | more
    place: dict[str, Any] = {
        "Group size": len(group),
        "Process Group Name": name,
        "Process Group Ranks": str(list(group)),
    }
    nccl = "SendRecv" if kind in ("send", "recv") else "AllReduce_Sum_f32_RING_LL"
    return kernel(
        f"ncclDevKernel_{nccl}(ncclDevKernelArgsStorage<4096ul>)", start - 5, start, dur, stream=20, **said, **place
    )


def meetings(graph: RunGraph) -> list[tuple[list[int], list[int], float]]:
    """For each meeting the ranks that arrive, those that leave, and when it is (us after the run's first point)."""
    edges, zero = graph.edges, graph.points.time_ns.min()
    return [
        (
            sorted(graph.rank[edges.source[edges.target == point]].tolist()),
            sorted(graph.rank[edges.target[edges.source == point]].tolist()),
            float(graph.points.time_ns[point] - zero) / 1000,
        )
        for point in graph.meetings.point.tolist()
    ]


def test_all_leave_when_the_last_has_come(tmp_path: Path) -> None:
    graph = joined(
        tmp_path,
        [step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(30, 70, (0, 1))],
        [step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(80, 20, (0, 1))],
    )
    assert meetings(graph) == [([0, 1], [0, 1], 70.0)]
    transfers = graph.edges.kind == EdgeKind.TRANSFER
    assert graph.edges.lag_ns[transfers].tolist() == [20_000, 20_000]
    assert (graph.instance[transfers] >= 0).all()
    assert not graph.unresolved.any()


def test_groups_meet_apart(tmp_path: Path) -> None:
    groups = ((0, 1), "1"), ((0, 1), "1"), ((2, 3), "2"), ((2, 3), "2")
    graph = joined(
        tmp_path,
        *(
            [step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(30 + 10 * rank, 70 - 10 * rank, *group)]
            for rank, group in enumerate(groups)
        ),
    )
    assert meetings(graph) == [([0, 1], [0, 1], 30.0), ([2, 3], [2, 3], 50.0)]


TO: dict[str, Any] = {"Dst Rank": 1}
FROM: dict[str, Any] = {"Src Rank": 0}


def test_a_message_begins_when_both_ends_have_come(tmp_path: Path) -> None:
    graph = joined(
        tmp_path,
        [step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(60, 20, (0, 1), kind="send", **TO)],
        [step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(30, 50, (0, 1), kind="recv", **FROM)],
    )
    assert meetings(graph) == [([0, 1], [0, 1], 50.0)]


def test_without_a_member_nothing_meets_and_what_is_there_is_unresolved(tmp_path: Path) -> None:
    rows = [[step(0, 0, 200), *kernel("conv", 10, 12, 5), *member(30, 70, (0, 1, 2))] for _ in range(2)]
    graph = joined(tmp_path, *rows, world_size=3)
    assert meetings(graph) == []
    assert graph.edges.lag_ns[graph.unresolved].tolist() == [70_000, 70_000]
    assert (graph.edges.kind[graph.unresolved] == EdgeKind.RUN).all()


def test_a_member_that_leaves_before_the_last_has_come_holds_nobody_up(tmp_path: Path) -> None:
    graph = joined(
        tmp_path,
        [step(0, 0, 400), *kernel("conv", 10, 12, 5), *member(30, 10, (0, 1), kind="broadcast")],
        [step(0, 0, 400), *kernel("conv", 10, 12, 5), *member(200, 10, (0, 1), kind="broadcast")],
    )
    assert [(arrive, leave) for arrive, leave, _ in meetings(graph)] == [([0, 1], [1])]
