"""A model of four layers on the CPU, ready to train, and random batches for it."""

from __future__ import annotations

import torch
from torch import nn

from tracer.config import Plan, RecordConfig
from tracer.workload import training_step as step

CPU = torch.device("cpu")
CONFIG = RecordConfig(
    model="resnet18", strategy="single", device="cpu", devices=1, batch=2, plan=Plan(0, 1, 1, 1), image_size=32, seed=0
)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))


def training(config: RecordConfig = CONFIG) -> step.Training:
    model = step.parallelize(small_model(), config)
    return step.Training(config, CPU, model, torch.optim.SGD(model.parameters(), lr=0.1))


def batch(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 4, generator=generator), torch.randint(3, (samples,), generator=generator)
