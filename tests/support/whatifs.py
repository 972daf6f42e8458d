"""Answers of `whatif` for recorded runs, made once each."""

from functools import cache
from pathlib import Path

from analyzers.errors import NotReplayable
from analyzers.prediction import Options, WhatIf, whatif
from tests.support.samples import summary_of


@cache
def answered(run: Path, only: frozenset[str]) -> WhatIf | None:
    """What some kinds of changes would bring; None of a run that is refused."""
    try:
        return whatif(summary_of(run), Options(only=sorted(only))) if only else None
    except NotReplayable:
        return None
