"""Where the time of one report goes: its phases in one table, as shares of the whole.

    python benchmarks/report_profile.py [RUN] [--mb 100] [--rounds 3]

Reads RUN, by default a trace of --mb made from a sample as `loading.py` makes it, in one process without a cache, and
prints for each phase the processor seconds that it took without the phases within it, in the quickest round, and by how
much it raised the peak of memory in the first. Phases are functions of the program, named in PHASES, each timed
wherever it is called from: the program knows nothing of it, and a name that is gone is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any

import loading

sys.path.insert(0, str(loading.ROOT))

# Begins with the phase that holds all others, whose own time is what none of them names.
PHASES = {
    "tracer.cli:main": "all else",
    "analyzers.trace.decoding.decompress:Blocks.__iter__": "read bytes, inflate",
    "analyzers.trace.event_stream:EventStream.start": "cut into events",
    "analyzers.trace.event_stream:EventStream.go_on": "cut into events",
    "analyzers.trace.event_stream:EventStream.end": "cut into events",
    "analyzers.trace.columns:EventColumns.take": "decode JSON",
    "analyzers.trace.columns:EventColumns._append": "columns of events",
    "analyzers.trace.columns:EventColumns.whole": "join columns",
    "analyzers.trace.assembly:assemble": "assemble events",
    "analyzers.run.rank_trace:_read_process": "rank: steps, times",
    "analyzers.rank.summary:summarize_rank": "rank: summary, all else",
    "analyzers.rank.columns:attribute": "rank: attribution",
    "analyzers.rank.columns:activities": "rank: busy time",
    "analyzers.rank.columns:breakdown": "rank: breakdown",
    "analyzers.rank.columns:communicate": "rank: communication",
    "analyzers.rank.columns:work": "rank: work",
    "analyzers.rank.columns:launched": "rank: launches",
    "analyzers.rank.idle:idle_of": "rank: idle time",
    "analyzers.rank.idle:fetching": "rank: idle time",
    "analyzers.rank.kernels:usage_of": "rank: kernels",
    "analyzers.rank.ddp_reductions:reductions": "rank: reductions",
    "analyzers.rank.dependencies:rank_graph": "rank: graph of causes",
    "analyzers.rank.taking:with_taken": "rank: graph of causes",
    "analyzers.collectives:exchange": "match collectives",
    "analyzers.reporting.analyses:Analyses._model": "causes: one graph",
    "analyzers.causes.model:Model.walked": "causes: critical path",
    "analyzers.reporting.analyses:Analyses.gains": "causes: gains",
    "analyzers.reporting.analyses:Analyses.cap_gain": "causes: gains",
    "analyzers.reporting.analyses:Analyses.findings": "causes: gains",
    "analyzers.reporting.analyses:Analyses.charge_rows": "causes: charges",
    "analyzers.reporting.analyses:Analyses.bucket_rows": "buckets and layers",
    "analyzers.reporting.analyses:Analyses.layer_rows": "buckets and layers",
    "analyzers.reporting.build:report": "report",
    "tracer.commands.options.output:emit": "rest of the report, written",
}


@dataclass
class Phase:
    """What one phase took, without those within it."""

    cpu_s: float = 0.0
    peak_bytes: int = 0
    calls: int = 0


class Phases:
    """Times functions: each counts until another begins within it, and goes on when that has ended."""

    def __init__(self) -> None:
        self.found: dict[str, Phase] = {}
        self._within: list[str] = []
        self._since = time.process_time()
        self._peak_bytes = peak_bytes()

    def switch(self) -> None:
        """Count what was taken since the last switch for the phase that runs."""
        now, peak = time.process_time(), peak_bytes()
        if self._within:
            phase = self.found.setdefault(self._within[-1], Phase())
            phase.cpu_s += now - self._since
            phase.peak_bytes += peak - self._peak_bytes
        self._since, self._peak_bytes = now, peak

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs within for a phase."""
        self.switch()
        self._within.append(name)
        try:
            yield
        finally:
            self.switch()
            self._within.pop()
            self.found.setdefault(name, Phase()).calls += 1

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that counts for a phase; of a generator, what it does for each item."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        @wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            items = function(*args, **kwargs)
            while True:
                with self.phase(name):
                    item = next(items, self)
                if item is self:
                    return
                yield item

        return generate if isgeneratorfunction(function) else call


def peak_bytes() -> int:
    """Peak of this process's resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def install(phases: Phases) -> None:
    """Time all functions of PHASES from now on. Raises AttributeError for one that is gone."""
    places = [(*place.split(":"), name) for place, name in PHASES.items()]
    modules = [import_module(module) for module, _, _ in places]
    for module, (_, path, name) in zip(modules, places, strict=True):
        *outer, last = path.split(".")
        owner: Any = getattr(module, outer[0]) if outer else module
        function = vars(owner)[last] if outer else getattr(module, last)
        if isinstance(function, cached_property):
            function.func = phases.timed(function.func, name)
        elif outer:
            setattr(owner, last, phases.timed(function, name))
        else:
            replace(function, phases.timed(function, name))


def replace(function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Put another function where modules have this one."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] in ("analyzers", "tracer"):
            for key in [key for key, value in vars(module).items() if value is function]:
                setattr(module, key, by)


def measure(run: Path, phases: Phases) -> tuple[float, dict[str, Phase]]:
    """Make one report, and return its processor seconds and its phases. Exits where there is none."""
    import tracer.cli

    phases.found = {}
    began = time.process_time()
    errors = io.StringIO()
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(errors):
        code = tracer.cli.main(["report", str(run), "--json", "--no-cache", "--workers", "1"])
    if code:
        raise SystemExit(errors.getvalue().strip())
    return time.process_time() - began, phases.found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    phases = Phases()
    install(phases)
    started_s, started_bytes = time.process_time(), peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run
        if run is None:
            run = Path(folder) / "rank0.json"
            loading.build(run, options.mb)
        rounds, first_bytes = [measure(run, phases)], peak_bytes()
        rounds += [measure(run, phases) for _ in range(options.rounds - 1)]
        nbytes = sum(file.stat().st_size for file in (run.rglob("*") if run.is_dir() else [run]) if file.is_file())
    # One whole round: the least of each phase would be of rounds that differ.
    total_s, least = min(rounds, key=lambda measured: measured[0])
    print(f"{run.name}: {nbytes / 1e6:.0f} MB, one process, the quickest of {len(rounds)} rounds, memory of the first")
    print(f"{'':30} {'CPU s':>8} {'share':>7} {'calls':>8} {'peak MB':>8}")
    print(f"{'start, imports':30} {started_s:8.3f} {'':7} {'':8} {started_bytes / 1e6:8.0f}")
    for name, phase in sorted(least.items(), key=lambda named: -named[1].cpu_s):
        raised = rounds[0][1][name].peak_bytes / 1e6
        print(f"{name:30} {phase.cpu_s:8.3f} {phase.cpu_s / total_s:7.1%} {phase.calls:8,} {raised:+8.0f}")
    print(f"{'the report':30} {total_s:8.3f} {'':7} {'':8} {first_bytes / 1e6:8.0f}")


if __name__ == "__main__":
    main()
