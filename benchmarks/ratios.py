"""What the program costs as ratios, in one run, beside what they are to be.

    python benchmarks/ratios.py [--mb 400] [--ranks 64,1024] [--rounds 3] [--work DIR] [--hta PYTHON]

Every figure is of whole processes, the least of several rounds, so that a machine that does other things shows less.
Traces are those of benchmarks/loading.py and benchmarks/many_ranks.py; they stay in the working folder, and the next
call takes them from there. What is not installed (HTA 0.5.0, pysimdjson) is a line that says so. Each command has a
TRACER_CACHE of its own, empty before its first call.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import loading
import many_ranks

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    """What whole processes took at least."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Bench:
    """How often each is run, and where what they read and keep lies."""

    rounds: int
    work: Path

    @property
    def cache(self) -> Path:
        """Where commands keep what ranks say."""
        return self.work / "cache"

    def cost(self, *command: str, fresh: bool = False) -> Cost | None:
        """The least of several runs, each with an empty cache where `fresh`; None where it fails."""
        costs = []
        for _ in range(self.rounds):
            if fresh:
                shutil.rmtree(self.cache, ignore_errors=True)
            found = _once(command, {"PYTHONPATH": str(ROOT), "TRACER_CACHE": str(self.cache)})
            if found is None:
                return None
            costs.append(found)
        return Cost(*(min(values) for values in zip(*(vars(each).values() for each in costs), strict=True)))

    def code(self, name: str, path: Path, python: str = sys.executable) -> Cost | None:
        """One of the readers of benchmarks/loading.py."""
        return self.cost(python, "-c", loading.READERS[name], str(path))

    def tracer(self, *words: str, fresh: bool = False) -> Cost:
        """A command of ours, which may not fail."""
        found = self.cost(sys.executable, "-m", "tracer", *words, fresh=fresh)
        if found is None:
            raise SystemExit(f"tracer {' '.join(words)}: failed")
        return found


def _once(command: Sequence[str], more: dict[str, str]) -> Cost | None:
    began = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=os.environ | more, cwd=ROOT, **quiet)  # type: ignore[call-overload]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024) if not process.returncode else None


Row = tuple[str, str, str]  # what, how much, and what it is to be


def starting(bench: Bench) -> Iterator[Row]:
    """Starts, beyond what Python itself takes."""
    nothing = bench.cost(sys.executable, "-c", "pass")
    assert nothing is not None
    for words in (["--help"], ["report", "--help"]):
        found = bench.tracer(*words)
        said = f"{found.wall_s - nothing.wall_s:.3f} s more"
        yield f"tracer {' '.join(words)} : python -c pass", said, "0.1 s" if words == ["--help"] else ""


def one_file(bench: Bench, megabytes: int, hta: str) -> Iterator[Row]:
    """One trace: reading, the floors, the others' readers, the report."""
    path = bench.work / f"rank0-{megabytes}.json"
    if not path.exists():
        loading.build(path, megabytes)
    zipped = path.with_suffix(".json.gz")
    if not zipped.exists():
        with path.open("rb") as text, gzip.open(zipped, "wb", compresslevel=1) as file:
            shutil.copyfileobj(text, file)
    size = path.stat().st_size
    read, inflated = bench.code("tracer", path), bench.code("tracer", zipped)
    assert read is not None and inflated is not None
    yield f"read_trace of {size / 1e6:.0f} MB", f"{size / 1e6 / read.wall_s:.0f} MB/s", ""
    others = {
        "HTA's parser : read_trace": (bench.code("HTA 0.5.0", path, hta), read),
        "json.load and DataFrame : read_trace": (bench.code("json+DataFrame", path), read),
        "read_trace : simdjson, which builds nothing": (read, bench.code("simdjson", path)),
        "read_trace of .gz : inflating it": (inflated, bench.code("inflate", zipped)),
    }
    for what, (slower, faster) in others.items():
        both = slower is not None and faster is not None
        yield what, f"{slower.wall_s / faster.wall_s:.1f}" if both else "skipped: not installed", ""  # type: ignore[union-attr]
    yield from _commands(bench, path, read)


def _commands(bench: Bench, path: Path, read: Cost) -> Iterator[Row]:
    """The report on one trace: first and second, by one process and by two."""
    size = path.stat().st_size
    two = bench.tracer("report", str(path), "--workers", "2", fresh=True)
    first = bench.tracer("report", str(path), "--workers", "1", fresh=True)
    second = bench.tracer("report", str(path), "--workers", "1")
    yield "first report : read_trace", f"{first.wall_s / read.wall_s:.2f}", "1.4"
    yield "the same, processor time", f"{first.cpu_s / read.cpu_s:.2f}", ""
    yield "peak memory of the first report : file", f"{first.peak_bytes / size:.2f}", "0.5"
    yield "second report : first", f"{second.wall_s / first.wall_s:.2f}", ""
    yield "second report", f"{second.wall_s:.2f} s", "0.5 s"
    yield "one process : two, one file", f"{first.wall_s / two.wall_s:.2f}", "1.5"


def ranks(bench: Bench, counts: Sequence[int]) -> Iterator[Row]:
    """Runs of many ranks, first and second, and what each rank takes of the processor."""
    aims = {1024: ("70 s", "2 s")}
    single: dict[int, float] = {}
    for count in counts:
        folder = bench.work / f"run{count}"
        if not folder.exists():
            many_ranks.write_run(folder, count)
        first, second = bench.tracer("report", str(folder), fresh=True), bench.tracer("report", str(folder))
        of_first, of_second = aims.get(count, ("", ""))
        single[count] = first.cpu_s / count
        yield f"report of {count} ranks", f"{first.wall_s:.1f} s, {1000 * single[count]:.0f} ms a rank", of_first
        yield f"second report of {count} ranks", f"{second.wall_s:.1f} s", of_second
    if len(single) > 1:
        few, many = min(single), max(single)
        yield f"a rank of {many} : a rank of {few}, processor time", f"{single[many] / single[few]:.2f}", "1.0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--ranks", default="64,128,256,512,1024", help="empty: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tracer-loading")
    parser.add_argument("--hta", default=sys.executable, help="python of an environment with HTA 0.5.0")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    bench = Bench(options.rounds, options.work.absolute())
    print(f"{'':48} {'':24} to be")
    for part in (
        starting(bench),
        one_file(bench, options.mb, options.hta),
        ranks(bench, [int(count) for count in options.ranks.split(",") if count]),
    ):
        for what, found, aim in part:
            print(f"{what:48} {found:24} {aim}", flush=True)


if __name__ == "__main__":
    main()
