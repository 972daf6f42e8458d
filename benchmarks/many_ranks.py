"""What a report of many ranks costs: time and memory over the number of ranks, by processes here and by Dask.

    python benchmarks/many_ranks.py [--ranks 128,256,512,1024] [--work DIR] [--keep]

Makes runs of so many ranks from one rank of a sample run: 7 MB of JSON each (gzipped), two steps, every rank arriving
at its collectives at moments of its own, eight ranks a host, each host with a clock of its own. Each run is reported by
as many processes as there are cores, once more from what these kept, and by two Dask workers in processes of their own;
the two documents must be the same, byte for byte. Runs are removed as soon as they are measured, unless --keep is
given.

Processor time is of all processes together, per rank; unlike seconds it says the same on a busy machine. Peaks are of
resident memory: of the largest process of the local report; of the Dask report's own process, its workers, and its
scheduler, whose memory before the report is shown beside it. Dask is `pip install '.[cluster]'`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from processes import Cost, Failed, cost

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SAMPLE = ROOT / "traces" / "resnet50-ddp4-bf16" / "rank0.json.gz"
RANKS_OF_HOST = 8
# Kineto cuts longer lists.
LISTED = 30
# The rank that the others wait for most often.
SLOW = 17
DASK = (sys.executable, "-m", "distributed.cli.dask_scheduler"), (sys.executable, "-m", "distributed.cli.dask_worker")
# Where a rank's text differs from the sample's: @@what, number of a collective@@.
PLACE = re.compile(r'"@@(\w+):(\d+)@@"')


@dataclass(frozen=True)
class Pieces:
    """The sample as text, cut where ranks differ: every second piece is what differs there."""

    texts: list[str]
    fields: list[tuple[str, int]]
    spans: list[tuple[float, float]]  # start and duration of each collective, us


def sample() -> Pieces:
    """The sample, cut into pieces."""
    from tests.support.generator import kineto

    document = json.loads(gzip.decompress(SAMPLE.read_bytes()))
    spans: list[tuple[float, float]] = []
    for event in document["traceEvents"]:
        if "Process Group Ranks" in event.get("args", {}):
            event["args"] |= {"Process Group Ranks": "@@ranks:0@@", "Group size": "@@size:0@@"}
        if "Rank" in event.get("args", {}):
            event["args"]["Rank"] = "@@rank:0@@"
        if event.get("cat") == "kernel" and "nccl" in event["name"]:
            spans.append((event["ts"], event["dur"]))
            event |= {"ts": f"@@start:{len(spans) - 1}@@", "dur": f"@@length:{len(spans) - 1}@@"}
    said = {"distributedInfo": "@@distributed:0@@", "baseTimeNanoseconds": "@@base:0@@"}
    parts = PLACE.split(kineto({**document, **said}))
    return Pieces(parts[::3], list(zip(parts[1::3], map(int, parts[2::3]), strict=True)), spans)


def text_of(pieces: Pieces, rank: int, ranks: int) -> str:
    """One rank's trace: all leave a collective within 2 us, after a transfer of half the sample's time."""
    random = Random(rank)
    listed = ", ".join(map(str, range(min(ranks, LISTED)))) + (", ..." if ranks > LISTED else "")
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}
    said = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1, "pg_config": [group]}
    values = {
        ("ranks", 0): json.dumps(f"[{listed}]"),
        ("size", 0): str(ranks),
        ("rank", 0): str(rank),
        ("distributed", 0): json.dumps(said),
        # A second apart at most, as clocks that nobody has set.
        ("base", 0): str(1_790_857_026_000_000_000 + rank // RANKS_OF_HOST * 7_654_321),
    }
    for number, (start, length) in enumerate(pieces.spans):
        late = 0.5 * length * (0.98 if rank == SLOW else random.uniform(0, 0.9))
        values["start", number] = f"{start + late:.3f}"
        values["length", number] = f"{length - late + random.uniform(0, 2):.3f}"
    found = [pieces.texts[0]]
    for field, text in zip(pieces.fields, pieces.texts[1:], strict=True):
        found += (values[field], text)
    return "".join(found)


def write_run(folder: Path, ranks: int) -> int:
    """Write a run; the bytes of one rank's JSON."""
    pieces = sample()
    folder.mkdir(parents=True)
    for rank in range(ranks):
        data = text_of(pieces, rank, ranks).encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(data, 1))
    return len(data)


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[int]]]:
    """A scheduler and workers in processes of their own: the address, and the processes, the scheduler's first."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        scheduler, worker = ([*command, "--scheduler-file", str(file)] for command in DASK)
        commands = [[*scheduler, "--port", "0", "--no-dashboard"]]
        commands += [[*worker, "--no-nanny", "--nthreads", "1", "--no-dashboard"]] * workers
        own = os.environ | {"PYTHONPATH": str(ROOT)}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": own, "cwd": folder}
        processes = [subprocess.Popen(command, **quiet) for command in commands]  # type: ignore[call-overload]
        try:
            while not file.exists() or not file.stat().st_size:
                time.sleep(0.1)
            yield json.loads(file.read_text())["address"], [process.pid for process in processes]
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def memory_mb(pid: int, field: str) -> float:
    """A process's resident memory: VmRSS now, VmHWM at its peak."""
    return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def cpu_s(pids: list[int]) -> float:
    """Seconds of processor time that processes have taken."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / ticks


def report(folder: Path, output: Path, *more: str, cache: str = "off") -> Cost:
    """What a report as JSON takes."""
    command = [sys.executable, "-m", "tracer", "report", str(folder), "--json", "-o", str(output), "--force", *more]
    try:
        return cost(command, os.environ | {"PYTHONPATH": str(ROOT), "TRACER_CACHE": cache})
    except Failed as error:
        raise SystemExit(f"{' '.join(command)}: {error}") from error


def measure(work: Path, ranks: int, keep: bool) -> None:
    folder = work / f"run{ranks}"
    if not folder.exists():
        write_run(folder, ranks)
    try:
        with tempfile.TemporaryDirectory() as cache:
            local, second = (report(folder, work / "local.json", cache=cache) for _ in range(2))
        with cluster(2) as (address, pids):
            report(small(work), work / "small.json", "--scheduler", address)  # all have imported what they need
            before, cpu_before = memory_mb(pids[0], "VmRSS"), cpu_s(pids)
            dask = report(folder, work / "dask.json", "--scheduler", address)
            dask_cpu = dask.cpu_s + cpu_s(pids) - cpu_before
            scheduler, workers = memory_mb(pids[0], "VmHWM"), max(memory_mb(pid, "VmHWM") for pid in pids[1:])
        same = (work / "local.json").read_bytes() == (work / "dask.json").read_bytes()
        size = (work / "local.json").stat().st_size / 1e6
    finally:
        if not keep:
            shutil.rmtree(folder)
    local_mb, dask_mb = (each.peak_bytes / 2**20 for each in (local, dask))  # as /proc counts
    print(
        f"{ranks:5} {local.wall_s:8.1f} {1000 * local.cpu_s / ranks:7.0f} {local_mb:8.0f} {local_mb / ranks:6.2f} "
        f"{second.wall_s:8.1f} "
        f"{dask.wall_s:8.1f} {1000 * dask_cpu / ranks:7.0f} {dask_mb:8.0f} {workers:8.0f} "
        f"{before:6.0f} to {scheduler:4.0f} {size:7.1f} {'same' if same else 'DIFFER'}",
        flush=True,
    )


def small(work: Path) -> Path:
    folder = work / "run2"
    if not folder.exists():
        write_run(folder, 2)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="128,256,512,1024")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tracer-many-ranks")
    parser.add_argument("--keep", action="store_true", help="keep the runs in --work")
    options = parser.parse_args()
    shutil.rmtree(options.work / "run2", ignore_errors=True)
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"{'':5} {'this machine':^41} {'Dask, two workers':^51} {'JSON':>7}")
    print(f"{'ranks':5} {'s':>8} {'CPU ms':>7} {'peak MB':>8} {'/rank':>6} {'second s':>8} {'s':>8} {'CPU ms':>7} "
          f"{'client':>8} {'worker':>8} {'scheduler MB':>14} {'MB':>7}")  # fmt: skip
    for ranks in map(int, options.ranks.split(",")):
        measure(options.work, ranks, options.keep)
    shutil.rmtree(options.work / "run2", ignore_errors=True)


if __name__ == "__main__":
    main()
