"""sweep.json: a grid of recordings, one cell each.

    DIR/sweep.json            which cells there are, and what became of each
    DIR/ddp4-batch128/        one cell: an ordinary recording

A cell on one device is of strategy `single`, the baseline that all strategies share: nn.DataParallel on one device and
DDP on one rank are not measured apart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from analyzers.command_lines import redacted_command
from analyzers.errors import UnreadableDocument
from analyzers.notices import Code, Notice
from analyzers.paths import read_file
from analyzers.redaction import redacted, redacted_values
from analyzers.run.manifest import RESULTS, SWEEP

SCHEMA = "tracer.sweep/1"
SINGLE = "single"
State = Literal["done", "out_of_memory", "failed", "skipped", "pending"]
STATES: tuple[str, ...] = get_args(State)
# What may name a folder inside of the sweep's, and stand in a picture or a table as it is.
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,99}")
MOST_DEVICES = 2**24
LARGEST_BATCH = 2**40

Name = Annotated[str, Meta(pattern=rf"^{SAFE_NAME.pattern}\Z")]


class Cell(msgspec.Struct, frozen=True):
    """One recording of the grid.

    `strategy`: `ddp`, `dp`, `fsdp`, on one device `single`. `gpus`: on a CPU ranks. `state`: `skipped` if a smaller
    batch was out of memory.
    """

    name: Name
    strategy: Name
    gpus: Annotated[int, Meta(ge=1, le=MOST_DEVICES)]
    batch: Annotated[int, Meta(ge=1, le=LARGEST_BATCH)]
    state: State
    why: str | None = None
    rounds: Annotated[int, Meta(ge=0)] = 0

    @property
    def is_recorded(self) -> bool:
        """Whether there is a recording of it, if only of some rounds."""
        return self.state == "done" or self.rounds > 0

    @property
    def place(self) -> tuple[str, int, int]:
        """Return its place in the grid."""
        return self.strategy, self.gpus, self.batch


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A grid's cells, each a recording in a folder beside it; rewritten after every cell."""

    schema: str = SCHEMA
    name: str
    command: list[str] = []
    settings: dict[str, Any] = {}
    rounds: int = 1
    cells: list[Cell] = []

    def without_secrets(self) -> Sweep:
        """Return what may be written down and shown of it, whoever wrote it."""
        return msgspec.structs.replace(
            self,
            command=redacted_command(self.command),
            settings=redacted_values(self.settings),
            cells=[msgspec.structs.replace(cell, why=cell.why and redacted(cell.why)) for cell in self.cells],
        )


class _WrittenSweep(msgspec.Struct, frozen=True):
    """The file before its cells are looked at, so that a bad cell costs only itself."""

    schema: str
    cells: list[msgspec.Raw]
    name: Any = None
    command: Any = None
    settings: Any = None
    rounds: Any = None


def read_sweep(folder: Path) -> tuple[Sweep, list[Notice]]:
    """Read a folder's sweep, with a notice for each cell left out as nonsense. Raises UnreadableDocument."""
    file = folder / SWEEP
    try:
        written = msgspec.json.decode(read_file(file), type=_WrittenSweep)
    except FileNotFoundError as error:
        raise UnreadableDocument(
            f"{folder}: no {SWEEP} and no {RESULTS} in it; give a folder that `tracer sweep` wrote"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnreadableDocument(f"{file}: cannot be read ({why}); make the sweep anew with `tracer sweep`") from error
    if written.schema != SCHEMA:
        raise UnreadableDocument(
            f"{file}: schema {written.schema!r} is not {SCHEMA!r}; make it anew with `tracer sweep`"
        )
    cells, warnings = _check_cells(written.cells)
    sweep = Sweep(
        name=(written.name if isinstance(written.name, str) else "") or folder.resolve().name,
        command=[str(word) for word in written.command] if isinstance(written.command, list) else [],
        settings=written.settings if isinstance(written.settings, dict) else {},
        rounds=written.rounds if type(written.rounds) is int and written.rounds > 0 else 1,
        cells=cells,
    )
    return sweep.without_secrets(), warnings


def _check_cells(written: list[msgspec.Raw]) -> tuple[list[Cell], list[Notice]]:
    """Return the cells that make sense, the first of each name and place in the grid; a notice for each other."""
    cells: list[Cell] = []
    warnings: list[Notice] = []
    names: dict[object, str] = {}
    for number, raw in enumerate(written):
        try:
            cell = msgspec.json.decode(raw, type=Cell)
        except (ValueError, RecursionError) as error:
            warnings.append(Notice(Code.CELL_LEFT_OUT, f"{SWEEP}: cell {number} is left out ({error})"))
            continue
        twin = names.get(cell.name) or names.get(cell.place)
        if twin is not None:
            same = "name" if cell.name == twin else "strategy, gpus and batch"
            message = f"{SWEEP}: cell {number} ({cell.name}) is left out: the same {same} as {twin}"
            warnings.append(Notice(Code.CELL_LEFT_OUT, message))
            continue
        names |= {cell.name: cell.name, cell.place: cell.name}
        cells.append(cell)
    return cells, warnings


def cell_folder(folder: Path, cell: Cell) -> Path:
    """Return where a cell's recording lies. Raises UnreadableDocument where that is outside the sweep's folder."""
    target = folder / cell.name
    # A link that goes round in circles is a RuntimeError until Python 3.13.
    try:
        inside = target.resolve().parent == folder.resolve()
    except (OSError, RuntimeError):
        inside = False
    if not inside:
        raise UnreadableDocument(f"{target}: leads out of the sweep's folder; copy the recording into it")
    return target
