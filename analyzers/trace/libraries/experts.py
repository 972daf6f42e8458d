"""All-to-alls of experts: DeepEP, HybridEP, NCCL EP, UCCL, MORI, TensorRT-LLM, FlashInfer."""

from __future__ import annotations

from analyzers.trace.libraries.collective_kinds import Collective
from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="experts",
    kernels=(
        # DeepEP's dispatch and combine, in a namespace of its own or anyone's: deep_ep::legacy::, dpsk::ep::,
        # primus_turbo::deep_ep::, nccl_ep::; HybridEP's; and UCCL's.
        r"(?:^|[:_])ep::(?:legacy::)?(?:intranode|internode|internode_ll|elastic)::",
        r"(?:^|[:_])hybrid_ep::",
        # NCCL EP's, those that it compiles at run time (nccl_ep_jit_ht_dispatch_kernel) among them.
        START + r"nccl_ep_",
        START + r"nccl_ep::(?:\w+::)*(?:dispatch|combine)",
        START + r"uccl::(?:intranode|internode|internode_ll)::",
        # MORI: mori::moe::EpDispatchIntraNodeKernel, EpCombineInterNodeV1KernelLowLatency_bf16, EpCombineSync.
        START + r"Ep(?:Dispatch|Combine)[A-Z]",
        # TensorRT-LLM's and FlashInfer's all-to-alls of experts: moeAllToAllKernel, moeA2ADispatchKernel.
        START + r"moe(?:AllToAll|A2A)",
    ),
    words=(
        ("dispatch", Collective.DISPATCH),
        ("combine", Collective.COMBINE),
        ("cachednotify", Collective.BARRIER),  # DeepEP's, before a dispatch or combine whose layout is known
        ("devicesync", Collective.BARRIER),  # HybridEP's
    ),
    # The namespace: not the end of another, such as `step::`.
    hints=("(?<![a-z])ep::", "a2a"),
    # DeepEP's intranode.cu has the ranks as its first number, behind a type at most.
    ranks=(r"ep::(?:legacy::)?intranode::\w*<(?:[\w:]+, )?(\d+)",),
    # With return_recv_hook DeepEP's low-latency kernels post what they send and return, and a second kernel of the
    # same name receives; MORI's have names of their own.
    posts=(START + r"internode_ll::(?:dispatch|combine)$", START + r"Ep(?:Dispatch|Combine)LowLatencyAsync"),
)
