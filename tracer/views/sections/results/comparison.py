"""Text of a comparison of two runs or two sweeps."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.comparison import REST, Comparison, FigureOf, SweepComparison
from analyzers.texts import AND_MORE, listed
from analyzers.units import ms, percent
from tracer.views import (
    COMPUTE,
    Block,
    Caution,
    Column,
    Drawing,
    Heading,
    Paragraph,
    Section,
    Span,
    Table,
    count,
    milliseconds,
    rendered,
    table,
)
from tracer.views.sections import bar, drawn_shares, shares_of_bar
from tracer.views.sections.results.comparison_tables import (
    CHANGE,
    LABELS,
    MOST_ROWS,
    SIDES,
    SUBJECT,
    VERDICTS,
    cell_name,
    comparison_tables,
    every_row,
    figures_table,
    first_rows,
    marked_rows,
    signed_figure,
)

# A first screen, and how many settings and cells it has; as many warnings and further changes, and bars, as fit.
MOST_LINES, WIDEST = 35, 100
FEW, MOST_CELLS = 3, 12
FITTING = ((2, 5, True), (1, 5, True), (1, 2, True), (0, 1, True), (0, 1, False))
WIDTH_OF_BARS = 80
# Characters on each side of the axis of differences.
HALF_BAR = 10


def comparison_text(
    comparison: Comparison | SweepComparison,
    width: int | None = None,
    color: bool = False,
    full: bool = False,
    typed: str = "A B",
) -> str:
    """Write the comparison for a terminal: a first screen, or with `full` all of it.

    It fits `width` columns, the first screen WIDEST where that is more or not given. `typed` are the runs as one types
    them.
    """
    head: list[Section] = [[Paragraph(comparison_title(comparison))], [Heading(comparison.verdict)]]
    if full:
        return rendered([*head, *_whole(comparison)], width, color)
    text = ""
    for most_warnings, most_changed, has_bars in FITTING:
        screen = _first_screen(comparison, most_warnings, most_changed, has_bars=has_bars)
        parts = [*head, *screen, [_next(typed)]]
        text = rendered(parts, min(width or WIDEST, WIDEST), color).rstrip("\n") + "\n"
        if text.count("\n") <= MOST_LINES:
            break
    return text


def _next(typed: str) -> Drawing:
    """Say what to type next, whole, so that it can be pasted."""
    commands = {f"tracer compare {typed} --full": "tables", f"tracer compare {typed} --html ab.html": "a page"}
    wide = max(map(len, commands)) + 2
    lines = [
        [Span("NEXT  " if place == 0 else "      ", "bold"), Span(command.ljust(wide)), Span(words, "dim")]
        for place, (command, words) in enumerate(commands.items())
    ]
    return Drawing(lines)


def _whole(comparison: Comparison | SweepComparison) -> list[Section]:
    return [
        [Caution(str(warning)) for warning in comparison.warnings],
        [Paragraph(words) for words in ([] if isinstance(comparison, SweepComparison) else promise_words(comparison))],
        [] if isinstance(comparison, SweepComparison) else _bars(comparison),
        account_section(comparison),
        *(shown.blocks for shown in comparison_tables(comparison, MOST_ROWS)),
        [Paragraph(words) for words in changed_means(comparison)],
    ]


def promise_words(comparison: Comparison) -> list[str]:
    """Say what A's advice promised that B no longer needs, and what came."""
    odd, promise = comparison.odd_gone, comparison.promise
    of_odd = f"A's odd steps cost {ms(odd.gain_ns)} of its mean step; B's report names none." if odd is not None else ""
    if promise is None:
        return [of_odd] if of_odd else []
    gains = "; ".join(f"{gain.problem} {ms(gain.gain_ns)}" for gain in promise.gains)
    came = "what came is not known: no step was timed without the profiler"
    if promise.came_ns is not None:
        told = promise.came_within_ns
        few = "launches" if comparison.are_launches else "blocks of steps"
        between = between_words(told) if told is not None else f"too few {few} to tell it from chance"
        came = f"came {ms(promise.came_ns)} ({between})"
    said = [of_odd] if of_odd else []
    whose = "the advice of A's first launch" if comparison.are_launches else "A's advice"
    return [
        *said,
        f"{whose[:1].upper()}{whose[1:]} that B no longer needs promised {ms(promise.together_ns)} ({gains}); {came}.",
    ]


def between_words(limits: Sequence[float]) -> str:
    """Write what a time lies between: `1.41 to 5.93`, in ms."""
    low, high = (ms(ns).removesuffix(" ms") for ns in limits)
    return f"{low} to {high}"


def _first_screen(
    comparison: Comparison | SweepComparison, most_warnings: int, most_changed: int, *, has_bars: bool
) -> list[Section]:
    """Arrange the step's parts, what else changed, how much cannot be told, and the first warnings."""
    warnings: list[Block] = [Caution(str(warning)) for warning in comparison.warnings[:most_warnings]]
    if more := len(comparison.warnings) - len(warnings):
        warnings.append(Paragraph(f"{count(more, 'more warning')}: --full", is_faint=True))
    if isinstance(comparison, SweepComparison):
        return [_steps_of_cells(comparison), warnings]
    changed = _changed_otherwise(comparison, most_changed)
    told = [Paragraph(words) for words in (*_settings(comparison), f"{untold(comparison)} --full lists them.")]
    promise: Section = [Paragraph(words) for words in promise_words(comparison)]
    return [promise, _bars(comparison) if has_bars else [], account_section(comparison), changed, told, warnings]


def _bars(comparison: Comparison) -> Section:
    """Draw the step that people train in A and in B on one scale; nothing where either is not known."""
    known = comparison.trained_bars
    if not known:
        return []
    longest_ns = max(one.step_ns for _, one in known)
    lines = [
        [
            Span(f"{name} {ms(one.step_ns):>9}  ", "bold"),
            *bar(drawn_shares(shares_of_bar(one)), max(round(WIDTH_OF_BARS * one.step_ns / longest_ns), 1)),
        ]
        for name, one in known
    ]
    parts = [part for _, one in known for part, share in drawn_shares(shares_of_bar(one)) if share]
    legend = "   ".join(f"{part.glyph} {part.label}" for part in dict.fromkeys(parts))
    return [Heading(f"A step without the profiler: {legend}"), Drawing(lines)]


def _steps_of_cells(comparison: SweepComparison) -> Section:
    """List the steps of the cells that changed or differ most."""
    rows = [
        FigureOf("cells", cell_name(cell), name, change)
        for cell in comparison.cells
        for name, change in cell.measures.items()
        if name == "step_ns"
    ]
    shown = figures_table("cells", "Steps: medians, ms", "cell", first_rows(rows, MOST_CELLS))
    left = count(len(rows) - MOST_CELLS, "more cell")
    return [*shown.blocks, *([Paragraph(f"and {left}: --full")] if len(rows) > MOST_CELLS else [])]


def account_section(comparison: Comparison | SweepComparison) -> Section:
    """Arrange what the step is made of in A and in B; a bar to the left is time saved, to the right time added."""
    if isinstance(comparison, SweepComparison) or comparison.account is None:
        return []
    account = comparison.account
    longest_ns = max((abs(part.difference_ns) for part in account.lines), default=0.0)
    rows = [
        [*_times(part_label(part.part), part.a_ns, part.b_ns, part.difference_ns), _bar(part.difference_ns, longest_ns)]
        for part in account.lines
    ]
    states = [VERDICTS[part.state] if part.state else "" for part in account.lines]
    steps = [[*_times("profiled step", account.a_span_ns, account.b_span_ns, account.difference_ns), "", ""]]
    unprofiled = comparison.controls.get("unprofiled_step_ns")
    if unprofiled is not None and unprofiled.difference is not None:
        cells = _times(LABELS["unprofiled_step_ns"], unprofiled.a, unprofiled.b, unprofiled.difference)
        steps.append([*cells, "", VERDICTS[unprofiled.state]])
    heads = (
        *(Column("figure", is_text=True), Column("A"), Column("B"), Column("difference")),
        *(Column(f"{'less':>{HALF_BAR}}|more", is_text=True), Column("verdict", is_text=True)),
    )
    words = [[*row, state] for row, state in zip(rows, states, strict=True)]
    return [Heading("What a profiled step is made of: means, ms"), Table(heads, [words, steps], is_spaced=True)]


def part_label(name: str) -> str:
    """Return what a part of the account is called."""
    return "all other parts" if name == REST else LABELS[name]


def _times(label: str, a_ns: float | None, b_ns: float | None, difference_ns: float) -> list[str]:
    return [label, milliseconds(a_ns), milliseconds(b_ns), signed_figure("_ns", difference_ns)]


def _bar(difference_ns: float, longest_ns: float) -> str:
    """Draw a difference to the left or right of an axis; the longest fills its half."""
    cells = round(HALF_BAR * abs(difference_ns) / longest_ns) if longest_ns else 0
    drawn = COMPUTE.glyph * cells
    return f"{drawn:>{HALF_BAR}}|" if difference_ns < 0 else f"{'':>{HALF_BAR}}|{drawn}"


def _changed_otherwise(comparison: Comparison, most: int) -> Section:
    """List the first figures that changed, but for those of the account."""
    listed = {part.part for part in comparison.account.lines} if comparison.account is not None else set()
    listed |= {"unprofiled_step_ns", "span_ns"}
    marked = [row for row in marked_rows(every_row(comparison)) if row.table != "step" or row.measure not in listed]
    if not marked:
        return []
    left = [Paragraph(f"and {len(marked) - most} more: --full")] if len(marked) > most else []
    return [Heading("What else changed: medians, ms and GB/s"), table([SUBJECT, *SIDES, CHANGE], marked[:most]), *left]


def _settings(comparison: Comparison) -> list[str]:
    changed = [f"{each.what} {each.a or 'unknown'} -> {each.b or 'unknown'}" for each in comparison.different]
    return [f"Settings that differ: {listed(changed, FEW, AND_MORE)}."] if changed else []


def untold(comparison: Comparison) -> str:
    """Say of how many figures what is known."""
    states, samples = comparison.states, "launches" if comparison.are_launches else "steps"
    same = states["same"] + states["small"] + states["within"]
    kinds = {
        f"{states['changed']} changed": states["changed"],
        f"{same} did not change, as far as can be told": same,
        f"{states['correlated']} may differ from launch to launch": states["correlated"],
        f"{states['too_few']} have too few {samples} to tell": states["too_few"],
        f"{states['only_a'] + states['only_b']} are in one run only": states["only_a"] + states["only_b"],
    }
    told = "; ".join(words for words, number in kinds.items() if number)
    return f"Of {sum(states.values())} figures {told}."


def comparison_title(comparison: Comparison | SweepComparison) -> str:
    """Say which two were compared."""
    if isinstance(comparison, Comparison) and comparison.are_launches:
        sides = ((comparison.a, comparison.a_launches), (comparison.b, comparison.b_launches))
        named = (name if launches == 1 else f"{name}, the first of {launches} launches" for name, launches in sides)
        return " · ".join(f"{side}: {words}" for side, words in zip("AB", named, strict=True))
    return f"A: {comparison.a} · B: {comparison.b}"


def changed_means(comparison: Comparison | SweepComparison) -> list[str]:
    """Say what it takes for a figure to count as changed, in sentences."""
    test = comparison.test
    return [
        f"Test: {test.method}. Marked as changed: p at most {percent(test.level)}, and at least "
        f"{percent(test.least_change)} of A's figure. If nothing changed in a table, the chance of any mark in it is "
        f"at most {percent(test.level)}."
    ]
