"""Page of the scaling study, light and dark."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from analyzers.comparison import Scaling
from tracer.views.html.templates import filled
from tracer.views.sections import picture_of, scaling_tables, scaling_title

# Which of the study's definitions stand below which table.
MEANINGS = {
    "time": ("step", "epoch"),
    "weak": ("weak", "baseline"),
    "strong": ("strong", "baseline"),
    "shares": ("measured",),
    "subtraction": ("subtraction", "measured"),
    "bandwidth": ("bandwidth",),
    "epochs": ("epoch",),
}


def scaling_html(study: Scaling, light: Mapping[str, bytes], dark: Mapping[str, bytes]) -> str:
    """Build the page, with the same pictures on a light and on a dark ground, by file name."""
    shown = scaling_tables(study)
    pictures = {
        table.name: {"light": _embedded(light[name]), "dark": _embedded(dark[name])}
        for table in shown
        if (name := picture_of(table)) in light and name in dark
    }
    meanings = {table: {name: study.definitions[name] for name in names} for table, names in MEANINGS.items()}
    return filled(
        "scaling.html",
        {
            "study": study,
            "title": scaling_title(study),
            "warnings": [str(warning) for warning in study.warnings],
            "tables": shown,
            "pictures": pictures,
            "meanings": meanings,
        },
    )


def _embedded(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
