"""Kernels of one rank, the operators that launched them, and FLOPs.

In order: `counted_operators` finds the operators whose inputs say how much they compute, `usage` adds up a rank's
windows by kernel and by operator, the longest first, `kernel_track` has them one by one, and `peak_rates` has what
devices can do at most.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.kernels.counted_operators import CountedOperators, Precision, with_count
from analyzers.rank.kernels.kernel_track import KernelTrack
from analyzers.rank.kernels.kernel_track import kernel_track as kernel_track_of
from analyzers.rank.kernels.peak_rates import peak_flops_per_s
from analyzers.rank.kernels.usage import (
    MOST_RANKED,
    Extents,
    FlopCount,
    Launched,
    Ranked,
    Usage,
    kernel_ranking,
    operator_ranking,
)
from analyzers.rank.kernels.usage import usage as usage_of
