"""Steps of training as Kineto documents, drawn row by row: what host and device do, in microseconds.

forward(0, "linear", 7) + backward(20, "linear", 7, gradients=[(4, 2)]) + all_reduce(40, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run.loading import load
from analyzers.run.rank_trace import RankTrace
from tests.support.kineto_files import Event, write

NODE = "autograd::engine::evaluate_function: "
TAKER = "torch::autograd::AccumulateGrad"
MAIN, ENGINE = 9, 10
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def host(name: str, ts: float, dur: float, *, tid: int = MAIN, category: str = "cpu_op", **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def ranged(name: str, ts: float, dur: float, *, tid: int = MAIN) -> Event:
    return host(name, ts, dur, tid=tid, category="user_annotation")


def kernel(
    name: str, launched: float, ts: float, dur: float, *, tid: int = MAIN, stream: int = 7, device: int = 0, **args: Any
) -> list[Event]:
    """A kernel and its launch; where launches of one rank differ in time, so do their correlations."""
    correlation = max(1, round(launched * 1000))  # 0 is none
    place = {"device": device, "stream": stream, "correlation": correlation}
    launch = host("cudaLaunchKernel", launched, 0.5, tid=tid, category="cuda_runtime", correlation=correlation)
    row = {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur}
    return [launch, row | {"args": place | args}]


def forward(ts: float, name: str, number: int | None, *, dur: float = 4, delay: float = 1) -> list[Event]:
    """An operator of the forward, and its kernel that runs a little later."""
    said = {} if number is None else {"Sequence number": number}
    return [host(f"aten::{name}", ts, dur, **said), *kernel(f"{name}_forward", ts + 1, ts + 1 + delay, dur - 2)]


def backward(
    ts: float, name: str, number: int | None, *, dur: float = 4, gradients: Sequence[tuple[int, ...]] = ()
) -> list[Event]:
    """An operator's node with its kernel, and the nodes that take its parameters' gradients, each 4 us."""
    said = {} if number is None else {"Sequence number": number}
    word = "".join(part.capitalize() for part in name.split("_"))
    rows = [host(f"{NODE}{word}Backward0", ts, dur, tid=ENGINE, **said)]
    rows += kernel(f"{name}_backward", ts + 1, ts + 2, dur - 2, tid=ENGINE)
    for place, shape in enumerate(gradients):
        rows += gradient(ts + dur + 4 * place, shape)
    return rows


def gradient(ts: float, shape: Sequence[int], *, copied: bool = True, dur: float = 4) -> list[Event]:
    """A parameter's gradient taken, and copied into its bucket."""
    rows = [
        host(f"{NODE}{TAKER}", ts, dur, tid=ENGINE),
        host(TAKER, ts + 0.2, 0.5, tid=ENGINE, **{"Input Dims": [list(shape)], "Input type": ["float"]}),
    ]
    if copied:
        rows.append(host("torch::distributed::reducer::mul_out", ts + 1, 1, tid=ENGINE))
        rows += kernel("copy_into_bucket", ts + 1.2, ts + 1.5, 0.5, tid=ENGINE)
    return rows


def all_reduce(
    ts: float, elements: int, start: float, dur: float, *, tid: int = ENGINE, dtype: str = "Float"
) -> list[Event]:
    """The host's call (2 us) and NCCL's kernel, on a stream of its own."""
    said = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "dtype": dtype}
    group = {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    return [
        host("c10d::allreduce_", ts, 2, tid=tid),
        *kernel(NCCL, ts + 0.5, start, dur, tid=tid, stream=20, **said, **group),
    ]


def step(number: int, ts: float, dur: float) -> Event:
    return ranged(f"ProfilerStep#{number}", ts, dur)


def document(events: Sequence[Event], rank: int = 0, world_size: int = 2) -> dict[str, Any]:
    said = {"backend": "nccl", "rank": rank, "world_size": world_size}
    base = 1_700_000_000_000_000_000
    return {"schemaVersion": 1, "distributedInfo": said, "baseTimeNanoseconds": base, "traceEvents": list(events)}


def traced(folder: Path, *events: Event) -> RankTrace:
    """One rank's trace."""
    return load(write(folder / "rank0.json", document(events))).ranks[0]


def told(folder: Path, *ranks: Sequence[Event]) -> Report:
    """The report of ranks that have these events each."""
    for rank, events in enumerate(ranks):
        write(folder / f"rank{rank}.json", document(events, rank, len(ranks)))
    return report(summarize(folder))
