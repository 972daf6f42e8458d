"""Documents whose fields are computed when they are first asked for.

report = Report(summary=summary, windows=lazy(build_windows))      nothing is built
report.windows                                                      built, and kept
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

Value = TypeVar("Value")
Document = TypeVar("Document", bound="LazyStruct")
Struct = TypeVar("Struct", bound=msgspec.Struct)


class _Lazy:
    """A field's value that is still to be computed."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute


def lazy(compute: Callable[[], Value]) -> Value:
    """Return what stands for a field's value in the document's call, until somebody asks for it."""
    value: Any = _Lazy(compute)
    return value  # type: ignore[no-any-return]


class LazyStruct(msgspec.Struct, frozen=True, dict=True):
    """A struct whose fields may be given as `lazy(...)`; written as JSON once `evaluated`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, _Lazy):
                self.__dict__[name] = value
                # An empty slot leads to __getattr__; to JSON, which would write what is not computed, it is an error.
                getattr(type(self), name).__delete__(self)

    if not TYPE_CHECKING:  # else every misspelled field would be one

        def __getattr__(self, name: str) -> Any:
            waiting = self.__dict__.get(name)
            if waiting is None:
                return object.__getattribute__(self, name)
            value = waiting.compute()
            msgspec.structs.force_setattr(self, name, value)
            self.__dict__.pop(name, None)
            return value

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__]

    def __copy__(self: Document) -> Document:
        return replaced(self)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__struct_fields__)

    __hash__ = None  # type: ignore[assignment]


def replaced(document: Struct, **changes: Any) -> Struct:
    """Return the same struct with other fields; what is not computed yet is not for that."""
    waiting = document.__dict__ if isinstance(document, LazyStruct) else {}
    kept = {name: waiting[name] if name in waiting else getattr(document, name) for name in document.__struct_fields__}
    return type(document)(**(kept | changes))


def evaluated(document: Document) -> Document:
    """Return the document once all its fields are computed, those of documents in it too."""
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if isinstance(value, LazyStruct):
            evaluated(value)
    return document


def computed(document: LazyStruct) -> dict[str, Any]:
    """Return the fields of a document that are computed, by name."""
    return {name: getattr(document, name) for name in document.__struct_fields__ if name not in document.__dict__}


def completed(kind: type[Document], known: Mapping[str, Any], whole: Callable[[], Document]) -> Document:
    """Return a document of which some fields are known, and the others are those of a whole one, once asked for."""
    others = {name: lazy(partial(_field, whole, name)) for name in kind.__struct_fields__ if name not in known}
    return kind(**known, **others)


def _field(whole: Callable[[], LazyStruct], name: str) -> Any:
    return getattr(whole(), name)
