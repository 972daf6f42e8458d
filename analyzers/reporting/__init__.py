"""All analyses become one `Report`, with its verdict and advice.

`analyses` has what its parts share; `build` puts the report together from the run's facts and notices, `step_timeline`,
the room `measures` (rows and figures) and `summary`, which concludes: `bar` is what the step is made of, `found` the
advice of findings, the room `remedies` what is known at most, `headline` the first sentence, `trust` its grade;
`document` has types and JSON. `typical_steps` says of which steps figures are, and what others cost.
`device_lanes`, `frames` (of `tables`, as what else is compared or predicted) and `per_step` are made from it.

Decisions: docs/dev/decisions/reporting.md
"""

from analyzers.reporting.analyses import Analyses
from analyzers.reporting.bar import Bar, bar_of
from analyzers.reporting.build import report, run_facts
from analyzers.reporting.device_lanes import CollectiveLane, Lanes, LayerLane, drawn_ranks, lanes, path_lanes
from analyzers.reporting.document import (
    DIGEST_SCHEMA,
    REPORT_SCHEMA,
    ControlFigures,
    Headline,
    MarkedRank,
    Report,
    RunFacts,
    Summary,
    Window,
    digest,
    from_json,
    to_json,
    to_summary_json,
)
from analyzers.reporting.frames import ROWS_BY, TABLE_SCHEMA, TABLES, to_table_json
from analyzers.reporting.measures import (
    IDLE_CAUSES,
    Compute,
    DeviceSummary,
    IdleFrom,
    IdleLine,
    KernelRow,
    OverDevices,
    RegionKernel,
    SyncCost,
)
from analyzers.reporting.per_step import (
    GRADIENTS,
    GradientBandwidth,
    StepFigures,
    StepSeries,
    gradient_bandwidth,
    gradient_steps,
    group_steps,
    mean_step,
    mean_steps,
    rows_of_typical,
    series,
    typical_of,
)
from analyzers.reporting.remedies import Advice, is_cheap
from analyzers.reporting.step_timeline import Lane, Mark, Timeline
from analyzers.reporting.tables import NAMED_UNITS, Column, Table, columns, computed, frame_method
from analyzers.reporting.trust import MOST_UNKNOWN, judged, words_of_unknown
from analyzers.reporting.typical_steps import odd_words
