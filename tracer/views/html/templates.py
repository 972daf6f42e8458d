"""Page templates: every value escaped, a strict content-security policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracer.views import DARK, LIGHT, plain

FOLDER = Path(__file__).with_name("static")

# A page fetches nothing from anywhere, and runs only the scripts that are named by their hashes.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {scripts}; "
    "base-uri 'none'; form-action 'none'"
)


def policy(hashes: Sequence[str]) -> str:
    """Return the content-security policy for a page that runs the scripts with these hashes."""
    return POLICY.format(scripts=" ".join(hashes) or "'none'")


def filled(name: str, values: Mapping[str, Any], hashes: Sequence[str] = ()) -> str:
    """Fill a template with its values, and its policy with the hashes of the scripts that it may run.

    All templates know the palette's two grounds, `light` and `dark`.
    """
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
    return environment.get_template(name).render(light=LIGHT, dark=DARK, policy=policy(hashes), **values)


def _plain(value: object) -> object:
    # A head of several lines stays one.
    return "\n".join(map(plain, value.split("\n"))) if type(value) is str else value
