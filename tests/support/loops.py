"""Small training loops on the CPU, recorded in a few steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import tracer

PLAN = tracer.Plan(wait=0, warmup=1, active=2, rounds=1)
# More than one recording by PLAN takes, and the first step, which is not counted.
ENOUGH = PLAN.longest() + 2


def new_training() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model with its optimizer."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, after_step: Callable[[], object], steps: int = ENOUGH
) -> None:
    """Train some steps, and call something after each."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        after_step()
