"""`tracer sweep`: how training scales over devices and batches, measured, beside what subtraction would have said.

One command records the grid, or what is missing of it; another reports it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from analyzers.texts import typed, utf8
from tracer.atomic_files import alone_in, refuse_existing, write_bytes
from tracer.commands.options import (
    add_cache_argument,
    add_scheduler_argument,
    add_step_arguments,
    add_workload_arguments,
    cell_reader,
    check_data,
    check_workload,
    configuration,
    devices_of,
    here,
    positive,
    progress,
    run_place,
    say,
    sweep_folder,
    tell,
    terminal,
)
from tracer.config import (
    DATA_SETS,
    LONG_BLOCK,
    STRATEGY_TRAITS,
    SYNTHETIC_SAMPLES,
    DeviceType,
    RecordConfig,
    Setup,
    Strategy,
)
from tracer.errors import TracerError, UsageError
from tracer.views import csv_text

if TYPE_CHECKING:
    from analyzers.comparison import Scaling
    from analyzers.rank import RunSummary

PARALLEL = tuple(name for name, traits in STRATEGY_TRAITS.items() if not traits.not_on_several)
BATCHES = (32, 128, 512)
# Rounds over the grid, of which each has so much of every cell without the profiler, and 100 steps at least:
# docs/dev/decisions/launching.md.
ROUNDS, UNPROFILED_S = 4, 3.0
# Below a sweep's folder, unless --output says otherwise.
REPORT = "report"
MARKDOWN, PAGE = "scaling.md", "scaling.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer sweep`."""
    _add_grid_arguments(parser)
    _add_training_arguments(parser)
    out = parser.add_argument_group("output")
    out.add_argument("--report", type=_folder, metavar="DIR", help="record nothing; report the sweep in this folder")
    out.add_argument(
        "-o",
        "--output",
        type=here,
        metavar="DIR",
        help="the sweep's folder (default: traces/sweep); with --report that of tables, plots and page (default: "
        "DIR/report)",
    )
    out.add_argument("--json", action="store_true", help="print the study as JSON; files only with -o")
    add_scheduler_argument(out)
    add_cache_argument(out)
    out.add_argument("--force", action="store_true", help="replace files that exist")
    # Cells are recorded for their times, and earlier sweeps, which may go on, had no such option.
    parser.set_defaults(no_stacks=True)


def _add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options in which a sweep's cells differ."""
    grid = parser.add_argument_group("grid: a recording for each strategy, number of devices and batch")
    grid.add_argument("--gpus", type=numbers, metavar="N,...", help="default: 1, 2, 4 and so on, up to all")
    grid.add_argument("--device", choices=["cuda", "cpu"], help="cpu: communicate with gloo")
    grid.add_argument("--ranks", type=numbers, metavar="N,...", help="numbers of ranks on the CPU (default: 1,2)")
    grid.add_argument("--batch", type=numbers, metavar="N,...", help="samples per device (default: 32,128,512)")
    grid.add_argument(
        "--fourfold",
        action="store_true",
        help="go on with four times the last --batch, and so on, until memory or a rank's share of an epoch ends",
    )
    grid.add_argument("--strategy", metavar="NAME,...", help=f"of {', '.join(PARALLEL)} (default: ddp)")
    grid.add_argument(
        "--strong",
        action="store_true",
        help="also record one device at the others' global batches",
    )


def _add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all cells have in common, except the sort of device."""
    add_workload_arguments(parser)
    add_step_arguments(
        parser.add_argument_group("steps"),
        f"rounds over the grid, a launch for each row of batches (default: {ROUNDS}); 1: each cell once, for a look",
    )


def _unset(*adding: Callable[[argparse.ArgumentParser], None]) -> dict[str, Any]:
    """Return the options that these functions add, as they are where none is given."""
    parser = argparse.ArgumentParser()
    for add in adding:
        add(parser)
    return vars(parser.parse_args([]))


def _folder(text: str) -> Path:
    """Parse a sweep's folder as an argument: sweeps are on this machine's disks."""
    return sweep_folder(run_place(text))


def run(options: argparse.Namespace) -> int:
    """Record what is missing of a sweep, and report it; or report it alone."""
    from analyzers.run import SWEEP

    reader = cell_reader(options)
    if options.report is not None:
        for name, value in _unset(_add_grid_arguments, _add_training_arguments).items():
            if getattr(options, name) != value:
                raise UsageError(f"--{name.replace('_', '-')} only applies to recording: --report records nothing")
        # Results alone were written before: somebody looks at them.
        is_printed = options.json or not (options.report / SWEEP).is_file()
        output = options.output or (None if is_printed else options.report / REPORT)
        _report(options.report, output, options.json, options.force, reader)
        return 0
    if options.force:
        raise UsageError(
            "--force only replaces the files of --report. A sweep keeps the cells it has: give another -o, or "
            "delete the folder"
        )
    folder = options.output or Path("traces") / "sweep"
    failed = _record(options, folder)
    _report(folder, None if options.json else folder / REPORT, options.json, True, reader)
    return TracerError.exit_code if failed else 0


def _record(options: argparse.Namespace, folder: Path) -> list[str]:
    """Record every cell that is not done; return those that failed. Raises UsageError, TracerError."""
    from analyzers.run import SWEEP, Cell, Sweep, read_sweep

    check_workload("tracer sweep")
    from tracer.launching import Grid, merged, quiet_launcher, record_grid

    configs = cells_of(options)
    check_data(max(configs.values(), key=lambda config: config.process_batch * config.world_size))
    first = next(iter(configs.values()))
    cells = [Cell(name, config.strategy, config.devices, config.batch, "pending") for name, config in configs.items()]
    wanted = Sweep(
        name=folder.resolve().name,
        command=first.command,
        settings=settings_of(options),
        rounds=options.rounds or ROUNDS,
        cells=cells,
    ).without_secrets()
    quiet_launcher()
    with alone_in(folder):
        written = read_sweep(folder)[0] if (folder / SWEEP).is_file() else None
        grid = Grid(folder.absolute(), merged(written, wanted, folder), configs)
        grid.write()
        say(f"sweeping {first.model} over {len(configs)} cells into {folder}: {grid.in_words()}")
        if grid.sweep.rounds > 1 and grid.pending(grid.sweep.rounds):
            say(
                f"{grid.sweep.rounds} rounds over the grid; a recording has {UNPROFILED_S:g} s or {LONG_BLOCK} steps "
                "without the profiler, whichever is later: how long steps take is known after the first"
            )
        with progress("step") as heard:
            record_grid(grid, heard, say)
    return [name for name in configs if grid.state(name) == "failed"]


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what all cells have in common, as sweep.json has it: a sweep goes on if it is the same.

    What records light windows is no part of it: earlier sweeps could not choose, and every cell's run.json says.
    """
    names = ("device", *_unset(_add_training_arguments))
    return {name: getattr(options, name) for name in names if name != "light"}


def cells_of(options: argparse.Namespace) -> dict[str, RecordConfig]:
    """Return what each cell records, by its name. Raises UsageError, TracerError if one of them cannot be."""
    from analyzers.run import SINGLE

    device, counts = _devices(options)
    batches = _batches(options, counts)
    places = [(count, *rest) for count in counts for rest in product(batches[count], _strategies(options))]
    if options.strong:
        places += [(1, count * batch, SINGLE) for count, batch, _ in places]
    setups = [
        Setup(device, count, cast(Strategy, way if count > 1 else SINGLE), batch)
        for count, batch, way in sorted(places)
    ]
    named = {f"{setup.strategy}{setup.devices}-batch{setup.batch}": setup for setup in setups}
    return {name: msgspec.structs.replace(_of_round(options, setup), place=name) for name, setup in named.items()}


def _of_round(options: argparse.Namespace, setup: Setup) -> RecordConfig:
    """Return what a launch records of a cell: all that `tracer record` does, or one of several rounds over the grid."""
    if options.rounds == 1:
        return configuration(argparse.Namespace(**vars(options) | {"rounds": None}), setup)
    config = configuration(options, setup)
    return msgspec.structs.replace(
        config, plan=msgspec.structs.replace(config.plan, rounds=1, unprofiled_s=UNPROFILED_S)
    )


def _batches(options: argparse.Namespace, counts: Sequence[int]) -> dict[int, list[int]]:
    """Return the batches on each number of devices, with --fourfold up to a rank's share of an epoch's samples."""
    batches = {count: sorted(set(options.batch or BATCHES)) for count in counts}
    if options.fourfold:
        name = (options.data or "").partition(":")[0]
        samples = DATA_SETS[name][1] if name in DATA_SETS else options.epoch_samples or SYNTHETIC_SAMPLES
        for count, row in batches.items():
            while row[-1] * 4 * count <= samples:
                row.append(row[-1] * 4)
        ends = ", ".join(f"{row[-1]:,} on {count}" for count, row in batches.items())
        say(f"--fourfold ends at a rank's share of {samples:,} samples: at batch {ends}")
    return batches


def _devices(options: argparse.Namespace) -> tuple[DeviceType, list[int]]:
    """Return which devices the cells have, and how many, the fewest first. Raises UsageError, TracerError."""
    device, most = devices_of(
        options.device, max(options.gpus) if options.gpus else None, max(options.ranks) if options.ranks else None
    )
    given = options.ranks or options.gpus or [2**power for power in range(most.bit_length())]
    return device, sorted(set(given))


def _strategies(options: argparse.Namespace) -> list[str]:
    names = list(dict.fromkeys((options.strategy or "ddp").split(",")))
    unknown = [name for name in names if name not in PARALLEL]
    if unknown:
        raise UsageError(f"--strategy: {unknown[0]!r} is not one of {', '.join(PARALLEL)}")
    return names


def numbers(text: str) -> list[int]:
    """Parse an option's whole numbers from 1 up, separated by commas."""
    return [positive(part) for part in text.split(",")]


def _report(sweep: Path, output: Path | None, as_json: bool, force: bool, reader: Callable[[Path], RunSummary]) -> None:
    """Print the study, and write its files where an output is named. Raises TracerError."""
    from analyzers.comparison import SWEEP_TABLES, scaling_json, study
    from analyzers.run import RESULTS
    from tracer.views.plots import PICTURES
    from tracer.views.sections.results import scaling_text

    if output is not None:
        for name in (RESULTS, MARKDOWN, PAGE, *(f"{table}.csv" for table in SWEEP_TABLES), *PICTURES):
            refuse_existing(output / name, force)
    scaling = study(sweep, reader)
    sys.stdout.write(scaling_json(scaling) + "\n" if as_json else scaling_text(scaling, *terminal()))
    written = _write(output, scaling, force) if output is not None else []
    if as_json:
        return
    if written:
        tell(f"written to {output}: {', '.join(written)}")
    for cell in [cell for cell in scaling.cells if cell.measured and (sweep / cell.name).is_dir()][-1:]:
        tell(f"next: tracer report {typed(str(sweep / cell.name))}")


def _write(folder: Path, scaling: Scaling, force: bool) -> list[str]:
    """Write the study's files; return their names. Remove an earlier report's pictures that this one has not."""
    from tracer.views.plots import PICTURES, plots

    pictures = plots(scaling)
    if force:
        for name in set(PICTURES) - set(pictures):
            (folder / name).unlink(missing_ok=True)
    files = dict(_files(scaling, pictures))
    for name, data in files.items():
        write_bytes(folder / name, data, force)
    return list(files)


def _files(scaling: Scaling, pictures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield every file by name, the page first."""
    from analyzers.comparison import SWEEP_TABLES, scaling_json
    from analyzers.run import RESULTS
    from tracer.views.html import scaling_html
    from tracer.views.sections.results import as_markdown

    yield PAGE, utf8(scaling_html(scaling))
    yield MARKDOWN, utf8(as_markdown(scaling, pictures))
    yield from pictures.items()
    for name, table in SWEEP_TABLES.items():
        yield f"{name}.csv", utf8(csv_text(table.frame(scaling)))
    yield RESULTS, (scaling_json(scaling) + "\n").encode()
