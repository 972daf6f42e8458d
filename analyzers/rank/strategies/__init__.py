"""Strategies: what each parallelism's communication is for.

`protocol` says what a strategy is; each has a file, and stands once in `listed`, in the order in which they are asked:
`data_parallel`, `fsdp`, `ddp`, `zero`, `context`, `expert`, `pipeline`, `tensor`, `after_backward` (gradients that the
program itself reduces) and `metrics` (norms, losses), which no parallelism owns. `fsdp` also
says whom FSDP packs for, `tensor` what tensor parallelism's collectives could run beside.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.strategies.context import ATTENTION
from analyzers.rank.strategies.data_parallel import SPREADING
from analyzers.rank.strategies.ddp import DDP
from analyzers.rank.strategies.fsdp import FSDP, PackingPart, packed_launches
from analyzers.rank.strategies.listed import STRATEGIES, assign, owners, packing, role_of
from analyzers.rank.strategies.pipeline import PIPELINE
from analyzers.rank.strategies.protocol import (
    COMPILED_CODE,
    GRAPH_LAUNCH,
    Calls,
    Launches,
    Owners,
    Purpose,
    Strategy,
    callers,
    dimension,
)
from analyzers.rank.strategies.tensor import matmuls_beside, pipelined_calls
