"""TransformerEngine's userbuffers, and TensorRT-LLM's copies of them."""

from __future__ import annotations

from analyzers.trace.libraries.collective_kinds import Collective
from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="userbuffers",
    # userbuffers_fp16_sum_inplace_gpu_rw, kuserbuffers_pushsend.
    kernels=(START + r"k?userbuffers_",),
    # Their names end in how a reduction goes (rr, rw, mc) and in which part of it they are: rr_rs_oop, rw_ag.
    words=(
        *((f"gpu{way}rs", Collective.REDUCE_SCATTER) for way in ("rr", "rw", "mc")),
        *((f"gpu{way}ag", Collective.ALL_GATHER) for way in ("rr", "rw", "mc")),
        ("suminplacegpu", Collective.ALL_REDUCE),
        ("userbufferspush", Collective.SEND_RECV),
        ("userbufferspull", Collective.SEND_RECV),
    ),
    hints=("userbuffers",),
)
