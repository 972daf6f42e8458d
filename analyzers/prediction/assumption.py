"""`Assumption`: what predictions rest on, in words."""

from __future__ import annotations

from dataclasses import dataclass

# The device on which what a run does not tell was measured (docs/whatif.md).
MEASURED_ON = "H200"


@dataclass(frozen=True)
class Assumption:
    """A clause; `is_borrowed` where it has a figure that was measured on MEASURED_ON, and not in the run."""

    text: str
    is_borrowed: bool = False


def borrowed(text: str) -> Assumption:
    """Return an assumption whose figure the run does not tell."""
    return Assumption(f"{text}, as on an {MEASURED_ON}: this run does not tell", is_borrowed=True)
