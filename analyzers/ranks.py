"""A rank's number and its index among those read, as types of their own.

ranks read   rank1.json.gz   rank3.json.gz      of four
RankNumber        1               3             what files, rows and words say
RankIndex         0               1             where it stands in RunSummary.ranks and RunSummary.measured
"""

from __future__ import annotations

from typing import NewType

RankNumber = NewType("RankNumber", int)
RankIndex = NewType("RankIndex", int)
