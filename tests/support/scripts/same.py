"""Training with all that a recording could disturb, which says to the last bit how it went: `same.py STORE HOW`."""

import hashlib
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(3)
    random.seed(4)
    layers = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3), nn.BatchNorm1d(64), nn.Linear(64, 8))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(8, (32,)))
            scaler.scale(loss / 2).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(f"{loss.item().hex()} at scale {scaler.get_scale()}")
    weights = hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in model.parameters()))
    if rank == 0:
        print(*losses, sep="\n")
        print(weights.hexdigest(), random.random(), torch.get_num_threads(), file=sys.stderr)
    # Lets gloo's workers end their last work, else torch 2.14 may abort: docs/dev/decisions/recording.md.
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(train, args=(sys.argv[1],), nprocs=2, start_method=sys.argv[2])
    sys.stdout.buffer.write(b"\xff\x00 as it is\n")
    sys.exit(7)
