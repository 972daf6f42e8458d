"""Strategies seen from all ranks: pipelines' bubbles, experts' tokens, attention against transfers.

`pipeline` divides a bubble by `pipeline_replay`, `pipeline_summary` is what that comes to; `owned_instances` has
collectives by module and pass, of which `token_routing` and `experts` make rows of experts, `attention` of a sequence
that is spread over ranks.

Decisions: docs/decisions/layers.md
"""

from analyzers.layers.strategies.attention import AttentionRow, AttentionTransfers, attention_rows
from analyzers.layers.strategies.experts import ExpertRow, expert_notices, expert_rows
from analyzers.layers.strategies.pipeline import Pipeline, PipelineAction, PipelineRow, pipeline_notices, pipelines
from analyzers.layers.strategies.pipeline_summary import PipelineStage, PipelineSummary, pipeline_summaries

__all__ = [
    "AttentionRow",
    "AttentionTransfers",
    "ExpertRow",
    "Pipeline",
    "PipelineAction",
    "PipelineRow",
    "PipelineStage",
    "PipelineSummary",
    "attention_rows",
    "expert_notices",
    "expert_rows",
    "pipeline_notices",
    "pipeline_summaries",
    "pipelines",
]
