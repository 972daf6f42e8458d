"""What a rank leaves of a recording, made by hand."""

from __future__ import annotations

from typing import Any

from tracer.recording.rank_part import Facts, RankPart


def made_part(**known: Any) -> RankPart:
    """A part of rank 0, alone on a CPU, but for what is known of it."""
    unknown: dict[str, Any] = {
        "rank": 0,
        "world_size": 1,
        "host": "here",
        "facts": Facts(),
        "devices": ["cpu"],
        "versions": {},
        "environment": {},
        "parameters": [],
        "buckets": None,
        "ddp": None,
        "memory_source": "test",
        "peak_bytes": 1,
    }
    return RankPart(**unknown | known)
