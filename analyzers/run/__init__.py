"""A folder becomes a `Run`: files, `run.json`, controls, light times.

In order: `layout` finds the files, of the kinds that `inputs` lists, `manifest`, `parallelism`, `controls` and
`calibration` read what lies beside them, `rank_trace` reads the ranks in one file, looks at the rows of each together
(the room `analyzers.run.health`), gives it the light window's times (`light_window`, for the same events, which
`partners` finds) and the steps that were asked for (`named_steps`) or that repeat (`inferred_steps`), and refuses what
fits no memory; `loading` gathers the ranks, as `numbering` numbers them. `machine_states` tells whose devices are
slowed, and what held hosts up, `sweep` reads a grid of runs.

Decisions: docs/dev/decisions/run.md
"""

from analyzers.run.calibration import (
    CalibratedLinks,
    Calibration,
    CalibrationRow,
    calibration_row,
    curve,
    peak_busbw_gbps,
    read_calibration,
    to_json,
)
from analyzers.run.controls import HIGH_DISTORTION, HOST, LONGEST_NS, UNPROFILED, Control, Controls, control
from analyzers.run.health import launches_without_kernels
from analyzers.run.inferred_steps import Inferred
from analyzers.run.inputs import looks_like_input
from analyzers.run.layout import LIGHT, NOSYNC, OF_HOST, RankFile, RunLayout, find, may_be_trace
from analyzers.run.light_window import Joined, Joining, Mismatch, retime
from analyzers.run.loading import LISTED_RANKS, Run, gather, hosts, load, read_alike, world_size
from analyzers.run.machine_states import device_notices, find_held_up, find_slowed, host_notices, odd_collections_ns
from analyzers.run.manifest import (
    EARLY_STEPS,
    LINKS,
    MANIFEST,
    RESULTS,
    SWEEP,
    Bucket,
    Dataset,
    DeviceState,
    Epoch,
    HostStates,
    LoaderSettings,
    Manifest,
    Memory,
    OptimizerSettings,
    Parameter,
    TrainingSettings,
    join_launches,
    read_manifest,
)
from analyzers.run.named_steps import Repeated
from analyzers.run.numbering import NOBODY, NumberedBy, Owner
from analyzers.run.parallelism import (
    MOST_MESH_RANKS,
    CompiledModules,
    Parallelism,
    RecordedContext,
    RecordedMesh,
    RecordedPipeline,
    SequenceBuffer,
    ShardedModules,
    StyledModules,
    joined_parallelism,
)
from analyzers.run.rank_trace import RankFacts, RankTrace, read_ranks
from analyzers.run.sweep import SINGLE, Cell, State, Sweep, cell_folder, read_sweep
