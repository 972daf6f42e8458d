"""NCCL, RCCL and what RCCL brings along: MSCCL and MSCCL++."""

from __future__ import annotations

from analyzers.trace.libraries.library import START, Library

# ProcessGroupNCCL's range around a launch, with its tensors.
NCCL = "nccl:"
# The one that ends a batch, and launches the kernel for all of it.
COALESCED = NCCL + "coalesced"

LIBRARY = Library(
    name="NCCL",
    kernels=(
        # NCCL to 2.18 (the oldest, ncclAllReduceRingLLKernel_sum_f32), from 2.19 (ncclDevKernel_), and its
        # symmetric-memory kernels from 2.27; RCCL keeps NCCL's names or its own.
        START + r"nccl\w*Kernel",
        START + r"nccl(?:dev|symk?dev)?kernel",  # as tools write them that put all names into lower case
        START + r"nccl[Ss]ym",
        START + r"rccl",
        START + r"msccl(?:pp)?Kernel",  # RCCL's MSCCL algorithms
        START + r"mscclpp::",  # MSCCL++: mscclpp::collective::allgatherFullmesh2
    ),
    hints=("nccl", "rccl", "mscclpp"),
    ranges=(NCCL,),
)
