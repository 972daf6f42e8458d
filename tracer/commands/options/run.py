"""Options of commands that read a run: path, readers, drawn ranks."""

from __future__ import annotations

import argparse
import importlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.paths import Place, Where, local_path, place
from analyzers.ranks import MANY, rank_number
from tracer.commands.options.progress_bar import reading, working
from tracer.commands.options.values import processes, refusal, scheduler_address
from tracer.environment import CACHE, MEMORY, cache_folder, memory, memory_size
from tracer.errors import UsageError

if TYPE_CHECKING:
    from analyzers.rank import RunSummary
    from analyzers.reporting import Lanes, Report
    from analyzers.run import Calibration
    from tracer.reading import Readers

# What speaks on stderr by itself where something fails that we put into a line.
_LIBRARIES = ("distributed", "fsspec", "s3fs", "gcsfs", "aiobotocore", "botocore", "google.auth", "asyncio")
_RANKS = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
MOST_DRAWN = 4096
# What a report of many ranks takes longest for, once they are read.
CHARGES = "charges and gains"


# As arguments: a RUN, a path or a URL that fsspec opens; and what is written, and files of links, on this machine.
run_place, here = place, local_path


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add the run, which several hosts may have written."""
    parser.add_argument(
        "run",
        type=run_place,
        nargs="+",
        metavar="RUN",
        help="a folder of traces, a trace file, or several hosts' folders; each a path or a URL (s3://, gs://)",
    )


def add_reading_arguments(
    parser: argparse.ArgumentParser, *, steps: bool = False, links: bool = False, drawing: bool = False
) -> None:
    """Add the options for reading; --steps, --links and --ranks only where a command asks for them."""
    reading_group = parser.add_argument_group("reading")
    if steps:
        reading_group.add_argument(
            "--steps",
            dest="step_name",
            metavar="NAME",
            help="the annotation that marks a step, or how its name begins (default: ProfilerStep)",
        )
    if links:
        reading_group.add_argument(
            "--links",
            type=here,
            metavar="FILE",
            help="what `tracer calibrate` measured (default: the run's own links.json)",
        )
    if drawing:
        reading_group.add_argument(
            "--ranks",
            type=_ranks,
            metavar="N,...",
            help=f"ranks to draw, such as 0,17,100-103 (default: all, of more than {MANY} those that stand out)",
        )
    reading_group.add_argument(
        "--rank",
        type=_numbered_file,
        action="append",
        dest="numbers",
        metavar="FILE=N",
        help="FILE is rank N, where neither trace nor name says so; repeatable",
    )
    reading_group.add_argument(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        help=f"memory for reading one rank, such as 4GB (default: {MEMORY}, else half of the machine's, shared by all "
        "readers)",
    )
    group = reading_group.add_mutually_exclusive_group()
    group.add_argument(
        "--workers",
        type=processes,
        dest="readers",
        metavar="N",
        help="read ranks in N processes (default: one per core)",
    )
    add_scheduler_argument(group)
    add_cache_argument(reading_group)


def add_cache_argument(parser: argparse._ActionsContainer) -> None:
    """Add the option that reads all ranks anew."""
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help=f"read all ranks anew, and keep nothing, as {CACHE}=off ({CACHE}=DIR: keep it there)",
    )


def add_scheduler_argument(parser: argparse._ActionsContainer) -> None:
    """Add the option for a cluster that reads the ranks."""
    parser.add_argument(
        "--scheduler",
        type=scheduler_address,
        metavar="tcp://HOST:PORT",
        help="read ranks on this Dask scheduler's workers",
    )


def links_of(options: argparse.Namespace) -> Calibration | None:
    """Read the calibration that --links names. Raises AnalysisError."""
    from analyzers.run import read_calibration

    return read_calibration(options.links, piped=True) if options.links is not None else None


def readers(options: argparse.Namespace) -> Readers:
    """Return who is to read."""
    from tracer.reading import Readers

    if options.scheduler is not None:
        with suppress(ImportError):
            importlib.import_module("distributed")  # which gives its loggers levels of its own
    _hush()
    limit, cache = (
        getattr(options, "memory", None) or memory(),
        None if getattr(options, "no_cache", False) else cache_folder(),
    )
    return Readers(getattr(options, "readers", None), options.scheduler, reading, limit, cache)


def _hush() -> None:
    """Silence libraries that log what we say in a line."""
    loggers = [name for name in logging.root.manager.loggerDict if name.startswith(_LIBRARIES)]
    for name in (*_LIBRARIES, *loggers):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def read(options: argparse.Namespace, path: Where | None = None, *, causes: bool = True) -> RunSummary:
    """Read the run's summary (the options' own run, unless another is named), with what its findings need."""
    from tracer.reading import read_run

    path = options.run if path is None else path
    summary = read_run(path, causes=causes, steps=_steps(options), numbers=_numbers(options, path), by=readers(options))
    return _judged(options, summary, path)


@contextmanager
def reported(options: argparse.Namespace, links: Calibration | None) -> Iterator[Report]:
    """Yield the report of the options' own run, of which the cache may know what a screen needs."""
    from tracer.reading import open_report

    make = partial(_report, links=links)
    if getattr(options, "validate", False):
        yield make(read(options))
        return
    numbers = _numbers(options, options.run)
    with open_report(
        options.run, lambda: read(options), make, links, steps=_steps(options), numbers=numbers, by=readers(options)
    ) as found:
        yield found


def _report(summary: RunSummary, links: Calibration | None) -> Report:
    from analyzers.reporting import report

    with working(CHARGES):
        return report(summary, links)


def _judged(options: argparse.Namespace, summary: RunSummary, path: Where) -> RunSummary:
    """Add torch's own opinion of the traces to a run's warnings, where it is asked for."""
    from tracer.reading import second_opinions

    if not getattr(options, "validate", False):
        return summary
    return replace(summary, warnings=(*summary.warnings, *second_opinions(path)))


def _steps(options: argparse.Namespace) -> str | None:
    return getattr(options, "step_name", None)


def _numbers(options: argparse.Namespace, path: Where) -> dict[str, int]:
    """Return the ranks that the user says, by file; of several runs, each has those of its own files."""
    from analyzers.run import find

    said = dict(getattr(options, "numbers", None) or ())
    if not said or path is getattr(options, "run", None):
        return said
    recording = find(path)
    return {name: number for name, number in said.items() if recording.called(name)}


def read_here(path: Path) -> RunSummary:
    """Read the summary of a run that has just been recorded here."""
    from tracer.reading import Readers, read_run

    return read_run(path, causes=True, by=Readers(progress=reading, memory=memory(), cache=cache_folder()))


def cell_reader(options: argparse.Namespace) -> Callable[[Path], RunSummary]:
    """Return what reads a cell of a sweep."""
    return partial(read, options, causes=False)


def sweep_folder(where: Place) -> Path:
    """Return a sweep's folder. Raises UsageError for a URL."""
    if not isinstance(where, Path):
        raise UsageError(f"{where}: a sweep must be on this machine's disks: copy the folder here")
    return where


def read_drawn(
    options: argparse.Namespace, links: Calibration | None, path: Where | None = None
) -> tuple[RunSummary, Report, Sequence[Lanes]]:
    """Read the run (the options' own, unless another is named), its report, and the lanes of the ranks to draw.

    Raises UsageError for a rank it has not.
    """
    from analyzers.reporting import lanes
    from analyzers.run import find
    from tracer.reading import read_lanes, read_run, with_undrawn

    by, path = readers(options), options.run if path is None else path
    steps, numbers = _steps(options), _numbers(options, path)
    few = _ranks_to_draw(options) is None and len(find(path).files) <= MANY
    summary = read_run(path, lanes=few, causes=True, steps=steps, numbers=numbers, by=by)
    summary = _judged(options, summary, path)
    run_report = _report(summary, links)
    if not few:
        summary = read_lanes(summary, path, chosen_ranks(options, run_report), steps, numbers, by)
        # The report was made before: of which ranks are drawn it decides.
        run_report = with_undrawn(run_report, summary)
    return summary, run_report, lanes(summary, run_report)


def chosen_ranks(options: argparse.Namespace, run_report: Report) -> Collection[int]:
    """Return the ranks to draw: those asked for, or those that represent the others. Raises UsageError."""
    from analyzers.reporting import drawn_ranks

    ranks = _ranks_to_draw(options)
    if ranks is None:
        return drawn_ranks(run_report)
    missing = [rank for rank in ranks if rank not in set(run_report.run.ranks)]
    if missing:
        raise UsageError(
            f"--ranks {missing[0]}: {run_report.run.name} has no such rank; it has {_extent(run_report.run.ranks)}"
        )
    return list(ranks)


def _ranks_to_draw(options: argparse.Namespace) -> Collection[int] | None:
    """Return the ranks that were asked for; None where the command has no option for it."""
    return getattr(options, "ranks", None)


def _extent(ranks: Sequence[int]) -> str:
    return f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else f"{ranks[0]} alone"


def _numbered_file(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    rank = rank_number(number)
    if not name or rank is None:
        raise refusal(text, "give a file and its rank, such as worker_a.json=0; --ranks says which are drawn")
    return name, rank


def _ranks(text: str) -> list[int]:
    if not _RANKS.fullmatch(text):
        raise refusal(text, "give ranks such as 0,17,100-103")
    ranges = [tuple(map(int, part.split("-"))) for part in text.split(",")]
    if sum(max(0, part[-1] - part[0] + 1) for part in ranges) > MOST_DRAWN:
        raise refusal(text, f"give {MOST_DRAWN} ranks at most")
    ranks = sorted({rank for part in ranges for rank in range(part[0], part[-1] + 1)})
    if not ranks:
        raise refusal(text, "write the smaller number of a range first, as in 100-103")
    return ranks
