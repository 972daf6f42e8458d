"""CSV text of tables, in which no cell is a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracer.views.format import plain

if TYPE_CHECKING:
    import pandas as pd

# What a spreadsheet takes for a formula by its first character, with the wide forms that some take too:
# OWASP, "CSV Injection".
_FORMULA = tuple(
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)


def csv_text(frame: pd.DataFrame) -> str:
    """Write a table as CSV, without its index; a text that would be a formula stands behind an apostrophe.

    Control characters become U+FFFD, as in all that is shown. Numbers are as they are.
    """
    harmless = frame.copy(deep=False)
    for number, (_, column) in enumerate(frame.items()):
        if column.dtype.kind not in "biuf":
            harmless.isetitem(number, column.astype(object).map(_harmless).to_numpy())
    harmless.columns = harmless.columns.map(_harmless)
    return harmless.to_csv(index=False)


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.strip().startswith(_FORMULA) else text
