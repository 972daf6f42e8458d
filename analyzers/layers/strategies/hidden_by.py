"""Compute that ran beside communication: which lines hid it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import Int64
from analyzers.rank import Measured, Parts

PASSES = ("forward", "backward")


class HiddenBy(msgspec.Struct, frozen=True):
    """How long one layer's (or other line's) compute ran beside communication, in one pass; ns."""

    layer: str
    direction: str = msgspec.field(name="pass")  # forward or backward
    ns: int


@dataclass(frozen=True)
class Beside:
    """The compute that ran beside each kernel of one rank's communication, longest first, by row."""

    parts: Parts
    first: Int64
    names: Sequence[str]

    def of(self, kernel: int) -> list[HiddenBy]:
        """Return what hid one kernel."""
        low, high = self.first[kernel], self.first[kernel + 1]
        lines, backward, ns = (
            column[low:high].tolist() for column in (self.parts.line, self.parts.backward, self.parts.ns)
        )
        rows = [
            HiddenBy(self.names[line], PASSES[back], length)
            for line, back, length in zip(lines, backward, ns, strict=True)
        ]
        return sorted(rows, key=lambda row: -row.ns)


def beside(measured: Measured, names: Sequence[str]) -> Beside:
    """Return what hid one rank's communication, under the names that its lines have in the report."""
    parts = measured.work.beside
    order = np.argsort(parts.of, kind="stable")
    first = np.searchsorted(parts.of[order], np.arange(len(measured.communication) + 1))
    return Beside(parts.take(order), first, names)
