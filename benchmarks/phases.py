"""Phases of a report over some runs, timed inside one process: start-up would drown them.

    PYTHONPATH=TREE python -P benchmarks/phases.py PHASE TIMES RESULT WORK RUN...

`benchmarks/ratios.py` starts it, with one tree after the other. Only names that users have are called, since they stay
when the code behind them moves: `analyzers.load`, and commands, whose summaries come from the tree's own cache.
RESULT gets for each run what one time took, or why it failed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Call = Callable[[], object]


@dataclass(frozen=True)
class Input:
    """What a phase works on."""

    run: Path
    other: Path  # what the run is compared with
    work: Path  # where the tree keeps what it makes


def load_rank(given: Input) -> Call:
    import analyzers

    file = min(given.run.glob("rank*.json*"))
    return lambda: analyzers.load(file)


def summarize(given: Input) -> Call:
    import analyzers

    return lambda: analyzers.summarize(given.run)


def report(given: Input) -> Call:
    import analyzers

    kept = given.work / f"{given.run.name}.pickle"
    if not kept.exists():
        kept.write_bytes(pickle.dumps(analyzers.summarize(given.run)))
    summary = pickle.loads(kept.read_bytes())
    return lambda: analyzers.report(summary)


def command(text: str) -> Callable[[Input], Call]:
    """A command of `tracer`, by one process, with its places filled in."""

    def prepare(given: Input) -> Call:
        from tracer.cli import main

        words = [word.format(**vars(given)) for word in text.split()]
        return lambda: _run(main, [*words, "--workers", "1"])

    return prepare


def _run(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> None:
    """Run a command, and drop what it prints. Raises RuntimeError with its last words where it fails."""
    errors = io.StringIO()
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    if code:
        raise RuntimeError(errors.getvalue().strip().rpartition("\n")[2] or f"exit code {code}")


# Each is prepared for a run, which is not timed, and then called.
PHASES: dict[str, Callable[[Input], Call]] = {
    "rank": load_rank,
    "run": summarize,
    "report": report,
    "json": command("report {run} --json"),
    "page": command("report {run} --html {work}/page.html --force"),
    "whatif": command("whatif {run} --json"),
    "compare": command("compare {other} {run} --json"),
    "export": command("export {run} -o {work}/lanes.pftrace --force"),
    "plot": command("plot {run} --kind breakdown -o {work}/breakdown.png --force"),
}


def timed(prepare: Callable[[Input], Call], given: Input, times: int) -> dict[str, float]:
    """What one call takes, the mean of several, each prepared anew."""
    cpu_s = wall_s = 0.0
    for _ in range(times):
        call = prepare(given)
        # What was made for other runs is not looked through on this one's account.
        gc.collect()
        cpu_before, began = _cpu_s(), time.perf_counter()
        call()
        wall_s += time.perf_counter() - began
        cpu_s += _cpu_s() - cpu_before
    return {"wall_s": wall_s / times, "cpu_s": cpu_s / times}


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main(phase: str, times: str, result: str, work: str, *paths: str) -> None:
    prepare = PHASES[phase]
    runs = [Path(path) for path in paths]
    given = [Input(run, other, Path(work)) for run, other in zip(runs, [*runs[1:], runs[0]], strict=True)]
    # What is imported and made once in a process.
    with contextlib.suppress(Exception):
        prepare(given[0])()
    found: dict[str, dict[str, float] | str] = {}
    for each in given:
        try:
            found[each.run.name] = timed(prepare, each, int(times))
        except Exception as error:
            found[each.run.name] = str(error) or type(error).__name__
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
