"""Named worlds, what is wrong in each, and what it truly costs: `python -m tests.support.simulation.cases [FOLDER]`.

With a folder, each run is left in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.simulation.run_folder import write
from tests.support.simulation.simulation import price, simulate, steady_pace
from tests.support.simulation.world import (
    BALANCED,
    DEVICE_BOUND,
    FSDP,
    HOST_BOUND,
    PIPELINE,
    Fault,
    World,
    allocations,
    blocking_items,
    broadcast_buffers,
    collections,
    event_waits,
    late_host,
    many_launches,
    moved_layers,
    pageable_input,
    pageable_output,
    saved_steps,
    slow_gpu,
    slow_host,
    slow_input,
    slow_link,
    small_reductions,
    starved_input,
    synchronized_batches,
    unequal_stage,
    uneven_work,
    unused_parameters,
)

HOSTS, DEVICES, BOTH = (replace(world, kernels=6) for world in (HOST_BOUND, DEVICE_BOUND, BALANCED))
SLOW_LINKS = replace(DEVICES, link_gbps=10.0)
STAGES = replace(DEVICE_BOUND, strategy=PIPELINE, ranks=3, layers=3, kernels=5, batches=6)
SHARDS = replace(DEVICE_BOUND, strategy=FSDP, ranks=4, kernels=5)
AHEAD = World(layers=24, kernels=6, buckets=8, operator_us=4, python_us=2)
MANY = replace(HOSTS, ranks=8, layers=24, kernels=2, buckets=24)


@dataclass(frozen=True)
class Case:
    """A world without faults, and faults that are put into it."""

    healthy: World
    faults: tuple[Fault, ...]

    @property
    def world(self) -> World:
        return self.healthy.having(*self.faults)


def _case(healthy: World, *faults: Fault) -> Case:
    return Case(healthy, faults)


CASES = {
    "late host, host-bound": _case(HOSTS, late_host(1, 3)),
    "late host, hidden by the queue": _case(DEVICES, late_host(1, 3)),
    "late host, half hidden": _case(DEVICES, late_host(1, 15)),
    "late host behind a full queue": _case(AHEAD, late_host(1, 30)),
    "slow host": _case(HOSTS, slow_host(1, 1.4)),
    "slow host of eight, 24 buckets": _case(
        replace(HOSTS, ranks=8, layers=24, kernels=2, buckets=24), slow_host(5, 1.5)
    ),
    "slow gpu": _case(DEVICES, slow_gpu(1, 1.3)),
    "slow gpu, host-bound": _case(HOSTS, slow_gpu(1, 1.3)),
    "slow gpu, batches on a copy stream": _case(replace(DEVICES, copy_stream=True, input_mb=100), slow_gpu(0, 1.2)),
    "one rank's slow input": _case(HOSTS, slow_input(6, 0)),
    "slow input": _case(DEVICES, slow_input(14)),
    "starved input": _case(DEVICES, starved_input(14)),
    "starved input, hidden": _case(DEVICES, starved_input(8)),
    "blocking items, host-bound": _case(HOSTS, blocking_items(1)),
    "blocking items, device-bound": _case(DEVICES, blocking_items(1)),
    "blocking items, balanced": _case(BOTH, blocking_items(1)),
    "late host, balanced": _case(BOTH, late_host(1, 3)),
    "event waits": _case(BOTH, event_waits(1)),
    "pageable input": _case(replace(DEVICES, input_mb=60), pageable_input()),
    "pageable output": _case(replace(DEVICES, output_mb=8), pageable_output()),
    "allocations, host-bound": _case(HOSTS, allocations(20)),
    "allocations, device-bound": _case(DEVICES, allocations(20)),
    "slow link": _case(SLOW_LINKS, slow_link(2)),
    "slow link, hidden": _case(DEVICES, slow_link(2)),
    "slow link, compute strained": _case(replace(DEVICES, strain=1.15, link_gbps=20), slow_link(2)),
    "unequal stage": _case(STAGES, unequal_stage(1, 2)),
    "moved layers": _case(STAGES, moved_layers(1, 1)),
    "stage with a slow gpu": _case(STAGES, slow_gpu(2, 1.3)),
    "uneven work": _case(replace(DEVICES, ranks=4), uneven_work(0.2)),
    "collections": _case(HOSTS, collections(30)),
    "saved steps": _case(HOSTS, saved_steps(40)),
    "broadcast buffers": _case(HOSTS, broadcast_buffers(40)),
    "unused parameters": _case(HOSTS, unused_parameters(2)),
    "many launches": _case(HOSTS, many_launches(150)),
    "small reductions": _case(HOSTS, small_reductions(16)),
    "synchronized batches": _case(replace(SLOW_LINKS, batches=4), synchronized_batches()),
    "slow pair of links": _case(replace(SLOW_LINKS, ranks=4, tensor=2), slow_link(3, 3)),
    "sharded, slow link": _case(replace(SHARDS, link_gbps=10), slow_link(2)),
    "sharded, late host": _case(SHARDS, late_host(2, 8)),
    "shared layers, slow host": _case(replace(HOSTS, ranks=4, tensor=2), slow_host(2, 1.3)),
    "two machines, late host": _case(replace(DEVICES, hosts=2, offsets_ms=(0, 37.5)), late_host(1, 10)),
    "rows that cost, late host": _case(replace(HOSTS, stretch=1.1, row_us=1.2), late_host(0, 2)),
    "late host and items": _case(HOSTS, late_host(0, 3), blocking_items(2)),
    "slow gpu and link": _case(SLOW_LINKS, slow_gpu(0, 1.3), slow_link(2)),
    "slow host and gpu": _case(DEVICES, slow_host(1, 3.5), slow_gpu(0, 1.3)),
}


def table() -> str:
    """Every case: its step and typical step, and what its faults cost, alone on top of the others and together, ms."""
    lines = [f"{'case':36}{'healthy':>9}{'step':>9}{'typical':>9}{'price':>9}  of each, on top of the others"]
    for name, case in CASES.items():
        healthy, (step, typical) = steady_pace(case.healthy)[0], steady_pace(case.world)
        each = ", ".join(f"{fault.kind} {price(case.world, fault) / 1e6:.2f}" for fault in case.faults)
        figures = "".join(f"{ns / 1e6:9.2f}" for ns in (healthy, step, typical, price(case.world, *case.faults)))
        lines.append(f"{name:36}{figures}  {each}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
    for folder in map(Path, sys.argv[1:]):
        for name, case in CASES.items():
            write(simulate(case.world), folder / name.replace(",", "").replace(" ", "-"))
