"""A training script for two ranks that knows nothing of tracer: `sharded` (FSDP2 and tensor parallel) or `pipeline`.

The pipeline has two parts of the model on each rank, each with an optimizer of its own.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

STEPS = 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, inputs):
        return inputs + self.down(self.up(inputs).relu())


def train_sharded() -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(Block(), Block())
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def train_pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    rank = dist.get_rank()
    group = init_device_mesh("cpu", (2,), mesh_dim_names=("pp",)).get_group()
    parts = [nn.Sequential(Block()) for _ in range(2)]
    stages = [
        PipelineStage(part, rank + 2 * number, 4, torch.device("cpu"), group=group) for number, part in enumerate(parts)
    ]
    schedule = ScheduleInterleaved1F1B(stages, 2, loss_fn=nn.functional.mse_loss)
    optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-3) for part in parts]
    for _ in range(STEPS):
        schedule.step(*([torch.ones(4, 8)] if rank == 0 else []), target=torch.ones(4, 8) if rank == 1 else None)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


torch.set_num_threads(1)
dist.init_process_group("gloo")
{"sharded": train_sharded, "pipeline": train_pipeline}[sys.argv[1]]()
dist.barrier()  # gloo aborts where the other rank closes its connections first
dist.destroy_process_group()
