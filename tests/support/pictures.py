"""A picture as a test looks at it: its format, its words, and whether they can be read."""

from __future__ import annotations

from itertools import combinations
from unittest import mock

from matplotlib.figure import Figure
from matplotlib.text import Text

HEADS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}


def drawn_words(made: Figure) -> list[Text]:
    """The texts that a figure really draws."""
    found: list[Text] = []
    draw = Text.draw

    def heard(text: Text, renderer: object) -> None:
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        draw(text, renderer)

    with mock.patch.object(Text, "draw", heard):
        made.draw_without_rendering()
    return list(dict.fromkeys(found))


def assert_readable(made: Figure) -> None:
    """No text lies upon another, and none leaves the page."""
    page = made.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn_words(made)]
    assert boxes
    for words_, box in boxes:
        inside = (box.x0 >= page.x0 - 1, box.y0 >= page.y0 - 1, box.x1 <= page.x1 + 1, box.y1 <= page.y1 + 1)
        assert all(inside), words_
    for (one, a), (other, b) in combinations(boxes, 2):
        width = min(a.x1, b.x1) - max(a.x0, b.x0)
        height = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert width <= 1 or height <= 1, (one, other)
