"""Palette: one color and glyph for each part of a step.

The colors are Okabe and Ito's, which readers of any color vision tell apart (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepPart:
    """How one part of a window's span is shown: the report's field, its name, its color, its glyph without color."""

    field: str
    label: str
    color: str
    glyph: str


COMPUTE = StepPart("compute_ns", "compute", "#0072B2", "█")
COMM = StepPart("exposed_comm_ns", "exposed comm", "#D55E00", "▓")
COPY = StepPart("exposed_copy_ns", "exposed copy", "#E69F00", "▒")
PARTS = (COMPUTE, COMM, COPY, StepPart("idle_ns", "idle", "#999999", "░"))

# What exposed communication is made of: waiting is paler, and hatched where nothing but the hatching tells them apart;
# of what is unresolved nobody knows which of the two it is.
TRANSFER = StepPart("exposed_transfer_ns", "exposed transfer", COMM.color, COMM.glyph)
WAITING = StepPart("exposed_wait_ns", "exposed waiting", "#F0A882", "▚")
UNRESOLVED = StepPart("exposed_unresolved_ns", "exposed unresolved", "#CC79A7", "▞")
# What compute and communication of a layer or bucket are made of: the forward's compute is paler.
FORWARD = StepPart("forward_ns", "forward compute", "#8CC4E8", "▚")
BACKWARD = StepPart("backward_ns", "backward compute", COMPUTE.color, COMPUTE.glyph)
HIDDEN = StepPart("overlapped_ns", "hidden comm", "#009E73", "▓")
EXPOSED = StepPart("exposed_ns", COMM.label, COMM.color, COMM.glyph)
EXPOSED_PARTS = (WAITING, TRANSFER, UNRESOLVED)
SPLIT_PARTS = (COMPUTE, TRANSFER, WAITING, UNRESOLVED, COPY, PARTS[-1])
# Kinds of collectives beside one another: a place on the ramp of colors and a marker each. Those that run beside one
# another are far apart on it.
KIND_MARKS = {
    "all_reduce": (0.0, "o"),
    "reduce_scatter": (0.33, "v"),
    "all_gather": (0.66, "^"),
    "all_to_all": (0.88, "s"),
    "broadcast": (0.44, "D"),
    "reduce": (0.11, "P"),
    "gather": (0.77, "<"),
    "scatter": (0.22, ">"),
    "send_recv": (1.0, "X"),
    "other": (0.55, "*"),
}

# What has no order and is no part of a step: kinds of collectives. Each also has a shape of its own where it is drawn.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


@dataclass(frozen=True)
class Theme:
    """A picture's or page's ground and ink; `ramp` colors what is ordered, from few to many.

    The ramps are stretches of viridis (van der Walt and Smith, 2015), whose lightness alone tells them apart.
    """

    ground: str
    ink: str
    faint: str
    ramp: tuple[float, float]


LIGHT = Theme("#ffffff", "#1b1f24", "#6e7781", (0.0, 0.8))
DARK = Theme("#16191d", "#e6e9ed", "#939ca6", (0.3, 1.0))
