"""Bytes of a trace file become texts, numbers and times.

`decompress` inflates them in blocks, from `archives` too, `bracket_structure` finds events in them, `lenient_json`
reads what is nearly JSON, `timestamps` and `integer_columns` make columns of what rows say.

Decisions: docs/dev/decisions/trace.md
"""

from analyzers.trace.decoding.bracket_structure import brackets, scan
from analyzers.trace.decoding.decompress import BLOCK, Blocks
from analyzers.trace.decoding.integer_columns import int64_column, narrow, sparse_column, spread
from analyzers.trace.decoding.lenient_json import (
    Oddity,
    clean,
    first_at,
    is_utf8,
    loads,
    make_readable,
    raw_decode,
    with_escaped_texts,
)
from analyzers.trace.decoding.timestamps import LAST_NS, NEVER, NO_TIME, nanoseconds
