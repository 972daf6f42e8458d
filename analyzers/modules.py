"""Modules of a model as a trace names them: ranges on the host around their forward.

`tracer record` writes `nn.Module: layer1.0.conv1 (Conv2d)`; torch.profiler with `with_stack` and `with_modules` writes
`nn.Module: Conv2d_0`, a number for each instance of a class.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "nn.Module: "
# The model itself has no name among its own modules.
ROOT = "(model)"
_NAMED = re.compile(r"(?P<name>.+) \((?P<type>[^()]+)\)")
_NUMBERED = re.compile(r"(?P<name>(?P<type>.+?)(?:_\d+)?)")


@dataclass(frozen=True)
class Module:
    """One module: its name in the model, or its class and number where that is all a trace says, and its class."""

    name: str
    type: str


def range_name(name: str, kind: str) -> str:
    """What the range around the forward of a module of that name and class is called."""
    return f"{PREFIX}{name or ROOT} ({kind})"


def module_of(range_of: str) -> Module | None:
    """The module that a row of the host is the forward of, None for any other row."""
    if not range_of.startswith(PREFIX):
        return None
    words = range_of.removeprefix(PREFIX)
    found = _NAMED.fullmatch(words) or _NUMBERED.fullmatch(words)
    return Module(found["name"], found["type"]) if found else None
