"""Rows as Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from analyzers.errors import install_hint
from tracer.errors import TracerError

suffix = ".parquet"


def check() -> None:
    """Raise TracerError where no Parquet can be written."""
    _library()


def encoded(kinds: Mapping[str, type], records: Sequence[tuple[Any, ...]], schema: str) -> bytes:
    """Return a table's file, which names the schema of all tables."""
    pyarrow, parquet = _library()
    types = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    typed = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()], {"schema": schema})
    rows = [dict(zip(kinds, record, strict=True)) for record in records]
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, typed), file)
    return file.getvalue()


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TracerError(f"Parquet cannot be written ({error}): {install_hint('parquet')}") from error
    return pyarrow, pyarrow.parquet
