"""`load`: a folder of traces becomes a Run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from analyzers.errors import AnalysisError, Option, TooLarge, UnusableRun
from analyzers.memory import budget_of
from analyzers.notices import Code, Notice
from analyzers.paths import Where
from analyzers.ranks import RankNumber, rank_number
from analyzers.run.calibration import Calibration
from analyzers.run.layout import RankFile, RunLayout, find
from analyzers.run.light_window import Joining
from analyzers.run.manifest import Manifest
from analyzers.run.numbering import NumberedBy, numbers_of
from analyzers.run.rank_trace import RankFacts, RankTrace, read_ranks
from analyzers.texts import brief

LISTED_RANKS = 8


R = TypeVar("R", bound=RankFacts)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Run:
    """The ranks of one run that could be read, in order, and in `warnings` what could not."""

    name: str
    manifest: Manifest | None
    ranks: tuple[RankTrace, ...]
    warnings: tuple[Notice, ...] = ()
    calibration: Calibration | None = None
    rank_source: NumberedBy = NumberedBy.TRACE

    __repr__ = brief


def load(
    path: Where, steps: str | None = None, memory: int | None = None, numbers: Mapping[str, int] | None = None
) -> Run:
    """Read a run: a folder of traces (ours or anyone's), one trace file, or the folders that several hosts wrote.

    `steps` is the annotation whose repeats are the steps, instead of the profiler's; `memory` is what reading one rank
    may take, in bytes (default: half of the machine's); `numbers` are ranks by their files' names, where these do not
    say them. What cannot be read of it is left out and said in the run's
    warnings. Raises UnreadableTrace where nothing is left, and UnusableRun, also where two
    files claim one rank.
    """
    recording = find(path, steps, budget_of(memory), numbers)
    gathered = gather(recording, read_alike(lambda file: tuple(read_ranks(file)), recording.files, map))
    ranks = gathered.ranks
    if any(rank.mismatch for rank in ranks):
        ranks = tuple(rank.in_full() for rank in ranks)
    return Run(recording.name, recording.manifest, ranks, gathered.warnings, recording.calibration, gathered.source)


@dataclass(frozen=True)
class Gathered(Generic[R]):
    """The ranks of a run in order, its warnings, and what says which rank is which."""

    ranks: tuple[R, ...]
    warnings: tuple[Notice, ...]
    source: NumberedBy


def read_alike(
    read: Callable[[RankFile], Sequence[R]],
    files: Sequence[RankFile],
    mapped: Callable[..., Iterable[Sequence[R] | AnalysisError]],
    known: Sequence[R] = (),
) -> list[Sequence[R] | AnalysisError]:
    """Return the ranks in each file, or what refuses it; `mapped` maps over files, `known` are others of the run.

    Where steps were inferred, and not alike for all ranks that mark none, files are read once more, and no steps
    inferred.
    """
    results = list(mapped(catch_errors(read), files))
    ranks = [*known, *(rank for result in results if not isinstance(result, AnalysisError) for rank in result)]
    if len({rank.inferred and rank.inferred.cut for rank in ranks if rank.inferred or not rank.has_steps}) < 2:
        return results
    del results, ranks
    return list(mapped(catch_errors(read), [replace(file, infers=False) for file in files]))


def catch_errors(read: Callable[[RankFile], T]) -> Callable[[RankFile], T | AnalysisError]:
    """Wrap a reader so that it returns the error for a file that it cannot read, and others are read all the same."""
    return partial(_try_reader, read)


def _try_reader(read: Callable[[RankFile], T], file: RankFile) -> T | AnalysisError:
    try:
        return read(file)
    except AnalysisError as error:
        return error
    except MemoryError:
        return TooLarge(
            f"{file.path}: memory ran out while it was read; read fewer ranks at once with ", Option("workers", 1)
        )


def gather(recording: RunLayout, results: Iterable[Sequence[R] | AnalysisError]) -> Gathered[R]:
    """Return the ranks in order, and the run's warnings. Raises as `load` does."""
    read: list[R] = []
    failures: list[AnalysisError] = []
    for result in results:
        if isinstance(result, AnalysisError):
            failures.append(result)
        else:
            read.extend(result)
    numbers = numbers_of([(rank.path, rank.owner) for rank in read])
    ranks: list[R] = []
    for rank, number in zip(read, numbers.ranks, strict=True):
        if number is None:
            failures.append(_nameless(rank))
        else:
            ranks.append(rank.numbered(number))
    if not ranks:
        more = f" (and {len(failures) - 1} more files like it)" if len(failures) > 1 else ""
        raise type(failures[0])(*failures[0].args, more)
    _check_ranks(ranks)
    ranks.sort(key=lambda rank: rank.rank)
    warnings = [
        *recording.warnings,
        *numbers.notices,
        *(Notice(Code.RECORDING_NOTE, note) for note in (recording.manifest.notes if recording.manifest else ())),
        *(lost for rank in ranks for lost in rank.lost),
        *(_mixed_windows(ranks) or _light_windows(ranks)),
        *(Notice(Code.RANK_UNREADABLE, f"left out: {error.for_shell}") for error in failures),
        *_missing_ranks(world_size(recording.manifest, ranks), {rank.rank for rank in ranks}),
        *_unknown_communication(ranks),
    ]
    return Gathered(
        tuple(ranks), tuple(warnings), numbers.source if recording.manifest is None else NumberedBy.MANIFEST
    )


def hosts(manifest: Manifest | None, ranks: Sequence[RankFacts]) -> dict[RankNumber, str]:
    """The host of each rank, where its trace names it or the run was recorded on one."""
    if manifest is not None and len(manifest.hosts) == 1:
        return {trace.rank: manifest.hosts[0] for trace in ranks}
    if manifest is not None and manifest.host_of_rank:
        numbered = {rank_number(key): host for key, host in manifest.host_of_rank.items()}
        return {rank: host for rank, host in numbered.items() if rank is not None}
    said = {trace.rank: trace.header.host_name or trace.owner.host for trace in ranks}
    return {rank: host for rank, host in said.items() if host}


def world_size(manifest: Manifest | None, ranks: Sequence[RankFacts]) -> int:
    """Return the number of processes that manifest or traces say, at least up to the highest rank read."""
    claimed = [size for rank in ranks for size in (rank.header.distributed.get("world_size"), rank.owner.world_size)]
    claimed.append(manifest.world_size if manifest else None)
    sizes = [size for size in claimed if isinstance(size, int)]
    return max(sizes + [rank.rank + 1 for rank in ranks])


def _nameless(rank: RankFacts) -> UnusableRun:
    """Say of a rank that nothing numbers how it can be."""
    where = "neither in distributedInfo nor in its name"
    return UnusableRun(
        f"{rank.path}: its rank is {where}; say it with --rank {rank.path.name}=N, or call it rankN.json.gz"
    )


def _mixed_windows(ranks: Sequence[RankFacts]) -> list[Notice]:
    """Times of light and full windows are never mixed: where one light window fails, all times are the full ones'."""
    mismatches = [f"rank {rank.rank}: {rank.mismatch}" for rank in ranks if rank.mismatch]
    if not mismatches:
        return []
    why = "; ".join(mismatches[:3])
    message = f"times come from the full profile, which slows steps: the light profile cannot be used ({why})"
    return [Notice(Code.LIGHT_WINDOW_DOES_NOT_FIT, message)]


def _light_windows(ranks: Sequence[RankFacts]) -> list[Notice]:
    """Say which device events light and full windows do not share, and that launches are estimated."""
    joined = [(rank.rank, rank.joining) for rank in ranks if rank.joining is not None]
    notices = []
    parts = [(rank, one) for rank, one in joined if one.only_full or one.only_light]
    if parts:
        listed = "; ".join(f"rank {rank}: {_in_part(one)}" for rank, one in parts[:LISTED_RANKS])
        more = f"; and {len(parts) - LISTED_RANKS} ranks more" if len(parts) > LISTED_RANKS else ""
        text = f"some device events are in the light or the full profile alone ({listed}{more})"
        said = "those of the light profile alone have times, but no operator or layer"
        notices.append(Notice(Code.LIGHT_WINDOW_JOINED_IN_PART, f"{text}: {said}"))
    if any(one.launches_are_estimated for _, one in joined):
        text = (
            "when kernels were launched is estimated from the full profile, since the light profile does not record it"
        )
        notices.append(Notice(Code.LAUNCHES_ARE_ESTIMATED, text))
    return notices


def _in_part(joining: Joining) -> str:
    alone = f"{joining.only_light} in the light one alone, {joining.only_full} in the full one alone"
    return f"{joining.both} in both, {alone}"


def _check_ranks(ranks: Sequence[RankFacts]) -> None:
    for number, count in Counter(rank.rank for rank in ranks).items():
        if count > 1:
            files = ", ".join(rank.path.name for rank in ranks if rank.rank == number)
            folder = ranks[0].path.parent
            raise UnusableRun(
                f"{folder}: rank {number} has {count} files ({files}); keep one, or report one file by itself"
            )


def _missing_ranks(size: int, present: set[int]) -> list[Notice]:
    count = size - len(present)
    if not count:
        return []
    # World sizes are what a file says: no list is made of one that may be absurd.
    missing = [str(rank) for rank in range(min(size, len(present) + LISTED_RANKS)) if rank not in present]
    which = ", ".join(missing) if count <= LISTED_RANKS else f"{count} of them"
    message = f"missing ranks (world size {size}): {which}; the report covers the {len(present)} that are here"
    return [Notice(Code.RANKS_MISSING, message)]


def _unknown_communication(ranks: Iterable[RankFacts]) -> list[Notice]:
    """Kernels counted as compute whose name says otherwise: nothing disappears silently."""
    counted: Counter[str] = Counter()
    for rank in ranks:
        counted.update(rank.unknown_communication)
    looks = "looks like communication but no rule knows it: counted as compute"
    return [
        Notice(Code.KERNEL_UNKNOWN, f"kernel {name[:80]!r} ({count} times) {looks}")
        for name, count in counted.most_common()
    ]
