"""A training script that knows nothing of tracer, as torchrun starts it; its options are what may go wrong."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--crash", metavar="RANK:STEP")
parser.add_argument("--uneven", type=int, default=0, help="rank 1 takes so many steps fewer")
parser.add_argument("--exit", choices=["normal", "os", "code"], default="normal")
parser.add_argument("--profile", action="store_true")
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--gan", action="store_true")
parser.add_argument("--mesh", action="store_true", help="DDP's group is a dimension of a mesh")
parser.add_argument("--plain", action="store_true", help="no DDP")
options = parser.parse_args()

torch.set_num_threads(1)
rank = int(os.environ.get("RANK", "0"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
if "RANK" in os.environ and not options.plain:
    dist.init_process_group("gloo")
    group = None
    if options.mesh:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
        group = mesh.get_group("dp")
    model = DistributedDataParallel(model, process_group=group)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
second = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=options.scaler)
if options.profile:
    profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=5, warmup=1, active=1, repeat=1))
    profiler.start()
for step in range(options.steps - (options.uneven if rank == 1 else 0)):
    for _ in range(options.accumulate):
        loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(8, (32,)))
        scaler.scale(loss / options.accumulate).backward()
    scaler.step(optimizer)
    scaler.update()
    if options.gan and step % 5 == 4:
        second.step()
    optimizer.zero_grad()
    if options.profile:
        profiler.step()
    if options.crash == f"{rank}:{step}":
        raise RuntimeError("the loss is not a number")
print(f"rank {rank} trained {options.steps} steps, loss below 10: {loss.item() < 10}")
sys.stdout.flush()
if options.exit == "os":
    os._exit(0)
if options.exit == "code":
    sys.exit(7)
if dist.is_initialized():
    # Lets gloo's workers end their last work, else torch 2.14 may abort: docs/dev/decisions/recording.md.
    time.sleep(0.3)
    dist.destroy_process_group()
