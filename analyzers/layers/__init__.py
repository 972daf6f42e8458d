"""DDP's buckets and the model's layers, and what hid their communication.

`ddp_buckets` names buckets and verifies them by size, `bucket_table` has a row for each reduction (ready, launched,
queued, hidden), `layer_table` one for each layer and window. `strategies` has what only all ranks together tell: a
pipeline's stages and its bubble.

Decisions: docs/decisions/layers.md
"""

from analyzers.layers.bucket_table import (
    PASSES,
    BucketRow,
    BucketSummary,
    HiddenBy,
    Layout,
    bucket_rows,
    bucket_summaries,
    bucket_warnings,
    layout_of,
)
from analyzers.layers.ddp_buckets import Buckets, buckets
from analyzers.layers.layer_table import LayerComm, LayerRow, LayerSummary, layer_rows, layer_summaries, layer_warnings
from analyzers.layers.strategies.pipeline import Pipeline, PipelineAction, PipelineRow, pipeline_notices, pipelines
from analyzers.layers.strategies.pipeline_summary import PipelineStage, PipelineSummary, pipeline_summaries

__all__ = [
    "PASSES",
    "BucketRow",
    "BucketSummary",
    "Buckets",
    "HiddenBy",
    "LayerComm",
    "LayerRow",
    "LayerSummary",
    "Layout",
    "Pipeline",
    "PipelineAction",
    "PipelineRow",
    "PipelineStage",
    "PipelineSummary",
    "bucket_rows",
    "bucket_summaries",
    "bucket_warnings",
    "buckets",
    "layer_rows",
    "layer_summaries",
    "layer_warnings",
    "layout_of",
    "pipeline_notices",
    "pipeline_summaries",
    "pipelines",
]
