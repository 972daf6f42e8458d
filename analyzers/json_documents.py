"""Reading and writing of this program's JSON documents, with their schema."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from analyzers.errors import UnreadableDocument


class _Document(Protocol):
    @property
    def schema(self) -> str: ...


Document = TypeVar("Document", bound=_Document)


def encoded(document: object) -> str:
    """A document as one JSON text."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def decoded(text: str | bytes, kind: type[Document], schema: str, remedy: str) -> Document:
    """A document of one schema. Raises UnreadableDocument, with the remedy, where the text is something else."""
    try:
        document = msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, of nesting
        raise UnreadableDocument(f"not a {schema} document ({error}); {remedy}") from error
    if document.schema != schema:
        raise UnreadableDocument(f"schema {document.schema!r}, not {schema!r}; {remedy}")
    return document
