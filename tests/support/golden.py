"""What every recorded run's windows, collectives, buckets and layers were when they were last agreed on: golden.json.

A column of a list is kept as its sum, where it has one, and a digest of its values; columns that are added later do not
disturb those that are there. `TRACER_TRACES=... python -m tests.support.golden` writes it anew: a commit that changes a
number names it, with the definition in docs/measuring.md that asks for it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from analyzers.errors import AnalysisError
from analyzers.lazy_fields import evaluated
from tests.support.samples import RUNS, reported, summary_of

GOLDEN = Path(__file__).with_name("golden.json")
LISTS = ("windows", "collectives", "buckets", "layers")
# Digits of a quotient that no processor's way of adding and multiplying changes.
DIGITS = 9


def identity(path: Path) -> str:
    """A run's name and a digest of its files: another recording under the same name is another run."""
    digest = hashlib.sha256()
    for file in sorted(file for kind in ("*.json*", "*.sqlite") for file in path.rglob(kind) if file.is_file()):
        digest.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return f"{path.name} {digest.hexdigest()[:12]}"


def figures(path: Path) -> dict[str, Any]:
    """A run's figures as golden.json keeps them; of a run that is refused, that it is."""
    try:
        summary_of(path)
    except AnalysisError:
        return {"refused": True}
    document = to_builtins(evaluated(reported(path)), enc_hook=str)
    return {name: {"rows": len(document[name]), **_columns(document[name])} for name in LISTS}


def _columns(rows: list[dict[str, Any]]) -> dict[str, str]:
    names = rows[0] if rows else ()
    return {name: _column([_rounded(row[name]) for row in rows]) for name in names}


def _column(values: list[Any]) -> str:
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
    whole = [value for value in values if isinstance(value, int)]
    return f"{sum(whole)} {digest}" if whole else digest


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return value


def known() -> dict[str, dict[str, Any]]:
    """golden.json."""
    return json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}


def main() -> None:
    """Write golden.json anew for the runs at hand; those that are not here stay."""
    found = known() | {identity(run): figures(run) for run in RUNS}
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
