"""Strategies seen from all ranks: what each one's users ask.

`owned_instances` has collectives by module and pass, `exposed_causes` why some were exposed. `sharded` has FSDP's
collectives and packing by module, and which lines' compute hid communication, `tensor` what
asynchronous tensor parallelism could hide; `pipeline` divides a bubble by `pipeline_replay`, `pipeline_summary` is what
that comes to; `token_routing` and `experts` have rows of experts, `attention` of a sequence that is spread over ranks.

Decisions: docs/dev/decisions/layers.md
"""

from analyzers.layers.strategies.attention import AttentionRow, attention_rows
from analyzers.layers.strategies.experts import ExpertRow, expert_notices, expert_rows
from analyzers.layers.strategies.pipeline import Pipeline, PipelineAction, PipelineRow, pipeline_notices, pipelines
from analyzers.layers.strategies.pipeline_summary import PipelineStage, PipelineSummary, pipeline_summaries
from analyzers.layers.strategies.sharded import (
    PASSES,
    HiddenBy,
    ShardedCollective,
    ShardedModule,
    ShardedRows,
    beside,
    sharded_rows,
)
from analyzers.layers.strategies.tensor import TensorWindow, tensor_rows
