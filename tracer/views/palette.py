"""One color and one glyph for each part of a step, everywhere.

The colors are Okabe and Ito's, which readers of any color vision tell apart (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """How one part of a window's span is shown: the report's field, its name, its color, its glyph without color."""

    field: str
    label: str
    color: str
    glyph: str


COMPUTE = Part("compute_ns", "compute", "#0072B2", "█")
COMM = Part("exposed_comm_ns", "exposed comm", "#D55E00", "▓")
COPY = Part("exposed_copy_ns", "exposed copy", "#E69F00", "▒")
PARTS = (COMPUTE, COMM, COPY, Part("idle_ns", "idle", "#999999", "░"))
