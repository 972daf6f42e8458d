"""Traces of processes that say more or less of which rank they are, and of several cycles.

    written(folder / "a.json", pid=501743, group=(0, 1))
    written(folder / "b.json", pid=501750, group=(0, 1), late_us=50)

Each step is 1,000 us long: 450 of compute, and an all-reduce that ends 800 us after the step begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.kineto_files import Event, write

BASE_NS = 1_700_000_000_000_000_000
STEP_US = 1_000
GEMM, ALL_REDUCE = "gemm_128x64_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rows(
    pid: int | str,
    *,
    device: int = 0,
    group: Sequence[int] = (),
    steps: Iterable[int] = (1, 2, 3),
    late_us: int = 0,
    since_us: int = 10_000,
    description: str = "default_pg",
    calls_as: int | None = None,
) -> list[Event]:
    """The rows of one process: a mark, two launches and their kernels in each step.

    `calls_as` is its place in the group, as modern PyTorch's host rows say it.
    """
    host = {"ph": "X", "pid": pid, "tid": 1}
    made: list[Event] = []
    for place, step in enumerate(steps):
        begin = since_us + place * STEP_US
        made.append(host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": STEP_US - 1})
        kernels = [(GEMM, 7, 100, 450, {})]
        if group:
            said = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float"}
            said |= {"Group size": len(group), "Process Group Name": "0", "Process Group Description": description}
            said |= {"Process Group Ranks": str([*group]), "Seq": place + 1}
            if calls_as is not None:
                operator = {"cat": "cpu_op", "name": "record_param_comms", "ts": begin + 40, "dur": 30}
                made.append(host | operator | {"args": said | {"Rank": calls_as}})
            kernels.append((ALL_REDUCE, 20, 500 + late_us, 300 - late_us, said))
        for number, (name, stream, after_us, dur, said) in enumerate(kernels):
            correlation = 100 + 10 * place + number
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 50 + number, "dur": 1}
            made.append(host | launch | {"args": {"correlation": correlation}})
            args = {"device": device, "stream": stream, "correlation": correlation, **said}
            kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream}
            made.append(kernel | {"ts": begin + after_us, "dur": dur, "args": args})
    return made


def document(events: Sequence[Event], rank: int | None = None, world_size: int = 1, **head: Any) -> dict[str, Any]:
    """A trace of such rows, which says its rank where one is given."""
    said = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}} if rank is not None else {}
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "host_name": "node0", **said, **head} | {
        "traceEvents": [*events]
    }


def written(path: Path, pid: int | str, rank: int | None = None, world_size: int = 1, **how: Any) -> Path:
    """Write the trace of one process."""
    return write(path, document(rows(pid, **how), rank, world_size))
