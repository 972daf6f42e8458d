"""`Assumption`: what predictions rest on, in words."""

from __future__ import annotations

from dataclasses import dataclass

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


# How long a reduction stands until it begins, and behind another (measured on 2 and 4 x H200: 3 to 9 us, and 16 to 22).
START_DELAY_NS, NEXT_DELAY_NS = 5_000.0, 15_000.0

# What DDP's copy of a gradient takes, the gap before it included, in ns and GB/s, on 2 and 4 x H200: into a bucket, and
# out of it.
COPY_IN, COPY_OUT = (2100.0, 2600.0), (2100.0, 1500.0)
