"""Names of another's ill will, and reports that bear them."""

from __future__ import annotations

import dataclasses as dc

from analyzers.collectives.rows import UnmatchedRow
from analyzers.lazy_fields import replaced as replace
from analyzers.notices import Code, Notice
from analyzers.reporting.device_lanes import Lanes
from analyzers.reporting.document import Report

EVIL = "</script><img src=x onerror=alert(1)> \u202egnp.exe \x1b[31m"
SHOWN_EVIL = "</script><img src=x onerror=alert(1)> \ufffdgnp.exe \ufffd[31m"
# It would also leave a cell of a table in markdown.
EVIL_CELL = "<script>alert(1)</script> | *x* \x1b[31m\u202e"


def named(found: Report, words: str) -> Report:
    """A report in which every name that a trace or a path may bring holds these words."""
    layers = [replace(each, layer=each.layer + words, type=words) for each in found.summary.layers]
    buckets = [replace(each, layers=[words]) for each in found.summary.buckets]
    summary = replace(found.summary, layers=layers, buckets=buckets, verdict=words)
    rows = [replace(row, layer=row.layer + words) for row in found.layers]
    collectives = [replace(row, group_name=words, dtype=words) for row in found.collectives]
    unmatched = [UnmatchedRow(0, 0, "other", words, 1, 2, None, words)]
    facts = replace(found.run, name=words, model=words, devices=[words], warnings=[Notice(Code.RECORDING_NOTE, words)])
    facts = replace(facts, versions=dict.fromkeys(found.run.versions, words))
    return replace(found, run=facts, summary=summary, layers=rows, collectives=collectives, unmatched=unmatched)


def lanes_named(found: tuple[Lanes, ...], words: str) -> tuple[Lanes, ...]:
    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name + words for name in names)

    return tuple(
        dc.replace(
            lane,
            layers=dc.replace(lane.layers, names=renamed(lane.layers.names)),
            kernels=dc.replace(lane.kernels, names=renamed(lane.kernels.names)),
            collectives=dc.replace(lane.collectives, names=renamed(lane.collectives.names)),
        )
        for lane in found
    )
