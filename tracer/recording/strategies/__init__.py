"""Strategies of programs: recognised, and described for run.json.

`program` gathers what the process trains with (`tracked_objects` finds it), and unwraps the model; `protocol`
says what a strategy is asked, and each of `ddp`, `fsdp`, `data_parallel`, `tensor`, `pipeline`, `context` and `expert`
answers for one. `meshes`, `parallel_styles` and `module_names` are what they share, `compilation` finds torch.compile.
`parallelism` lists the strategies and puts together what they say.

Decisions: docs/dev/decisions/recording.md
"""

from tracer.recording.strategies.compilation import is_compiled
from tracer.recording.strategies.context import watched_splits
from tracer.recording.strategies.parallelism import no_sync, ordered, parallelism_of, strategy_name, without_sync
from tracer.recording.strategies.program import Program, ddp_of, inner, program_of
from tracer.recording.strategies.tracked_objects import all_objects
