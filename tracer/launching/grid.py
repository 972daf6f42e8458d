"""Recording of a sweep's grid: strategy, number of devices, batch.

    strategy  devices   batches
    single    1         32  128  512    the baseline of all strategies
    ddp       2         32  128  -      out of memory: larger ones are not tried

sweep.json says after every cell what became of it, so that a later command goes on where this one ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzers.json_documents import encoded
from analyzers.paths import read_file, read_text
from analyzers.run import LINKS, MANIFEST, SWEEP, Cell, State, Sweep
from tracer.atomic_files import hidden_folder, remove_abandoned, write_text
from tracer.config import RecordConfig, sent
from tracer.errors import RankFailed, Stopped, TracerError
from tracer.launching.elastic import Job, launch, rank_arguments
from tracer.recording import OUT_OF_MEMORY, WORK, Finisher, Progress, Taking


@dataclass
class Grid:
    """A sweep as it lies in its folder, and what is to be recorded for each cell that is not done."""

    folder: Path
    sweep: Sweep
    configs: dict[str, RecordConfig]
    began: float = field(default_factory=time.monotonic)

    def rows(self) -> Iterator[list[Cell]]:
        """Return the cells still to be recorded, by launch: alike but for their batch, the smallest first."""
        wanted = [cell for cell in self.sweep.cells if cell.state == "pending" and cell.name in self.configs]
        launches = dict.fromkeys((cell.gpus, cell.strategy) for cell in sorted(wanted, key=lambda cell: cell.gpus))
        for gpus, strategy in launches:
            row = [cell for cell in wanted if (cell.gpus, cell.strategy) == (gpus, strategy)]
            yield sorted(row, key=lambda cell: cell.batch)

    def state(self, name: str) -> State:
        """Return what became of a cell so far."""
        return next(cell.state for cell in self.sweep.cells if cell.name == name)

    def mark(self, name: str, state: State, why: str | None = None) -> None:
        """Write down what became of a cell. Raises TracerError."""
        cells = [
            msgspec.structs.replace(cell, state=state, why=why) if cell.name == name else cell
            for cell in self.sweep.cells
        ]
        self.sweep = msgspec.structs.replace(self.sweep, cells=cells)
        self.write()

    def write(self) -> None:
        """Write sweep.json. Raises TracerError."""
        write_text(self.folder / SWEEP, encoded(self.sweep.without_secrets()) + "\n", force=True)

    def in_words(self) -> str:
        """Return how far the sweep is, and the time left if the coming cells take as long as the past ones."""
        ours = [cell for cell in self.sweep.cells if cell.name in self.configs]
        pending = sum(cell.state == "pending" for cell in ours)
        done = len(ours) - pending
        minutes = (time.monotonic() - self.began) / max(done, 1) * pending / 60
        return f"{done} of {len(ours)} cells" + (f", about {minutes:.0f} min left" if done and pending else "")


def record_grid(grid: Grid, told: Progress, say: Callable[[str], None]) -> None:
    """Record every cell that is pending. Raises TracerError where nothing can be written; cells that fail say why."""
    for launch_path in dict.fromkeys(_launch_of(grid, cell) for cell in grid.sweep.cells):
        remove_abandoned(launch_path, say)
    for row in grid.rows():
        pending = row
        while pending:
            pending = _record_row(grid, pending, told, say)


def _launch_of(grid: Grid, cell: Cell) -> Path:
    """What the hidden folder of a cell's launch is named after."""
    return grid.folder / f"{cell.strategy}{cell.gpus}"


def _record_row(grid: Grid, row: Sequence[Cell], told: Progress, say: Callable[[str], None]) -> list[Cell]:
    """Launch ranks once for cells that differ in their batch; those that a failed one leaves to be tried."""

    def taken(recording: Path) -> None:
        _share_links(grid.folder, row, recording)
        grid.mark(recording.name, "done")
        say(f"{recording.name}: recorded; {grid.in_words()}")

    with hidden_folder(_launch_of(grid, row[0])) as hidden:
        finishers = tuple(
            Finisher(hidden / cell.name, grid.folder / cell.name, force=True, work=hidden / WORK) for cell in row
        )
        taking = Taking(finishers, taken)
        first, *others = (grid.configs[cell.name] for cell in row)
        configs = [first, *(msgspec.structs.replace(config, calibration=None) for config in others)]
        arguments = rank_arguments("train", sent(configs), hidden)
        failure = None
        try:
            launch(Job(arguments, first.device, first.processes), hidden, told, taking.look)
        except Stopped as error:
            message = f"{error.brief}; {grid.in_words()}; the same command goes on, and keeps what is done"
            raise Stopped(message, error.exit_code) from error
        except RankFailed as error:
            failure = error
        taking.look()
        if taking.errors:
            raise TracerError(taking.errors[0])
        pending = [cell for cell in row if grid.state(cell.name) == "pending"]
        return _after_failure(grid, pending, failure, hidden, say) if pending else []


def _after_failure(
    grid: Grid, pending: Sequence[Cell], failure: RankFailed | None, hidden: Path, say: Callable[[str], None]
) -> list[Cell]:
    """Mark the cell that ended its row; the larger ones, which are tried unless this one was out of memory."""
    failed, larger = pending[0], list(pending[1:])
    if (hidden / failed.name / OUT_OF_MEMORY).is_file():
        grid.mark(failed.name, "out_of_memory", read_text(hidden / failed.name / OUT_OF_MEMORY))
        for cell in larger:
            grid.mark(cell.name, "skipped", f"batch {failed.batch} is out of memory already")
        say(f"{failed.name}: out of memory, and larger batches are not tried; {grid.in_words()}")
        return []
    failure = failure or RankFailed("its ranks ended without a recording", TracerError.exit_code)
    grid.mark(failed.name, "failed", failure.brief)
    say("\n".join([f"{failed.name}: failed: {failure.brief}; {grid.in_words()}", *failure.last_lines]))
    return larger


def _share_links(folder: Path, row: Sequence[Cell], recording: Path) -> None:
    """The links are the same for all cells of a launch, and measured once, in the first."""
    if not (recording / LINKS).exists():
        candidates = (folder / cell.name / LINKS for cell in row)
        links = next((file for file in candidates if file.is_file()), None)
        if links is not None:
            (recording / LINKS).write_bytes(read_file(links))


def merged(written: Sweep | None, wanted: Sweep, folder: Path) -> Sweep:
    """Merge the wanted grid with what an earlier command has recorded. Raises TracerError for another sweep's."""
    if written is None:
        return wanted
    if written.settings != wanted.settings:
        different = [name for name, value in wanted.settings.items() if written.settings.get(name) != value]
        raise TracerError(
            f"{folder} holds a sweep with other settings ({', '.join(different)}): give the same settings, or "
            "another folder"
        )
    before = {cell.name: cell for cell in written.cells}
    kept = [_again(before[cell.name], folder) if cell.name in before else cell for cell in wanted.cells]
    names = {cell.name for cell in kept}
    return msgspec.structs.replace(wanted, cells=[*(cell for cell in written.cells if cell.name not in names), *kept])


def _again(cell: Cell, folder: Path) -> Cell:
    """A cell of an earlier command: what is done or out of memory stays; what failed is tried again."""
    if cell.state in ("out_of_memory", "skipped") or (
        cell.state == "done" and (folder / cell.name / MANIFEST).is_file()
    ):
        return cell
    return msgspec.structs.replace(cell, state="pending", why=None)
