"""Section on DDP's buckets."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.layers import BucketSummary, HiddenBy
from analyzers.rank import STRATEGIES
from analyzers.reporting import Report
from analyzers.statistics import Spread
from tracer.views import (
    HELP,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    columns,
    count,
    field,
    is_wide,
    milliseconds,
    table,
)

_SOURCES = {
    "run.json": "layout as DDP reported it (run.json), and as the trace has it",
    "trace": "layout from the trace: sizes of the all-reduces, and the gradients before each",
}
_WORDS = (
    "queued: ready and launched, but not begun, since another bucket is ahead (the links are the limit) or no SM is "
    "free; late launch: launched after it was ready (the CPU is the limit); of all exposed: its share of the step's "
    "exposed communication."
)
_LAYERS = "The first and the last layer whose gradients it holds."
_BESIDE = "The layers whose compute ran during its reduction, longest first."
_PARTIAL = "Ranks are missing from the run: the true transfer is at most this long, and the true waiting at least."


def _median(bucket: BucketSummary, measure: str) -> float | None:
    return bucket.measures[measure].median


_NUMBER = Field[BucketSummary]("bucket", help=HELP["bucket"], cell=lambda bucket: str(bucket.bucket))
# Their heads name them in a comparison, too.
BUCKET_FIGURES = {
    "dur_ns": field("dur_ns", "length", of=_median, wide=True),
    "wait_ns": field("wait_ns", "waiting", of=_median),
    "transfer_ns": field("transfer_ns", "transfer", of=_median),
    "queued_ns": field("queued_ns", "queued", of=_median),
    "late_launch_ns": field("late_launch_ns", "late\nlaunch", of=_median),
    "overlapped_ns": field("overlapped_ns", "hidden", of=_median),
    "exposed_ns": field("exposed_ns", "exposed", of=_median),
}
_FIELDS: Sequence[Field[BucketSummary]] = (
    _NUMBER,
    field("bytes", "size"),
    *BUCKET_FIGURES.values(),
    Field(
        "(quartiles)", wide=True, help=HELP["quartiles"], cell=lambda bucket: _quartiles(bucket.measures["exposed_ns"])
    ),
    field("share_of_exposed", "of all\nexposed", "Its share of the step's exposed communication.", _median),
)


def by_bucket(report: Report, width: int | None = None) -> Section:
    """List every bucket, medians over ranks and steps; what each holds, and what hid it."""
    buckets, layout = report.summary.buckets, report.summary.layout
    if not buckets or layout is None:
        return [Heading(why_none(report))]
    notes = [_WORDS, *([_PARTIAL] if _is_partial(report) else [])]
    return [
        Heading("DDP's buckets: medians over ranks and typical steps, ms"),
        Paragraph(_layout(report, _SOURCES.get(layout.source, layout.source))),
        table(_FIELDS, buckets, place=_place),
        *(Paragraph(note, is_faint=True) for note in notes),
        *holdings(report, width),
    ]


def _layout(report: Report, source: str) -> str:
    cap = report.run.bucket_cap_mb
    size_asked = "" if cap is None else f", bucket_cap_mb {cap:g}"
    return f"{count(len(report.summary.buckets), 'bucket')}{size_asked}; {source}"


def _quartiles(spread: Spread) -> str:
    return "-" if spread.median is None else f"{milliseconds(spread.low)} - {milliseconds(spread.high)}"


def _is_partial(report: Report) -> bool:
    reduced = {row.collective for row in report.buckets}
    return any(row.partial for row in report.collectives if row.index in reduced)


def _place(bucket: BucketSummary) -> Place:
    return Place(bucket=bucket.bucket)


def holdings(report: Report, width: int | None) -> Section:
    """List what each bucket holds, and the layers whose compute ran during its reduction, the longest first."""
    buckets, wide = report.summary.buckets, is_wide(width)
    longest = max((len(_extent(bucket.layers)) for bucket in buckets), default=0)
    room = columns(width) - len("bucket  meters  ") - longest - 2
    fields: Sequence[Field[BucketSummary]] = (
        _NUMBER,
        Field("para-\nmeters", help="How many parameters' gradients it holds.", cell=_parameters),
        Field("layers", True, help=_LAYERS, cell=lambda bucket: _extent(bucket.layers)),
        Field("hidden beside", True, help=_BESIDE, cell=lambda bucket: _hiders(bucket.hidden_by, room, wide)),
    )
    times = ": means over ranks and steps, ms" if wide else ""
    return [Heading(f"What each bucket holds, and what hid it longest{times}"), table(fields, buckets, place=_place)]


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
