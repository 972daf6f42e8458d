"""`tracer doctor`: say what this machine can record, and what is missing for what."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.environment import cache_folder
from tracer.errors import refuse_windows
from tracer.views import plain

if TYPE_CHECKING:
    from tracer.doctor import Examination, Finding

TRACES = Path("traces")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer doctor`."""
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(options: argparse.Namespace) -> int:
    """Examine, and print; 1 where nothing can be recorded."""
    from analyzers.json_documents import encoded
    from tracer.doctor import examine

    refuse_windows("tracer doctor")
    found = examine(TRACES.absolute(), cache_folder())
    print(encoded(found) if options.json else text(found))
    return 0 if found.can_record else 1


def text(found: Examination) -> str:
    """Return a line for each finding, and one for all of them."""
    what = max(len(finding.what) for finding in found.findings)
    lines = [_line(finding, what) for finding in found.findings]
    return "\n".join([*lines, "", verdict(found)])


def verdict(found: Examination) -> str:
    """Say in one sentence what can be recorded."""
    if not found.can_record:
        return "Nothing can be recorded here without torch; traces can be read: tracer report RUN."
    if any(finding.what == "GPUs" and finding.state == "ok" for finding in found.findings):
        return "Training on these GPUs can be recorded: tracer record train.py."
    return "Training on the CPU can be recorded: tracer record --device cpu --ranks 2 train.py."


def _line(finding: Finding, width: int) -> str:
    words = f"{finding.state:<8} {finding.what:<{width}}  {finding.detail}"
    return plain(f"{words}: {finding.remedy}" if finding.remedy else words)
