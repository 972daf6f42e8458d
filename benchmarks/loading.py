"""What reading a large trace costs, against json.load with a DataFrame and against HTA's parser.

    python benchmarks/loading.py [--mb 50,400,2000] [--rounds 3] [--work DIR] [--hta PYTHON]

Builds traces of each size from a sample run (its rows over and over, times and ids shifted, Kineto's own layout), then
runs each reader as a whole process, in turn, and prints medians of wall time and peak memory, and ratios to ours.

`pip install '.[benchmarks]'` brings what they compare with; `--hta` names the python of another environment that has
HTA 0.5.0. A reader that fails is left out. HTA reads a folder; json.load and HTA are left out above 1000 MB, where they
want over 8 GB. Reports are made by one process, by two, and by one from what the first report kept. The floors:
`inflate` reads the file (gzip: inflates it) and does nothing else; `simdjson` parses it and builds nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import math
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

from processes import Cost, Failed, cost

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "traces" / "resnet18-ddp4" / "rank0.json.gz"
EVENT_SPAN_US = 60_000
IDS = 100_000
SHIFTED = re.compile(rb'("ts": )(\d+)(\.\d+)?|("(?:correlation|External id|id)": )(\d+)|(ProfilerStep#)(\d+)', re.ASCII)

REPORT = """
import sys
from tracer.cli import main
sys.exit(main(["report", sys.argv[1], {more}]))
"""
READERS = {
    "tracer": """
import sys
from pathlib import Path
from analyzers.trace.reader import read_trace
print(len(read_trace(Path(sys.argv[1])).events))
""",
    "report": REPORT.format(more='"--workers", "1", "--no-cache"'),
    "report by two": REPORT.format(more='"--workers", "2", "--no-cache"'),
    "second report": REPORT.format(more='"--workers", "1"'),
    "json+DataFrame": """
import json, sys, pandas
print(len(pandas.DataFrame(json.load(open(sys.argv[1]))["traceEvents"])))
""",
    "HTA 0.5.0": """
import logging, sys
logging.disable(50)
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
""",
    "inflate": """
import sys
from pathlib import Path
from analyzers.trace.decoding import Blocks
print(sum(map(len, Blocks(Path(sys.argv[1])))))
""",
    "simdjson": """
import sys, simdjson
print(len(simdjson.Parser().parse(open(sys.argv[1], "rb").read())["traceEvents"]))
""",
}
RATIOS = (("report", "tracer"), ("report", "report by two"), ("json+DataFrame", "tracer"), ("HTA 0.5.0", "tracer"))
LARGE_MB = 1000
# What wants more memory than there is for larger files.
SMALL = ("json+DataFrame", "HTA 0.5.0", "simdjson")


def build(path: Path, megabytes: int) -> None:
    """A trace of about this size, in the sample's own layout."""
    text = gzip.decompress(SAMPLE.read_bytes())
    start = re.search(rb'"traceEvents"\s*:\s*\[', text).end()  # type: ignore[union-attr]
    stop = text.rindex(b"]")
    body = text[start:stop].strip()
    with path.open("wb") as file:
        written = file.write(text[:start] + b"\n  ")
        copy = 0
        while written < megabytes * 1_000_000:
            written += file.write((b",\n  " if copy else b"") + shifted(body, copy))
            copy += 1
        file.write(b"\n  " + text[stop:])


def shifted(body: bytes, copy: int) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return match[1] + str(int(match[2]) + copy * EVENT_SPAN_US).encode() + (match[3] or b"")
        if match[4]:
            return match[4] + str(int(match[5]) + copy * IDS).encode()
        return match[6] + str(int(match[7]) + copy * 10).encode()

    return SHIFTED.sub(replace, body)


def run(python: str, code: str, path: Path) -> Cost | None:
    """What a whole process takes; None where it fails."""
    own = {"PYTHONPATH": str(ROOT), "TRACER_CACHE": str(path.parent / "cache")}
    with contextlib.suppress(Failed):
        return cost([python, "-c", code, str(path)], os.environ | own)
    return None


def measure(path: Path, megabytes: int, rounds: int, hta: str) -> dict[str, float]:
    """Print what each reader takes; the seconds of those that could read it."""
    size = path.stat().st_size / 1e6
    readers = [name for name in READERS if megabytes < LARGE_MB or name not in SMALL]
    figures: dict[str, list[Cost]] = {}
    run(sys.executable, READERS["second report"], path)  # the first, which fills the cache
    for _ in range(rounds):
        for name in readers:
            python = hta if name.startswith("HTA") else sys.executable
            result = run(python, READERS[name], path)
            if result:
                figures.setdefault(name, []).append(result)
    walls = {name: statistics.median(each.wall_s for each in results) for name, results in figures.items()}
    print(f"\n{path.name}: {size:.0f} MB, medians of {rounds} interleaved runs, whole processes")
    print(f"{'':16} {'wall s':>8} {'MB/s':>7} {'peak MB':>8} {'MB/MB':>6} {'x ours':>7}")
    for name, results in figures.items():
        wall = walls[name]
        peak = statistics.median(each.peak_bytes for each in results) / 1e6
        print(
            f"{name:16} {wall:8.2f} {size / wall:7.0f} {peak:8.0f} {peak / size:6.2f} {wall / walls['tracer']:7.2f}",
            flush=True,
        )
    print("; ".join(f"{one} : {other} {walls[one] / walls[other]:.2f}" for one, other in RATIOS if one in walls))
    return walls


def growth(seconds: dict[int, dict[str, float]]) -> str:
    """The power of the size by which each reader's time grows, from the smallest file to the largest."""
    smallest, largest = min(seconds), max(seconds)
    both = seconds[smallest].keys() & seconds[largest].keys()
    powers = {
        name: math.log(seconds[largest][name] / seconds[smallest][name]) / math.log(largest / smallest)
        for name in READERS
        if name in both
    }
    return "; ".join(f"{name} {power:.2f}" for name, power in powers.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", default="50,400,2000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tracer-loading")
    parser.add_argument("--hta", default=sys.executable, help="python of an environment with HTA 0.5.0")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    seconds: dict[int, dict[str, float]] = {}
    for megabytes in map(int, options.mb.split(",")):
        path = options.work / f"rank0-{megabytes}.json"
        if not path.exists():
            build(path, megabytes)
        seconds[megabytes] = measure(path, megabytes, options.rounds, options.hta)
    if len(seconds) > 1:
        print(f"\ntime grows from {min(seconds)} to {max(seconds)} MB with this power of the size: {growth(seconds)}")


if __name__ == "__main__":
    main()
