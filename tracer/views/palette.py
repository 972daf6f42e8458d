"""Palette: one color and glyph for each part of a step.

The colors are Okabe and Ito's, which readers of any color vision tell apart (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from analyzers import step_parts
from analyzers.step_parts import Part


@dataclass(frozen=True)
class StepPart:
    """How one part of a window's span is shown: the report's field, its name, its color, its glyph without color.

    Of its color `shade` is laid over the ground, in a pattern where one is named. Parts that look alike have the same
    `look`, the name of one of IDLE_LOOKS; others look like nothing else. `dark` is the color on a page's dark ground,
    where another differs more.
    """

    field: str
    label: str
    color: str
    glyph: str
    shade: float = 1.0
    pattern: str = ""
    look: str = ""
    dark: str = ""

    def over(self, ground: str) -> str:
        """Return its color on a ground."""
        over, under = ([int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in (self.color, ground))
        mixed = (round(a * self.shade + b * (1 - self.shade)) for a, b in zip(over, under, strict=True))
        return "#" + "".join(f"{value:02x}" for value in mixed)


def _shown(part: Part, color: str, glyph: str, shade: float = 1.0, *, pattern: str = "", dark: str = "") -> StepPart:
    return StepPart(part.field, part.label, color, glyph, shade, pattern, dark=dark)


COMPUTE = _shown(step_parts.COMPUTE, "#0072B2", "█", dark="#4FA8E0")
COMM = _shown(step_parts.COMM, "#D55E00", "▓")
COPY = _shown(step_parts.COPY, "#E69F00", "▒")
IDLE = _shown(step_parts.IDLE, "#999999", "░", 0.45, dark="#6E6A62")
IDLE_OR_WAIT = _shown(step_parts.IDLE_OR_WAIT, IDLE.color, IDLE.glyph, 0.45, pattern="hatched", dark=IDLE.dark)
PARTS = (COMPUTE, COMM, COPY, IDLE)

# What is printed, character for character, where a stream's encoding lacks it: parts and shades keep their difference,
# and a bar its length.
ASCII = {
    "\N{FULL BLOCK}": "#",
    "\N{DARK SHADE}": "=",
    "\N{MEDIUM SHADE}": "+",
    "\N{LIGHT SHADE}": ".",
    "\N{QUADRANT UPPER LEFT AND LOWER RIGHT}": "/",
    "\N{QUADRANT UPPER RIGHT AND LOWER LEFT}": "~",
    **dict.fromkeys("\N{LEFT ONE EIGHTH BLOCK}\N{LEFT ONE QUARTER BLOCK}\N{LEFT THREE EIGHTHS BLOCK}", " "),
    **dict.fromkeys("\N{LEFT HALF BLOCK}\N{LEFT FIVE EIGHTHS BLOCK}", "#"),
    **dict.fromkeys("\N{LEFT THREE QUARTERS BLOCK}\N{LEFT SEVEN EIGHTHS BLOCK}", "#"),
    "\N{MIDDLE DOT}": "-",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{HORIZONTAL ELLIPSIS}": ".",
    "\N{LESS-THAN OR EQUAL TO}": "<",
    "\N{GREATER-THAN OR EQUAL TO}": ">",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{RIGHTWARDS ARROW}": ">",
    "\N{LEFTWARDS ARROW}": "<",
    "\N{MICRO SIGN}": "u",
    "\N{PLUS-MINUS SIGN}": "~",
}

# What exposed communication is made of: waiting is paler, and hatched where nothing but the hatching tells them apart;
# of what is unresolved nobody knows which of the two it is.
TRANSFER = _shown(step_parts.TRANSFER, COMM.color, COMM.glyph)
WAITING = _shown(step_parts.WAITING, "#F0A882", "▚", pattern="hatched")
UNRESOLVED = _shown(step_parts.UNRESOLVED, "#CC79A7", "▞", pattern="crossed")
# What a CPU does in PyTorch: its calls that launch; its operators are as pale as SHADES say. All else that it does has
# the shades and patterns of idle time of that cause.
HOST = StepPart("host_ns", "CPU in PyTorch", "#009E73", "▓", dark="#3FBF98")
HOST_OUTSIDE = StepPart("host_outside_ns", "CPU outside of PyTorch", "#F0E442", "▓", dark="#D8CC30")
# What compute and communication of a layer or bucket are made of: the forward's compute is paler.
FORWARD = StepPart("forward_ns", "forward compute", "#8CC4E8", "▚")
BACKWARD = StepPart("backward_ns", "backward compute", COMPUTE.color, COMPUTE.glyph)
HIDDEN = StepPart("overlapped_ns", "hidden comm", "#009E73", "▓")
EXPOSED = StepPart("exposed_ns", COMM.label, COMM.color, COMM.glyph)
EXPOSED_PARTS = (WAITING, TRANSFER, UNRESOLVED)
SPLIT_PARTS = (COMPUTE, TRANSFER, WAITING, UNRESOLVED, COPY, IDLE)
# Parts of a step's bar, which may not tell idle time from waiting.
BAR_PARTS = (*SPLIT_PARTS, IDLE_OR_WAIT)


# Why devices are idle, in grays of another lightness or pattern each: name, shade, pattern, the causes that look so.
_IDLE = (
    ("input", 0.85, "dotted", ("input",)),
    ("synchronize", 0.8, "striped", ("synchronize",)),
    ("host", 0.75, "", ("operator", "python", "allocator", "gc")),
    ("launch latency", 0.6, "level", ("launch_latency",)),
    ("device", 0.32, "", ("kernel_gap", "dependency")),
    ("unknown", 0.6, "upright", ("unknown", "profiler")),
)
IDLE_LOOKS = tuple(
    StepPart(f"idle_{name.split()[0]}", f"idle: {name}", IDLE.color, IDLE.glyph, shade, pattern, dark=IDLE.dark)
    for name, shade, pattern, _ in _IDLE
)
_LOOK_OF = {cause: look for look, (*_, causes) in zip(IDLE_LOOKS, _IDLE, strict=True) for cause in causes}
# How strong a timeline's strips are over the ground: layers by turns, in the forward and the backward, what is for no
# layer, kernels by name, operators of the CPU.
SHADES = {"layers": (0.24, 0.4, 0.56, 0.72), "apart": (0.45,), "kernels": (0.95, 0.75, 0.58), "operators": (0.55,)}
# In the order of causes.
IDLE_PARTS = tuple(
    replace(_LOOK_OF[cause], field=part.field, label=part.label, look=_LOOK_OF[cause].field)
    for cause, part in step_parts.BY_CAUSE.items()
)
# A step's parts with idle time by cause.
CAUSE_PARTS = (*SPLIT_PARTS[:-1], *IDLE_PARTS)


def in_legend(parts: Iterable[StepPart]) -> list[StepPart]:
    """Return what a legend has for these parts: those that look alike once."""
    looks = {look.field: look for look in IDLE_LOOKS}
    return list(dict.fromkeys(looks.get(part.look, part) for part in parts))


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
