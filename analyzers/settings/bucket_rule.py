"""DistributedDataParallel's bucketing rule: gradients cut where a cap is reached.

    gradients   a 4   b 9   c 30   d 2   e 1      MB, cap 10
    buckets     a b       | c    | d e            one closes with the gradient that reaches the cap

torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size. Gradients of one dtype and device share
buckets; those of several dtypes are cut apart, and their buckets come in the order in which they close. Those that
never do come last (DDP takes these from a hash map, in whatever order; here as they were opened).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays import Int64

MB = 2**20  # DDP's megabyte
# Without an explicit cap: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, and 25 MB after that.
FIRST_BYTES = MB
DEFAULT_BYTES = 25 * MB


def limits(bucket_mb: float | None) -> tuple[int, int]:
    """Return the caps for the first bucket and for those after it, in bytes; None is DDP's default."""
    return (FIRST_BYTES, DEFAULT_BYTES) if bucket_mb is None else (int(bucket_mb * MB),) * 2


def assign(nbytes: Int64, bucket_mb: float | None, kinds: Sequence[str] | None = None) -> Int64:
    """Assign each gradient to a bucket, in order of readiness.

    `nbytes` are those of gradients, before any communication hook; `kinds` tell apart dtypes and devices, which are all
    one without them.
    """
    first, later = limits(bucket_mb)
    kinds = kinds if kinds is not None else [""] * len(nbytes)
    # Each kind has caps of its own, the first of which is small.
    bucket_of: dict[str, int] = {}
    filled: dict[str, int] = {}
    closed: dict[str, int] = {}
    bucket = np.empty(len(nbytes), dtype=np.int64)
    order: list[int] = []
    opened = 0
    for gradient, (size, kind) in enumerate(zip(nbytes.tolist(), kinds, strict=True)):
        if kind not in bucket_of:
            bucket_of[kind], opened = opened, opened + 1
            filled[kind] = 0
        bucket[gradient] = bucket_of[kind]
        filled[kind] += size
        if filled[kind] >= (later if closed.get(kind) else first):
            closed[kind] = 1
            order.append(bucket_of.pop(kind))
    order += list(bucket_of.values())
    number = np.empty(opened, dtype=np.int64)
    number[order] = np.arange(opened)
    return number[bucket]


def lasts(bucket: Int64) -> Int64:
    """Return where each bucket ends."""
    return np.flatnonzero(np.r_[np.diff(bucket) != 0, True])
