"""Matplotlib helpers: line panels, styles, saving figures.

A hollow point is an uncertain one, the bar through a point its 95 % interval, with an arrow where that goes on; dashed
lines are ideal.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tracer.views import NARROW, REACH, Panel, PlotLine, PlotPoint, Theme, labels_of, plain, short_number, ticks_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

# 10 inches at 160 dots: sharp, and still read where a page shows it 1000 pixels wide.
WIDTH_IN, DPI = 10.0, 160
PANEL_HEIGHT_IN = 3.0
# What a row's panels have of its width beside the legend, and what a tick's figure needs of it.
PANELS_SHARE, TICK_IN = 0.75, 0.5
MARKERS = "osD^vP*X"
# The forms of files, and what of their metadata would say when they were made.
FORMS = {"png": (), "svg": ("Date",), "pdf": ("CreationDate",)}
REPLACED = "\N{REPLACEMENT CHARACTER}"
DASHED = (0, (4, 3))

Color: TypeAlias = "str | tuple[float, float, float, float]"


@contextmanager
def style(theme: Theme, points: float = 10.0) -> Iterator[None]:
    """Apply our own style, whatever the user's matplotlibrc says. Words are never taken for formulas."""
    with _away():
        import matplotlib.style

    ink = dict.fromkeys(("axes.labelcolor", "text.color", "xtick.color", "ytick.color"), theme.ink)
    ground = dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), theme.ground)
    faint = {"axes.edgecolor": theme.faint, "grid.color": theme.faint, "grid.alpha": 0.25}
    rest = {
        "axes.titlesize": 10.5,
        "savefig.dpi": "figure",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "text.parse_math": False,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "font.size": points,
        "hatch.linewidth": 0.6,
    }
    with matplotlib.style.context(["default", ink | ground | faint | rest]):
        yield


def _away() -> AbstractContextManager[None]:
    """Be elsewhere where the current folder has a matplotlibrc, which matplotlib reads when it is first imported.

    It may be anybody's: a FIFO, or no text at all. Elsewhere no other thread would find what it names by a relative
    path, so that this is done for no other folder.
    """
    is_needed = "matplotlib" not in sys.modules and Path("matplotlibrc").exists()
    return chdir(Path(__file__).parent) if is_needed else nullcontext()


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    return saved(figure, "png")


def saved(figure: Figure, form: str) -> bytes:
    """Return a figure as a file in a form of FORMS; the same bytes for the same figure."""
    import matplotlib

    out = io.BytesIO()
    # A figure made without pyplot has Agg's canvas, which needs no display.
    with matplotlib.rc_context({"svg.hashsalt": "tracer", "pdf.fonttype": 42}):
        figure.savefig(out, format=form, metadata=dict.fromkeys(FORMS[form]))
    return out.getvalue()


def words(text: str) -> str:
    """Return text that the font can draw: what would steer it, or has no glyph, becomes U+FFFD."""
    drawn = _glyphs()
    return "".join(sign if ord(sign) in drawn else REPLACED for sign in plain(text))


@cache
def _glyphs() -> Collection[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def blank(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Return an empty figure."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), dpi=DPI, layout="constrained")


def grid(rows: Sequence[Sequence[Panel]], theme: Theme, width_in: float = WIDTH_IN) -> Figure:
    """Draw panels in rows; a row's panels have the same scales and one legend, to their right."""
    figure = blank(PANEL_HEIGHT_IN * len(rows), width_in)
    axes = figure.subplots(len(rows), len(rows[0]), sharey="row", sharex="row", squeeze=False)
    for panels, row in zip(rows, axes, strict=True):
        markers = {label: MARKERS[number % len(MARKERS)] for number, label in enumerate(labels_of(panels))}
        swept = sorted({point.x for panel in panels for line in panel.lines for point in line.points})
        for panel, axis in zip(panels, row, strict=True):
            _draw(axis, panel, markers, theme)
        for panel, axis in zip(panels, row, strict=True):
            _scale(axis, panel, swept, int(PANELS_SHARE * width_in / len(panels) / TICK_IN))
            axis.set_ylabel(panel.y if panel is panels[0] else "")
        _legend(panels, row, markers, theme)
    return figure


def noted(figure: Figure, notes: Sequence[str], theme: Theme) -> Figure:
    """Write notes below a figure."""
    if notes:
        figure.supxlabel(words(" ".join(notes)), fontsize=8.5, color=theme.faint)
    return figure


def _draw(axis: Axes, panel: Panel, markers: Mapping[str, str], theme: Theme) -> None:
    axis.set_title(panel.title, loc="left")
    axis.set_xlabel(panel.x)
    if panel.ideal:
        _draw_ideal(axis, panel.ideal, theme.faint)
    for line in panel.lines:
        _draw_line(axis, line, markers[line.label], theme)
    if not panel.lines:
        axis.text(0.5, 0.5, panel.empty, transform=axis.transAxes, ha="center", color=theme.faint, wrap=True)


def _draw_ideal(axis: Axes, ideal: Sequence[tuple[float, float]], color: Color) -> None:
    x, y = zip(*sorted(ideal), strict=True)
    axis.plot(x, y, color=color, linestyle=DASHED, linewidth=1.1)


def _draw_line(axis: Axes, line: PlotLine, marker: str, theme: Theme) -> None:
    color = ramp(theme, line.place)
    points = sorted(line.points, key=lambda point: point.x)
    if line.ideal:
        _draw_ideal(axis, line.ideal, color)
    axis.plot([point.x for point in points], [point.y for point in points], color=color, linewidth=1.6)
    _draw_intervals(axis, points, color)
    # All marks of a look at once: a study may have thousands.
    for face, uncertain in ((color, False), (theme.ground, True)):
        marks = [(point.x, point.y) for point in points if point.uncertain is uncertain]
        look: dict[str, Any] = {"marker": marker, "markersize": 6, "color": color, "markerfacecolor": face}
        axis.plot(*zip(*marks, strict=True), linestyle="", **look) if marks else None


def _draw_intervals(axis: Axes, points: Sequence[PlotPoint], color: Color) -> None:
    """Draw what points lie between; where that goes on beyond what is drawn, an arrow says so."""
    known = [(point, point.low, point.high) for point in points if point.low is not None and point.high is not None]
    lows = [max(low, point.y / REACH) for point, low, _ in known]
    highs = [min(high, point.y * REACH) for point, _, high in known]
    axis.vlines([point.x for point, _, _ in known], lows, highs, color=color, linewidth=1.0, alpha=0.7)
    below = [(point.x, end) for (point, low, _), end in zip(known, lows, strict=True) if end > low]
    above = [(point.x, end) for (point, _, high), end in zip(known, highs, strict=True) if end < high]
    for ends, arrow in ((below, "v"), (above, "^")):
        if ends:
            axis.plot(*zip(*ends, strict=True), marker=arrow, markersize=4, color=color, linestyle="")


def _legend(panels: Sequence[Panel], row: Sequence[Axes], markers: Mapping[str, str], theme: Theme) -> None:
    """List every line of a row once, then what hollow and dashed mean, where there are such."""
    from matplotlib.lines import Line2D

    lines = {line.label: line for panel in panels for line in panel.lines}
    handles = [
        Line2D([], [], color=ramp(theme, lines[label].place), marker=marker, label=label)
        for label, marker in markers.items()
    ]
    if any(point.uncertain for line in lines.values() for point in line.points):
        handles.append(Line2D([], [], color=theme.faint, marker="o", mfc=theme.ground, ls="", label="uncertain"))
    if any(panel.ideal or any(line.ideal for line in panel.lines) for panel in panels):
        handles.append(Line2D([], [], color=theme.faint, linestyle=DASHED, label="ideal"))
    if handles:
        row[-1].legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.03))


def ramp(theme: Theme, position: float) -> tuple[float, float, float, float]:
    """Return the color at a position, 0 to 1, on the theme's ramp."""
    from matplotlib import colormaps

    first, last = theme.ramp
    return colormaps["viridis"](first + (last - first) * position)


def _scale(axis: Axes, panel: Panel, swept: Sequence[float], most: int) -> None:
    """Space doublings equally, with ticks at values that were swept, at most so many."""
    from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator

    if not swept:
        axis.set_xticks([])
        axis.set_yticks([])
        return
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2 if panel.doublings else 10)
    write_ticks(axis.xaxis, FixedLocator(ticks_of(swept, most)), short_number)
    axis.margins(x=0.08, y=0.12)
    low, high = axis.get_ylim()
    if high < NARROW * low:
        # Perhaps no doubling lies on it.
        ticks: Locator = FixedLocator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)).tick_values(low, high))
    else:
        ticks = LogLocator(2) if panel.doublings else LogLocator(subs=(1, 2, 5))
    write_ticks(axis.yaxis, ticks, short_number)


def write_ticks(dimension: Axis, locator: Locator, written: Callable[[float], str]) -> None:
    """Put ticks where a locator has them and nowhere between, each with its figure."""
    from matplotlib.ticker import NullLocator

    dimension.set_major_locator(locator)
    dimension.set_major_formatter(lambda value, _: written(value))
    dimension.set_minor_locator(NullLocator())
