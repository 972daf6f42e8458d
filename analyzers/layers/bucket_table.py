"""Row types of DDP's buckets: reductions per rank, and the layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, natural
from analyzers.collectives import Exchange
from analyzers.layers.bucket_columns import BucketTimes
from analyzers.layers.ddp_buckets import Buckets, NamedBucket
from analyzers.layers.strategies import HiddenBy, beside
from analyzers.notices import Code, Notice
from analyzers.rank import Breakdown, device_label
from analyzers.ranks import RankIndex, RankNumber
from analyzers.statistics import Spread, row_columns, spreads


def bucket_rows(exchanged: Exchange, buckets: Buckets, times: BucketTimes) -> list[BucketRow]:
    """Return a row for every reduction on every rank, by rank, step and order."""
    last = np.cumsum([len(measured.reductions) for measured in exchanged.run.measured]).tolist()
    return [
        row
        for (index, number, measured), end in zip(exchanged.run.numbered(), last, strict=True)
        for row in _of_rank(exchanged, buckets, times, (index, number, end - len(measured.reductions)))
    ]


def _of_rank(
    exchanged: Exchange, buckets: Buckets, times: BucketTimes, of: tuple[RankIndex, RankNumber, int]
) -> Iterator[BucketRow]:
    """Yield the rows of one rank: its index, its number, and where its reductions begin among all."""
    index, number, first = of
    measured = exchanged.run.measured[index]
    reduced = measured.reductions
    if not len(reduced):
        return
    hidden = beside(measured, [buckets.layer(line.name) for line in measured.work.lines])
    exposed_of = _exposed_by_window(measured.windows)
    shift_ns = exchanged.clocks.shift_of(number) + exchanged.origin_ns
    for reduction, kernel in enumerate(reduced.kernel.tolist()):
        at = first + reduction
        instance, exposed_ns = int(times.instance[at]), int(times.exposed_ns[at])
        device, step, bucket = device_label(int(times.device[at])), int(times.step[at]), int(times.bucket[at])
        yield BucketRow(
            rank=number,
            device=device,
            step=step,
            backward_pass=int(reduced.pass_[reduction]),
            bucket=natural(bucket),
            collective=int(exchanged.index[instance]) if instance >= 0 else None,
            bytes=natural(times.nbytes[at]),
            parameters=_parameters(buckets, bucket),
            layers=_layers(buckets, bucket),
            ready_ns=_instant(int(reduced.ready_ns[reduction]), shift_ns),
            launched_ns=_instant(int(reduced.launched_ns[reduction]), shift_ns),
            start_ns=int(times.start_ns[at]) - shift_ns,
            dur_ns=int(times.dur_ns[at]),
            wait_ns=natural(times.wait_ns[at]),
            transfer_ns=natural(times.transfer_ns[at]),
            bound=bool(times.bound[at]),
            queued_ns=natural(times.queued_ns[at]),
            late_launch_ns=natural(times.late_launch_ns[at]),
            overlapped_ns=int(times.dur_ns[at]) - exposed_ns,
            exposed_ns=exposed_ns,
            share_of_exposed=exposed_ns / window_exposed_ns
            if (window_exposed_ns := exposed_of.get((device, step), 0))
            else None,
            hidden_by=hidden.of(kernel),
        )


def _exposed_by_window(rows: Breakdown) -> dict[tuple[int | str, int], int]:
    devices = [device_label(device) for device in rows.device.tolist()]
    return dict(zip(zip(devices, rows.step.tolist(), strict=True), rows.exposed_comm_ns.tolist(), strict=True))


def _instant(instant_ns: int, shift_ns: int) -> int | None:
    return instant_ns - shift_ns if instant_ns != UNKNOWN else None


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
                number,
                bucket.elements,
                nbytes.get(number),
                _parameters(buckets, number),
                _layers(buckets, number),
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
    """One reduction of a DDP bucket on one rank. See docs/measuring.md; instants from the run's earliest event.

    `pass` counts backward passes within the step. `share_of_exposed` is of all exposed communication of the window.
    `bound`: the transfer is but an upper bound. `hidden_by` adds up to `overlapped_ns`.
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
    """One bucket of DDP's layout: gradients' elements, their bytes as they are reduced, and whose they are."""

    bucket: int
    elements: int
    bytes: int | None
    parameters: list[str] | None
    layers: list[str]


class Layout(msgspec.Struct, frozen=True):
    """DDP's buckets, and where they are known from: `run.json` or `trace`."""

    source: str
    buckets: list[LayoutBucket]


class BucketSummary(msgspec.Struct, frozen=True):
    """One bucket over all ranks and steps; `hidden_by` are the lines that hid it longest, by their mean."""

    bucket: int
    bytes: int | None
    parameters: int | None
    layers: list[str]
    hidden_by: list[HiddenBy]
    measures: dict[str, Spread]


_OF_BUCKET = (
    *("dur_ns", "wait_ns", "transfer_ns", "queued_ns", "late_launch_ns", "overlapped_ns", "exposed_ns"),
    "share_of_exposed",
)

# How many of the layers that hide a bucket are named.
NAMED = 3


def bucket_summaries(rows: Sequence[BucketRow], layout: Layout | None) -> list[BucketSummary]:
    """Summarize each bucket in the layout over all ranks and steps."""
    summaries = []
    for bucket in layout.buckets if layout is not None else ():
        reductions = [row for row in rows if row.bucket == bucket.bucket]
        parameter_count = None if bucket.parameters is None else len(bucket.parameters)
        measures = spreads(row_columns(reductions, _OF_BUCKET))
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
