"""Bytes of a trace file become texts, numbers and times.

`decompress` inflates them in blocks, from `archives` too, `bracket_structure` finds events in them, `lenient_json`
reads what is nearly JSON, `damaged_text` takes events of what is none, `number_columns` makes columns of what rows say.

Decisions: docs/dev/decisions/trace.md
"""

from analyzers.trace.decoding.bracket_structure import brackets, scan
from analyzers.trace.decoding.damaged_text import (
    EVENT,
    KEYS,
    MOST_SENSELESS,
    SEEMS_EVENT,
    CannotDecode,
    Damage,
    NoEvents,
    Rows,
    Walk,
)
from analyzers.trace.decoding.decompress import BLOCK, Blocks
from analyzers.trace.decoding.lenient_json import (
    Oddity,
    first_at,
    is_utf8,
    loads,
    make_readable,
    raw_decode,
    with_escaped_texts,
)
from analyzers.trace.decoding.number_columns import (
    LAST_NS,
    NEVER,
    NO_TIME,
    int64_column,
    nanoseconds,
    narrow,
    sparse_column,
    spread,
)
