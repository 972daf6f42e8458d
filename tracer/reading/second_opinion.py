"""Second opinion on traces: torch's own validator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyzers.notices import Code, Notice
from analyzers.paths import Where
from analyzers.run import find
from tracer.errors import NEEDS_TORCH, TracerError, UsageError

_LONGEST = 160


def second_opinions(path: Where) -> list[Notice]:
    """Return what torch's validator finds in a run's traces, a notice for each file and rule.

    It reads each file whole, in this process. Raises TracerError where there is no torch.
    """
    files = [file.path for file in find(path).files]
    if not all(isinstance(file, Path) for file in files):
        raise UsageError("--validate: torch only reads traces on this machine's disks: copy the run here")
    # What is no ordinary file has been left out, with a notice of its own; torch would wait for it.
    ordinary = (path for path in (Path(str(file)) for file in files) if path.is_file())
    return [notice for path in ordinary for notice in _form_opinion(path)]


def _form_opinion(file: Path) -> Iterator[Notice]:
    try:
        from tracer.recording import trace_violations  # torch, which reading alone does without
    except ImportError as error:
        raise TracerError(f"--validate {NEEDS_TORCH}") from error
    violations = trace_violations(file)
    if violations is None:
        text = f"{file.name}: not looked at by torch's own validator, which this torch has not, or which fails on it"
        yield Notice(Code.TORCH_DOUBTS, text, Code.TORCH_DOUBTS.facts.do)
        return
    for rule, messages in violations.items():
        first = messages[0] if len(messages[0]) <= _LONGEST else f"{messages[0][: _LONGEST - 3]}..."
        text = f"{file.name}: torch's own validator finds {len(messages)} violations of {rule}, the first: {first}"
        yield Notice(Code.TORCH_DOUBTS, text)
