"""Packages that training needs, and that installing tracer leaves to the user."""

from __future__ import annotations

import importlib.util
import re

from tracer.errors import NEEDS_TORCH, TracerError

# As setup.cfg's extra `workload` has it.
LEAST_OF_WORKLOAD = (2, 6)


def check_torch(command: str) -> None:
    """Raise TracerError where a command has no torch."""
    if importlib.util.find_spec("torch") is None:
        raise TracerError(f"{command} {NEEDS_TORCH}")


def check_workload(command: str) -> None:
    """Raise TracerError where a command cannot train the built-in workload."""
    from importlib.metadata import version

    check_torch(command)
    own = version("torch")
    if tuple(map(int, re.findall(r"\d+", own)[:2])) < LEAST_OF_WORKLOAD:
        least = ".".join(map(str, LEAST_OF_WORKLOAD))
        raise TracerError(f"{command}'s own models need torch {least}, and here is {own}: record a script of yours")
    if importlib.util.find_spec("torchvision") is None:
        # Of torchvision alone pip takes the newest, and the torch that goes with it.
        raise TracerError(f"{command}'s own models need torchvision: pip install torchvision 'torch=={own}'")
