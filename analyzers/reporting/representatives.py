"""The ranks that are drawn for all where these are many."""

from __future__ import annotations

from analyzers.reporting.document import Report

# Beyond so many ranks or devices a report shows their spread, and draws representatives.
MANY = 16
# How many of the worst outliers, and of those that made others wait most, are drawn beside slowest, median and fastest.
DRAWN = 4


def drawn_ranks(report: Report) -> list[int]:
    """Return the ranks that stand for all where these are many (few: all), in the order in which they were chosen."""
    spread = report.summary.over_devices
    if spread is None or len(report.run.ranks) <= MANY:
        return list(report.run.ranks)
    caused: dict[int, int] = {}
    for row in report.waiting:
        caused[row.rank] = caused.get(row.rank, 0) + row.caused_ns
    waited_for = sorted((rank for rank in caused if caused[rank]), key=lambda rank: -caused[rank])
    outliers = list(dict.fromkeys(outlier.rank for outlier in spread.outliers))
    chosen = (report.summary.representative, spread.slowest, spread.median, spread.fastest)
    return list(dict.fromkeys([*(each.rank for each in chosen), *outliers[:DRAWN], *waited_for[:DRAWN]]))
