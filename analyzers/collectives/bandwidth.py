"""Bus bandwidth by kind, group and size, traffic by purpose, and copies.

algbw is bytes over transfer, busbw is algbw times what a ring moves for each byte (nccl-tests, doc/PERFORMANCE.md), so
that one figure holds for all kinds and group sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, distinct, joint, rows_by
from analyzers.collectives.matching import Matching
from analyzers.collectives.transfer import Transfers
from analyzers.rank import STRATEGIES, Measured, Purpose
from analyzers.run import Calibration, peak_busbw_gbps
from analyzers.statistics import quartiles
from analyzers.trace import Call, Collective


@dataclass(frozen=True, eq=False)
class Bandwidth(Columns):
    """Instances of one kind, group, size and purpose, a row each; medians and quartiles over the instances, GB/s, ns.

    `nbytes` is -1 and bandwidths are NaN where sizes are unknown; `peak_gbps` is what calibration measured at this
    size, NaN where it did not.
    """

    kind: Int64
    group: Int64
    group_size: Int64
    nbytes: Int64
    purpose: Int64
    count: Int64
    bound: NDArray[np.bool_]
    transfer_ns: Float64
    busbw_gbps: Float64
    low_gbps: Float64
    high_gbps: Float64
    peak_gbps: Float64
    wait_ns: Float64


def peaks(matching: Matching, transfers: Transfers, calibration: Calibration | None) -> Float64:
    """Return the calibrated busbw for each instance's kind, group size and bytes in GB/s, NaN where there is none."""
    kinds, sizes = matching.instances.kind, transfers.group_size
    alike = distinct(kinds, sizes, transfers.nbytes)
    unlike, which = alike.lines, alike.index
    if calibration is None:
        return np.full(len(kinds), np.nan)
    busbw_gbps = [_find_peak(calibration, Collective(int(kind)).label, int(size), int(n)) for kind, size, n in unlike.T]
    return np.array(busbw_gbps, dtype=np.float64)[which]


def _find_peak(calibration: Calibration, kind: str, group_size: int, nbytes: int) -> float:
    peak = peak_busbw_gbps(calibration, kind, group_size, nbytes) if nbytes > 0 else None
    return np.nan if peak is None else peak


def purposes(matching: Matching) -> Int64:
    """Return what each instance is for; where members differ, what the strategy says that is asked first."""
    instances, table = matching.instances, matching.table
    if not len(instances):
        return np.zeros(0, dtype=np.int64)
    asked = np.where(table.strategy < 0, len(STRATEGIES), table.strategy)
    first = np.minimum.reduceat((asked * len(Purpose) + table.purpose)[instances.members], instances.first[:-1])
    return first % len(Purpose)


def bandwidth(matching: Matching, transfers: Transfers, peak_gbps: Float64) -> Bandwidth:
    """Return instances by kind, group, size and purpose: the largest bytes first within a kind and group."""
    instances = matching.instances
    keys = np.stack([instances.kind, instances.group, transfers.group_size, -transfers.nbytes, purposes(matching)])
    alike = distinct(*keys)
    unlike, parts = alike.lines, [*rows_by(alike.index).values()]
    wait = np.where(transfers.wait_ns >= 0, transfers.wait_ns, np.nan)
    number = instances.of_member
    total = np.bincount(number, weights=wait, minlength=len(instances)) / np.maximum(np.diff(instances.first), 1)
    transfer = np.where(transfers.transfer_ns >= 0, transfers.transfer_ns, np.nan)
    busbw = np.array([_quartiles(transfers.busbw_gbps[part]) for part in parts], dtype=np.float64).reshape(-1, 3)
    return Bandwidth(
        kind=unlike[0],
        group=unlike[1],
        group_size=unlike[2],
        nbytes=-unlike[3],
        purpose=unlike[4],
        count=np.array([len(part) for part in parts], dtype=np.int64),
        bound=np.array([transfers.bound[part].any() for part in parts], dtype=bool),
        transfer_ns=_medians(transfer, parts),
        busbw_gbps=busbw[:, 1],
        low_gbps=busbw[:, 0],
        high_gbps=busbw[:, 2],
        peak_gbps=_medians(peak_gbps, parts),
        wait_ns=_medians(total, parts),
    )


def _medians(values: Float64, parts: Sequence[Int64]) -> Float64:
    return np.array([_quartiles(values[part])[1] for part in parts], dtype=np.float64)


def _quartiles(values: Float64) -> tuple[float, float, float]:
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return np.nan, np.nan, np.nan
    return quartiles(numbers)


def sizes(matching: Matching, transfers: Transfers) -> Int64:
    """Return bytes for each row of the table: its instance's, else as its own call says; -1 where unknown."""
    table = matching.table
    members = np.array([key.size for key in table.groups] + [0], dtype=np.int64)[table.group]
    alike = distinct(table.call, members)
    calls, which = alike.lines, alike.index
    by_call = [_read_bytes(table.calls[call] if call >= 0 else None, count) for call, count in calls.T.tolist()]
    size = np.where(table.is_copy, table.nbytes, np.array(by_call, dtype=np.int64)[which])
    matched = matching.instance >= 0
    size[matched] = transfers.nbytes[matching.instance[matched]]
    return size


def _read_bytes(call: Call | None, members: int) -> int:
    if call is None:
        return UNKNOWN
    return call.nbytes_among(members) if members else call.nbytes


def traffic(matching: Matching, transfers: Transfers, steps: int) -> dict[str, int | None]:
    """Return the bytes that a rank communicates per step, by purpose: the mean over `steps` steps and all ranks.

    Each instance counts once for each of its ranks; what is in no instance counts as its own call says. None where a
    size is unknown.
    """
    _, purpose, size = _list_moved(matching, transfers)
    return {wanted.label: _mean_bytes(size[purpose == wanted], steps) for wanted in Purpose}


def find_unsized(matching: Matching, transfers: Transfers) -> dict[Purpose, tuple[int, int, list[str]]]:
    """Return for each purpose with unknown bytes how many rows have no size, of how many, and their kinds."""
    rows, purpose, size = _list_moved(matching, transfers)
    unknown, kind = size < 0, matching.table.kind[rows]
    return {
        wanted: (
            int((chosen & unknown).sum()),
            int(chosen.sum()),
            sorted({Collective(code).label for code in kind[chosen & unknown].tolist()}),
        )
        for wanted in Purpose
        if ((chosen := purpose == wanted) & unknown).any()
    }


def _list_moved(matching: Matching, transfers: Transfers) -> tuple[Int64, Int64, Int64]:
    """Return rows in windows, one per instance and rank; their purpose, and their bytes, none for a barrier."""
    table = matching.table
    purpose = table.purpose.copy()
    matched = matching.instance >= 0
    purpose[matched] = purposes(matching)[matching.instance[matched]]
    identity = np.where(matched, matching.instance, -1 - np.arange(len(table)))
    once = np.unique(joint(table.rank, identity), return_index=True)[1]
    once = once[table.window[once] >= 0]
    size = np.where(table.kind == Collective.BARRIER, 0, sizes(matching, transfers))
    return once, purpose[once], size[once]


def _mean_bytes(size: Int64, steps: int) -> int | None:
    if (size < 0).any():
        return None
    return round(int(size.sum()) / steps) if len(size) else 0


@dataclass(frozen=True, eq=False)
class CopyBandwidth(Columns):
    """Copies of one direction (`HtoD (Pinned -> Device)`) and size, a row each: how many, and GB/s."""

    direction: tuple[str, ...]
    nbytes: Int64
    count: Int64
    gbps: Float64
    low_gbps: Float64
    high_gbps: Float64


def copies(measured: Sequence[Measured]) -> CopyBandwidth:
    """Return bandwidth of copies between host and devices, and within a device, by direction and size."""
    names = sorted({name for part in measured for name in part.copies.names})
    code = np.concatenate([_encode_names(part.copies.names, names)[part.copies.name] for part in measured])
    nbytes = np.concatenate([part.copies.nbytes for part in measured])
    dur_ns = np.concatenate([part.copies.dur_ns for part in measured])
    real = (nbytes > 0) & (dur_ns > 0)
    code, nbytes, dur_ns = code[real], nbytes[real], dur_ns[real]
    alike = distinct(code, -nbytes)
    unlike, parts = alike.lines, rows_by(alike.index).values()
    table = np.array([_quartiles(nbytes[part] / dur_ns[part]) for part in parts], dtype=np.float64).reshape(-1, 3)
    return CopyBandwidth(
        direction=tuple(names[name].removeprefix("Memcpy ") for name in unlike[0].tolist()),
        nbytes=-unlike[1],
        count=alike.count,
        gbps=table[:, 1],
        low_gbps=table[:, 0],
        high_gbps=table[:, 2],
    )


def _encode_names(part_names: Sequence[str], names: Sequence[str]) -> Int64:
    return np.array([names.index(name) for name in part_names], dtype=np.int64)
