"""`Strategy`: purposes, packing and owners of the calls of a parallelism.

host      |nn.Module: a   |c10d::all_reduce| |     who calls tells what is communicated, and for which module
group                      "mesh_tp"               else the group's description does
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Labelled, Mask, values_at
from analyzers.rank.host import COMPILED, Autograd, Host, Places, Spans
from analyzers.texts import finder
from analyzers.trace import NODE, TAKES_GRADIENT, Collective, Module

# Ranges of Inductor's around its code, and the node of its backward.
COMPILED_CODE = (COMPILED, "## Call CompiledFxGraph", NODE + "CompiledFunctionBackward", "CompiledFunctionBackward")
# Launches of captured graphs.
GRAPH_LAUNCH = ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch")

# Strategies whose collectives are called in modules' forwards and backwards, without ranges of their own.
CALLED_BY_MODULES = frozenset({"tensor", "context", "expert"})


class Purpose(Labelled):
    """What is communicated."""

    OTHER = 0
    GRADIENTS = 1
    BUFFERS = 2
    PARAMETERS = 3
    INPUTS = 4
    ACTIVATIONS = 5
    MESSAGES = 6
    ATTENTION = 7
    TOKENS = 8
    NORMS = 9


@dataclass(frozen=True, eq=False)
class Calls(Columns):
    """One rank's communication as strategies look at it, a row each.

    `launches` and `called` are rows of the host: the launch, and the outermost call of PyTorch's around it. `elements`
    are what the call says, -1 unknown; `is_integral` marks whole numbers, `is_message` what was sent or received by
    name, `is_library` kernels of other libraries than NCCL. `module` indexes `modules`: the module whose forward or
    backward calls, -1 for none; `is_backward`: a node of autograd calls. `description` indexes `descriptions` of
    process groups, -1 for a group without; `group` tells groups apart by name and ranks, -1 where none is said.
    `recorded` are the strategies that the recording found in the program; empty where nothing was recorded of them.
    """

    host: Host
    nodes: Autograd
    launches: Int64
    called: Int64
    kind: NDArray[np.int8]
    elements: Int64
    is_integral: Mask
    is_message: Mask
    is_library: Mask
    module: Int64
    modules: tuple[Module, ...]
    is_backward: Mask
    description: Int64
    descriptions: tuple[str, ...]
    group: Int64
    recorded: frozenset[str] = frozenset()

    @cached_property
    def places(self) -> Places:
        """Return where calls were launched."""
        return self.host.places(self.launches)

    def of(self, *kinds: Collective) -> Mask:
        """Whether calls are of one of these kinds."""
        return np.isin(self.kind, kinds)

    def inside(self, *prefixes: str) -> Mask:
        """Whether calls lie inside a range of the host whose name starts so."""
        return self.host.inside(self.places, *prefixes)

    def inside_any(self, pattern: re.Pattern[str]) -> Mask:
        """Whether calls lie inside a range or operator of the host in whose name a pattern is."""
        return self.host.inside_any(self.places, pattern)

    def in_module(self, pattern: re.Pattern[str]) -> Mask:
        """Whether the module that calls has a name or class in which a pattern is."""
        is_found = finder(pattern)
        named = [is_found(f"{module.name} {module.type}") for module in self.modules]
        return values_at(np.array(named, dtype=bool), self.module, False)

    def over(self, pattern: re.Pattern[str]) -> Mask:
        """Whether the process group's description has a pattern."""
        named = [*map(finder(pattern), self.descriptions)]
        return values_at(np.array(named, dtype=bool), self.description, False)

    @cached_property
    def is_compiled(self) -> Mask:
        """Whether calls lie in compiled code, in which no range of a strategy's is left."""
        return self.inside(*COMPILED_CODE)

    @cached_property
    def is_replayed(self) -> Mask:
        """Whether calls are replayed by a CUDA graph, whose launch tells nothing of the single call."""
        named = np.array([name.startswith(GRAPH_LAUNCH) for name in self.host.events.names], dtype=bool)
        replayed: Mask = (self.launches >= 0) & named[self.host.events.name[self.launches]]
        return replayed

    def is_alone(self, name: str) -> bool:
        """Whether of strategies whose collectives modules call the recording found this one, and no other."""
        return self.recorded & CALLED_BY_MODULES == {name}

    @cached_property
    def is_floating(self) -> Mask:
        """Whether calls carry no whole numbers."""
        return ~self.is_integral

    @cached_property
    def in_model(self) -> Mask:
        """Whether a module's forward or a node of autograd calls, other than one that takes a gradient."""
        inside: Mask = (self.module >= 0) | (self.inside(NODE) & ~self.inside(TAKES_GRADIENT))
        return inside


@dataclass(frozen=True, eq=False)
class Launches:
    """Launches of one rank's device rows among the host's ranges; `in_backward` of them by autograd's nodes."""

    host: Host
    nodes: Autograd
    modules: Spans
    rows: Int64
    in_backward: Mask

    @cached_property
    def places(self) -> Places:
        """Return where they were called."""
        return self.host.places(self.rows)


@dataclass(frozen=True, eq=False)
class Packing:
    """Launches that exist only for communication; `backward`: those that are of the backward, packing or not.

    `replicas` marks what copies of the model ran of which no range tells.
    """

    rows: Mask
    backward: Mask
    replicas: Mask | None = None


@dataclass(frozen=True, eq=False)
class Owners:
    """Module (index into `modules`, -1 for none) and pass of each row of a rank's communication.

    `prefetched` is 1 where it was asked for before its module's turn, 0 in its turn, -1 where that has no meaning.
    """

    module: Int64
    modules: tuple[str, ...]
    backward: Mask
    prefetched: Int64


@dataclass(frozen=True)
class Strategy:
    """One way to run a model on several devices.

    `name` is also the role of its process groups. `dimension` finds it in a group's description. `purposes` yields what
    its calls carry, first come first served; `packing` its launches that exist only for communication; `owners` the
    module of each of its calls: None where they are for no module. `why_no_buckets` says so where DDP's are missing.
    `in_words` is what people call it where `name` is not that.
    """

    name: str
    dimension: re.Pattern[str]
    purposes: Callable[[Calls], Iterable[tuple[Purpose, Mask]]]
    packing: Callable[[Launches], Packing] | None = None
    owners: Callable[[Calls], Owners] | None = None
    why_no_buckets: str | None = None
    in_words: str | None = None

    @property
    def title(self) -> str:
        """Return what people call it."""
        return self.in_words or self.name


def callers(calls: Calls) -> Owners:
    """Return the module that calls as the one that a collective is for."""
    names = tuple(module.name for module in calls.modules)
    return Owners(calls.module, names, calls.is_backward, np.full(len(calls), UNKNOWN, dtype=np.int64))


def dimension(*names: str) -> re.Pattern[str]:
    """Return a pattern for descriptions of process groups: DeviceMesh's `mesh_tp`, Megatron's and vLLM's own words."""
    return re.compile(rf"(?:^|mesh_)(?:{'|'.join(names)})(?:$|:)", re.IGNORECASE)
