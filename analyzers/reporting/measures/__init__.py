"""Idle rows, kernels, outliers and the cost of synchronization.

`idle_time` divides it, `kernel_use` ranks kernels, `outliers` compares devices, `synchronization` says what
synchronization costs.

Decisions: docs/dev/decisions/reporting.md
"""

from analyzers.reporting.measures.idle_time import (
    IDLE_CAUSES,
    IdleCauses,
    IdleLine,
    IdleRows,
    Input,
    idle_parts,
    idle_places,
    idle_rows,
    input_summary,
    window_causes,
)
from analyzers.reporting.measures.kernel_use import (
    Compute,
    KernelRow,
    RegionKernel,
    compute,
    compute_notices,
    kernel_rows,
    region_rows,
)
from analyzers.reporting.measures.outliers import DeviceSummary, OverDevices, over_devices
from analyzers.reporting.measures.synchronization import (
    IdleFrom,
    SyncCost,
    cost_warnings,
    distortion_warnings,
    sync_cost,
)
