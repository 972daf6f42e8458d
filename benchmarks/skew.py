"""How exactly waiting is told from transfer: collectives to which one rank comes late by a known time.

    python benchmarks/skew.py record FOLDER [--gpus 2] [--groups 1] [--backend nccl] [--sizes 4,...] [--repeats 5]
    python benchmarks/skew.py judge FOLDER [--json]

`record` runs each kind at each size. Before each collective all ranks pass a gate, an all_reduce of 8 bytes that they
leave together; behind it the last rank sleeps on its device for 0, 50, 250 or 1000 us. On GPUs the host is far ahead: a
long sleep comes first. A step holds one kind. With --groups ranks are divided into so many groups of neighbors, each
with a communicator of its own: all of them communicate at once, and the last rank of each is late (on GPUs alone:
traces of gloo do not name groups). `judge` reads the run as `tracer report` does, and compares its waiting with the
true one, for which it looks at each rank by itself, without any common clock:

    late rank   gate|sleep.......|kernel|        what a rank starts earlier than the latest, counted from the gate's
    others      gate|kernel.............|        end, it waits; in one-way kinds no more than its kernel takes
                                                 longer than the same rank's when nobody comes late
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
ONE_WAY = ("broadcast", "reduce", "gather", "scatter", "send_recv")
LATE_US = (0, 50, 250, 1000)
SIZES = (4, 4096, 262_144, 4_194_304, 67_108_864)
# What the waiting of a synchronizing kind's member may be off by, whichever is more.
MOST_NS, MOST_SHARE = 10_000, 0.02
GATE_BYTES = 8
# A gate whose shortest kernel takes so many times as long as usual was held up on some device.
DISTURBED = 5
NEVER = 2**63
# What a window's exposed waiting may be off by in the others.
MOST_OF_WINDOW = 0.03


def collective(kind: str, nbytes: int, device: Any, group: Any = None) -> Callable[[], Any]:
    """One collective of a kind, its buffers made beforehand."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_process_group_ranks(group) if group is not None else list(range(dist.get_world_size()))
    size, rank = len(ranks), ranks.index(dist.get_rank())
    first, before = ranks[0], ranks[rank - 1]
    whole = torch.ones(max(nbytes // 4, size), device=device)
    part = torch.ones(max(nbytes // 4 // size, 1), device=device)
    parts = [torch.empty_like(part) for _ in range(size)]
    gathered = torch.empty(len(part) * size, device=device)
    peer = ranks[(rank + 1) % size]
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, gathered, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(gathered), gathered, group=group),
        "barrier": lambda: dist.barrier(group),
        "broadcast": lambda: dist.broadcast(whole, first, group=group),
        "reduce": lambda: dist.reduce(whole, first, group=group),
        "gather": lambda: dist.gather(part, parts if rank == 0 else None, first, group=group),
        "scatter": lambda: dist.scatter(part, parts if rank == 0 else None, first, group=group),
        "send_recv": lambda: (
            dist.send(whole, peer, group=group) if rank % 2 == 0 else dist.recv(whole, before, group=group)
        ),
    }
    return calls[kind]


def sleeper(device: Any) -> Callable[[int], None]:
    """Sleep on the device for so many us; on a CPU in the process."""
    import torch

    if device.type == "cpu":
        return lambda us: time.sleep(us / 1e6)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for cycles in (10_000, 20_000_000):
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
    torch.cuda.synchronize()
    cycles_per_us = 20_000_000 / (begin.elapsed_time(end) * 1000)
    return lambda us: torch.cuda._sleep(round(us * cycles_per_us)) if us else None


def record_rank(rank: int, options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), RANK=str(rank))
    os.environ.update(WORLD_SIZE=str(options.gpus), LOCAL_RANK=str(rank))
    on_gpu = options.backend == "nccl"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, rank=rank, world_size=options.gpus)
    group, is_late = _own_group(rank, options)
    sleep, gate = sleeper(device), torch.ones(1, dtype=torch.int64, device=device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    kinds = options.kinds
    plan = schedule(wait=0, warmup=1, active=len(kinds), repeat=1)
    with profile(activities=activities, schedule=plan, record_shapes=True, acc_events=True) as profiler:
        for kind in (kinds[0], *kinds):
            for nbytes in [4] if kind == "barrier" else options.sizes:
                call = collective(kind, nbytes, device, group)
                call()
                if on_gpu:
                    torch.cuda.synchronize()
                    sleep(options.ahead_us)
                for late_us in options.late:
                    for _ in range(options.repeats):
                        dist.all_reduce(gate)
                        if late_us and is_late:
                            sleep(late_us)
                        call()
                if on_gpu:
                    torch.cuda.synchronize()
            dist.barrier()
            profiler.step()
    profiler.export_chrome_trace(str(options.folder / f"rank{rank}.json.gz"))
    dist.destroy_process_group()


def _own_group(rank: int, options: argparse.Namespace) -> tuple[Any, bool]:
    """Make all groups, and return this rank's (None for the world), and whether it is the late one there."""
    import torch.distributed as dist

    size = options.gpus // options.groups
    of_all = [range(first, first + size) for first in range(0, options.gpus, size)]
    made = [dist.new_group([*ranks]) for ranks in of_all] if options.groups > 1 else [None]
    return made[rank // size], rank % size == size - 1


def record(options: argparse.Namespace) -> None:
    import torch
    import torch.multiprocessing as mp

    options.folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options.port = free.getsockname()[1]
    mp.spawn(record_rank, (options,), nprocs=options.gpus)
    run = {
        "schema": "tracer.run/1",
        "name": options.folder.name,
        "world_size": options.gpus,
        "hosts": [socket.gethostname()],
        "backend": options.backend,
        "versions": {"torch": torch.__version__},
        "profiler": {"wait": 0, "warmup": 1, "active": len(options.kinds)},
        "notes": [f"made by benchmarks/skew.py: the last rank of {options.groups} groups comes late by a known time"],
    }
    (options.folder / "run.json").write_text(json.dumps(run, indent=1))


@dataclass(frozen=True)
class Judged:
    """One kind: how many instances were found of how many, members' errors in ns, and the windows'."""

    kind: str
    found: int
    of: int
    errors_ns: list[float]
    allowed: float
    window_ns: tuple[float, float]
    late_named: bool

    @property
    def holds(self) -> bool:
        """Whether the kind's requirement is met."""
        if self.kind in SYNCHRONIZING:
            return self.found == self.of and self.allowed >= 0.99
        told, true = self.window_ns
        return self.late_named and abs(told - true) <= MOST_OF_WINDOW * max(true, 1.0)


def judge(options: argparse.Namespace) -> list[Judged]:
    import analyzers

    report = analyzers.report(analyzers.summarize(options.folder))
    kinds = [kind for kind in (*SYNCHRONIZING, *ONE_WAY) if any(row.kind == kind for row in report.collectives)]
    return [_judged(report, kind) for kind in kinds]


def _judged(report: Any, kind: str) -> Judged:
    rows = [row for row in report.collectives if row.kind == kind and row.step is not None and not _is_gate(row)]
    missing = [row for row in report.unmatched if row.kind == kind]
    errors, allowed = [], []
    for wait_ns, true_ns in _members(report, rows, kind in ONE_WAY):
        errors.append(wait_ns - true_ns)
        allowed.append(abs(errors[-1]) <= max(MOST_NS, MOST_SHARE * true_ns))
    steps = {row.step for row in rows}
    caused: dict[int, int] = defaultdict(int)
    for row in report.waiting:
        caused[row.rank] += row.caused_ns if row.step in steps else 0
    late = {max(member.rank for member in row.members) for row in rows}
    named = set(sorted(caused, key=lambda rank: -caused[rank])[: len(late)]) == late
    count = sum(len(row.members) for row in rows)
    share = float(np.mean(allowed or [0]))
    return Judged(kind, count, count + len(missing), errors, share, _in_windows(report, steps), named)


def _in_windows(report: Any, steps: set[int]) -> tuple[float, float]:
    """Return the exposed waiting that windows are said to have, and how much longer members took in them, gates too."""
    told = sum(window.exposed_wait_ns for window in report.windows if window.step in steps)
    rows = [row for row in report.collectives if row.step in steps]
    # A kernel's like are in its own step, where others lie around it; what a step has once has them in all steps.
    typical = _typical(report.collectives) | _typical(row for row in rows if row.kind != "barrier")
    true = 0.0
    for row in rows:
        longer = [max(member.dur_ns - typical[row.kind, row.bytes, member.rank], 0) for member in row.members]
        # Somebody waits for nobody: what even he takes longer is no waiting.
        true += sum(longer) - len(longer) * min(longer)
    return float(told), true


def _is_gate(row: Any) -> bool:
    return row.kind == "all_reduce" and row.bytes == GATE_BYTES


def _members(report: Any, rows: list[Any], one_way: bool) -> Iterator[tuple[int, float]]:
    """Yield for each member of each collective behind a gate what it is said to have waited, and what it did wait."""
    gates: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(filter(_is_gate, report.collectives), key=lambda row: row.index):
        shortest_ns = min(member.dur_ns for member in row.members)
        for member in row.members:
            gates[member.rank].append((member.start_ns + member.dur_ns, shortest_ns))
    usual_ns = statistics.median(shortest_ns for found in gates.values() for _, shortest_ns in found)
    typical, used = _typical(rows), set()
    for row in rows:
        passed = {member.rank: bisect_right(gates[member.rank], (member.start_ns, NEVER)) for member in row.members}
        (gate, *others) = set(passed.values())
        key = gate, *sorted(passed)
        if others or key in used or not gate:
            continue  # the first of a size, which opens its connections, has no gate of its own
        used.add(key)
        if gates[row.members[0].rank][gate - 1][1] > DISTURBED * usual_ns:
            continue  # something held a device up, so that ranks did not leave the gate together
        after = {member.rank: member.start_ns - gates[member.rank][gate - 1][0] for member in row.members}
        for member in row.members:
            true_ns = float(max(after.values()) - after[member.rank])
            if one_way:
                true_ns = min(true_ns, max(member.dur_ns - typical[row.kind, row.bytes, member.rank], 0.0))
            yield member.wait_ns or 0, true_ns


def _typical(rows: Iterable[Any]) -> dict[tuple[str, Any, int], float]:
    """Return what each rank's kernels of each kind and size take when nobody is late: the median of the shortest."""
    durations: dict[tuple[str, Any, int], list[int]] = defaultdict(list)
    for row in rows:
        for member in row.members:
            durations[row.kind, row.bytes, member.rank].append(member.dur_ns)
    return {key: statistics.median(sorted(found)[: -(-len(found) // len(LATE_US))]) for key, found in durations.items()}


def shown(judged: list[Judged]) -> str:
    lines = [
        "kind            found       within   error us (median, worst)    windows ms (told, true)  late rank  holds"
    ]
    for row in judged:
        errors = np.abs(row.errors_ns) / 1000 if row.errors_ns else np.zeros(1)
        told, true = (ns / 1e6 for ns in row.window_ns)
        lines.append(
            f"{row.kind:15} {row.found:4d}/{row.of:<4d} {100 * row.allowed:8.1f} % {np.median(errors):10.1f} "
            f"{errors.max():10.1f}   {told:12.3f} {true:10.3f}   {'named' if row.late_named else '-':9}  "
            f"{'yes' if row.holds else 'NO'}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=2, help="or processes of gloo")
    parser.add_argument("--groups", type=int, default=1, help="of neighbors, each with a communicator of its own")
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=list(SIZES))
    parser.add_argument("--late", type=lambda text: [int(part) for part in text.split(",")], default=list(LATE_US))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[*SYNCHRONIZING, *ONE_WAY])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ahead-us", type=int, default=50_000, help="how long devices sleep before each size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.what == "record":
        record(options)
        return 0
    judged = judge(options)
    print(json.dumps([row.__dict__ for row in judged]) if options.json else shown(judged))
    return 0 if all(row.holds for row in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
