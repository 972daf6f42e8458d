"""Row types of DDP's buckets: reductions per rank, and the layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, instants, typed_rows, values_at
from analyzers.collectives import Exchange
from analyzers.layers.ddp_buckets import Buckets, NamedBucket
from analyzers.layers.strategies import HiddenBy, beside
from analyzers.notices import Code, Notice
from analyzers.rank import Breakdown, Measured, device_labels
from analyzers.ranks import RankNumber
from analyzers.statistics import Spread, row_columns, spreads


@dataclass(frozen=True, eq=False)
class BucketTimes(Columns):
    """A row for each reduction, by rank, step and order; -1 is unknown, `start_ns` is on the rank's own clock.

    `row` is its kernel in the table of all ranks' communication, `instance` the collective that it is a member of.
    """

    row: Int64
    instance: Int64
    rank: Int64
    device: Int64
    step: Int64
    bucket: Int64
    nbytes: Int64
    start_ns: Int64
    dur_ns: Int64
    wait_ns: Int64
    transfer_ns: Int64
    bound: Mask
    queued_ns: Int64
    late_launch_ns: Int64
    exposed_ns: Int64

    @property
    def window(self) -> Int64:
        """Return a number for the window that each reduction is in."""
        return distinct(self.rank, self.device, self.step).index

    @property
    def overlapped_ns(self) -> Int64:
        """Return how much of each reduction compute hid."""
        return self.dur_ns - self.exposed_ns


def bucket_times(exchanged: Exchange, buckets: Buckets) -> BucketTimes:
    """Return the times of every reduction on every rank."""
    reduced = [measured.reductions for measured in exchanged.run.measured]
    table, instances = exchanged.matching.table, exchanged.matching.instance
    row = np.concatenate([one.kernel + first for one, first in zip(reduced, exchanged.first_row.tolist(), strict=True)])
    ready_ns, launched_ns, step = (
        np.concatenate([getattr(one, name) for one in reduced]) for name in ("ready_ns", "launched_ns", "step")
    )
    instance, start_ns = instances[row], table.start_ns[row]
    is_known = (ready_ns != UNKNOWN) & (launched_ns != UNKNOWN)
    said = values_at(np.array([call.nbytes for call in table.calls], dtype=np.int64), table.call[row])
    transferred = exchanged.transfers
    return BucketTimes(
        row=row,
        instance=instance,
        rank=table.rank[row],
        device=table.device[row],
        step=step,
        bucket=np.concatenate(buckets.number),
        nbytes=np.where(said < 0, values_at(transferred.nbytes, instance), said),
        start_ns=start_ns,
        dur_ns=table.end_ns[row] - start_ns,
        wait_ns=values_at(transferred.wait_ns, exchanged.entry[row]),
        transfer_ns=values_at(transferred.transfer_ns, instance),
        bound=values_at(transferred.bound, instance, False),
        queued_ns=np.where(is_known, np.maximum(start_ns - np.maximum(ready_ns, launched_ns), 0), UNKNOWN),
        late_launch_ns=np.where(is_known, np.maximum(launched_ns - ready_ns, 0), UNKNOWN),
        exposed_ns=table.exposed_ns[row],
    )


def bucket_rows(exchanged: Exchange, buckets: Buckets, times: BucketTimes) -> list[BucketRow]:
    """Return a row for every reduction on every rank, by rank, step and order."""
    last = np.cumsum([0, *(len(measured.reductions) for measured in exchanged.run.measured)]).tolist()
    return [
        row
        for (_, number, measured), extent in zip(exchanged.run.numbered(), pairwise(last), strict=True)
        if len(measured.reductions)
        for row in _of_rank(exchanged, buckets, times.take(slice(*extent)), (number, measured))
    ]


def _of_rank(
    exchanged: Exchange, buckets: Buckets, times: BucketTimes, of: tuple[RankNumber, Measured]
) -> list[BucketRow]:
    """Return the rows of one rank's reductions."""
    number, measured = of
    reduced = measured.reductions
    hidden = beside(measured, [buckets.layer(line.name) for line in measured.work.lines])
    exposed_of = _exposed_by_window(measured.windows)
    shift_ns = exchanged.clocks.shift_of(number) + exchanged.origin_ns
    windows = zip(times.device.tolist(), times.step.tolist(), strict=True)
    window_exposed_ns = np.array([exposed_of.get(window) or np.nan for window in windows])
    return typed_rows(
        BucketRow,
        times,
        device=device_labels(times.device),
        backward_pass=reduced.pass_,
        collective=values_at(exchanged.index, times.instance),
        bytes=times.nbytes,
        parameters=[_parameters(buckets, bucket) for bucket in times.bucket.tolist()],
        layers=[_layers(buckets, bucket) for bucket in times.bucket.tolist()],
        ready_ns=instants(reduced.ready_ns, shift_ns),
        launched_ns=instants(reduced.launched_ns, shift_ns),
        start_ns=times.start_ns - shift_ns,
        overlapped_ns=times.overlapped_ns,
        share_of_exposed=times.exposed_ns / window_exposed_ns,
        hidden_by=[hidden.of(kernel) for kernel in reduced.kernel.tolist()],
    )


def _exposed_by_window(rows: Breakdown) -> dict[tuple[int, int], int]:
    windows = zip(rows.device.tolist(), rows.step.tolist(), strict=True)
    return dict(zip(windows, rows.exposed_comm_ns.tolist(), strict=True))


def _parameters(buckets: Buckets, number: int) -> list[str] | None:
    """Return the names of a bucket's parameters: all that run.json lists, else those whose gradients traces show."""
    if number < 0:
        return None
    bucket = buckets.layout[number]
    if bucket.names is not None:
        return list(bucket.names)
    return None if bucket.parameters is None else [buckets.parameter(parameter) for parameter in bucket.parameters]


def _layers(buckets: Buckets, number: int) -> list[str]:
    """Return a bucket's layers in the order of their gradients, each once."""
    if number < 0:
        return []
    return list(dict.fromkeys(buckets.layer(parameter.line) for parameter in buckets.layout[number].parameters or ()))


def layout_of(buckets: Buckets, rows: Sequence[BucketRow]) -> Layout | None:
    """Return the layout with bytes as they were reduced; None where nothing reduces buckets."""
    if not buckets.layout:
        return None
    nbytes = {row.bucket: row.bytes for row in rows if row.bytes is not None}
    return Layout(
        buckets.source,
        [
            LayoutBucket(
                number, bucket.elements, nbytes.get(number), _parameters(buckets, number), _layers(buckets, number)
            )
            for number, bucket in enumerate(buckets.layout)
        ],
    )


def bucket_warnings(buckets: Buckets) -> list[Notice]:
    """Say what of the buckets is not known."""
    notices = []
    if buckets.mismatch is not None:
        notices.append(Notice(Code.BUCKETS_LEFT_ASIDE, f"run.json's buckets are not used: {buckets.mismatch}"))
    unknown = sum(int((number < 0).sum()) for number in buckets.number)
    if unknown:
        text = f"{unknown} all-reduces of gradients fit no bucket of the layout: their bucket is not known"
        notices.append(Notice(Code.BUCKET_IS_NULL, text))
    unsure = [number for number, bucket in enumerate(buckets.layout) if (bucket.names or bucket.parameters) is None]
    if unsure:
        text = f"parameters of {len(unsure)} of {len(buckets.layout)} buckets are not known: gradients do not come in "
        text += "the buckets' order, or their nodes are not in the trace"
        notices.append(Notice(Code.BUCKET_PARAMETERS_UNKNOWN, text))
    short = [bucket for bucket in buckets.layout if _is_short(bucket)]
    if short:
        listed = "" if all(bucket.names for bucket in short) else ", and not listed"
        text = f"{len(short)} buckets hold parameters whose gradients the traces do not show: these are unused"
        notices.append(Notice(Code.BUCKET_GRADIENTS_MISSING, f"{text}{listed}, or rows are missing"))
    return notices


def _is_short(bucket: NamedBucket) -> bool:
    """Whether its known parameters, all of known shapes, leave some of it open."""
    elements = [parameter.elements for parameter in bucket.parameters or ()]
    return bool(elements) and UNKNOWN not in elements and sum(elements) < bucket.elements


class BucketRow(msgspec.Struct, frozen=True):
    """One reduction of a DDP bucket on one rank: docs/measuring.md, Buckets.

    `pass`: counts backwards of the step. `collective`: its index. `share_of_exposed`: of the window's.
    """

    rank: int
    device: int | str
    step: int
    backward_pass: int = msgspec.field(name="pass")
    bucket: int | None
    collective: int | None
    bytes: int | None
    parameters: list[str] | None
    layers: list[str]
    ready_ns: int | None
    launched_ns: int | None
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    transfer_ns: int | None
    bound: bool
    queued_ns: int | None
    late_launch_ns: int | None
    overlapped_ns: int
    exposed_ns: int
    share_of_exposed: float | None
    hidden_by: list[HiddenBy]


class LayoutBucket(msgspec.Struct, frozen=True):
    """One bucket: gradients' elements, and bytes as they are reduced."""

    bucket: int
    elements: int
    bytes: int | None
    parameters: list[str] | None
    layers: list[str]


class Layout(msgspec.Struct, frozen=True):
    """DDP's buckets, from `run.json` or the `trace`."""

    source: str
    buckets: list[LayoutBucket]


class BucketSummary(msgspec.Struct, frozen=True):
    """One bucket over typical steps, with the three lines that hid it longest."""

    bucket: int
    bytes: int | None
    parameters: int | None
    layers: list[str]
    hidden_by: list[HiddenBy]
    measures: dict[str, Spread]


# What a bucket is measured by, and whether two runs are compared by it.
BUCKET_MEASURES = {
    "dur_ns": False,
    "wait_ns": True,
    "transfer_ns": True,
    "queued_ns": True,
    "late_launch_ns": False,
    "overlapped_ns": True,
    "exposed_ns": True,
    "share_of_exposed": False,
}

# How many of the layers that hide a bucket are named.
NAMED = 3


def bucket_summaries(rows: Sequence[BucketRow], layout: Layout | None) -> list[BucketSummary]:
    """Summarize each bucket in the layout over all ranks and steps."""
    summaries = []
    for bucket in layout.buckets if layout is not None else ():
        reductions = [row for row in rows if row.bucket == bucket.bucket]
        parameter_count = None if bucket.parameters is None else len(bucket.parameters)
        measures = spreads(row_columns(reductions, list(BUCKET_MEASURES)))
        summaries.append(
            BucketSummary(bucket.bucket, bucket.bytes, parameter_count, bucket.layers, hidden_by(reductions), measures)
        )
    return summaries


def hidden_by(rows: Sequence[BucketRow]) -> list[HiddenBy]:
    """Return the lines that hid some reductions longest, longest first, each with its mean per reduction."""
    total: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for part in row.hidden_by:
            total[part.layer, part.direction] += part.ns
    return [HiddenBy(layer, direction, round(ns / len(rows))) for (layer, direction), ns in total.most_common(NAMED)]
