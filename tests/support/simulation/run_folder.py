"""Folder of a simulated run, as `tracer record` leaves it: full windows, light ones, run.json with controls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.simulation.device import Activity
from tests.support.simulation.host import MAIN, Host, Row
from tests.support.simulation.program import said_of
from tests.support.simulation.simulation import REST, Simulated
from tests.support.simulation.strategies import bucket_layers
from tests.support.simulation.world import DDP, FSDP, World

BASE_NS = 1_790_857_026_000_000_000
ORIGIN_US = 4_725_113_000_000  # of the clock that rows are written in
PROCESS = 3_300  # the first rank's; the autograd thread's number is 21 more
DEVICE = "Simulated H100"
WATCHDOG, WATCHED_NS, WATCHDOGS = 3, 20_000_000, 9_000_000  # its thread, how often it asks, its calls' correlations
TIMED = ("unprofiled", "light", "full")  # blocks whose single steps are kept
# A profile's step in the recording begins with its first mark; tracer's own numbers begin with its warm-up.
FIRST = 2


def write(simulated: Simulated, folder: Path) -> Path:
    """Write a run's folder, which must not exist or be empty. Returns it."""
    (folder / "light").mkdir(parents=True)
    for host in simulated.hosts:
        for window, where in (("full", folder), ("light", folder / "light")):
            steps = simulated.steps(window)[0]
            rows = full_rows(simulated, host, steps) if window == "full" else light_rows(simulated, host, steps)
            text = document(simulated.world, host.rank, rows)
            (where / f"rank{host.rank}.json.gz").write_bytes(gzip.compress(text.encode(), compresslevel=1))
    (folder / "run.json").write_text(json.dumps(manifest(simulated, folder.name), indent=1))
    return folder


def document(world: World, rank: int, rows: Iterable[str]) -> str:
    """A Kineto document with these rows."""
    groups = [
        {"pg_name": group.name, "pg_desc": group.description, "backend_config": "cuda:nccl"}
        | {"pg_size": len(group.ranks), "ranks": [*group.ranks]}
        for group in world.groups(rank)
    ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": DEVICE, "numSms": 132, "computeMajor": 9, "computeMinor": 0}],
        "record_shapes": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": world.ranks,
            "pg_count": len(groups),
            "pg_config": groups,
            "nccl_version": "2.28.9",
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }
    listed = ",\n  ".join(rows)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n  {listed}\n  ], "traceName": "rank{rank}.json"\n}}'


def full_rows(simulated: Simulated, host: Host, steps: list[int]) -> Iterator[str]:
    """Rows of a full window: calls, operators, ranges, what ran on the device, marks of steps."""
    process, zero_ns = PROCESS + 1_000 * host.rank, _zero_ns(simulated.world, host.rank)
    yield from (_row(row, process, zero_ns) for row in host.rows)
    yield from (_row(mark, process, zero_ns) for mark in _marks(host, steps, "full", "ProfilerStep"))
    yield from (_row(query, process, zero_ns) for query in _queries(host, steps))
    for activity in simulated.activities(host.rank, "full"):
        yield _device_row(activity, zero_ns, _said_in_full(activity))
    yield _named("process_name", process, {"name": "python3"})
    yield _named("process_labels", process, {"labels": "CPU"})


def _queries(host: Host, steps: list[int]) -> Iterator[Row]:
    """What NCCL's watchdog asks the device in a thread of its own, which nothing waits for."""
    begin_ns, end_ns = host.marks[steps[0]][0] + 3_000_000, host.closed_ns["full"]
    for place, at_ns in enumerate(range(begin_ns, end_ns, WATCHED_NS)):
        args = f'"correlation": {WATCHDOGS + place}'
        yield Row("cuda_runtime", "cudaEventQuery", WATCHDOG, at_ns, at_ns + 2_000, args)


def light_rows(simulated: Simulated, host: Host, steps: list[int]) -> Iterator[str]:
    """Rows of a light window: what ran on the device, and marks of steps."""
    process, zero_ns = PROCESS + 1_000 * host.rank, _zero_ns(simulated.world, host.rank)
    yield from (_row(mark, process, zero_ns) for mark in _marks(host, steps, "light", "LightStep"))
    yield from (_device_row(activity, zero_ns, "") for activity in simulated.activities(host.rank, "light"))


def _zero_ns(world: World, rank: int) -> int:
    """What the clock of a rank's machine shows at the true clock's zero."""
    offset_ms = world.offsets_ms[world.machine(rank)] if world.offsets_ms else 0.0
    return ORIGIN_US * 1000 + int(offset_ms * 1e6)


def _marks(host: Host, steps: list[int], window: str, name: str) -> Iterator[Row]:
    """A row for each step, of which the last one ends when the recorder has synchronized the device."""
    ends = [*(host.marks[step][0] for step in steps[1:]), host.closed_ns[window]]
    for place, (step, end_ns) in enumerate(zip(steps, ends, strict=True)):
        yield Row("user_annotation", f"{name}#{FIRST + place}", MAIN, host.marks[step][0], end_ns, "")


def us(ns: int) -> str:
    """Microseconds with three decimals, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _row(row: Row, process: int, zero_ns: int) -> str:
    thread = process + 21 * row.thread
    at = zero_ns + row.start_ns
    return (
        f'{{"ph": "X", "cat": "{row.category}", "name": "{row.name}", "pid": {process}, "tid": {thread}, '
        f'"ts": {us(at)}, "dur": {us(row.end_ns - row.start_ns)}, "args": {{{row.args}}}}}'
    )


def _device_row(activity: Activity, zero_ns: int, said: str) -> str:
    at, dur_ns = zero_ns + activity.start_ns, activity.end_ns - activity.start_ns
    size = (
        f', "bytes": {activity.nbytes}'
        if activity.category != "kernel"
        else ', "grid": [64, 1, 1], "block": [128, 1, 1]'
    )
    return (
        f'{{"ph": "X", "cat": "{activity.category}", "name": "{activity.name}", "pid": {activity.rank}, '
        f'"tid": {activity.stream}, "ts": {us(at)}, "dur": {us(dur_ns)}, "args": {{{said}"device": {activity.rank}, '
        f'"context": 1, "stream": {activity.stream}, "correlation": {activity.correlation}{size}}}}}'
    )


def _said_in_full(activity: Activity) -> str:
    known = f'"External id": {activity.external}, ' if activity.external else ""
    if activity.transfer is not None:
        known += json.dumps(said_of(activity.transfer))[1:-1] + ", "
    return known


def _named(name: str, process: int, args: dict[str, str]) -> str:
    return json.dumps({"name": name, "ph": "M", "ts": float(ORIGIN_US), "pid": process, "tid": 0, "args": args})


def manifest(simulated: Simulated, name: str) -> dict[str, Any]:
    """run.json: facts of the run, and its controls."""
    world = simulated.world
    parameters = [
        {"name": f"layers.{k}.weight", "shape": [int(world.layer_mb * 1e6) // 4], "dtype": "float32"}
        | {"module": f"layers.{k}"}
        for k in range(world.layers)
    ]
    return {
        "schema": "tracer.run/1",
        "id": f"{world.seed:032x}-run",
        "name": name,
        "command": ["tracer", "record", "--", "train.py"],
        "versions": {"tracer": "0.1.0", "python": "3.12.3", "torch": "2.11.0+cu130", "cuda": "13.0", "nccl": "2.28.9"},
        "hosts": [f"vm{number}" for number in range(world.hosts)],
        "host_of_rank": {str(rank): f"vm{world.machine(rank)}" for rank in range(world.ranks)},
        "devices": [DEVICE] * world.ranks,
        "environment": {},
        "transport": "P2P/CUMEM",
        "world_size": world.ranks,
        "backend": "nccl",
        "strategy": world.strategy if world.strategy in (DDP, FSDP) and world.tensor == 1 else None,
        "model": "Net",
        "profiler": {
            "wait": 0,
            "warmup": REST + 1,
            "active": world.steps,
            "rounds": world.rounds,
            "light": "cupti",
        },
        "parameters": parameters,
        "buckets": _buckets(world) if world.strategy == DDP and world.tensor == 1 else None,
        "controls": _controls(simulated),
        "host_states": {str(host.rank): _host_states(simulated, host) for host in simulated.hosts},
        "dataset": None,
        "epochs": [],
        "notes": [],
    }


def _buckets(world: World) -> list[dict[str, Any]]:
    size = 4 * (int(world.layer_mb * 1e6) // 4)
    return [{"nbytes": size * len(layers), "parameters": layers} for layers in bucket_layers(world)]


def _host_states(simulated: Simulated, host: Host) -> dict[str, list[Any]]:
    """What a rank's host was in, in each step that was timed or watched; nobody else wanted its core."""
    steps = [step for what, steps in simulated.blocks if what in TIMED for step in steps]
    unknown = [None] * len(steps)
    return {
        "step": [step + 1 for step in steps],
        "host_ns": [host.marks[step + 1][0] - host.marks[step][0] for step in steps],
        "gc_ns": [host.collected_ns.get(step, 0) for step in steps],
        **dict.fromkeys(("runnable_ns", "autograd_runnable_ns", "switches", "faults"), unknown),
        "cpu_mhz": [],
    }


def _controls(simulated: Simulated) -> dict[str, Any]:
    """Single steps by rank and block; of hosts, each round's with the device at rest before."""
    controls: dict[str, Any] = {}
    for what in TIMED:
        blocks = simulated.steps(what)
        controls[what] = {
            "steps_ns": {
                str(host.rank): [simulated.steps_ns(host.rank, steps) for steps in blocks] for host in simulated.hosts
            },
            "numbers": [[step + 1 for step in steps] for steps in blocks],
        }
    rest = simulated.steps("rest")
    by_rank = {str(host.rank): _grouped(simulated.host_ns(host.rank), len(rest)) for host in simulated.hosts}
    controls["host"] = {"steps_ns": by_rank, "numbers": [[step + 1 for step in steps] for steps in rest]}
    controls["nosync"] = None
    controls["reasons"] = {"nosync": "steps without gradient synchronization would change this training"}
    return controls


def _grouped(values: list[int], blocks: int) -> list[list[int]]:
    size = len(values) // blocks
    return [values[size * k : size * (k + 1)] for k in range(blocks)]
