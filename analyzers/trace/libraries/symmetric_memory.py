"""PyTorch's symmetric memory, NVSHMEM and multimem kernels."""

from __future__ import annotations

from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="symmetric memory",
    kernels=(
        r"(?i:nvshmem)",
        START + r"multimem_",
    ),
    # torch.ops.symm_mem: asynchronous tensor parallelism copies between devices inside of
    # symm_mem::fused_all_gather_matmul, symm_mem::fused_matmul_reduce_scatter and their like, and so do the
    # low-contention collectives, symm_mem::_low_contention_all_gather.
    operators=("symm_mem::",),
)
