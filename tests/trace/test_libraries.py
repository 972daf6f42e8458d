"""Communication libraries: what each file says of its own, and that another is one file and its place in the list."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.trace.collective_calls import kind_of_call, kind_of_kernel, library_kernel, may_only_post
from analyzers.trace.kernel_names import is_communication, looks_like_communication, path_of
from analyzers.trace.libraries import LISTED, OPERATORS, RANGES, SPANS, Collective, library_of, only_signals
from tests.support.kineto_files import step, write

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "analyzers" / "trace" / "libraries"
# Modules of the room that are no library.
SHARED = {"__init__", "collective_kinds", "library", "listed", "lookup"}


def test_every_file_is_listed_once():
    files = {file.stem for file in FOLDER.glob("*.py")} - SHARED
    text = (FOLDER / "listed.py").read_text()
    assert sorted(re.findall(r"^    (\w+)\.LIBRARY,$", text, re.MULTILINE)) == sorted(files)
    assert len({library.name for library in LISTED}) == len(LISTED) == len(files)


def test_the_host_knows_libraries_by_what_pytorch_calls_them():
    assert (RANGES, OPERATORS, SPANS) == (("nccl:",), ("symm_mem::",), ("gloo:",))


@pytest.mark.parametrize(
    ("kernel", "library", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "NCCL", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "reduce_scatter"),
        ("ncclSymkDevKernel_AllGather_LL(ncclSymDevArgs)", "NCCL", "all_gather"),
        ("rcclGenericKernel<1, 2>(ncclDevComm*)", "NCCL", "other"),
        ("void mscclpp::collective::allgatherFullmesh2<true>(void*)", "NCCL", "all_gather"),
        ("void c10d::nvshmem_extension::allToAllV(void*)", "symmetric memory", "all_to_all"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "symmetric memory", "all_reduce"),
        ("multimem_all_gather_kernel<16>(char*)", "symmetric memory", "all_gather"),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int)", "symmetric memory", "barrier"),
        ("c10d::symmetric_memory::multimem_barrier_kernel(unsigned int*)", "symmetric memory", "barrier"),
        ("c10d::symmetric_memory::put_signal_kernel(unsigned int**, int)", "symmetric memory", "send_recv"),
        ("_ZN4c10d16symmetric_memory18wait_signal_kernelEPPjiiiim", "symmetric memory", "send_recv"),
        ("c10d::nccl_extension::all_to_all_lsa_kernel(ncclWindow_vidmem*)", "symmetric memory", "all_to_all"),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(int)", "device reductions", "all_reduce"),
        ("void sglang::cross_device_reduce_1stage<half, 4>(int)", "device reductions", "all_reduce"),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 4>(int)", "device reductions", "all_reduce"),
        ("void mori::collective::OneShotAll2allSdmaKernel<unsigned int>(int)", "device reductions", "all_to_all"),
        ("hybridCubeMeshAllReduce<8>(float*)", "device reductions", "all_reduce"),
        ("void dpsk::ep::internode::notify_dispatch<false, 4>(int const*, int*, int)", "experts", "dispatch"),
        ("void deep_ep::internode::cached_notify<false, 2>(int)", "experts", "barrier"),
        ("_ZN7deep_ep7elastic12combine_implILi24EEEvPv", "experts", "combine"),
        ("void uccl::internode_ll::dispatch<true, 10, 7168>(void*, void*)", "experts", "dispatch"),
        ("EpCombineInterNodeV1KernelLowLatency_bf16", "experts", "combine"),
        ("void deep_ep::legacy::intranode::dispatch<8, 768, 8192>(int4*)", "experts", "dispatch"),
        ("void primus_turbo::deep_ep::internode::combine<true>(void*)", "experts", "combine"),
        ("nccl_ep_jit_ht_dispatch_kernel", "experts", "dispatch"),
        ("void hybrid_ep::combine_kernel<hybrid_ep::combine_config<1>>(void*)", "experts", "combine"),
        ("hybrid_ep::device_sync_kernel(unsigned int*, unsigned int)", "experts", "barrier"),
        ("void aiter::allreduce_fusion_kernel_2stage<hip_bfloat16, 8>(int)", "device reductions", "all_reduce"),
        ("nccldevkernel_reducescatter_sum_bf16_ring_ll(int)", "NCCL", "reduce_scatter"),
        ("void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int)", "experts", "dispatch"),
        ("void flashinfer::trtllm_alltoall::moeAllToAllKernel<4, false>(int)", "experts", "all_to_all"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)", "userbuffers", "reduce_scatter"),
        ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<8>(int, int)", "userbuffers", "all_gather"),
        ("void userbuffers_fp16_sum_inplace_gpu_mc<8>(int, int)", "userbuffers", "all_reduce"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "userbuffers", "send_recv"),
        ("oneccl_allreduce_pcie(sycl::queue)", "oneCCL and HCCL", "all_reduce"),
        ("hcom_allReduce__363_0_1", "oneCCL and HCCL", "all_reduce"),
    ],
)
def test_a_kernel_has_a_library_and_a_kind(kernel, library, kind):
    assert is_communication(kernel)
    assert library_of(path_of(kernel)).name == library
    assert kind_of_kernel(kernel).label == kind
    assert bool(library_kernel(kernel)) == (library != "NCCL")


# In the order of docs/measuring.md's list of names that look like communication.
@pytest.mark.parametrize(
    "word",
    [
        *("nccl", "rccl", "allreduce", "all_reduce", "allgather", "all_gather", "reduce_scatter", "reducescatter"),
        *("alltoall", "all_to_all", "a2a", "sendrecv", "ep::", "userbuffers", "mscclpp"),
    ],
)
def test_a_word_for_communication_in_an_unknown_name_is_noticed(word):
    name = f"my_{word}_step"
    assert not is_communication(name)
    assert looks_like_communication(name)
    assert looks_like_communication(name.upper())
    assert not looks_like_communication(f"triton_poi_fused_{word}_0")


@pytest.mark.parametrize(
    ("kernel", "posts"),
    [
        ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", True),
        ("void dpsk::ep::internode_ll::combine<3, 10, 7168, 9>(void*)", True),
        ("EpDispatchLowLatencyAsyncSendTransfer_bf16", True),
        ("void deep_ep::internode_ll::clean_low_latency_buffer<32>(int*)", False),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", False),
        ("void deep_ep::internode::combine<4, __nv_bfloat16>(int4*)", False),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", False),
        ("void at::native::internode_ll_like_kernel<4>(int)", False),
    ],
)
def test_low_latency_kernels_may_only_post_their_transfer(kernel, posts):
    assert may_only_post(kernel) == posts


def test_barriers_and_signals_of_symmetric_memory_move_nothing():
    names = ("barrier", "multimem_barrier", "put_signal", "wait_signal", "multimem_all_reduce", "one_shot_all_reduce")
    told = [only_signals(f"c10d::symmetric_memory::{name}_kernel") for name in names]
    assert told == [True, True, True, True, False, False]
    assert not only_signals("step::barrier_kernel")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("fused_all_gather_matmul", Collective.ALL_GATHER),
        ("fused_all_gather_scaled_matmul", Collective.ALL_GATHER),
        ("fused_matmul_reduce_scatter", Collective.REDUCE_SCATTER),
        ("_low_contention_all_gather", Collective.ALL_GATHER),
        ("_low_contention_reduce_scatter", Collective.REDUCE_SCATTER),
        ("deep_ep_dispatch", Collective.DISPATCH),
        ("wait", None),
    ],
)
def test_a_call_has_the_kind_in_its_name(call, kind):
    assert kind_of_call(call) == kind


TOY = '''"""A toy."""

from analyzers.trace.libraries.collective_kinds import Collective
from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="toy",
    kernels=(START + "toy_ring_",),
    words=(("ringsum", Collective.ALL_REDUCE),),
    ranks=(r"toy_ring_\\w*<(\\d+)",),
    operators=("toy_ops::",),
    sized_by=("toy_ops::ring_sum",),
)
'''
REPORTED = """
import json, sys, analyzers
report = analyzers.report(analyzers.load(sys.argv[1]))
rows = [(row.kind, row.bytes, row.group_size, row.partial) for row in report.collectives]
print(json.dumps([rows, report.windows[0].comm_ns]))
"""


def traced(rank: int) -> dict[str, object]:
    """A step of one rank of two: an operator of the toy's that launches its kernel, and one that copies."""
    rows = [step(1, 0, 100)]
    launches = (
        (10, "kernel", "void toy::toy_ring_sum<2>(float*)", "toy_ops::ring_sum"),
        (40, "gpu_memcpy", "Memcpy DtoD (Device -> Device)", "toy_ops::ring_all_gather"),
    )
    for at, category, name, operator in launches:
        host = {"ph": "X", "pid": 9, "tid": 9}
        said = {"Input Dims": [[500]], "Input type": ["float"]}
        rows.append(host | {"cat": "cpu_op", "name": operator, "ts": at, "dur": 9, "args": said})
        call = {"cat": "cuda_runtime", "name": "cudaLaunch", "ts": at + 1, "dur": 1, "args": {"correlation": at}}
        rows.append(host | call)
        args = {"device": 0, "stream": 7, "correlation": at, "bytes": 800}
        device = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at + 5, "dur": 4, "args": args}
        rows.append(device)
    distributed = {"rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]}
    return {"distributedInfo": distributed, "traceEvents": rows}


def reported(package: Path, run: Path) -> object:
    made = subprocess.run(
        [sys.executable, "-c", REPORTED, str(run)], cwd=package, capture_output=True, text=True, check=True
    )
    return json.loads(made.stdout)


@pytest.mark.slow
def test_another_library_is_one_file_and_its_place_in_the_list(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for rank in (0, 1):
        write(run / f"rank{rank}.json", traced(rank))
    shutil.copytree(ROOT / "analyzers", tmp_path / "analyzers", ignore=shutil.ignore_patterns("__pycache__"))
    assert reported(tmp_path, run) == [[], 0]
    folder = tmp_path / "analyzers" / "trace" / "libraries"
    (folder / "toy.py").write_text(TOY)
    listed = (folder / "listed.py").read_text()
    listed = listed.replace(" vendors\n", " toy, vendors\n")
    (folder / "listed.py").write_text(listed.replace("    vendors.L", "    toy.LIBRARY,\n    vendors.L"))
    rows, comm_ns = reported(tmp_path, run)
    assert ["all_reduce", 2000, 2, False] in rows
    assert [row[:2] for row in rows].count(["all_gather", 800]) == 2
    assert comm_ns == 8000
