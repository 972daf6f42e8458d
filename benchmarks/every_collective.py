"""Records a trace of every kind of collective, on the world and on the rows and columns of a 2-D mesh.

    torchrun --nproc-per-node 4 benchmarks/every_collective.py traces/every-collective4

Each rank sleeps a little before some of them, so that ranks arrive at different times.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--elements", type=int, default=4 << 20, help="of the largest buffers (float32)")
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (size // 2, 2), mesh_dim_names=("column", "row"))
    twin = dist.new_group(range(size))  # the same members as the world's
    groups = [dist.group.WORLD, mesh.get_group("row"), mesh.get_group("column"), twin]
    noise = random.Random(rank)
    cycle = schedule(wait=1, warmup=2, active=STEPS, repeat=1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=cycle, record_shapes=True, acc_events=True) as profiler:
        for _ in range(3 + STEPS):
            for group in groups:
                for call in calls(group, options.elements):
                    if noise.random() < 0.3:
                        time.sleep(noise.random() * 5e-4)
                    call()
            neighbours(rank, size, options.elements)
            torch.cuda.synchronize()
            profiler.step()
    options.folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(options.folder / f"rank{rank}.json.gz"))
    dist.destroy_process_group()


def calls(group: dist.ProcessGroup, elements: int) -> list[Callable[[], object]]:
    """Every kind of collective on one group, as calls."""
    n, me = group.size(), group.rank()
    whole = torch.ones(elements, device="cuda")
    part = torch.ones(elements // n, device="cuda")
    half = torch.ones(elements, device="cuda", dtype=torch.bfloat16)
    root = dist.get_global_rank(group, 0)
    parts = [torch.empty_like(part) for _ in range(n)] if me == 0 else None
    uneven_in = [(me + peer + 1) * 1000 for peer in range(n)]

    def uneven() -> object:
        sent = torch.ones(sum(uneven_in), device="cuda")
        received = torch.empty(sum(uneven_in), device="cuda")
        return dist.all_to_all_single(received, sent, uneven_in, uneven_in, group=group)

    def coalesced() -> None:
        with dist._coalescing_manager(group=group, device=torch.device("cuda", torch.cuda.current_device())):
            dist.all_reduce(whole[:1000], group=group)
            dist.all_reduce(whole[:500], group=group)

    return [
        lambda: dist.all_reduce(whole, group=group),
        lambda: dist.all_reduce(half, group=group),
        lambda: dist.all_reduce(whole[:16], group=group),
        lambda: dist.all_gather_into_tensor(whole[: part.numel() * n], part, group=group),
        lambda: dist.reduce_scatter_tensor(part, whole[: part.numel() * n], group=group),
        lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
        uneven,
        lambda: dist.broadcast(whole, src=root, group=group),
        lambda: dist.reduce(whole, dst=root, group=group),
        lambda: dist.gather(part, parts, dst=root, group=group),
        lambda: dist.scatter(part, parts, src=root, group=group),
        lambda: dist.all_gather(list(torch.empty(n, 1000, device="cuda")), whole[:1000], group=group),
        coalesced,
        lambda: dist.barrier(group=group),
    ]


def neighbours(rank: int, size: int, elements: int) -> None:
    """Messages: from even ranks to the next, then around the ring in one batch."""
    tensor = torch.ones(elements // 2, device="cuda")
    other = torch.empty_like(tensor)
    if rank % 2 == 0:
        dist.send(tensor, rank + 1)
    else:
        dist.recv(other, rank - 1)
    ring = [dist.P2POp(dist.isend, tensor, (rank + 1) % size), dist.P2POp(dist.irecv, other, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()


if __name__ == "__main__":
    main()
