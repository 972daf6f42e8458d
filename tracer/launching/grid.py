"""Recording of a sweep's grid, round after round.

    strategy  devices   batches
    single    1         32  128  512    the baseline of all strategies
    ddp       2         32  128  -      out of memory: larger ones are not tried

    round 1   single1: 32 128 512    ddp2: 32 128 512       a launch for each row
    round 2   ddp2: 32 128 512       single1: 32 128 512    the other way round: a drift falls on both

sweep.json says after every recording what became of its cell, so that a later command goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from analyzers.json_documents import encoded
from analyzers.paths import read_file, read_text
from analyzers.run import LINKS, MANIFEST, SWEEP, UNPROFILED, Cell, State, Sweep, read_manifest
from analyzers.units import NS_PER_S, count, rough_time
from tracer.atomic_files import hidden_folder, remove_abandoned, write_text
from tracer.config import RecordConfig, sent
from tracer.errors import RankFailed, Stopped, TracerError
from tracer.launching.cost import Costs, LaunchClock
from tracer.launching.elastic import Job, launch, rank_arguments
from tracer.launching.rounds import join_rounds, next_round, remove_rounds, round_folders
from tracer.recording import OUT_OF_MEMORY, WORK, Finisher, Progress, Taking


@dataclass
class Grid:
    """A sweep as it lies in its folder, and what is to be recorded for each cell that is not done."""

    folder: Path
    sweep: Sweep
    configs: dict[str, RecordConfig]

    @cached_property
    def costs(self) -> Costs:
        """Return what cells take: of those that are recorded, their steps are known."""
        costs = Costs(self.configs)
        for cell in self._ours():
            if cell.is_recorded:
                self._note_step(costs, cell.name)
        return costs

    def _note_step(self, costs: Costs, name: str) -> None:
        manifest, _ = read_manifest(self.folder / name)
        step_ns = manifest.controls.step_ns(UNPROFILED) if manifest is not None else None
        if step_ns is not None:
            costs.step_s[name] = step_ns / NS_PER_S

    def _ours(self) -> list[Cell]:
        return [cell for cell in self.sweep.cells if cell.name in self.configs]

    def pending(self, number: int) -> list[Cell]:
        """Return the cells that a round has yet to record, the fewest devices and the smallest batch first."""
        wanted = [cell for cell in self._ours() if cell.state == "pending" and cell.rounds < number]
        return sorted(wanted, key=lambda cell: (cell.gpus, cell.batch))

    def rows(self, number: int) -> Iterator[list[Cell]]:
        """Return these cells by launch: alike but for their batch."""
        wanted = self.pending(number)
        launches = [*dict.fromkeys((cell.gpus, cell.strategy) for cell in wanted)]
        for gpus, strategy in launches if number % 2 else reversed(launches):
            yield [cell for cell in wanted if (cell.gpus, cell.strategy) == (gpus, strategy)]

    def state(self, name: str) -> State:
        """Return what became of a cell so far."""
        return next(cell.state for cell in self.sweep.cells if cell.name == name)

    def place(self, name: str) -> Path:
        """Return where a cell's next recording goes: its rounds lie apart until they are joined."""
        return self.folder / name if self.sweep.rounds == 1 else next_round(self.folder, name)

    def mark(self, name: str, state: State, why: str | None = None, rounds: int | None = None) -> None:
        """Write down what became of a cell. Raises TracerError."""
        cells = [
            replace(cell, state=state, why=why, rounds=cell.rounds if rounds is None else rounds)
            if cell.name == name
            else cell
            for cell in self.sweep.cells
        ]
        self.sweep = replace(self.sweep, cells=cells)
        self.write()

    def take_rounds(self, name: str) -> None:
        """Make a cell's recording of what rounds there are of it; it is done when it has all. Raises TracerError."""
        if rounds := join_rounds(self.folder, name):
            self.mark(name, "done" if rounds >= self.sweep.rounds else "pending", rounds=rounds)
        if self.state(name) == "done":
            remove_rounds(self.folder, name)

    def note_cost(self, name: str, is_first: bool, took_s: float) -> None:
        """Note what a recording took."""
        self._note_step(self.costs, name)
        self.costs.note(name, is_first, took_s)

    def write(self) -> None:
        """Write sweep.json. Raises TracerError."""
        write_text(self.folder / SWEEP, encoded(self.sweep.without_secrets()) + "\n", force=True)

    def in_words(self) -> str:
        """Return how far the sweep is, and the time left: at least, until any cell has been measured."""
        ours, rounds = self._ours(), self.sweep.rounds
        left = [
            (cell, number) for cell in ours if cell.state == "pending" for number in range(cell.rounds + 1, rounds + 1)
        ]
        launches = {(cell.gpus, cell.strategy, number) for cell, number in left}
        all_s = self.costs.left_s(((cell.name, number == 1) for cell, number in left), len(launches))
        far = f"{rounds * len(ours) - len(left)} of {count(rounds * len(ours), 'cell' if rounds == 1 else 'recording')}"
        how = "about" if self.costs.are_measured(cell.name for cell, _ in left) else "at least"
        return far + (f", {how} {rough_time(all_s)} left" if left else "")


def record_grid(grid: Grid, told: Progress, say: Callable[[str], None]) -> None:
    """Record every cell that is pending. Raises TracerError where nothing can be written; cells that fail say why."""
    for path in dict.fromkeys(
        path for cell in grid.sweep.cells for path in (_launch_of(grid, cell), grid.folder / cell.name)
    ):
        remove_abandoned(path, say)
    for cell in grid.sweep.cells:
        # A command that was killed may have left rounds that are not joined, or not removed.
        if cell.state == "pending":
            grid.take_rounds(cell.name)
        elif cell.state == "done":
            remove_rounds(grid.folder, cell.name)
    for number in range(1, grid.sweep.rounds + 1):
        for row in grid.rows(number):
            pending = row
            while pending:
                pending = _Launch(grid, number, pending, told, say).record()


def _launch_of(grid: Grid, cell: Cell) -> Path:
    """What the hidden folder of a cell's launch is named after."""
    return grid.folder / f"{cell.strategy}{cell.gpus}"


@dataclass
class _Launch:
    """A launch of ranks for cells that differ in their batch, in one round."""

    grid: Grid
    number: int
    row: Sequence[Cell]
    told: Progress
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._clock = LaunchClock()
        self._names = {self.grid.place(cell.name): cell.name for cell in self.row}

    def record(self) -> list[Cell]:
        """Launch ranks once; return the cells that a failed one leaves to be tried. Raises TracerError."""
        with hidden_folder(_launch_of(self.grid, self.row[0])) as hidden:
            finishers = tuple(
                Finisher(hidden / name, place, force=True, work=hidden / WORK) for place, name in self._names.items()
            )
            taking = Taking(finishers, self._take)
            failure = self._run(hidden, taking)
            taking.look()
            if taking.errors:
                raise TracerError(taking.errors[0])
            pending = [cell for cell in self.grid.pending(self.number) if cell.name in self._names.values()]
            if not pending:
                self.grid.costs.launches_s.append(self._clock.beyond_s())
                return []
            return self._after_failure(pending, failure, hidden)

    def _run(self, hidden: Path, taking: Taking) -> RankFailed | None:
        configs = [self._config(place, cell) for place, cell in enumerate(self.row)]
        arguments = rank_arguments("train", sent(configs), hidden)
        try:
            launch(Job(arguments, configs[0].device, configs[0].processes), hidden, self._hear, taking.look)
        except Stopped as error:
            message = f"{error.brief}; {self.grid.in_words()}; the same command goes on, and keeps what is done"
            raise Stopped(message, error.exit_code) from error
        except RankFailed as error:
            return error
        return None

    def _config(self, place: int, cell: Cell) -> RecordConfig:
        """What ranks record of a cell: links once a launch, and epochs once, in the first round of all."""
        config = self.grid.configs[cell.name]
        return replace(
            config,
            calibration=config.calibration if place == 0 and cell.rounds == 0 else None,
            epochs=config.epochs if cell.rounds == 0 else None,
        )

    def _hear(self, label: str, done: int, total: int) -> None:
        self._clock.hear()
        self.told(label if self.grid.sweep.rounds == 1 else f"round {self.number}: {label}", done, total)

    def _take(self, recording: Path) -> None:
        """Take note of a recording that is in its place."""
        name, took_s = self._names[recording], self._clock.cell_s()
        if self.grid.sweep.rounds == 1:
            self.grid.mark(name, "done", rounds=1)
        else:
            self.grid.take_rounds(name)
        _share_links(self.grid.folder, self.row, self.grid.folder / name)
        self.grid.note_cost(name, self.number == 1, took_s)
        in_round = f" in round {self.number} of {self.grid.sweep.rounds}" if self.grid.sweep.rounds > 1 else ""
        self.say(f"{name}: recorded{in_round}; {self.grid.in_words()}")

    def _after_failure(self, pending: Sequence[Cell], failure: RankFailed | None, hidden: Path) -> list[Cell]:
        """Mark the cell that ended its row; the larger ones, which are tried unless this one was out of memory."""
        failed, larger = pending[0], list(pending[1:])
        failure = failure or RankFailed("its ranks ended without a recording", TracerError.exit_code)
        said = hidden / failed.name / OUT_OF_MEMORY
        if said.is_file() or failure.out_of_memory:
            self.grid.mark(failed.name, "out_of_memory", read_text(said) if said.is_file() else failure.brief)
            for cell in larger:
                self.grid.mark(cell.name, "skipped", f"batch {failed.batch} is out of memory already")
            self.say(f"{failed.name}: out of memory, and larger batches are not tried; {self.grid.in_words()}")
            return []
        self.grid.mark(failed.name, "failed", failure.brief)
        self.say("\n".join([f"{failed.name}: failed: {failure.brief}; {self.grid.in_words()}", *failure.last_lines]))
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
    return replace(wanted, cells=[*(cell for cell in written.cells if cell.name not in names), *kept])


def _again(cell: Cell, folder: Path) -> Cell:
    """A cell of an earlier command: what is done or out of memory stays; what failed is tried again."""
    if cell.state in ("out_of_memory", "skipped") or (
        cell.state == "done" and (folder / cell.name / MANIFEST).is_file()
    ):
        return cell
    return replace(cell, state="pending", why=None, rounds=len(round_folders(folder, cell.name)))
