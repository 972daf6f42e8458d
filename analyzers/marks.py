"""How PyTorch names the rows of its host side that analyses look for; kernels' names are `classify`'s."""

from __future__ import annotations

# torch.profiler's range around a step, before its number.
STEP = "ProfilerStep#"
# Calls of a process group, and what gloo's worker threads do for them.
C10D = "c10d::"
GLOO = "gloo:"
# What ProcessGroupNCCL does for them: the range around a launch, with its tensors.
NCCL = "nccl:"
# Autograd's nodes; the one that takes a parameter's gradient, as operator and as node.
NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
TAKES_GRADIENT = NODE + ACCUMULATE
# DDP's copy of a gradient into its bucket.
COPIES_IN = "torch::distributed::reducer::mul_out"
DDP_FORWARD = "DistributedDataParallel.forward"
DP_FORWARD = "DataParallel.forward"
# Ranges in which FSDP, of either generation, calls for its collectives: the first one's forward is around its module's.
SHARDED = ("FSDP::", "FullyShardedDataParallel")
# Ranges and operators that are FSDP's own alone.
OF_FSDP = ("FSDP::", "fsdp::", "FullyShardedDataParallel._")
