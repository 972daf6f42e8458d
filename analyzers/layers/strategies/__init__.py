"""What strategies' communication waits for, by module, seen from all ranks.

`hidden_by` says which lines' compute hid communication, `exposed_causes` why the rest was exposed; `sharded` has FSDP's
collectives and packing by module, `tensor` what asynchronous tensor parallelism could hide.

Decisions: docs/decisions/layers.md
"""

from analyzers.layers.strategies.hidden_by import PASSES, Beside, HiddenBy, beside
from analyzers.layers.strategies.sharded import ShardedCollective, ShardedModule, ShardedRows, sharded_rows
from analyzers.layers.strategies.tensor import TensorWindow, tensor_rows

__all__ = [
    "PASSES",
    "Beside",
    "HiddenBy",
    "ShardedCollective",
    "ShardedModule",
    "ShardedRows",
    "TensorWindow",
    "beside",
    "sharded_rows",
    "tensor_rows",
]
