"""Page in the place of a run that cannot be read."""

from __future__ import annotations

from tracer.views.html.templates import filled


def error_html(title: str, reason: str) -> str:
    """Build a page that says why there is no other."""
    return filled("error.html", {"title": title, "reason": reason, "warnings": [], "tables": []})
