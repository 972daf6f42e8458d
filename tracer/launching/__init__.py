"""Launch of ranks, scripts and grids, and what they leave.

`elastic` launches through torch's own launcher with the environment that recording wants, `script` records somebody's
script, `grid` a sweep, whose `rounds` are joined and whose `cost` is said. A `guard_process` ends what a killed
launcher leaves, `oom_kills` tells what the kernel killed. Importing this room imports torch.

Decisions: docs/dev/decisions/launching.md
"""

from tracer.launching.elastic import Job, launch, quiet_launcher, rank_arguments
from tracer.launching.grid import Grid, merged, record_grid
from tracer.launching.script import Outcome, Ranks, Recording, Script, record_script
