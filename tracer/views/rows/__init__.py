"""Rows of runs for databases, a module for each format.

A format's module has the `suffix` of its files, `check`, which raises where it cannot be written, and `encoded`, a
table's file. `folder` has a folder for each table. Formats: `parquet`.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.rows import parquet
from tracer.views.rows.folder import ROWS_SCHEMA, RowFormat, row_files

FORMATS: tuple[RowFormat, ...] = (parquet,)
