"""A rank of two with a loop and a session of its own, of a plain process group.

`sessions.py OUTPUT STEPS RANK [CRASH]`: CRASH, as 1:30, is a rank and the step at which it fails.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

import tracer


def train(rank, output, steps, crash=None):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{output}.store", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = tracer.Plan(wait=1, warmup=1, active=1, rounds=1, every=12, keep=2) if crash is None else None
    reported = []
    with tracer.Session(output, plan=plan, on_report=reported.append) as session:
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            session.step()
            if crash == f"{rank}:{step}":
                raise RuntimeError("the loss is not a number")
    print(
        rank, [place.name for place in session.recorded], [report.document.run.ranks for report in reported], flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[3]), sys.argv[1], int(sys.argv[2]), *sys.argv[4:])
