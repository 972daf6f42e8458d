"""Names of host ranges in PyTorch: steps, autograd nodes, FSDP, nn.Module."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analyzers.trace.libraries import OPERATORS, RANGES

# torch.profiler's range around a step, before its number.
STEP = "ProfilerStep#"
# The same in light windows without launches. HTA leaves out of its ProfilerSteps what was not launched inside one.
LIGHT_STEP = "LightStep#"
# Calls of a process group.
C10D = "c10d::"
# Where the host calls for collectives: those of process groups, and those of libraries without one.
COLLECTIVE_CALLS = (C10D, "_c10d_functional::", *RANGES, *OPERATORS)
# Autograd's nodes; the one that takes a parameter's gradient, as operator and as node.
NODE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
TAKES_GRADIENT = NODE + ACCUMULATE
# DDP's copy of a gradient into its bucket.
COPIES_IN = "torch::distributed::reducer::mul_out"
DDP_FORWARD = "DistributedDataParallel.forward"
DP_FORWARD = "DataParallel.forward"
# Calls that launch one kernel: cudaLaunchKernelExC, cuLaunchKernelEx, hipExtModuleLaunchKernel.
KERNEL_LAUNCH = re.compile(r"(?:cuda|cu|hip)\w*Launch\w*Kernel")
# torch.optim's range around a step, and around setting gradients to zero.
OPTIMIZER = "Optimizer."
# Ranges in which FSDP, of either generation, calls for its collectives: the first one's forward is around its module's.
SHARDED = ("FSDP::", "FullyShardedDataParallel")
# Ranges and operators that are FSDP's own alone.
OF_FSDP = ("FSDP::", "fsdp::", "FullyShardedDataParallel._")

PREFIX = "nn.Module: "
# The model itself has no name among its own modules.
ROOT = "(model)"
# What activation checkpointing, FullyShardedDataParallel and torch.compile add to names of modules.
_WRAPPERS = r"(?:_checkpoint_wrapped_module|_fsdp_wrapped_module|_orig_mod)"
_WRAPPED = re.compile(rf"(?:^|(?<=[ (])){_WRAPPERS}(?:\.|$)|\.{_WRAPPERS}(?!\w)")
_NAMED = re.compile(r"(?P<name>.+) \((?P<type>[^()]+)\)")
_NUMBERED = re.compile(r"(?P<name>(?P<type>.+?)(?:_\d+)?)")


@dataclass(frozen=True)
class Module:
    """One module: its name in the model, or its class and number where that is all a trace says, and its class."""

    name: str
    type: str


def own_name(name: str) -> str:
    """Return the name of a module or parameter, or of a range around one, without what wrappers add to it."""
    return _WRAPPED.sub("", name)


def is_of_module(name: str) -> bool:
    """Whether a range's name holds that of a module."""
    return name.startswith((PREFIX, "FSDP::"))


def range_name(name: str, kind: str) -> str:
    """Return the name for the range around the forward of a module with that name and class."""
    return f"{PREFIX}{name or ROOT} ({kind})"


def is_function(name: str) -> bool:
    """Whether a name is that of a Python function as samples of stacks have it: `augment (train.py:12)`."""
    place = name.removesuffix(")")
    return place != name and " (" in place and place.rpartition(":")[2].isdecimal()


def module_of(range_of: str) -> Module | None:
    """Return the module whose forward a host row is, None for any other row."""
    if not range_of.startswith(PREFIX):
        return None
    label = range_of.removeprefix(PREFIX)
    match = _NAMED.fullmatch(label) or _NUMBERED.fullmatch(label)
    return Module(match["name"], match["type"]) if match else None
