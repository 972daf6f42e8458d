"""Option `--fail-on`: conditions that end a command with exit code 3."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from analyzers.errors import BadExpression
from analyzers.units import ms, percent
from tracer.errors import UsageError
from tracer.views import plain

if TYPE_CHECKING:
    from analyzers.comparison import Condition, Figure, Names

    LookUp = Callable[[Figure], float | None]

# A condition holds; a figure that it needs is null, so that nobody can tell.
HOLDS, CANNOT_TELL = 3, 1


def add_gate_argument(parser: argparse.ArgumentParser, example: str) -> None:
    """Add the option, which may be given several times."""
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help=f"exit with {HOLDS} if it holds, with {CANNOT_TELL} if a figure in it is null: {example}",
    )


def parsed(conditions: Sequence[str], names: Names) -> list[Condition]:
    """Parse the conditions that were given. Raises UsageError."""
    from analyzers.comparison import parse

    try:
        return [parse(condition, names) for condition in conditions]
    except BadExpression as error:
        raise UsageError(f"--fail-on {error}") from error


def judged(gates: Sequence[Condition], figures: LookUp, where: str) -> int:
    """Say on stderr which conditions hold or cannot be judged, for what `where` names; return the exit code."""
    code = 0
    for gate in gates:
        holds = gate.holds(figures)
        if holds is None:
            _say(gate, f"cannot be judged: {_in_words(gate, figures)}", where)
            code = code or CANNOT_TELL
        elif holds:
            _say(gate, f"holds: {_in_words(gate, figures)}", where)
            code = HOLDS
    return code


def _say(gate: Condition, outcome: str, where: str) -> None:
    print(plain(f"tracer: --fail-on '{gate.text.strip()}' {outcome} ({where})"), file=sys.stderr)


def _in_words(gate: Condition, figures: LookUp) -> str:
    return ", ".join(f"{figure} is {_value(figure, figures(figure))}" for figure in gate.figures())


def _value(figure: Figure, value: float | None) -> str:
    if figure.of == "change":
        return "not known, with too few steps or launches to tell" if value is None else "true" if value else "false"
    if value is None:
        return "null"
    if figure.name.endswith("_ns") and figure.over != "count":
        return ms(value)
    if figure.name.endswith(("share", "overlap", "efficiency", "utilization")) and figure.over != "count":
        return percent(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"
