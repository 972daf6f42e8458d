"""`tracer sweep`: how training scales over devices and batches, measured, beside what subtraction would have said.

One command records the grid, or what is missing of it; another reports it.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import msgspec

from analyzers.scaling import study
from analyzers.study import Scaling, cells_frame, epochs_frame, strong_frame, to_json, weak_frame
from analyzers.sweeps import SINGLE, SWEEP, Cell, Sweep, read_sweep
from tracer.commands.devices import pick_devices, positive
from tracer.commands.output import terminal
from tracer.commands.progress import progress, say
from tracer.commands.reading import add_scheduler_argument, cell_reader, run_place, sweep_folder
from tracer.commands.workload import add_step_arguments, add_workload_arguments, check_data, configuration
from tracer.config import CIFAR10_SAMPLES, STRATEGIES, RecordConfig
from tracer.errors import TracerError, UsageError
from tracer.files import alone_in, refuse_existing, write_bytes
from tracer.views.page import page
from tracer.views.palette import DARK, LIGHT
from tracer.views.plots import PICTURES, plots
from tracer.views.scaling import as_markdown, text

NAME = "sweep"
HELP = "how training scales over devices and batches, measured from a sweep's recordings"
MISSING = "tracer sweep needs torch and torchvision to record: pip install 'tracer-toolkit[record]'"
PARALLEL = tuple(strategy for strategy in STRATEGIES if strategy != SINGLE)
BATCHES = (32, 128, 512)
# What --report takes; what tells cells of a sweep apart, or is none of their settings; what a cell has from no option.
OF_REPORTS = {"report", "output", "json", "force", "scheduler", "script", "unset", "command", "handler"}
OF_CELLS = OF_REPORTS | {"gpus", "ranks", "batch", "strategy", "fourfold", "strong"}
NOT_OF_SWEEPS = ("nnodes",)
# Below a sweep's folder, unless --output says otherwise.
REPORT = "report"
TABLES = {
    "cells.csv": cells_frame,
    "weak.csv": weak_frame,
    "strong.csv": strong_frame,
    "epochs.csv": epochs_frame,
}
DOCUMENT, MARKDOWN, PAGE = "scaling.json", "scaling.md", "scaling.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tracer sweep`."""
    grid = parser.add_argument_group("grid: a recording for each strategy, number of devices and batch")
    grid.add_argument("--gpus", type=numbers, metavar="N,...", help="default: 1, 2, 4 and so on, up to all")
    grid.add_argument("--device", choices=["cuda", "cpu"], help="cpu: communicate with gloo")
    grid.add_argument("--ranks", type=numbers, metavar="N,...", help="this many ranks on the CPU (default: 1,2)")
    grid.add_argument("--batch", type=numbers, metavar="N,...", help="samples per device (default: 32,128,512)")
    grid.add_argument(
        "--fourfold", action="store_true", help="from the last --batch on four times as many, until out of memory"
    )
    grid.add_argument("--strategy", metavar="NAME,...", help=f"of {', '.join(PARALLEL)} (default: ddp)")
    grid.add_argument(
        "--strong",
        action="store_true",
        help="also one device at every global batch of the others, which strong scaling is measured against",
    )
    add_workload_arguments(parser)
    add_step_arguments(parser.add_argument_group("steps"))
    out = parser.add_argument_group("output")
    out.add_argument("--report", type=_folder, metavar="DIR", help="record nothing; report the sweep in this folder")
    out.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="the sweep's folder, where cells that are done are kept (default: traces/sweep); "
        "with --report where tables, plots and page go (default: DIR/report)",
    )
    out.add_argument(
        "--json", action="store_true", help="print the study as JSON instead of tables; files only where -o says so"
    )
    add_scheduler_argument(out)
    parser.set_defaults(unset=vars(parser.parse_args([])))
    out.add_argument("--force", action="store_true", help="replace files that exist")


def _folder(text: str) -> Path:
    """A sweep's folder as an argument: sweeps lie on this machine's disks."""
    try:
        return sweep_folder(run_place(text))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(options: argparse.Namespace) -> int:
    """Record what is missing of a sweep, and report it; or report it alone."""
    if options.report is not None:
        for name, value in vars(options).items():
            if name not in OF_REPORTS and value != options.unset.get(name, value):
                raise UsageError(f"--{name.replace('_', '-')} is of a recording, and --report records nothing")
        return _report(options)
    if options.force:
        raise UsageError(
            "--force replaces files of a --report; a sweep keeps what it has: give another -o, or remove it"
        )
    folder = options.output or Path("traces") / "sweep"
    failed = _record(options, folder)
    options.report, options.output, options.force = folder, None, True
    _report(options)
    return TracerError.exit_code if failed else 0


def _record(options: argparse.Namespace, folder: Path) -> list[str]:
    """Record every cell that is not done; those that failed. Raises UsageError, TracerError."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "torchvision")):
        raise TracerError(MISSING)
    from tracer.launch import quiet_launcher
    from tracer.sweep import Grid, merged, record_grid

    configs = cells_of(options)
    for config in list(configs.values())[:1]:
        check_data(config)
    first = next(iter(configs.values()))
    settings = {name: value for name, value in vars(options).items() if name not in OF_CELLS}
    cells = [Cell(name, each.strategy, each.devices, each.batch, "pending") for name, each in configs.items()]
    wanted = Sweep(name=folder.resolve().name, command=first.command, settings=settings, cells=cells)
    quiet_launcher()
    with alone_in(folder):
        written = read_sweep(folder)[0] if (folder / SWEEP).is_file() else None
        grid = Grid(folder.absolute(), merged(written, wanted, folder), configs)
        grid.write()
        say(f"sweeping {first.model} over {len(configs)} cells into {folder}: {grid.in_words()}")
        with progress("step") as heard:
            record_grid(grid, heard, say)
    return [name for name in configs if grid.state(name) == "failed"]


def cells_of(options: argparse.Namespace) -> dict[str, RecordConfig]:
    """What each cell records, by its name. Raises UsageError, TracerError where one of them cannot be."""
    places = list(product(_counts(options), _fourfold(options, options.batch or BATCHES), _strategies(options)))
    if options.strong:
        places += [(1, count * batch, SINGLE) for count, batch, _ in places]
    found = {}
    for count, batch, strategy in sorted(places):
        of_cell = argparse.Namespace(**vars(options) | dict.fromkeys(NOT_OF_SWEEPS) | {"batch": batch})
        of_cell.strategy = strategy if count > 1 else SINGLE
        of_cell.gpus, of_cell.ranks = (None, count) if _on_cpu(options) else (count, None)
        name = f"{of_cell.strategy}{count}-batch{batch}"
        found[name] = msgspec.structs.replace(configuration(of_cell), place=name)
    return found


def _fourfold(options: argparse.Namespace, batches: Sequence[int]) -> list[int]:
    """The batches, and with --fourfold those beyond, up to what an epoch holds: memory may end the row before."""
    found = sorted(set(batches))
    while options.fourfold and found[-1] * 4 <= (options.epoch_samples or CIFAR10_SAMPLES):
        found.append(found[-1] * 4)
    return found


def _on_cpu(options: argparse.Namespace) -> bool:
    if options.gpus is not None:
        return False  # they are there, or are refused
    device, _ = pick_devices(argparse.Namespace(**vars(options) | {"gpus": None, "ranks": None}))
    return device == "cpu" or options.ranks is not None


def _counts(options: argparse.Namespace) -> list[int]:
    """Devices of the cells, the fewest first. Raises UsageError."""
    if options.gpus is not None and (options.ranks is not None or options.device == "cpu"):
        raise UsageError("--gpus counts GPUs; on a CPU give --device cpu --ranks N,...")
    given = options.ranks or options.gpus
    if given is None:
        _, here = pick_devices(argparse.Namespace(**vars(options) | {"gpus": None, "ranks": None}))
        given = [2**power for power in range(here.bit_length())]
    return sorted(set(given))


def _strategies(options: argparse.Namespace) -> list[str]:
    names = list(dict.fromkeys((options.strategy or "ddp").split(",")))
    unknown = [name for name in names if name not in PARALLEL]
    if unknown:
        raise UsageError(f"--strategy: {unknown[0]!r} is none of {', '.join(PARALLEL)}")
    return names


def numbers(text: str) -> list[int]:
    """An option's whole numbers from 1 up, separated by commas."""
    return [positive(each) for each in text.split(",")]


# argparse names the type in its message: `argument --batch: invalid positive whole numbers value: '0'`.
numbers.__name__ = "positive whole numbers (such as 1,2,4)"


def _report(options: argparse.Namespace) -> int:
    """Print the study, and write its files."""
    folder = options.output or (None if options.json else options.report / REPORT)
    if folder is not None:
        for name in (DOCUMENT, MARKDOWN, PAGE, *TABLES, *PICTURES):
            refuse_existing(folder / name, options.force)
    found = study(options.report, cell_reader(options))
    sys.stdout.write(to_json(found) + "\n" if options.json else text(found, *terminal()))
    written = _write(folder, found, options.force) if folder is not None else []
    if written and not options.json:
        print(f"written to {folder}: {', '.join(written)}")
    if not options.json:
        for cell in [cell for cell in found.cells if cell.measured][-1:]:
            print(f"next: tracer report {shlex.quote(str(options.report / cell.name))}")
    return 0


def _write(folder: Path, found: Scaling, force: bool) -> list[str]:
    """The study's files; their names. Pictures of an earlier report that this one has not are removed."""
    pictures = plots(found, LIGHT)
    if force:
        for name in set(PICTURES) - set(pictures):
            (folder / name).unlink(missing_ok=True)
    files = dict(_files(found, pictures))
    for name, data in files.items():
        write_bytes(folder / name, data, force)
    return list(files)


def _files(found: Scaling, pictures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Every file by name, the page first."""
    yield PAGE, page(found, pictures, plots(found, DARK)).encode()
    yield MARKDOWN, as_markdown(found, pictures).encode()
    yield from pictures.items()
    for name, frame in TABLES.items():
        yield name, frame(found).to_csv(index=False).encode()
    yield DOCUMENT, (to_json(found) + "\n").encode()
