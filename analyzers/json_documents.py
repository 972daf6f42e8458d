"""Reading and writing of this program's JSON documents, with their schema."""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeVar

import msgspec

from analyzers.errors import UnreadableDocument
from analyzers.notices import Notices
from analyzers.texts import encodable


class _Document(Protocol):
    @property
    def schema(self) -> str: ...


Document = TypeVar("Document", bound=_Document)

# What a terminal obeys (DEL and C1), and what turns the direction of text around, in UTF-8: U+007F, U+0080 to U+009F,
# U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. C0 is escaped by every encoder.
_UNSEEN = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def encoded(document: object) -> str:
    """Write a document as one JSON text."""
    return msgspec.json.format(compact(document), indent=1).decode()


def compact(document: object) -> bytes:
    """Return a document as JSON without a space; several notices in one place are a sentence."""
    try:
        return visible(msgspec.json.encode(document, enc_hook=_in_words))
    except UnicodeEncodeError:
        return visible(msgspec.json.encode(_encodable(msgspec.to_builtins(document, enc_hook=_in_words))))


def visible(json: bytes) -> bytes:
    r"""Return JSON that holds no character which a terminal obeys or that reorders text: each is written as \uXXXX."""
    # Nearly all JSON is ASCII, which is told fifty times as fast.
    if json.isascii() and b"\x7f" not in json:
        return json
    return _UNSEEN.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), json)


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(inner) for inner in value]
    return encodable(value) if isinstance(value, str) else value


def _in_words(value: object) -> str:
    if isinstance(value, Notices):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is in no document")


def _from_words(kind: type, value: Any) -> Notices:
    if issubclass(kind, Notices) and isinstance(value, str):
        return kind.saved(value)
    raise ValueError(f"Expected `str`, got `{type(value).__name__}`")


def decoded(text: str | bytes, kind: type[Document], schema: str, remedy: str, *older: str) -> Document:
    """Read a document with one schema, or with an older one that is read for what it has.

    Raises UnreadableDocument, with the remedy, where the text is something else.
    """
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.schema not in (schema, *older):
            raise UnreadableDocument(f"schema {head.schema!r}, not {schema!r}; {remedy}")
        return msgspec.json.decode(text, type=kind, dec_hook=_from_words)
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, of nesting
        raise UnreadableDocument(f"not a {schema} document ({error}); {remedy}") from error


class _Head(msgspec.Struct):
    """What all documents have in common, so that one of another version is called that."""

    schema: str
