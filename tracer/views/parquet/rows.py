"""A report's rows as Parquet files, one for each table.

rows.parquet/windows/RUN.parquet, rows.parquet/collectives/RUN.parquet, ...: a folder is a table of all its runs.
"""

from __future__ import annotations

import io
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from analyzers.causes import ChargeRow
from analyzers.collectives import CollectiveRow, MemberRow, WaitingRow
from analyzers.errors import install_hint
from analyzers.reporting import Advice, Report, Window
from analyzers.texts import encodable
from tracer.errors import TracerError

ROWS_SCHEMA = "tracer.rows/1"
Parts = tuple[msgspec.Struct, ...]
# The types of which a row has the keys, and a report's rows.
TABLES: Mapping[str, tuple[tuple[type[msgspec.Struct], ...], Callable[[Report], Iterable[Parts]]]] = {
    "windows": ((Window,), lambda report: ((row,) for row in report.windows)),
    "collectives": (
        (MemberRow, CollectiveRow),
        lambda report: ((member, row) for row in report.collectives for member in row.members),
    ),
    "waiting": ((WaitingRow,), lambda report: ((row,) for row in report.waiting)),
    "charges": ((ChargeRow,), lambda report: ((row,) for row in report.charges)),
    "advice": ((Advice,), lambda report: ((row,) for row in report.summary.advice)),
}
KEYS: Mapping[str, Any] = {"run": str, "rank": int, "step": int}


def check_parquet() -> None:
    """Raise TracerError where no Parquet can be written."""
    _library()


def parquet_files(report: Report) -> Iterator[tuple[Path, bytes]]:
    """Yield each table's file, below the folder of all tables. Raises TracerError for a name that readers pass over."""
    pyarrow, parquet = _library()
    if report.run.name.startswith(("_", ".")):
        raise TracerError(
            f"{report.run.name}: readers of Parquet pass over names that begin so: rename the run's folder"
        )
    for table, (kinds, rows) in TABLES.items():
        hints = {**KEYS, **{name: hint for kind in kinds for name, hint in columns(kind) if name not in KEYS}}
        fields = [(name, _type(pyarrow, hint)) for name, hint in hints.items()]
        schema = pyarrow.schema(fields, {"schema": ROWS_SCHEMA})
        texts = {name for name, kind in fields if kind == pyarrow.string()}
        records = [_record(report.run.name, parts, texts) for parts in rows(report)]
        file = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(records, schema), file)
        yield Path(table) / f"{report.run.name}.parquet", file.getvalue()


def columns(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a type with their types: what it holds is flat, and lists are left out."""
    hints = get_type_hints(kind)
    for name, column in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from ((f"{column}_{inner}", each) for inner, each in columns(hint))
        elif get_origin(hint) is not list:
            yield column, hint


def _record(run: str, parts: Parts, texts: set[str]) -> dict[str, Any]:
    """Return a row by columns; keys that it has not are null."""
    record = {"run": run, "rank": getattr(parts[0], "rank", None)}
    for part in parts:
        record.update(_flat(part))
    return {
        name: encodable(str(value)) if name in texts and value is not None else value for name, value in record.items()
    }


def _flat(row: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for name, column in zip(row.__struct_fields__, row.__struct_encode_fields__, strict=True):
        value = getattr(row, name)
        if isinstance(value, msgspec.Struct):
            yield from ((f"{column}_{inner}", each) for inner, each in _flat(value))
        else:
            yield column, value


def _type(pyarrow: Any, hint: Any) -> Any:
    """Return a column's type, which may be null; what is a number or a text is a text."""
    if get_origin(hint) in (Union, types.UnionType):
        known = {part for part in get_args(hint) if part is not types.NoneType}
        return _type(pyarrow, known.pop()) if len(known) == 1 else pyarrow.string()
    if get_origin(hint) is tuple:
        return pyarrow.list_(_type(pyarrow, get_args(hint)[0]))
    return {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}.get(hint, pyarrow.string())


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TracerError(f"Parquet cannot be written ({error}): {install_hint('parquet')}") from error
    return pyarrow, pyarrow.parquet
