"""Pages filled in from the templates beside this file: every value is escaped, and nothing in it steers the reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracer.views.palette import DARK, LIGHT
from tracer.views.terminal import plain

FOLDER = Path(__file__).parent


def filled(name: str, values: Mapping[str, Any]) -> str:
    """A template with its values; all templates know the palette's two grounds, `light` and `dark`."""
    import jinja2

    # `finalize` sees each value before it is escaped: what could steer a terminal is no text for a page either.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(light=LIGHT, dark=DARK, **values)


def _plain(value: object) -> object:
    # A head of several lines stays one.
    return "\n".join(map(plain, value.split("\n"))) if type(value) is str else value
