"""Communication libraries, a file each: their kernels, kinds, ranges, sizes, ranks.

`library` is the protocol: what a file says of its library. `nccl` (with RCCL), `gloo`, `experts` (DeepEP, MORI and
others' all-to-alls), `symmetric_memory` (with multimem and NVSHMEM), `device_reductions` (vLLM's, SGLang's, aiter's and
TensorRT-LLM's), `userbuffers` and `vendors` (oneCCL, HCCL) are the libraries, and `listed` lists them, once. `lookup`
asks all of them about a kernel or about the host's rows. `collective_kinds` has the kinds of collectives and the words
for these.

Decisions: docs/dev/decisions/trace.md
"""

from analyzers.trace.libraries.collective_kinds import Collective, letters_of
from analyzers.trace.libraries.gloo import GLOO, GLOO_BACKEND
from analyzers.trace.libraries.listed import LISTED
from analyzers.trace.libraries.lookup import (
    OPERATORS,
    RANGES,
    SIZED_BY,
    SPANS,
    has_hint,
    kind_in,
    kind_in_call,
    library_of,
    only_signals,
    ranks_in_name,
    shows_transfer,
)
from analyzers.trace.libraries.nccl import COALESCED, NCCL
