"""Kernels of one rank, the operators that launched them, and FLOPs.

In order: `counted_operators` finds the operators whose inputs say how much they compute, and has what devices can do at
most; `usage` adds up a rank's windows by kernel and by operator, the longest first, and has the kernels one by one.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.kernels.counted_operators import CountedOperators, Precision, peak_flops_per_s, with_count
from analyzers.rank.kernels.usage import (
    MOST_RANKED,
    Extents,
    FlopCount,
    KernelTrack,
    Launched,
    Ranked,
    Usage,
    kernel_ranking,
    operator_ranking,
)
from analyzers.rank.kernels.usage import kernel_track as kernel_track_of
from analyzers.rank.kernels.usage import usage as usage_of
