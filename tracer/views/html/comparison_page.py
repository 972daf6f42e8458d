"""Page of a comparison: sentence, waterfall, two timelines, folded tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analyzers.arrays import Float64
from analyzers.comparison import AlignedStep, Comparison, StepAccount, StepStrip, SweepComparison
from analyzers.units import NS_PER_MS, ms
from tracer.views import BAR_PARTS, CAUSE_PARTS, IDLE, IDLE_LOOKS, IDLE_OR_WAIT, StepPart, count, in_legend, rounded_up
from tracer.views.html.chart import StepBar, Tick
from tracer.views.html.templates import filled
from tracer.views.sections import shares_of_bar
from tracer.views.sections.results import (
    changed_means,
    comparison_title,
    part_label,
    promise_words,
    told_tables,
    untold,
    untold_table,
)

LOOKS = {part.field: part.look or part.field for part in CAUSE_PARTS}
# A track's width and a strip's height, in their own units.
TRACK, HIGH = 1000, 100
# What stays free on both sides of a waterfall, of its extent.
AIR = 0.06
MOST_TICKS = 8


@dataclass(frozen=True)
class Fall:
    """A row of the waterfall: its bar on the track, the figure behind it, and how the bar looks."""

    label: str
    start: float
    length: float
    figure: str
    look: str
    words: str
    is_step: bool = False


@dataclass(frozen=True)
class Waterfall:
    """The way from A's step to B's; ticks are at shares of its length, %."""

    rows: list[Fall]
    ticks: list[Tick]


@dataclass(frozen=True)
class StripRow:
    """A device's step: a path for each look, with words; and one of all communication."""

    label: str
    paths: list[tuple[str, str, str]]
    communication: str


@dataclass(frozen=True)
class StepRows:
    """A run's devices in its representative step, and what must be said about them."""

    name: str
    title: str
    rows: list[StripRow]
    notes: list[str]


def comparison_html(
    comparison: Comparison | SweepComparison, steps: tuple[AlignedStep, AlignedStep] | None = None
) -> str:
    """Build the comparison's page: one HTML file, which loads nothing and runs nothing.

    `steps` are drawn as timelines, if they are given.
    """
    of_runs = isinstance(comparison, Comparison)
    account = comparison.account if isinstance(comparison, Comparison) else None
    trained = _trained(comparison) if isinstance(comparison, Comparison) else []
    values = {
        "title": comparison_title(comparison),
        "verdict": comparison.verdict,
        "promise": promise_words(comparison) if isinstance(comparison, Comparison) else [],
        "trained": trained,
        "trained_parts": [
            part for part in BAR_PARTS if any(part.field == look for bar in trained for look, *_ in bar.parts)
        ],
        "warnings": [str(warning) for warning in comparison.warnings],
        "tables": told_tables(comparison),
        "untold": untold_table(comparison),
        "told": untold(comparison) if isinstance(comparison, Comparison) else "",
        "is_folded": of_runs,
        "bars": _bars(account) if account is not None else [],
        "fall": _waterfall(account) if account is not None else None,
        "steps": [_step_rows(name, step) for name, step in zip("AB", steps or (), strict=False)],
        "step_ticks": _ticks(0, steps[0].cell_ns * len(steps[0].strips[0].communication) / NS_PER_MS) if steps else [],
        "parts": [*in_legend(CAUSE_PARTS), IDLE, IDLE_OR_WAIT],
        "has_comm": any(strip.communication.any() for step in steps or () for strip in step.strips),
        "legend": _legend(_shown(account, steps or ())),
        "meanings": _meanings(comparison),
    }
    return filled("compare.html", values)


def _shown(account: StepAccount | None, steps: Iterable[AlignedStep]) -> list[StepPart]:
    """Return the parts that are drawn anywhere."""
    names = {part.part for part in account.parts} if account is not None else set()
    names |= {name for step in steps for strip in step.strips for name in strip.shares}
    return [part for part in CAUSE_PARTS if part.field in names]


def _legend(parts: Sequence[StepPart]) -> list[StepPart]:
    """Return the legend's entries: parts that look alike share one, under all their rows' names."""
    causes: dict[str, list[str]] = {}
    for part in parts:
        causes.setdefault(part.look or part.field, []).append(part_label(part.field).removeprefix(f"{IDLE.label}: "))
    return [
        replace(entry, label=(f"{IDLE.label}: " if entry in IDLE_LOOKS else "") + ", ".join(causes[entry.field]))
        for entry in in_legend(parts)
    ]


def _trained(comparison: Comparison) -> list[StepBar]:
    """Build a bar per run, of the step that people train, both to one scale; none where either is not known."""
    longest_ns = max((bar.step_ns for _, bar in comparison.trained_bars), default=0)
    return [
        StepBar(
            name,
            ms(bar.step_ns),
            [
                (part.field, share * bar.step_ns, f"{part.label} {ms(share * bar.step_ns)}")
                for part, share in shares_of_bar(bar)
            ],
            longest_ns - bar.step_ns,
        )
        for name, bar in comparison.trained_bars
    ]


def _bars(account: StepAccount) -> list[StepBar]:
    """Build a bar per run, of its mean profiled step, both to one scale: the rest is what it is shorter by."""
    sides = (("A", "a_ns", account.a_span_ns), ("B", "b_ns", account.b_span_ns))
    return [
        StepBar(
            name,
            ms(span_ns),
            [
                (LOOKS[part.part], getattr(part, side), f"{part_label(part.part)} {ms(getattr(part, side))}")
                for part in account.parts
            ],
            account.longest_ns - span_ns,
        )
        for name, side, span_ns in sides
    ]


def _waterfall(account: StepAccount) -> Waterfall:
    """Lay out A's step, each part's difference from where the one before ended, and B's step."""
    at, edges = account.a_span_ns, [account.a_span_ns]
    for part in account.lines:
        at += part.difference_ns
        edges.append(at)
    air = AIR * (max(edges) - min(edges)) or account.longest_ns / 100 or 1.0
    low, high = min(edges) - air, max(edges) + air

    def place(ns: float) -> float:
        return round(TRACK * (ns - low) / (high - low), 1)

    rows = [
        Fall("A's step", place(account.a_span_ns), 0, ms(account.a_span_ns), "", "A's mean profiled step", is_step=True)
    ]
    for part, before, after in zip(account.lines, edges, edges[1:], strict=False):
        start, length = place(min(before, after)), abs(place(after) - place(before))
        label, figure = part_label(part.part), f"{'-' if part.difference_ns < 0 else '+'}{ms(abs(part.difference_ns))}"
        words = f"{label}: {ms(part.a_ns)} in A, {ms(part.b_ns)} in B"
        rows.append(Fall(label, start, length, figure, LOOKS.get(part.part, "rest"), words))
    rows.append(
        Fall("B's step", place(account.b_span_ns), 0, ms(account.b_span_ns), "", "B's mean profiled step", True)
    )
    return Waterfall(rows, _ticks(low / NS_PER_MS, high / NS_PER_MS))


def _ticks(low_ms: float, high_ms: float) -> list[Tick]:
    """Return round figures between two times, at most MOST_TICKS."""
    span = high_ms - low_ms
    step = rounded_up(span / (MOST_TICKS - 1))
    first = -int(-low_ms // step)
    numbers = [step * number for number in range(first, first + MOST_TICKS) if low_ms <= step * number <= high_ms]
    return [Tick(round(100 * (number - low_ms) / span, 2), f"{number:g}") for number in numbers]


def _step_rows(name: str, step: AlignedStep) -> StepRows:
    notes = []
    if not step.has_causes:
        notes.append(
            f"{name} was read from a saved report, which has the compute and communication of one device alone. "
            "Give the run's traces to see all of its devices and why they are idle."
        )
    elif len(step.strips) < step.devices:
        notes.append(
            f"{len(step.strips)} of {count(step.devices, 'device')} are drawn: the representative one, and those that "
            "others waited for longest."
        )
    title = f"{name}: step {step.step}, {ms(step.span_ns)} from its first device's beginning to its last one's end"
    ranks = [strip.rank for strip in step.strips]
    rows = [_strip_row(strip, is_alone=ranks.count(strip.rank) == 1) for strip in step.strips]
    return StepRows(name, title, rows, notes)


def _strip_row(strip: StepStrip, is_alone: bool) -> StripRow:
    """Stack a device's parts in each cell, compute at the bottom."""
    base = strip.communication * 0
    paths = []
    for name in (part.field for part in CAUSE_PARTS if part.field in strip.shares):
        shares = strip.shares[name]
        words = f"{part_label(name)}: {ms(strip.totals_ns[name])}"
        paths.append((LOOKS[name], _path(base, shares), words))
        base = base + shares
    label = f"rank {strip.rank}" if is_alone else f"device {strip.device}"
    return StripRow(label, paths, _path(strip.communication * 0, strip.communication))


def _path(base: Float64, shares: Float64) -> str:
    """Draw a rectangle for each run of cells that are equally full from the same height."""
    tops, heights = (HIGH * (1 - base - shares)).round().astype(int), (HIGH * shares).round().astype(int)
    drawn: list[str] = []
    start, cells = 0, list(zip(tops.tolist(), heights.tolist(), strict=True))
    for place, cell in enumerate(cells):
        if place + 1 < len(cells) and cells[place + 1] == cell:
            continue
        top, height = cell
        if height:
            drawn.append(f"M{start} {top}h{place + 1 - start}v{height}H{start}z")
        start = place + 1
    return "".join(drawn)


def _meanings(comparison: Comparison | SweepComparison) -> list[tuple[str, str]]:
    return [
        ("A, B", "medians over steps, of which each is the median over its ranks; A is the baseline."),
        ("steps", "how many steps (of controls, blocks of steps) of A and of B the test has."),
        ("p", "corrected for all figures of the table."),
        ("changed", " ".join(changed_means(comparison))),
        (
            "steps correlated",
            "steps come apart, but resemble the ones before: another launch may differ as much. Record more launches.",
        ),
        ("not told apart", "chance sets steps as far apart too often to tell (p above 5 %): a change, or none."),
        (
            "too few to tell",
            "not even steps of which all of one run lie beyond all of the other's (apart) would be told from chance: "
            "record more, with --active and --rounds.",
        ),
        ("below 1 %", "beyond the steps' spread, but less than another launch of the same thing may differ by."),
    ]
