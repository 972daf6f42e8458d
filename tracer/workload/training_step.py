"""A model under its strategy, and one training step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from tracer.config import REFERENCE_BATCH, RecordConfig
from tracer.recording import compile_in_place, rank_and_size
from tracer.workload import models_and_data as workloads
from tracer.workload.strategies import STRATEGY_OF


@dataclass(frozen=True, eq=False)
class Training:
    """A model in training: what each of its steps takes."""

    config: RecordConfig
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer


def begin(config: RecordConfig, device: torch.device) -> Training:
    """Training before its first step: all ranks have the same weights, and random numbers of their own from here on."""
    torch.manual_seed(config.seed)
    model = workloads.build_model(config.model, config.zero_init_residual).to(device)
    model = parallelize(model.to(memory_format=_memory_format(config)), config)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate(config, 0), momentum=0.9, weight_decay=5e-4)
    rank, _ = rank_and_size()
    torch.manual_seed(config.seed + rank)
    return Training(config, device, model, optimizer)


def learning_rate(config: RecordConfig, epochs_done: float) -> float:
    """The rate of the step that comes after so many epochs, by Goyal et al. 2017 (arXiv:1706.02677).

    Linear scaling (2.1): the base rate times the global batch over a reference batch. Gradual warm-up (2.2): up to that
    by a constant amount each step, from the base rate. SGD of torch multiplies by the rate after momentum, so that a
    changing rate needs no correction of momentum (their remark 2).
    """
    rate = config.learning_rate
    if rate.scaling is None:
        return rate.base
    scaled = rate.base * config.global_batch / REFERENCE_BATCH
    if scaled <= rate.base or epochs_done >= rate.warmup_epochs:
        return scaled
    return rate.base + (scaled - rate.base) * epochs_done / rate.warmup_epochs


def parallelize(model: nn.Module, config: RecordConfig) -> nn.Module:
    """The model under the strategy that was asked for, compiled inside of what wraps it."""
    strategy = STRATEGY_OF[config.strategy]
    units = strategy.units(model, workloads.shard_units(model))
    if config.compile:
        # torch.compile "doesn't handle distributed wrapper modules like DDP or FSDP very well": docs.pytorch.org,
        # "Where to apply torch.compile?"
        for unit in units:
            compile_in_place(unit)
    return strategy.wrap(model, units, config)


def microbatches(batches: Iterable[workloads.Batch], count: int) -> Iterator[list[workloads.Batch]]:
    """Batches by `count`, one list for each step; the last may have fewer."""
    remaining = iter(batches)
    while step := list(islice(remaining, count)):
        yield step


class Tally:
    """Sums over steps, kept on the device, since the host would have to wait to read them."""

    def __init__(self, device: torch.device, scored: bool) -> None:
        self.samples = 0
        self.labels = 0
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self._scored = scored

    def add(self, outputs: Tensor, targets: Tensor, loss: Tensor) -> None:
        """Count a batch: its samples, its loss; where scored, how many of its labels the model finds."""
        self.samples += len(targets)
        self.loss.add_(loss.detach(), alpha=len(targets))
        if self._scored:
            self.labels += targets.numel()
            self.correct += (outputs.argmax(1) == targets).sum()


def train_step(training: Training, batches: Sequence[workloads.Batch], tally: Tally | None = None) -> None:
    """One step of the optimizer, over the microbatches it accumulates gradients of."""
    strategy = STRATEGY_OF[training.config.strategy]
    samples = sum(len(targets) for _, targets in batches)
    training.optimizer.zero_grad()
    for number, batch in enumerate(batches, start=1):
        with strategy.synchronized_at_last(training.model, number, len(batches)):
            inputs, targets = to_device(training, batch)
            with autocast(training):
                outputs = training.model(inputs)
                loss = nn.functional.cross_entropy(outputs, targets)
            # The gradient is of the mean over all samples: a microbatch among N equal ones counts one N-th.
            share = loss if len(batches) == 1 else loss * (len(targets) / samples)
            share.backward()  # type: ignore[no-untyped-call]
        if tally is not None:
            tally.add(outputs, targets, loss)
    training.optimizer.step()


def to_device(training: Training, batch: workloads.Batch) -> workloads.Batch:
    """A batch on the model's device, without waiting for the copy."""
    inputs, targets = batch
    inputs = inputs.to(training.device, non_blocking=True, memory_format=_memory_format(training.config))
    return inputs, targets.to(training.device, non_blocking=True)


def autocast(training: Training) -> torch.autocast:
    """Where forwards run."""
    return torch.autocast(training.device.type, torch.bfloat16, enabled=training.config.bf16)


def _memory_format(config: RecordConfig) -> torch.memory_format:
    return torch.channels_last if config.channels_last else torch.preserve_format
