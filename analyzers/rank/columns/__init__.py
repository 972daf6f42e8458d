"""Columns of one rank: when devices were busy, whose rows are.

In order: `activity` (when devices computed, communicated, copied), `windows` and `time_breakdown`; `attribution` (the
module of each row), `calls` (the collective that a kernel carries out), `communication` and `layer_time`.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.columns.activity import CPU_DEVICE, Activity, activities, device_label, device_labels
from analyzers.rank.columns.attribution import Attribution, OtherLine, is_layer, layer_name
from analyzers.rank.columns.attribution import attribution as attribute
from analyzers.rank.columns.communication import Communication
from analyzers.rank.columns.communication import communication as communicate
from analyzers.rank.columns.layer_time import LayerPieces, Parts, Work, kernel_times, launched, pieces, work
from analyzers.rank.columns.time_breakdown import CELLS, Breakdown, Occupancy, breakdown, cell_edges, extents, occupancy
from analyzers.rank.columns.windows import Steps, profiler_steps
