"""Medians with their spread, over windows, buckets and layers: what does not add up, see docs/measuring.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.activity import device_label
from analyzers.breakdown import joined
from analyzers.digest import BucketSummary, DeviceInput, Input, LayerSummary, Spread
from analyzers.entries import BucketRow, HiddenBy, LayerRow, Layout
from analyzers.events import UNKNOWN
from analyzers.summary import Measured

Int64 = NDArray[np.int64]

_OF_BUCKET = (
    *("dur_ns", "wait_ns", "transfer_ns", "queued_ns", "late_launch_ns", "overlapped_ns", "exposed_ns"),
    "share_of_exposed",
)
_OF_LAYER = ("forward_ns", "backward_ns", "overlapped_ns", "exposed_ns")
# How many of the layers that hide a bucket are named.
NAMED = 3


def spreads(measures: Mapping[str, NDArray[Any]]) -> dict[str, Spread]:
    """Each measure's median, quartiles and extremes; unknown values (NaN) are left out."""
    return {name: _spread(np.asarray(values, dtype=np.float64)) for name, values in measures.items()}


def _spread(values: NDArray[np.float64]) -> Spread:
    known = values[~np.isnan(values)]
    if not len(known):
        return Spread(0)
    low, median, high = (float(value) for value in np.percentile(known, [25, 50, 75]))
    return Spread(len(known), median, low, high, float(known.min()), float(known.max()))


def row_columns(rows: Sequence[Any], names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Attributes of rows as columns, float64, NaN for None."""
    return {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in names}


def input_summary(measured: Sequence[Measured]) -> Input | None:
    """What the loader takes in the full windows of all ranks; None where no trace shows one."""
    if not any(each.fetching.seen for each in measured):
        return None
    rows = joined([each.windows for each in measured])
    idle_ns = np.concatenate([each.fetching.input_idle_ns for each in measured])
    fetch_ns = np.concatenate([each.fetching.fetch_ns for each in measured])
    known = idle_ns != UNKNOWN

    def over(windows: Int64) -> dict[str, Spread]:
        of = windows[known[windows]]
        return spreads({"idle_ns": idle_ns[of], "fetch_ns": fetch_ns[of], "span_ns": rows.span_ns[of]})

    by_device = [DeviceInput(rank, device_label(device), **over(own)) for (rank, device), own in rows.by_device()]
    return Input(**over(np.arange(len(rows))), by_device=by_device, window="full")


def bucket_summaries(rows: Sequence[BucketRow], layout: Layout | None) -> list[BucketSummary]:
    """Each bucket of the layout over all ranks and steps."""
    found = []
    for bucket in layout.buckets if layout is not None else ():
        own = [row for row in rows if row.bucket == bucket.bucket]
        held = None if bucket.parameters is None else len(bucket.parameters)
        measures = spreads(row_columns(own, _OF_BUCKET))
        found.append(BucketSummary(bucket.bucket, bucket.bytes, held, bucket.layers, hidden_by(own), measures))
    return found


def hidden_by(rows: Sequence[BucketRow]) -> list[HiddenBy]:
    """The lines that hid some reductions longest, longest first; a mean over the reductions."""
    total: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for part in row.hidden_by:
            total[part.layer, part.direction] += part.ns
    return [HiddenBy(layer, direction, round(ns / len(rows))) for (layer, direction), ns in total.most_common(NAMED)]


def layer_summaries(rows: Sequence[LayerRow]) -> list[LayerSummary]:
    """Each line over the windows of the devices where it appears, in the order in which lines come."""
    by_name: dict[str, list[LayerRow]] = {}
    steps: dict[tuple[int, int | str], set[int]] = {}
    for row in rows:
        by_name.setdefault(row.layer, []).append(row)
        steps.setdefault((row.rank, row.device), set()).add(row.step)
    counts = {place: len(of_place) for place, of_place in steps.items()}
    return [_layer(name, own, counts) for name, own in by_name.items()]


def _layer(name: str, rows: Sequence[LayerRow], counts: Mapping[tuple[int, int | str], int]) -> LayerSummary:
    # Parameters are known where their gradients are in the trace.
    most = max(rows, key=lambda row: row.parameters)
    # In the other windows of a device that has the line, it took no time.
    idle = sum(counts[place] for place in {(row.rank, row.device) for row in rows}) - len(rows)
    measures = {column: np.r_[values, np.zeros(idle)] for column, values in row_columns(rows, _OF_LAYER).items()}
    return LayerSummary(
        layer=name,
        type=most.type,
        parameters=most.parameters,
        gradient_bytes=most.gradient_bytes,
        bucket=most.bucket,
        measures=spreads(measures),
    )
