"""`tracer tensorboard RUN... --logdir DIR`: runs and sweeps as TensorBoard's scalars, text and hparams."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from analyzers.paths import Place
from analyzers.texts import file_name, typed
from tracer.atomic_files import refuse_existing, write_bytes
from tracer.commands.options import add_reading_arguments, cell_reader, here, read, run_place, tell
from tracer.errors import TracerError, UsageError

# One file a folder; TensorBoard knows it by how it begins.
EVENTS = "events.out.tfevents.0.tracer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer tensorboard`."""
    parser.add_argument("run", type=run_place, nargs="+", metavar="RUN", help="a folder of traces, or a sweep's folder")
    parser.add_argument(
        "--logdir",
        type=here,
        required=True,
        metavar="DIR",
        help="where each RUN gets a folder",
    )
    parser.add_argument("--force", action="store_true", help="replace what an earlier call has written")
    add_reading_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Read, report, write event files."""
    from tracer.serving import check_tensorboard

    check_tensorboard()
    places = {_name(path): path for path in options.run}
    if len(places) < len(options.run):
        raise UsageError(
            "two RUNs have the same name, and would write the same files: give each a call and a --logdir of its own"
        )
    for name, path in places.items():
        refuse_existing(options.logdir / name / EVENTS, options.force)
        _write(options.logdir / name, _files(options, path), options.force)
    tell(f"written to {options.logdir}: {', '.join(places)}")
    tell(f"next: tensorboard --logdir {typed(str(options.logdir))}")
    return 0


def _name(path: Place) -> str:
    """Return what TensorBoard calls a run: its folder's name, in characters that every file system has."""
    return file_name(path.resolve().name) or "run"


def _files(options: argparse.Namespace, path: Place) -> dict[str, bytes]:
    """Return event files by folder."""
    from analyzers.comparison import study
    from analyzers.reporting import report
    from analyzers.run import SWEEP
    from tracer.views.sections.results import as_markdown
    from tracer.views.tensorboard import report_files, study_files

    if not isinstance(path, Path) or not (path / SWEEP).is_file():
        return report_files(report(read(options, path)))
    scaling = study(path, cell_reader(options))
    if not any(cell.measured for cell in scaling.cells):
        raise TracerError(f"{path}: no cell of this sweep could be reported; see tracer sweep --report")
    return study_files(scaling, as_markdown(scaling))


def _write(folder: Path, files: Mapping[str, bytes], force: bool) -> None:
    # The folder's own comes last: it tells that the others are whole.
    for name, data in sorted(files.items(), reverse=True):
        write_bytes(folder / name / EVENTS, data, force)
