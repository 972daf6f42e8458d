"""Types for a rank's number and its index among those read.

ranks read   rank1.json.gz   rank3.json.gz      of four
RankNumber        1               3             what files, rows and words say
RankIndex         0               1             where it stands in RunSummary.ranks and RunSummary.measured
"""

from __future__ import annotations

from typing import NewType

RankNumber = NewType("RankNumber", int)
RankIndex = NewType("RankIndex", int)

# File names, headers and run.json may say anything; what is sized by a world must fit memory.
MOST_RANKS = 10**6


def rank_number(value: object) -> RankNumber | None:
    """Return a file's rank, from a number or (a key of JSON) digits; None for what can be no rank."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < len(str(MOST_RANKS)) else None
    return (
        RankNumber(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_RANKS
        else None
    )


def is_world_size(value: object) -> bool:
    """Whether a run can have so many processes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_RANKS
