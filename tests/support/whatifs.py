"""Answers of `whatif` for recorded runs, made once each."""

from functools import cache
from pathlib import Path

from analyzers.errors import NotReplayable
from analyzers.prediction import WhatIf, whatif
from tests.support.samples import summary_of


@cache
def answered(run: Path) -> WhatIf | None:
    """All that a run can have, predicted; None of one that is refused."""
    try:
        return whatif(summary_of(run))
    except NotReplayable:
        return None
