"""Rows of runs as Parquet, a folder for each table: `rows`.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.parquet.rows import ROWS_SCHEMA, TABLES, check_parquet, parquet_files
