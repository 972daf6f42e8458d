"""TransformerEngine's userbuffers, and TensorRT-LLM's copies of them."""

from __future__ import annotations

from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="userbuffers",
    # userbuffers_fp16_sum_inplace_gpu_rw, kuserbuffers_pushsend.
    kernels=(START + r"k?userbuffers_",),
    hints=("userbuffers",),
)
