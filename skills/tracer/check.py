"""Answers of agents, checked against evals.json.

python skills/tracer/check.py ANSWERS.json     one object: an answer's text for each run, by the run's name
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EVALS = Path(__file__).with_name("evals.json")


def faults(expected: Mapping[str, Any], answer: str) -> list[str]:
    """Return what an answer lacks of the problem and the remedy, and what it says that must not be said."""
    missing = [
        f"lacks the {part}: {pattern}"
        for part in ("problem", "remedy")
        for pattern in expected[part]
        if not _found(pattern, answer)
    ]
    return missing + [f"says: {pattern}" for pattern in expected["never"] if _found(pattern, answer)]


def _found(pattern: str, answer: str) -> bool:
    return re.search(pattern, answer, re.IGNORECASE | re.DOTALL) is not None


def main(answers: str) -> int:
    """Print a line for each run; 1 where an answer has a fault."""
    given = json.loads(Path(answers).read_text(encoding="utf-8"))
    code = 0
    for expected in json.loads(EVALS.read_text(encoding="utf-8"))["evals"]:
        found = faults(expected, given.get(expected["run"], ""))
        print(f"{expected['run']}: {'; '.join(found) or 'found'}")
        code |= bool(found)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
