"""All-reduce kernels that inference engines bring along: vLLM, SGLang, aiter, TensorRT-LLM, FlashInfer."""

from __future__ import annotations

from analyzers.trace.libraries.collective_kinds import Collective
from analyzers.trace.libraries.library import START, Library

LIBRARY = Library(
    name="device reductions",
    kernels=(
        # PyTorch's intra-node all-reduce and symmetric memory; TensorRT-LLM and FlashInfer use the same words.
        r"(?i:(?:one|two)_?shot_?all_?(?:reduce|gather|to_?all))",
        r"(?i:all_?(?:reduce|gather)\w*_(?:one|two)_?shot)",
        r"(?i:(?:one|two)_?shot_?all_?2_?all)",  # MORI: OneShotAll2allSdmaKernel
        START + r"hybridCubeMeshAllReduce",
        # vLLM's, SGLang's and aiter's; aiter's fused all-reduce, whose second step reads this device alone.
        START + r"cross_device_reduce_",
        START + r"reduce_scatter_cross_device_store",
        START + r"\w*allreduce_fusion_kernel",
    ),
    words=(
        ("crossdevicereduce", Collective.ALL_REDUCE),
        ("hybridcubemesh", Collective.ALL_REDUCE),
        ("shotallall", Collective.ALL_TO_ALL),
    ),
    # vLLM's custom_all_reduce.cuh has the ranks as its first number, behind a type at most.
    ranks=(r"\bcross_device_reduce\w*<(?:[\w:]+, )?(\d+)",),
    # An operator in any namespace but PyTorch's: vllm::all_reduce, symm_mem::multimem_all_reduce_.
    sized_by=(r"(?!aten::|_?c10d)\w+::\w*(?:all_reduce|all_gather|reduce_scatter)",),
)
