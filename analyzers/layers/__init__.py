"""DDP's buckets and the model's layers, and what hid their communication.

`ddp_buckets` names buckets and verifies them by size, `bucket_table` has the times of their reductions, and a row for
each (ready, launched, queued, hidden); `layer_table` has a row for each layer and window; the room `strategies` has
what is of single strategies.

Decisions: docs/dev/decisions/layers.md
"""

from analyzers.layers.bucket_table import (
    BUCKET_MEASURES,
    BucketRow,
    BucketSummary,
    BucketTimes,
    Layout,
    bucket_rows,
    bucket_summaries,
    bucket_times,
    bucket_warnings,
    layout_of,
)
from analyzers.layers.ddp_buckets import Buckets, buckets
from analyzers.layers.layer_table import LayerComm, LayerRow, LayerSummary, layer_rows, layer_summaries, layer_warnings
from analyzers.layers.strategies import (
    PASSES,
    HiddenBy,
    Pipeline,
    PipelineAction,
    PipelineRow,
    PipelineStage,
    PipelineSummary,
    ShardedCollective,
    ShardedModule,
    ShardedRows,
    TensorWindow,
    pipeline_notices,
    pipeline_summaries,
    pipelines,
    sharded_rows,
    tensor_rows,
)
