"""Sections as a page lays them out: tables under titles."""

from __future__ import annotations

from dataclasses import replace

from tracer.views import Drawing, Heading, Section, Table, TitledTable


def titled(section: Section) -> list[TitledTable]:
    """Return a section's tables: each heading begins one; prose goes below it wherever the section has it.

    Drawings are left out: a page has its own.
    """
    tables: list[TitledTable] = []
    for block in section:
        if isinstance(block, Heading):
            tables.append(_empty(block.words))
            continue
        last = tables.pop() if tables else _empty("")
        if isinstance(block, Table):
            last = replace(last, table=block)
        elif not isinstance(block, Drawing):
            last = replace(last, notes=[*last.notes, block.words])
        tables.append(last)
    return tables


def _empty(title: str) -> TitledTable:
    return TitledTable("", title, Table((), ()))
