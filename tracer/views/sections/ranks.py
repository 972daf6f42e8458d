"""Section on ranks: parts of each rank's step, spread and outliers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from analyzers.notices import Code, Notice
from analyzers.ranks import MANY
from analyzers.reporting import DeviceSummary, OverDevices, Report
from analyzers.statistics import Spread
from tracer.views import (
    COMM,
    COMPUTE,
    COPY,
    IDLE,
    PARTS,
    WAITING,
    Block,
    Drawing,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    Span,
    StepPart,
    Table,
    columns,
    field,
    milliseconds,
    table,
)

BAR_CELLS = 66
FEWEST_BAR_CELLS = 10
# Of many ranks so many outliers are named.
MOST_OUTLIERS = 8
# Of warnings that say one thing of several ranks so many are shown.
MOST_ALIKE = 3
# What only a run that communicates has.
_OVERLAP = "overlap"
_OF_COMMUNICATION = (COMM.field, WAITING.field, _OVERLAP)
# The parts of a step, with what waiting is of the exposed communication behind it.
_LABELS = {part.field: part.label.replace(" ", "\n") for part in (COMPUTE, COMM, WAITING, COPY, IDLE)}
_LABELS |= {_OVERLAP: "overlap"}
_WORDS = {part.field: part.label for part in PARTS} | {"span_ns": "step", WAITING.field: "waiting"}
_QUANTILES = {"minimum": "lowest", "low": "25 %", "median": "median", "high": "75 %", "maximum": "highest"}
_WINDOWS = "How many typical profiled steps these medians are taken over."
_EXTENT = "The shortest and the longest typical profiled step."
_OWN = "Slowest and fastest go by a rank's step less its waiting: the rank that waits least is the one others wait for."
_OUTLIER = "An outlier lies beyond the quartiles by three times their distance, and by 1 % of the step."


def communicates(report: Report) -> bool:
    """Whether a run has communication, or should have: one device alone has none, and no columns of zeros."""
    alone = report.run.world_size == 1 and len(report.summary.by_device) == 1
    return not alone or bool(report.summary.windows["comm_ns"].maximum)


def timed_with(window: str) -> str:
    """Say which of the two profiles times come from."""
    return f"timed with the {window} profile"


def step_fields(report: Report, of: Callable[[Any, str], float | None] = getattr) -> list[Field[Any]]:
    """Return the columns of a step's parts that tables show; `of` gives a row's figure by its name."""
    is_shown = communicates(report)
    return [field(name, head, of=of) for name, head in _LABELS.items() if is_shown or name not in _OF_COMMUNICATION]


def ranks_and_bars(report: Report, width: int | None = None) -> Section:
    """Show every device's medians in a table and as bars; of many, the spread and those that are named."""
    devices = report.summary.by_device
    labels = [f"{device_name(device, devices):>10} " for device, _ in named(report)]
    room = columns(width)
    cells = min(BAR_CELLS, max(room - max(map(len, labels), default=0), FEWEST_BAR_CELLS))
    bars = [
        [Span(label), *bar(shares_of(device.windows), cells)]
        for label, (device, _) in zip(labels, named(report), strict=True)
    ]
    return [*by_rank(report), Drawing([*_legend(communicates(report), room), *bars])]


def by_rank(report: Report, most: int = MANY) -> list[Block]:
    """List every device's medians, and those of all; of more than `most` the spread, and those that stand out."""
    title = f"Median typical step of each device, ms ({timed_with(report.run.times_from)})"
    over = report.summary.over_devices
    if over is None or over.devices <= most:
        return [Heading(title), _every_device(report)]
    shown = named(report)
    left_out = over.devices - len(shown)
    more = len({(outlier.rank, outlier.device) for outlier in over.outliers}) - sum(
        bool(standing.outlying) for _, standing in shown
    )
    rest = f"and {left_out:,} more devices" + (f", {more:,} of them outliers" if more > 0 else "")
    return [
        Heading(f"{title}: the spread over {over.devices:,} devices, and those that stand out"),
        _spread_and_named(report, over),
        Paragraph(f"{rest}: --by step, --json, --csv", is_faint=True),
        Paragraph(_OWN + (f" {_OUTLIER}" if over.outliers else ""), is_faint=True),
    ]


class Standing(NamedTuple):
    """Why a device of many is shown by itself: its place among all, and measures in which it is an outlier."""

    places: list[str]
    outlying: list[str]

    def __str__(self) -> str:
        return "; ".join([*self.places, *([f"outlier: {', '.join(self.outlying)}"] if self.outlying else [])])

    @property
    def word(self) -> str:
        """Return the first reason, in a word; empty for none."""
        return next(iter([*self.places, *(["outlier"] if self.outlying else [])]), "")


def named(report: Report, most: int = MANY) -> list[tuple[DeviceSummary, Standing]]:
    """Return the devices to list individually with the reason; all of them (no reason) if there are at most `most`."""
    over = report.summary.over_devices
    if over is None or over.devices <= most:
        return [(device, Standing([], [])) for device in report.summary.by_device]
    standing: dict[tuple[int, int | str], Standing] = {}
    for word, chosen in (("slowest", over.slowest), ("median", over.median), ("fastest", over.fastest)):
        standing.setdefault((chosen.rank, chosen.device), Standing([], [])).places.append(word)
    outliers: dict[tuple[int, int | str], list[str]] = {}
    for outlier in over.outliers:
        outliers.setdefault((outlier.rank, outlier.device), []).append(_WORDS.get(outlier.measure, outlier.measure))
    for key in list(outliers)[:MOST_OUTLIERS]:
        standing.setdefault(key, Standing([], [])).outlying.extend(outliers[key])
    by_key = {(device.rank, device.device): device for device in report.summary.by_device}
    return [(by_key[key], reasons) for key, reasons in standing.items()]


def device_name(device: DeviceSummary, devices: Sequence[DeviceSummary]) -> str:
    """Return `rank 3`, or `device 3` where a rank has several."""
    alone = len({other.device for other in devices if other.rank == device.rank}) == 1
    return f"rank {device.rank}" if alone else f"device {device.device}"


class _Line(NamedTuple):
    """A line of a table of devices: what it is called, its figures, and why it is there."""

    rank: str
    device: str
    windows: Mapping[str, Spread]
    remark: str = ""
    place: Place | None = None
    quantile: str = "median"

    def figure(self, name: str) -> float | None:
        """Return the median of a figure, or another quantile of devices' medians."""
        value: float | None = getattr(self.windows[name], self.quantile)
        return value


def _line(device: DeviceSummary, remark: str = "") -> _Line:
    place = Place(rank=device.rank, device=device.device)
    return _Line(str(device.rank), str(device.device), device.windows, remark, place)


_DEVICE: Sequence[Field[_Line]] = (
    Field("rank", cell=lambda line: line.rank),
    Field("device", cell=lambda line: line.device),
)
_STEP: Field[_Line] = field("span_ns", "step", of=_Line.figure)


def _every_device(report: Report) -> Table:
    fields: Sequence[Field[_Line]] = (
        *_DEVICE,
        Field("windows", wide=True, help=_WINDOWS, cell=lambda line: str(line.windows["span_ns"].count)),
        _STEP,
        Field("(min - max)", wide=True, help=_EXTENT, cell=lambda line: _extent(line.windows["span_ns"])),
        *step_fields(report, _Line.figure),
    )
    devices = [_line(device) for device in report.summary.by_device]
    together = [[_Line("all", "", report.summary.windows)]] if len(devices) > 1 else []
    return table(fields, devices, *together, place=lambda line: line.place)


def _extent(span: Spread) -> str:
    return f"{milliseconds(span.minimum)} - {milliseconds(span.maximum)}"


def _spread_and_named(report: Report, over: OverDevices) -> Table:
    fields: Sequence[Field[_Line]] = (
        *_DEVICE,
        _STEP,
        *step_fields(report, _Line.figure),
        Field("", True, cell=lambda line: line.remark),
    )
    spread = [
        _Line(word, "", over.medians, "of each column", quantile=quantile) for quantile, word in _QUANTILES.items()
    ]
    devices = [_line(device, str(standing)) for device, standing in named(report)]
    return table(fields, spread, devices, place=lambda line: line.place)


def shares_of(measures: Mapping[str, Spread]) -> list[tuple[StepPart, float]]:
    """Return median parts as shares of their own sum, so that the bar is full."""
    medians = [measures[part.field].median or 0.0 for part in PARTS]
    whole = sum(medians) or 1.0
    return [(part, median / whole) for part, median in zip(PARTS, medians, strict=True)]


def bar(shares: Sequence[tuple[StepPart, float]], cells: int) -> list[Span]:
    """Draw the parts of a step, so many cells long."""
    lengths = _cells([share for _, share in shares], cells)
    return [Span(part.glyph * length, part.color) for (part, _), length in zip(shares, lengths, strict=True)]


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Return whole cells that add up to the width: each share's edge rounded to its cell."""
    edges = [round(width * sum(shares[: index + 1])) for index in range(len(shares))]
    return [edge - before for before, edge in zip([0, *edges], edges, strict=False)]


def _legend(with_communication: bool, room: int) -> list[list[Span]]:
    """Return the lines of a legend, as many parts in each as there is room for."""
    lines = [[Span(" " * 11)]]
    for part in PARTS if with_communication else [part for part in PARTS if part is not COMM]:
        key = [Span(f"{part.glyph} ", part.color), Span(f"{part.label}   ")]
        if len(lines[-1]) > 1 and sum(len(span.words) for span in (*lines[-1], *key)) - 3 > room:
            lines.append([Span(" " * 11)])
        lines[-1] += key
    return lines


def folded(notices: Sequence[Notice]) -> list[str]:
    """Return notices as sentences; of many alike from several ranks the first ones, and how many more."""
    alike: Counter[Code] = Counter()
    shown: list[Notice] = []
    for notice in notices:
        alike[notice.code] += 1
        if alike[notice.code] <= MOST_ALIKE or not notice.code.facts.repeats:
            shown.append(notice)
    last = {notice.code: index for index, notice in enumerate(shown)}
    unshown = {last[code]: n - MOST_ALIKE for code, n in alike.items() if code.facts.repeats and n > MOST_ALIKE}
    return [
        f"{notice} (and {unshown[index]:,} more like it: --json)" if index in unshown else str(notice)
        for index, notice in enumerate(shown)
    ]
