"""Copies inside a collective's host call: communication where no kernel communicates, packing where one does."""

from __future__ import annotations

import random

import pytest

import analyzers
from analyzers.trace import read_trace
from analyzers.trace.kernel_names import Kind
from tests.support.brute_force import windows
from tests.support.kineto_files import Event, step, write

SAID = {
    "Collective name": "_allgather_base",
    "In msg nelems": 500,
    "Out msg nelems": 1000,
    "dtype": "Float",
    "Group size": 2,
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}


def host(name: str, ts: float, dur: float, category: str = "cpu_op", tid: int = 9, **args: object) -> Event:
    row = {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur}
    return row | ({"args": args} if args else {})


def launched(name: str, at: float, correlation: int, category: str = "gpu_memcpy", tid: int = 9) -> list[Event]:
    """A row of the device that lasts 2 us, launched at `at` and begun 10 us later."""
    args = {"device": 0, "stream": 7, "correlation": correlation, "bytes": 2000}
    row = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at + 10, "dur": 2, "args": args}
    return [row, host("cudaLaunch", at, 1, "cuda_runtime", tid, correlation=correlation)]


BARRIER = "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)"
ALONE = SAID | {"Group size": 1}
COPY, KERNEL = "Memcpy DtoD (Device -> Device)", "ncclDevKernel_AllGather_RING_LL(x)"
CALL = [host("c10d::_allgather_base_", 0, 9), host("record_param_comms", 1, 7, **SAID)]
KINDS = {
    "copy engines alone": ([*CALL, *launched(COPY, 2, 1), *launched(COPY, 4, 2)], [Kind.COMM, Kind.COMM]),
    "whatever CUPTI calls them": ([*CALL, *launched("Memcpy PtoP (Device -> Device)", 2, 1)], [Kind.COMM]),
    "a kernel and its packing": (
        [*CALL, *launched(KERNEL, 2, 1, "kernel"), *launched(COPY, 4, 2)],
        [Kind.COMM, Kind.COPY],
    ),
    "outside of the call": ([*CALL, *launched(COPY, 9, 1)], [Kind.COPY]),
    "a kernel whose record is lost": (
        [*CALL, *launched(COPY, 2, 1), host("cuLaunchKernelEx", 4, 1, "cuda_driver", correlation=9)],
        [Kind.COPY],
    ),
    "on another thread": ([*CALL, *launched(COPY, 2, 1, tid=8)], [Kind.COPY]),
    "to the host and back": ([*CALL, *launched("Memcpy DtoH (Device -> Pageable)", 2, 1)], [Kind.COPY]),
    "a memset": ([*CALL, *launched("Memset (Device)", 2, 1, "gpu_memset")], [Kind.COPY]),
    "a group of one": ([host("record_param_comms", 1, 7, **ALONE), *launched(COPY, 2, 1)], [Kind.COPY]),
    "waiting": ([host("_c10d_functional::wait_tensor", 0, 9), *launched(COPY, 2, 1)], [Kind.COPY]),
    "symmetric memory": ([host("symm_mem::_low_contention_all_gather", 0, 9), *launched(COPY, 2, 1)], [Kind.COMM]),
    "asynchronous tensor parallelism, its barriers and its matrix products": (
        [
            host("symm_mem::fused_all_gather_matmul", 0, 30),
            *launched(BARRIER, 2, 1, "kernel"),
            *launched("Memcpy PtoP (Device -> Device)", 6, 2),
            *launched(COPY, 10, 3),
            *launched("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", 14, 4, "kernel"),
            *launched(BARRIER, 18, 5, "kernel"),
        ],
        [Kind.COMM, Kind.COMM, Kind.COMM, Kind.COMPUTE, Kind.COMM],
    ),
    "asynchronous tensor parallelism that falls back to NCCL": (
        [host("symm_mem::fused_all_gather_matmul", 0, 9), *launched(COPY, 2, 1), *launched(KERNEL, 4, 2, "kernel")],
        [Kind.COPY, Kind.COMM],
    ),
    "a batch, whose kernel comes at its end": (
        [
            *CALL,
            *launched(COPY, 2, 1),
            host("nccl:coalesced", 20, 5, "user_annotation"),
            *launched(KERNEL, 22, 2, "kernel"),
        ],
        [Kind.COPY, Kind.COMM],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KINDS)
def test_copies_communicate_where_no_kernel_does(tmp_path, case):
    rows, kinds = KINDS[case]
    events = read_trace(write(tmp_path / "a.json", rows)).events
    assert events.kind[events.on_device].tolist() == kinds


CALLS = ["c10d::allgather_", "nccl:all_gather", "symm_mem::fused_all_gather_matmul", "aten::copy_"]
WORK = [COPY, KERNEL, BARRIER, "Memcpy HtoD (Pinned -> Device)", "gemm"]


@pytest.mark.parametrize("seed", range(30))
def test_windows_are_those_of_brute_force(tmp_path, seed):
    chance = random.Random(seed)
    rows: list[Event] = [step(1, 0, 1000)]
    for correlation, at in enumerate(range(0, 900, 30), 1):
        inside = chance.randrange(4)
        if inside:
            rows.append(host(chance.choice(CALLS), at, 25))
        if inside > 1:
            rows.append(host("record_param_comms", at + 1, 20, **SAID))
        for index, name in enumerate(chance.choices(WORK, k=3)):
            category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            rows += launched(name, at + 3 + 4 * index, 10 * correlation + index, category)
    path = write(tmp_path / "rank0.json", rows)
    found = [(row.comm_ns, row.copy_ns, row.compute_ns) for row in analyzers.report(analyzers.load(path)).windows]
    assert found == [(row["comm_ns"], row["copy_ns"], row["compute_ns"]) for row in windows(path)]


def test_copies_of_symmetric_memory_have_the_kind_of_their_operator(tmp_path):
    rows = [step(1, 0, 100), host("symm_mem::_low_contention_all_gather", 0, 9), *launched(COPY, 2, 1)]
    rows += launched("Memcpy PtoP (Device -> Device)", 30, 2)
    report = analyzers.report(analyzers.load(write(tmp_path / "rank0.json", rows)))
    assert [(row.kind, row.bytes) for row in report.collectives] == [("all_gather", 2000), ("send_recv", 2000)]


def test_asynchronous_tensor_parallelism_is_of_the_kinds_of_its_operators(tmp_path):
    rows = [step(1, 0, 100)]
    for at, operator in ((0, "fused_all_gather_matmul"), (40, "fused_matmul_reduce_scatter")):
        rows.append(host(f"symm_mem::{operator}", at, 30))
        rows += launched("Memcpy PtoP (Device -> Device)", at + 6, at + 1)
        rows += launched("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", at + 7, at + 2, "kernel")
        rows += launched(BARRIER, at + 18, at + 3, "kernel")
    report = analyzers.report(analyzers.load(write(tmp_path / "rank0.json", rows)))
    moved = [(row.kind, row.bytes) for row in report.collectives if row.kind != "barrier"]
    assert moved == [("all_gather", 2000), ("reduce_scatter", 2000)]
    (window,) = report.windows
    # A barrier and a copy each, of which the matrix product covers half of the copy.
    assert (window.comm_ns, window.compute_ns, window.overlapped_comm_ns) == (8000, 4000, 2000)


def test_copy_engines_have_kind_and_bytes(tmp_path):
    rows = [step(1, 0, 100), *CALL, *launched(COPY, 2, 1), *launched(COPY, 4, 2), *launched("gemm", 30, 3, "kernel")]
    for rank in (0, 1):
        said = {"distributedInfo": {"rank": rank, "world_size": 2}}
        write(tmp_path / f"rank{rank}.json", said | {"traceEvents": rows})
    report = analyzers.report(analyzers.load(tmp_path))
    found = [(row.kind, row.bytes, row.transfer_ns, row.busbw_gbps, len(row.members)) for row in report.collectives]
    assert found == [("all_gather", 2000, 2000, None, 1)] * 4
    assert [window.comm_ns for window in report.windows] == [4000, 4000]
    assert [window.exposed_transfer_ns for window in report.windows] == [4000, 4000]
    assert not report.unmatched
