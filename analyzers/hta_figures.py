"""Tables of plain numbers, as HTA's analyses are handed on: to the terminal, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analyzers.saved import encoded

if TYPE_CHECKING:
    import pandas as pd

Cell = int | float | str | None


@dataclass(frozen=True)
class Figures:
    """Rows under named columns: `_ns` are nanoseconds, `share` is of one. `listed`: short enough to be read."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    listed: bool = True

    def to_frame(self) -> pd.DataFrame:
        """The same as a DataFrame."""
        import pandas as pd  # a quarter of a second that others need not wait

        return pd.DataFrame(list(self.rows), columns=list(self.columns))


@dataclass(frozen=True)
class Analysis:
    """What one analysis found: what it is of, its tables, and what must be known of them."""

    name: str
    facts: Mapping[str, Cell]
    tables: tuple[Figures, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def figures(name: str, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Figures:
    """A table of whatever numpy or pandas hold, as plain numbers; what is no number is None."""
    return Figures(name, title, tuple(columns), tuple(tuple(map(_plain, row)) for row in rows))


def to_json(analysis: Analysis) -> str:
    """The whole analysis: `tracer.hta/1`, a table under its name as a list of objects."""
    tables = {
        table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in analysis.tables
    }
    document = {
        "schema": "tracer.hta/1",
        "analysis": analysis.name,
        "versions": dict(analysis.versions),
        **analysis.facts,
        "notes": list(analysis.notes),
        **tables,
    }
    return encoded(document)


def _plain(value: Any) -> Cell:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if value != value:
            return None
        # pandas makes floats of counts and nanoseconds where anything is missing.
        return int(value) if value.is_integer() else value
    return value if isinstance(value, int | str) else None
