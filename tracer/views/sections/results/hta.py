"""Sections of HTA's analyses."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.hta import Analysis, Cell, Figures
from analyzers.units import NS_PER_MS, NS_PER_US
from tracer.views import Column, Heading, Paragraph, Section, Table, TitledTable, is_wide, milliseconds, rendered

_TEXTS = ("name", "bound", "place", "cause", "type", "device", "stream", "rank")
# Left out on a narrow terminal.
_WIDE = ("std", "p25", "p75", "min_ns", "std_ns", "device_median_ns", "edges", "slow_calls")
_LONGEST_NAME = {True: 60, False: 32}
# Columns that are read against another one, and are in its unit.
_ALIKE = {
    **dict.fromkeys(("other_time_ns", "more_ns"), "time_ns"),
    **dict.fromkeys(("min_ns", "max_ns", "std_ns"), "mean_ns"),
    "call_max_ns": "call_median_ns",
    "delay_max_ns": "delay_median_ns",
}
_NS = "_ns"


def hta_text(analysis: Analysis, top: int, width: int | None = None, color: bool = False) -> str:
    """Write the tables that are short enough to be read, the `top` first rows of each."""
    tables = [_section(table, top, is_wide(width)) for table in analysis.tables if table.listed]
    made_with = ", ".join(f"{name} {version}" for name, version in analysis.versions.items())
    notes = [Paragraph(f"note: {note}") for note in analysis.notes]
    return rendered([[Heading(_title(analysis))], *tables, [*notes, Paragraph(f"HTA: {made_with}")]], width, color)


def _title(analysis: Analysis) -> str:
    facts = analysis.facts
    parts = [f"HTA {analysis.name} of {facts['run']}"]
    if "rank" in facts:
        parts.append(f"rank {facts['rank']}")
    if "step" in facts:
        parts.append("whole trace, in which no step is marked" if facts["step"] is None else f"step {facts['step']}")
    if "other" in facts:
        parts.append(f"other: {facts['other']}, step {facts['other_step']}")
    if "path_ns" in facts:
        parts.append(f"path {_cell('', _NS, facts['path_ns'])} ms of {_cell('', _NS, facts['extent_ns'])} ms")
    return " · ".join(parts)


def _section(table: Figures, top: int, wide: bool) -> Section:
    shown = table.rows[:top]
    more = len(table.rows) - len(shown)
    notes = [f"... and {more:,} more: --top {len(table.rows)}, or --csv, or --json"] if more else []
    units = _units(table.columns, shown)
    rows = [
        [_cell(unit, name, value, wide) for unit, name, value in zip(units, table.columns, row, strict=True)]
        for row in shown
    ]
    columns = [
        Column(f"{name.removesuffix(_NS)} {unit}".strip().replace("_", " "), is_text=name in _TEXTS, wide=name in _WIDE)
        for name, unit in zip(table.columns, units, strict=True)
    ]
    return TitledTable(table.name, table.title, Table(columns, [rows]), notes if rows else ["none"]).blocks


def _units(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Choose microseconds for a column of times all below a millisecond; times of one sort share a unit."""
    units: dict[str, str] = {}
    for column, name in enumerate(columns):
        sizes = [abs(value) for row in rows if isinstance(value := row[column], int | float)]
        unit = "us" if max(sizes, default=0) < NS_PER_MS else "ms"
        units[name] = "" if not name.endswith(_NS) else units.get(_ALIKE.get(name, ""), unit)
    return list(units.values())


def _cell(unit: str, name: str, value: Cell, wide: bool = True) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_NAME[wide] else f"{value[: _LONGEST_NAME[wide] - 3]}..."
    if name.endswith(_NS):
        return f"{value / NS_PER_US:,.1f}" if unit == "us" else milliseconds(value)
    if name == "share":
        return f"{100 * value:.1f} %"
    return f"{value:.3g}" if isinstance(value, float) else str(value) if name in _TEXTS else f"{value:,}"
