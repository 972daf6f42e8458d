"""A report's rows in folders, one for each table.

runs.parquet/windows/RUN.parquet, runs.parquet/collectives/RUN.parquet, ...: a folder is a table of all its runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from analyzers.paths import Place
from analyzers.redaction import redacted_url
from analyzers.texts import encodable

if TYPE_CHECKING:
    from analyzers.reporting import Report

ROWS_SCHEMA = "tracer.rows/1"
# What each table begins with, null where its rows are of no single one.
KEYS: Mapping[str, type] = {"run": str, "rank": int, "step": int}
# Of a name that begins so readers take it that it is no data.
_PASSED_OVER = ("_", ".")


class RowFormat(Protocol):
    """A module that writes rows in one format."""

    @property
    def suffix(self) -> str:
        """Return what its files' names, and those of folders of tables, end in."""

    def check(self) -> None:
        """Raise TracerError where the format cannot be written here."""

    def encoded(self, kinds: Mapping[str, type], records: Sequence[tuple[Any, ...]], schema: str) -> bytes:
        """Return a table's file, of columns that are int, float, bool or str, or null."""


def run_key(place: Place, folder: Path) -> str:
    """Return what tells a run from all others: its path, from the folder that rows are beside if it is below that."""
    if not isinstance(place, Path):
        return redacted_url(str(place))
    path, beside = place.resolve(), folder.resolve().parent
    return (path.relative_to(beside) if beside in path.parents else path).as_posix()


def row_files(row_format: RowFormat, report: Report, place: Place, folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each table's file of a run."""
    from analyzers.reporting import TABLES

    run = run_key(place, folder)
    for table in TABLES.values():
        kinds = {**KEYS, **{name: column.kind for name, column in table.columns.items()}}
        known = (dict(zip(table.columns, record, strict=True)) | {"run": run} for record in table.records(report))
        records = [tuple(_written(row.get(name), kind) for name, kind in kinds.items()) for row in known]
        file = folder / table.name / f"{_file_name(run)}{row_format.suffix}"
        yield file, row_format.encoded(kinds, records, ROWS_SCHEMA)


def _written(value: Any, kind: type) -> Any:
    """Return a value as files hold it: a text is one that UTF-8 can encode, also where a trace has half of a pair."""
    return value if value is None or kind is not str else encodable(str(value))


def _file_name(run: str) -> str:
    """Write a path as the name of one file: `0001+trace`. Two paths never have the same."""
    name = quote(run, safe=" /", errors="surrogateescape").replace("/", "+")
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith(_PASSED_OVER) else name
