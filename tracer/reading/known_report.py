"""Report of which a cache knows what a screen needs.

Then no rank is read, unless more is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from analyzers.lazy_fields import completed, computed
from analyzers.paths import Remote, Where
from analyzers.rank import RunSummary
from analyzers.reporting import Report, Summary
from analyzers.run import Calibration, RunLayout
from tracer.reading.cache import Fields, identity_of, open_cache
from tracer.reading.processes import Readers, located


@contextmanager
def open_report(
    path: Where,
    read: Callable[[], RunSummary],
    make: Callable[[RunSummary], Report],
    links: Calibration | None,
    *,
    steps: str | None,
    numbers: Mapping[str, int],
    by: Readers,
) -> Iterator[Report]:
    """Yield a run's report; `read` reads its ranks, `make` makes it of them and of `links`, where these are given.

    What is computed when the block ends is kept for the next time. Raises what `read` does.
    """
    cache = None if by.cache is None else open_cache(by.cache)
    whole = _Whole(read, make)
    layout = located(path, steps, numbers, by)
    # Of objects elsewhere each is asked what it is by itself, which takes longer than is saved.
    if cache is None or any(isinstance(file.path, Remote) for file in layout.files):
        yield whole.report
        return
    before = identity_of(*layout.files)
    known = cache.look_up_report(layout, links)
    found = whole.report if known is None else _completed(known, lambda: whole.report)
    yield found
    if before is None or not before.is_settled() or not whole.is_read or not _tells_more(found, known):
        return
    # Other processes may have written to the run since: then the report is of another one than was looked up.
    if whole.is_of(layout) and located(path, steps, numbers, by) == layout:
        cache.keep_report(layout, links, before, whole.run, found)
        cache.clean()


class _Whole:
    """A run and its report, once asked for."""

    def __init__(self, read: Callable[[], RunSummary], make: Callable[[RunSummary], Report]) -> None:
        self._read, self._make = read, make

    @cached_property
    def run(self) -> RunSummary:
        return self._read()

    @cached_property
    def report(self) -> Report:
        return self._make(self.run)

    @property
    def is_read(self) -> bool:
        return "run" in self.__dict__

    def is_of(self, layout: RunLayout) -> bool:
        said = (layout.name, layout.manifest, layout.calibration)
        return (self.run.name, self.run.manifest, self.run.calibration) == said


def _completed(known: Fields, whole: Callable[[], Report]) -> Report:
    summary = completed(Summary, known[Summary], lambda: whole().summary)
    return completed(Report, known[Report] | {"summary": summary}, whole)


def _tells_more(found: Report, known: Fields | None) -> bool:
    """Whether more of a report is computed by now than was known."""
    return known is None or computed(found.summary).keys() > known[Summary].keys()
