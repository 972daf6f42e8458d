"""Blocks of a document, neutral: headings, prose, notices, tables, drawings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tracer.views.format import figure

_WAITING = "Exposed time before the last member of a collective arrives."
_TRANSFER = "From the moment the last member arrives until the collective ends. A faster network shortens only this."
_STEP = "From the first device event of a step to the first of the next, under the profiler."

# By a figure's name, whichever table it stands in.
HELP = {
    "span_ns": _STEP,
    "compute_ns": (
        "The device runs at least one kernel that is not communication, whatever else runs at the same time."
    ),
    "exposed_comm_ns": "The device communicates and computes nothing.",
    "exposed_wait_ns": f"{_WAITING} Part of the exposed communication.",
    "exposed_copy_ns": "The device copies or fills memory, and neither computes nor communicates.",
    "idle_ns": "The device does nothing. The section on idle time says why.",
    "overlap": "The share of all communication that runs at the same time as compute.",
    "start_ns": "Time since the run's earliest event.",
    "share": "The share of the step; for kernels and operators, of all device time.",
    "calls": "How often it ran in all profiled steps.",
    "median_ns": "The median duration of one call.",
    "bytes": "The message's bytes, counted as nccl-tests counts them. 1 MB is 1e6 bytes.",
    "why": "Why it belongs to no collective.",
    "transfer_ns": _TRANSFER,
    "transfer_at_most_ns": f"{_TRANSFER} Part of it may be waiting.",
    "wait_ns": _WAITING,
    "exposed_ns": "Communication while nothing computes.",
    "overlapped_ns": "Communication that runs at the same time as compute.",
    "bucket": "DDP's bucket, numbered in the order of a step.",
    "quartiles": "Half of all measurements lie in this range.",
    "imbalance": "The largest rank's figure over the mean of all ranks.",
    "direction": "Forward or backward.",
    "dur_ns": "The kernel's duration, waiting included.",
    "queued_ns": "Ready and launched, but not begun: another collective is ahead of it, or no SM is free.",
    "late_launch_ns": "Launched after its last gradient was ready: the CPU is the limit.",
    "comm_ns": "All communication of the group, hidden or not.",
    "unresolved_ns": ("Waiting or transfer: not known which, because members are missing or could not be matched."),
}


Item = TypeVar("Item")
Shown = TypeVar("Shown", contravariant=True)


@dataclass(frozen=True)
class Heading:
    """What stands out: a title, or a sentence that comes first."""

    words: str


@dataclass(frozen=True)
class Paragraph:
    """Prose; `is_faint` for remarks, `is_indented` for what belongs to the line above."""

    words: str
    is_faint: bool = False
    is_indented: bool = False


@dataclass(frozen=True)
class Caution:
    """A warning."""

    words: str


@dataclass(frozen=True)
class Column:
    """A head, which may have several lines; text stands to the left; `wide`: left out on a narrow terminal.

    `help` explains the head, for views that have room for it.
    """

    head: str
    is_text: bool = False
    wide: bool = False
    help: str = ""

    @property
    def title(self) -> str:
        """Return the head in one line; a word that is broken for a narrow column is whole again."""
        return self.head.replace("-\n", "").replace("\n", " ")


Row: TypeAlias = Sequence[str]


@dataclass(frozen=True)
class Place:
    """Where in a run's timeline something is; None for what does not apply."""

    step: int | None = None
    rank: int | None = None
    device: int | str | None = None
    collective: int | None = None
    bucket: int | None = None
    layer: str | None = None
    kernel: str | None = None

    @property
    def known(self) -> dict[str, int | str]:
        """Return what applies, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Table:
    """Rows of words under columns, in groups; `marked` are the numbers of rows that stand out.

    `is_spaced`: an empty line parts the groups where nothing else does. `places`: what each row is about, by its
    number over all groups, for views with a timeline; rows beyond its end are about no place. `subject` is the column
    that names it, and `whole_names` are its names in full, by row, where its cells may cut them. `items` are the
    objects that rows are about.
    """

    columns: Sequence[Column]
    groups: Sequence[Sequence[Row]]
    marked: Collection[int] = ()
    is_spaced: bool = False
    places: Sequence[Place | None] = ()
    subject: int = 0
    whole_names: Sequence[str] = ()
    items: Sequence[Any] = ()

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all groups."""
        return [row for group in self.groups for row in group]

    def where(self, is_kept: Callable[[Any], bool]) -> Table:
        """Return the rows whose objects are kept, in one group."""
        kept = [number for number, item in enumerate(self.items) if is_kept(item)]
        marked = {place for place, number in enumerate(kept) if number in self.marked}
        rows = self.rows
        return Table(self.columns, [[rows[number] for number in kept]], marked, items=[self.items[n] for n in kept])


@dataclass(frozen=True)
class Field(Column, Generic[Shown]):
    """A column with what its cells say of each row's object."""

    cell: Callable[[Shown], str] = str


def field(
    name: str, head: str, meaning: str = "", of: Callable[[Any, str], float | None] = getattr, wide: bool = False
) -> Field[Any]:
    """Build the column of a figure, in the unit that its name ends in; `of` gives a row's figure by its name.

    Without a meaning of its own it has the figure's, whichever table it stands in.
    """
    return Field(head, wide=wide, help=meaning or HELP.get(name, ""), cell=lambda row: figure(name, of(row, name)))


def table(
    fields: Sequence[Field[Item]],
    *groups: Sequence[Item],
    place: Callable[[Item], Place | None] | None = None,
    subject: int = 0,
    whole_name: Callable[[Item], str] | None = None,
    is_marked: Callable[[Item], bool] | None = None,
    is_spaced: bool = False,
) -> Table:
    """Arrange objects in rows; `place` says what each is about, `whole_name` what its cell may cut."""
    items = [item for group in groups for item in group]
    rows = [[[one.cell(item) for one in fields] for item in group] for group in groups]
    places = [place(item) for item in items] if place is not None else []
    names = [whole_name(item) for item in items] if whole_name is not None else []
    marked = {number for number, item in enumerate(items) if is_marked is not None and is_marked(item)}
    return Table(fields, rows, marked, is_spaced, places, subject, names, items)


@dataclass(frozen=True)
class Span:
    """A piece of a drawn line, of one color or of none."""

    words: str
    color: str = ""


@dataclass(frozen=True)
class Drawing:
    """Lines of characters, which never wrap."""

    lines: Sequence[Sequence[Span]]


Block: TypeAlias = Heading | Paragraph | Caution | Table | Drawing
Section: TypeAlias = Sequence[Block]


@dataclass(frozen=True)
class TitledTable:
    """A table under its title, and what must be said below it; `name` is what others know it by."""

    name: str
    title: str
    table: Table
    notes: Sequence[str] = ()

    @property
    def blocks(self) -> list[Block]:
        """Return the title, the table where it has rows, and the notes."""
        return [Heading(self.title), *([self.table] if self.table.rows else []), *map(Paragraph, self.notes)]


def numbers(*heads: str, wide: bool = False) -> list[Column]:
    """Build columns of figures."""
    return [Column(head, wide=wide) for head in heads]


def texts(*heads: str, wide: bool = False) -> list[Column]:
    """Build columns of words."""
    return [Column(head, is_text=True, wide=wide) for head in heads]
