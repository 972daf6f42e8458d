"""Section on DDP's buckets."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.layers import BucketSummary, HiddenBy
from analyzers.rank import STRATEGIES
from analyzers.reporting import Report
from analyzers.statistics import Spread
from analyzers.units import percent
from tracer.views import (
    Heading,
    Paragraph,
    Place,
    Section,
    Table,
    columns,
    count,
    is_wide,
    milliseconds,
    numbers,
    size,
    texts,
)

_SOURCES = {
    "run.json": "layout as DDP reported it (run.json), and as the trace has it",
    "trace": "layout from the trace: sizes of the all-reduces, and the gradients before each",
}
_MEASURES = ("wait_ns", "transfer_ns", "queued_ns", "late_launch_ns", "overlapped_ns", "exposed_ns")
_HEADS = ("waiting", "transfer", "queued", "late\nlaunch", "hidden", "exposed")
_WORDS = (
    "queued: ready and launched, but not begun, since another bucket is ahead (the links are the limit) or no SM is "
    "free; late launch: launched after it was ready (the CPU is the limit); of all exposed: its share of the step's "
    "exposed communication."
)
_PARTIAL = "Ranks are missing from the run: the true transfer is at most this long, and the true waiting at least."


def by_bucket(report: Report, width: int | None = None) -> Section:
    """List every bucket, medians over ranks and steps; what each holds, and what hid it."""
    buckets, layout = report.summary.buckets, report.summary.layout
    if not buckets or layout is None:
        return [Heading(why_none(report))]
    notes = [_WORDS, *([_PARTIAL] if _is_partial(report) else [])]
    return [
        Heading("DDP's buckets: medians over ranks and steps, ms"),
        Paragraph(_layout(report, _SOURCES.get(layout.source, layout.source))),
        _figures(buckets),
        *(Paragraph(note, is_faint=True) for note in notes),
        *holdings(report, width),
    ]


def _layout(report: Report, source: str) -> str:
    cap = report.run.bucket_cap_mb
    size_asked = "" if cap is None else f", bucket_cap_mb {cap:g}"
    return f"{count(len(report.summary.buckets), 'bucket')}{size_asked}; {source}"


def _figures(buckets: Sequence[BucketSummary]) -> Table:
    heads = [*numbers("bucket", "size"), *numbers("length", wide=True), *numbers(*_HEADS)]
    heads += [*numbers("(quartiles)", wide=True), *numbers("of all\nexposed")]
    rows = [
        [
            *(str(bucket.bucket), size(bucket.bytes)),
            *(milliseconds(bucket.measures[name].median) for name in ("dur_ns", *_MEASURES)),
            _quartiles(bucket.measures["exposed_ns"]),
            percent(bucket.measures["share_of_exposed"].median),
        ]
        for bucket in buckets
    ]
    return Table(heads, [rows], places=[Place(bucket=bucket.bucket) for bucket in buckets])


def _quartiles(spread: Spread) -> str:
    return "-" if spread.median is None else f"{milliseconds(spread.low)} - {milliseconds(spread.high)}"


def _is_partial(report: Report) -> bool:
    reduced = {row.collective for row in report.buckets}
    return any(row.partial for row in report.collectives if row.index in reduced)


def holdings(report: Report, width: int | None) -> Section:
    """List what each bucket holds, and the layers whose compute ran during its reduction, the longest first."""
    buckets, wide = report.summary.buckets, is_wide(width)
    held = [_extent(bucket.layers) for bucket in buckets]
    room = columns(width) - len("bucket  meters  ") - max(map(len, held), default=0) - 2
    rows = [
        [str(bucket.bucket), _parameters(bucket), layers, _hiders(bucket.hidden_by, room, wide)]
        for bucket, layers in zip(buckets, held, strict=True)
    ]
    places = [Place(bucket=bucket.bucket) for bucket in buckets]
    times = ": means over ranks and steps, ms" if wide else ""
    heads = [*numbers("bucket", "para-\nmeters"), *texts("layers", "hidden beside")]
    return [Heading(f"What each bucket holds, and what hid it longest{times}"), Table(heads, [rows], places=places)]


def _parameters(bucket: BucketSummary) -> str:
    return "-" if bucket.parameters is None else str(bucket.parameters)


def _extent(layers: Sequence[str]) -> str:
    """Return `fc ... layer4.1.conv2`: the first and the last of a bucket's layers."""
    if len(layers) > 2:
        return f"{layers[0]} ... {layers[-1]}"
    return ", ".join(layers) or "not known"


def _hiders(hidden_by: Sequence[HiddenBy], room: int, wide: bool) -> str:
    """Join as many names as fit, at least one; with the time they hid it, ms, where there is room."""
    names = [hider.layer + (f" {milliseconds(hider.ns)}" if wide else "") for hider in hidden_by]
    shown = names[:1] or ["nothing"]
    for name in names[1:]:
        if len(", ".join([*shown, name])) > room:
            break
        shown.append(name)
    return ", ".join(shown)


def why_none(report: Report) -> str:
    """Say why a run has no buckets, in one line."""
    if not any(window.comm_ns for window in report.windows):
        return "No buckets: no communication was found."
    roles = {row.role for row in report.groups}
    reasons = [asked.why_no_buckets for asked in STRATEGIES if asked.name in roles and asked.why_no_buckets]
    if reasons:
        return f"No buckets: {reasons[0]}"
    return "No buckets: no all-reduce here is known to reduce DDP's gradients (DDP calls these from autograd's thread)."
