"""SQLite database of an export: its schema checked, its tables as columns.

Whoever made the file is not trusted: no SQL of it runs (views, triggers, generated columns and indexes are passed
over), and no statement may do more work, or give more rows, than a file of its size has.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.errors import UnreadableTrace
from analyzers.memory import Budget
from analyzers.texts import typed
from analyzers.trace import ROW_BYTES, Codes

if TYPE_CHECKING:
    import sqlite3

_BATCH = 1 << 10
_LEAST_ROW_BYTES, _LEAST_LENGTH = 8, 1 << 20
# SQLite's machine takes some tens of steps for a row: what needs far more is no export. A tick is so many steps.
_TICK, _FREE_TICKS, _TICKS_PER_MB = 1_000_000, 10, 8
_FUNCTIONS = frozenset({"coalesce", "instr", "nullif", "substr"})
_SHOWN, _LONGEST = re.compile("[^ -~]+"), 80
ODD_ROWS = "rows of which a value is no whole number, or no time"
Rows = dict[str, Int64]


def export_command(name: str = "REPORT.nsys-rep") -> str:
    """Return what makes of a report a file that is read here, with all that is read."""
    return f"`{typed('nsys', 'export', '--type', 'sqlite', '--include-blobs=true', name)}`"


class Database:
    """An open export: `columns` of its ordinary tables, `codes` of each text that was read, what was `odd`."""

    def __init__(self, path: Path, budget: Budget, connection: sqlite3.Connection) -> None:
        self.path, self._budget, self._connection = path, budget, connection
        self._nbytes, self.codes = path.stat().st_size, Codes[bytes]()
        self._ticks, self._taken, self.odd = 0, 0, Counter[str]()
        connection.set_progress_handler(self._is_too_much, _TICK)
        connection.text_factory = bytes
        connection.executescript("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")
        self.columns = self._find_columns()
        connection.set_authorizer(self._authorize)
        if not self.columns.keys() >= {"META_DATA_EXPORT", "StringIds"}:  # which all exports have
            raise UnreadableTrace(f"{path}: an SQLite database, but none that Nsight Systems made: {export_command()}")
        said = dict(self.pairs("META_DATA_EXPORT", "name", "value"))
        is_with_blobs = said.get("EXPORT_PARAM_INCLUDE_BLOBS") != "false"
        self.has_blobs = is_with_blobs and self.has("NVTX_EVENTS", "binaryData", "domainId")
        told = [said.get(f"EXPORT_{one}_VERSION", "?") for one in ("PRODUCT", "SCHEMA")]
        self.version = "Nsight Systems {}, schema {}".format(*(_SHOWN.sub("?", version)[:20] for version in told))

    def _is_too_much(self) -> bool:
        self._ticks += 1
        return self._ticks > _FREE_TICKS + _TICKS_PER_MB * (self._nbytes >> 20)

    def _find_columns(self) -> Mapping[str, set[str]]:
        """Return what may be read. A table without a page is virtual, a hidden column the file's SQL computes.

        Nothing is read of the tables of enumerations, which are most.
        """
        found = defaultdict[str, set[str]](set)
        read = "t.type = 'table' AND t.name NOT GLOB 'ENUM_*' AND rootpage > 0 AND hidden = 0"
        of_tables = f"SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_xinfo(t.name) AS c WHERE {read}"
        for table, column in chain.from_iterable(self.batches(of_tables)):
            found[str(table, errors="replace")].add(str(column, errors="replace"))
        return dict(found)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        import sqlite3

        is_ours = action == sqlite3.SQLITE_READ and first in self.columns
        is_ours |= action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS
        return sqlite3.SQLITE_OK if is_ours or action == sqlite3.SQLITE_SELECT else sqlite3.SQLITE_DENY

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table, with these columns."""
        return table in self.columns and self.columns[table].issuperset(columns)

    def batches(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a statement of ours, many at once. Raises UnreadableTrace for more than there can be."""
        self._ticks = count = 0
        cursor = self._connection.execute(sql)
        while batch := cursor.fetchmany(_BATCH):
            count += len(batch)
            if count * _LEAST_ROW_BYTES > self._nbytes:
                raise damaged(self.path, "its tables have more rows than it has bytes for")
            yield batch

    def texts(self, codes: Int64) -> list[str]:
        """Return the texts that codes stand for."""
        found = [*self.codes]
        return [str(found[code], errors="replace") for code in codes.tolist()]

    def pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Return two texts of each row of a table, empty where it has no such columns."""
        rows = self.read(table, "", texts={f"{column}?": f"CAST({column} AS TEXT)" for column in (key, value)})
        return [*zip(self.texts(rows[key]), self.texts(rows[value]), strict=True)]

    def read(self, table: str, wanted: str, where: str = "1", texts: Mapping[str, str] | None = None) -> Rows:
        """Return columns of whole numbers, as `start end?`, and codes of texts, which SQL makes of columns.

        What is not in an export was not recorded: there are no rows then. Where a value is not said, a text is empty,
        a number with `?` is -1, and the row of another is odd. Raises UnreadableTrace for a table without a column that
        has no `?`, TooLarge.
        """
        made, count = texts or {}, len(wanted.split())
        names = {name.rstrip("?"): name for name in (*wanted.split(), *made)}
        present = self.columns.get(table, {*names})
        if lacking := sorted({*names.values()} & {*names} - present):
            raise UnreadableTrace(
                f"{self.path}: {table} lacks {', '.join(lacking)} (written by {self.version}; tracer was tried with "
                "schemas 3.20, 3.24 and 3.25): export the report again, with another version of nsys"
            )
        said = {column: f'"{column}"' for column in names}
        for column, name in names.items():
            none = "''" if name in made else "-1"
            if name != column or name in made:
                said[column] = f"coalesce({made.get(name, said[column])}, {none})" if column in present else none
        columns = [array("q") for _ in said]
        sql = f"SELECT {', '.join(said.values())} FROM {table} NOT INDEXED WHERE {where}"
        for batch in self.batches(sql) if table in self.columns else ():
            for joined, values in zip(columns, self._encode(batch, count), strict=False):  # none without a sound row
                joined.extend(values)
            self._taken += len(batch)
            self._budget.check(self._taken * ROW_BYTES + 2 * self.codes.nbytes, f"{self._taken:,} or more rows of it")
        return {name: np.frombuffer(joined, dtype=np.int64) for name, joined in zip(said, columns, strict=True)}

    def _encode(self, batch: list[tuple[Any, ...]], count: int) -> list[array[int]]:
        """Return the columns of rows, the first so many whole numbers, the others texts; without rows that are odd."""
        columns = [*zip(*batch, strict=True)]
        try:
            numbers = [array("q", column) for column in columns[:count]]
        except TypeError:
            sound = [row for row in batch if all(type(value) is int for value in row[:count])]
            self.odd[ODD_ROWS] += len(batch) - len(sound)
            return self._encode(sound, count)
        return numbers + [array("q", map(self.codes.__getitem__, column)) for column in columns[count:]]


def get(rows: Rows, name: str) -> Int64:
    """Return a column, unknown where the table has none."""
    return rows[name] if name in rows else np.full(len(next(iter(rows.values()))), UNKNOWN)


def damaged(path: Path, why: object) -> UnreadableTrace:
    """Return the error of a file that is no whole database."""
    return UnreadableTrace(f"{path}: an SQLite database, damaged ({why}): copy or make it again: {export_command()}")


@contextmanager
def opened(path: Path, budget: Budget) -> Iterator[Database]:
    """Open an export. Raises UnreadableTrace, also for what SQLite says in the block, and TooLarge."""
    import sqlite3

    for beside in (path.with_name(f"{path.name}{suffix}") for suffix in ("-journal", "-wal")):
        if beside.exists() and beside.stat().st_size:
            raise UnreadableTrace(
                f"{path}: its export has not ended ({beside.name} is beside it): wait, or export again"
            )
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(path.stat().st_size, _LEAST_LENGTH))
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            yield Database(path, budget, connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        # SQLite quotes the file's own text, whatever that is.
        said = "it asks for too much work" if str(error) == "interrupted" else _SHOWN.sub(" ", str(error))[:_LONGEST]
        raise damaged(path, said) from error
