"""`Assumption`: what predictions rest on, in words."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.units import percent

# The device on which what a run does not tell was measured (docs/dev/predictions.md).
MEASURED_ON = "H200"


@dataclass(frozen=True)
class Assumption:
    """A clause; `is_borrowed` where it has a figure that was measured on MEASURED_ON, and not in the run."""

    text: str
    is_borrowed: bool = False


def borrowed(text: str) -> Assumption:
    """Return an assumption whose figure the run does not tell."""
    return Assumption(f"{text}, as on an {MEASURED_ON}: this run does not tell", is_borrowed=True)


# Where a run does not tell: the median of resnet50, vgg16 and transformer in bf16 on 2 and 4 x H200, over NVLink and
# host memory (torch 2.11, NCCL 2.28.9; between 0.18 and 0.40). A kernel beside NCCL's has fewer SMs.
SLOWER = 0.28

# How long a reduction stands until it begins, and behind another (measured there: 3 to 9 us, and 16 to 22).
START_DELAY_NS, NEXT_DELAY_NS = 5_000.0, 15_000.0

# What DDP's copy of a gradient takes, the gap before it included, in ns and GB/s, on the same machines: into a bucket,
# and out of it; and of one buffer before its broadcast.
COPY_IN, COPY_OUT = (2100.0, 2600.0), (2100.0, 1500.0)

BUFFER_COPY_NS = 2000.0

# What each of these copies takes the host: ResNet-18 on 4 x H200 loses 1.1 ms a step without a profiler, its host being
# the limit, to the copies of 62 gradients in and out (unprofiled 6.9 ms, without synchronization 5.8).
COPY_LAUNCH_NS = 9000.0
# Of one GPU's steps as a CUDA graph 24 of 28 lie within so much (four models on an H200: docs/dev/predictions.md).
GRAPH_WITHIN = 0.06
GRAPH_IS_KNOWN = borrowed(f"one GPU's step as a CUDA graph is known to within {percent(GRAPH_WITHIN)}")
