"""A page of HTML as a test reads it: its elements, tables, words and packed data."""

from __future__ import annotations

import base64
import gzip
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "input", "img", "br", "link"}


class Page(HTMLParser):
    """A page's elements, in order; its sections, folded ones too, with their rows; scripts by their id or place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self.open: list[str] = []
        self.section = ""
        self.sections: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section" or (tag == "details" and dict(attributes).get("class") == "section"):
            self.section = dict(attributes)["id"] or ""
            self.sections.append(self.section)
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        if tag in {"td", "th"}:
            self.rows[self.section][-1].append("")
        if tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif {"td", "th"} & set(self.open):
            self.rows[self.section][-1][-1] += data
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    def data(self, name: str) -> Any:
        (packed,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        return gzip.decompress(base64.b64decode(packed))
