"""Executor that has some ranks already, from a cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from analyzers.rank import RankSummary
from analyzers.run import RankFile
from tracer.reading.cache import Cache, Identity, identity_of

Keep = Callable[[RankFile, Any], None]


class KnownRanks(Executor):
    """Maps ranks in their order: known ones are there, others go to an executor, or are read here without one.

    `keep` hears of each that was read.
    """

    def __init__(
        self,
        known: Mapping[RankFile, tuple[RankSummary, ...]],
        others: Executor | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._known, self._others, self._keep = known, others, keep

    def map(self, fn: Callable[..., Any], *files: Any, **_: Any) -> Iterator[Any]:
        """Return all ranks' results, in order; raises what the executor raises."""
        ranks: list[RankFile] = list(files[0])
        missing = [file for file in ranks if file not in self._known]
        mapped = map if self._others is None else self._others.map
        results: Iterator[Any] = iter(mapped(fn, missing) if missing else ())
        for file in ranks:
            if file in self._known:
                yield self._known[file]
                continue
            result = next(results)
            if self._keep is not None:
                self._keep(file, result)
            yield result


def looked_up(
    cache: Cache | None, files: Sequence[RankFile], parts: Collection[str]
) -> dict[RankFile, tuple[RankSummary, ...]]:
    """Return those ranks that a cache has, with these parts."""
    if cache is None:
        return {}
    found = ((file, cache.look_up(file, parts)) for file in files)
    return {file: summary for file, summary in found if summary is not None}


def keeper(cache: Cache, files: Sequence[RankFile], parts: Collection[str]) -> Keep:
    """Return what keeps ranks that others have read, which are about to."""
    identities = {file: identity_of(file) for file in files}
    settled: dict[RankFile, Identity] = {
        file: identity for file, identity in identities.items() if identity is not None and identity.is_settled()
    }

    def keep(file: RankFile, result: Any) -> None:
        if file in settled and isinstance(result, tuple):
            cache.keep(file, settled[file], result, parts)

    return keep
