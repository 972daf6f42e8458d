"""Libraries of other vendors: oneCCL, HCCL."""

from __future__ import annotations

from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="oneCCL and HCCL",
    kernels=(
        START + r"oneccl_",
        # HCCL's operations and the kernels that carry them out: hcom_allReduce__363_0_1, HcclAllReduce.
        START + r"(?:hcom_|hccl|Hccl)",
    ),
)
