"""Functional collectives and matrix products, as tensor parallelism calls them, drawn row by row."""

from __future__ import annotations

from tests.support.kineto_files import Event
from tests.support.training import MAIN, host, kernel

KINDS = {
    "all_reduce": ("allreduce", "all_reduce", "AllReduce_Sum", 100, 100),
    "reduce_scatter": ("_reduce_scatter_base", "reduce_scatter_tensor", "ReduceScatter_Sum", 100, 50),
    "all_gather": ("_allgather_base", "all_gather_into_tensor", "AllGather", 50, 100),
}


def functional(
    ts: float, kind: str, start: float, dur: float, *, tid: int = MAIN, description: str = "mesh_tp"
) -> list:
    """A functional collective: its operator around c10d's call, and NCCL's kernel."""
    name, operator, label, elements_in, elements_out = KINDS[kind]
    said = {"Collective name": name, "In msg nelems": elements_in, "Out msg nelems": elements_out, "dtype": "BFloat16"}
    said |= {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}
    said |= {"Process Group Description": description}
    return [
        host(f"_c10d_functional::{operator}", ts, 3, tid=tid),
        host(f"c10d::{name}_", ts + 0.5, 2, tid=tid),
        *kernel(f"ncclDevKernel_{label}_RING_LL(x)", ts + 1, start, dur, tid=tid, stream=20, **said),
    ]


def product(ts: float, start: float, dur: float, number: int, *, tid: int = MAIN) -> list[Event]:
    return [
        host("aten::mm", ts, 2, tid=tid, **{"Sequence number": number}),
        *kernel("gemm", ts + 0.5, start, dur, tid=tid),
    ]
