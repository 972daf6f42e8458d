"""Communication of layers and other lines besides buckets, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, values_at
from analyzers.collectives import Exchange
from analyzers.rank import Purpose, layer_name


@dataclass(frozen=True, eq=False)
class LineCommunication(Columns):
    """A row for each line, kind, pass and `prefetched` (-1: has no meaning) of each window; `wait_ns` -1 unknown.

    `window` indexes all ranks' windows in order, -1 for what is in none; `line` indexes `lines`.
    """

    window: Int64
    line: Int64
    lines: tuple[str, ...]
    kind: Int64
    backward: Mask
    prefetched: Int64
    exposed_ns: Int64
    wait_ns: Int64

    @property
    def exposed_transfer_ns(self) -> Int64:
        """Return the exposed communication less its waiting; of what is unmatched none is known to be transfer."""
        return np.where(self.wait_ns >= 0, np.maximum(self.exposed_ns - self.wait_ns, 0), 0)


def line_communication(exchanged: Exchange) -> LineCommunication:
    """Return what each line's communication adds up to; copies between two devices count on both."""
    table, owned = exchanged.matching.table, _owned(exchanged)
    reduced = np.zeros(len(table), dtype=bool)
    for measured, first in zip(exchanged.run.measured, exchanged.first_row.tolist(), strict=True):
        reduced[measured.reductions.kernel + first] = True
    rows, peers = np.flatnonzero(~reduced), np.flatnonzero(~reduced & (table.peer != UNKNOWN))
    row = np.r_[rows, peers]
    window = _windows(exchanged, row, np.r_[table.device[rows], table.peer[peers]])
    wait_ns = values_at(exchanged.transfers.wait_ns, exchanged.entry[row])
    exposed_ns = np.r_[table.exposed_ns[rows], table.peer_exposed_ns[peers]]
    here = window >= 0
    facts = np.stack([window, owned.line[row], table.kind[row], owned.backward[row], owned.prefetched[row]])[:, here]
    alike = distinct(*facts)
    unlike, which = alike.lines, alike.index
    exposed, waited = np.zeros((2, unlike.shape[1]), dtype=np.int64)
    np.add.at(exposed, which, exposed_ns[here])
    np.add.at(waited, which, wait_ns[here])
    waited[which[wait_ns[here] < 0]] = UNKNOWN
    return LineCommunication(
        window=unlike[0],
        line=unlike[1],
        lines=owned.lines,
        kind=unlike[2],
        backward=unlike[3].astype(bool),
        prefetched=unlike[4],
        exposed_ns=exposed,
        wait_ns=waited,
    )


@dataclass(frozen=True, eq=False)
class _Owned:
    """The line of each row of the table of kernels, its pass, and whether it was prefetched."""

    line: Int64
    lines: tuple[str, ...]
    backward: NDArray[np.bool_]
    prefetched: Int64


def _owned(exchanged: Exchange) -> _Owned:
    """Return whose each row is: a sharded module's; else a line by its purpose, before the forward or of gradients."""
    lines = {f"({purpose.label})": int(purpose) for purpose in Purpose}
    parts = [measured.communication.owners for measured in exchanged.run.measured]
    codes = [[lines.setdefault(layer_name(name), len(lines)) for name in part.modules] for part in parts]
    module = np.concatenate(
        [values_at(np.array(code, dtype=np.int64), part.module) for code, part in zip(codes, parts, strict=True)]
    )
    purpose = exchanged.matching.table.purpose
    backward = np.where(module >= 0, np.concatenate([part.backward for part in parts]), purpose == Purpose.GRADIENTS)
    prefetched = np.concatenate([part.prefetched for part in parts])
    return _Owned(np.where(module >= 0, module, purpose), tuple(lines), backward, np.maximum(prefetched, UNKNOWN))


def _windows(exchanged: Exchange, row: Int64, device: Int64) -> Int64:
    """Return the window that each row is in on a device, of all ranks' in order, -1 for none."""
    table, measured = exchanged.matching.table, exchanged.run.measured
    names = ("rank", "device", "step")
    windows = np.stack([np.concatenate([getattr(one.windows, name) for one in measured]) for name in names])
    keys = np.concatenate([windows, np.stack([table.rank[row], device, table.window[row]])], axis=1)
    alike = distinct(*keys)
    count = windows.shape[1]
    window = np.full(alike.lines.shape[1], UNKNOWN, dtype=np.int64)
    window[alike.index[:count]] = np.arange(count)
    return window[alike.index[count:]]
