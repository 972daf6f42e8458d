"""Page in the place of a run that cannot be read."""

from __future__ import annotations

from tracer.views.html.templates import filled


def error_html(title: str, reason: str) -> str:
    """The page, which says why there is no other."""
    return filled("error.html", {"title": title, "reason": reason, "warnings": [], "tables": []})
