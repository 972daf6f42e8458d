"""What a strategy did on one rank, beyond its calls.

`pipeline_spans` finds a pipeline's actions on the host, `pipeline_messages` where messages alone tell them,
`pipeline_actions` when they ran on the device.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.parallelism.pipeline_actions import PipelineActions
from analyzers.rank.parallelism.pipeline_actions import pipeline_actions as actions_of
from analyzers.rank.parallelism.pipeline_spans import ActionKind
