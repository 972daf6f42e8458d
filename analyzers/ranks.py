"""`RankNumber` and `RankIndex`: a rank's number, its index among those read.

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
LONGEST_QUOTED = 20
# Beyond so many ranks or devices a report shows their spread, and draws representatives.
MANY = 16


def rank_number(said: object) -> RankNumber | None:
    """Return the rank that a file says, as a number or (a key of JSON) in digits; None for what can be no rank."""
    if isinstance(said, str):
        said = int(said) if said.isdecimal() and len(said) < len(str(MOST_RANKS)) else None
    return RankNumber(said) if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < MOST_RANKS else None


def quoted(said: object) -> str:
    """Return what a file says instead of a number, cut short where it is long."""
    text = repr(said)
    return text if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]}..."


def is_world_size(said: object) -> bool:
    """Whether a run can have so many processes."""
    return isinstance(said, int) and not isinstance(said, bool) and 0 < said <= MOST_RANKS
