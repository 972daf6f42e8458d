"""PyTorch's symmetric memory, NVSHMEM and multimem kernels."""

from __future__ import annotations

from analyzers.trace.libraries.collective_kinds import Collective
from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="symmetric memory",
    kernels=(
        r"(?i:nvshmem)",
        START + r"multimem_",
        # Its barriers and signals, c10d::symmetric_memory::barrier_kernel; what it builds on NCCL's device functions,
        # c10d::nccl_extension::all_to_all_lsa_kernel.
        r"^c10d::(?:symmetric_memory|nccl_extension)::",
    ),
    words=(
        ("putsignal", Collective.SEND_RECV),
        ("waitsignal", Collective.SEND_RECV),
        ("waitforsignal", Collective.SEND_RECV),
        ("lsaput", Collective.SEND_RECV),
        ("lsaget", Collective.SEND_RECV),
    ),
    signals=(r"^c10d::symmetric_memory::(?:\w*barrier|put_signal|wait_signal)_kernel$",),
    # torch.ops.symm_mem: asynchronous tensor parallelism copies between devices inside of
    # symm_mem::fused_all_gather_matmul, symm_mem::fused_matmul_reduce_scatter and their like, and so do the
    # low-contention collectives, symm_mem::_low_contention_all_gather.
    operators=("symm_mem::",),
)
