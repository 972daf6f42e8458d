"""Tables of rows: what each column takes from one, and its type.

columns(Window)                            rank, device, ..., idle_input_ns, ...
columns(CollectiveRow, "index", "kind")    these two alone; a property may be one
computed(waited_ns=waited_ns)              one that a function takes from a row
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

if TYPE_CHECKING:
    import pandas as pd

Document = TypeVar("Document")
# By what a column's name ends in, a pair's low and high end aside: its unit.
_UNITS = {"ns": "ns", "bytes": "bytes", "gbps": "GB/s", "share": "share of 1", "overlap": "share of 1"}
NAMED_UNITS = (
    "Times (_ns) are nanoseconds, rates (_gbps) 1e9 bytes per second; shares, overlap and utilization are of 1."
)
_UNIT = re.compile(rf"(?:(?:.*_)?({'|'.join(_UNITS)})|utilization_.*)(?:_low|_high)?")
_BETWEEN = {list[int]: " ", list[str]: "; "}
# Of each type once: they are texts until then, and every command pays for what is evaluated.
_hints = functools.cache(get_type_hints)


class Column(NamedTuple):
    """What a column takes from a row: None where that is not known, else int, float, bool or str.

    One of `str` may hold numbers, too, such as devices.
    """

    take: Callable[[Any], Any]
    kind: type


@dataclass(frozen=True)
class Table(Generic[Document]):
    """A table of a document, of the field of its name where no other rows are given; `about` says what a row is."""

    name: str
    about: str
    columns: Mapping[str, Column]
    other_rows: Callable[[Document], Iterable[Any]] | None = None
    # Fields of the document that its frame's `attrs` have.
    facts: tuple[str, ...] = ()

    def rows(self, document: Document) -> Iterable[Any]:
        """Return the document's rows."""
        return (self.other_rows or attrgetter(self.name))(document)

    def records(self, document: Document) -> Iterator[tuple[Any, ...]]:
        """Yield what each row has in its columns."""
        for row in self.rows(document):
            yield tuple(column.take(row) for column in self.columns.values())

    def frame(self, document: Document) -> pd.DataFrame:
        """Build the DataFrame; its `attrs` say what a row is, and the units of columns that have one."""
        import pandas as pd

        frame = pd.DataFrame(list(self.records(document)), columns=list(self.columns))
        facts = {name: getattr(document, name) for name in self.facts}
        frame.attrs |= {"about": self.about, "units": self.units, **facts}
        return frame

    @property
    def units(self) -> dict[str, str]:
        """Return the unit of each column that has one."""
        found = {name: _UNIT.fullmatch(name) for name in self.columns}
        return {name: _UNITS[match[1] or "share"] for name, match in found.items() if match is not None}


def frame_method(table: Table[Any]) -> Callable[[Any], pd.DataFrame]:
    """Return a method that makes the table's frame of its object's `document`; its docstring has the columns."""

    def made(self: Any) -> pd.DataFrame:
        return table.frame(self.document)

    made.__name__ = made.__qualname__ = table.name
    made.__doc__ = f"Return {table.about}.\n\nColumns: {', '.join(table.columns)}.\n{NAMED_UNITS}"
    return made


def columns(kind: type, *names: str, of: tuple[str, ...] = ()) -> dict[str, Column]:
    """Return a column for each field of a type, or for the named ones; `of` leads from a row to what has them.

    A struct has a column for each of its fields, its `value` the struct's name; a pair has `_low` and `_high`. A list
    is one text, since pandas groups by no lists; dictionaries, and lists of anything but numbers and words, have none.
    """
    encoded: dict[str, str] = dict(
        zip(getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_encode_fields__", ()), strict=True)
    )
    found: dict[str, Column] = {}
    for name in names or encoded:
        found |= _spread(encoded.get(name, name), _hint(kind, name), (*of, name))
    return found


def computed(**functions: Callable[[Any], Any]) -> dict[str, Column]:
    """Return columns that functions take from a row, of the types that they say they return."""
    return {name: Column(take, _kind(get_type_hints(take)["return"])) for name, take in functions.items()}


def _hint(kind: type, name: str) -> Any:
    """Return the type of a field or property."""
    hints = _hints(kind)
    return _known(hints[name] if name in hints else get_type_hints(getattr(kind, name).fget)["return"])


def _spread(name: str, hint: Any, path: tuple[str, ...]) -> dict[str, Column]:
    """Return the columns of one field."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inner = columns(hint, of=path)
        return {name if each == "value" else f"{name}_{each}": column for each, column in inner.items()}
    if get_origin(hint) is tuple:
        (kind, _), value = get_args(hint), _at(path)
        return {f"{name}_{end}": Column(_end(value, place), kind) for place, end in enumerate(("low", "high"))}
    if hint in _BETWEEN:
        return {name: Column(_text(_at(path), _BETWEEN[hint]), str)}
    return {} if get_origin(hint) in (list, dict) else {name: Column(_at(path), _kind(hint))}


def _known(hint: Any) -> Any:
    """Return a type without null."""
    known = [part for part in get_args(hint) if part is not types.NoneType]
    return Union[tuple(known)] if get_origin(hint) in (Union, types.UnionType) else hint  # noqa: UP007


def _kind(hint: Any) -> type:
    """Return the type of a column: what is a number or a text is a text."""
    known = _known(hint)
    return known if known in (int, float, bool) else str


def _at(path: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return what follows names from a row; None where one before the last is null."""

    def take(row: Any) -> Any:
        for name in path:
            row = None if row is None else getattr(row, name)
        return row

    return take


def _end(pair: Callable[[Any], Any], place: int) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        ends = pair(row)
        return None if ends is None else ends[place]

    return take


def _text(listed: Callable[[Any], Any], between: str) -> Callable[[Any], Any]:
    def take(row: Any) -> Any:
        values = listed(row)
        return None if values is None else between.join(map(str, values))

    return take
