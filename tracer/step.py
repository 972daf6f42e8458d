"""A model in training under its strategy, and one step of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from tracer import compat, workloads
from tracer.config import RecordConfig


@dataclass(frozen=True, eq=False)
class Training:
    """A model in training: what each of its steps takes."""

    config: RecordConfig
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer


def begin(config: RecordConfig, device: torch.device) -> Training:
    """Training before its first step: weights depend on the seed alone, so that all ranks have the same."""
    torch.manual_seed(config.seed)
    model = workloads.build_model(config.model).to(device).to(memory_format=_memory_format(config))
    model = parallelize(model, config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return Training(config, device, model, optimizer)


def parallelize(model: nn.Module, config: RecordConfig) -> nn.Module:
    """The model under the strategy that was asked for, compiled inside of what wraps it."""
    units = workloads.shard_units(model) if config.strategy == "fsdp" else [model]
    if config.compile:
        # torch.compile "doesn't handle distributed wrapper modules like DDP or FSDP very well": docs.pytorch.org,
        # "Where to apply torch.compile?"
        for unit in units:
            compat.compile_in_place(unit)
    if config.strategy == "ddp":
        return _ddp(model, config)
    if config.strategy == "dp":
        return nn.DataParallel(model, device_ids=list(range(config.devices)))
    if config.strategy == "fsdp":
        for unit in units:
            fully_shard(unit)
        fully_shard(model)
    return model


def _ddp(model: nn.Module, config: RecordConfig) -> DistributedDataParallel:
    options = config.ddp
    wrapped = compat.ddp(
        model,
        options.broadcast_buffers,
        device_ids=None if config.device == "cpu" else [torch.cuda.current_device()],
        bucket_cap_mb=options.bucket_mb,
        find_unused_parameters=options.find_unused,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
    )
    if options.comm_hook == "bf16":
        wrapped.register_comm_hook(None, bf16_compress_hook)
    return wrapped


def micro_batches(batches: Iterable[workloads.Batch], count: int) -> Iterator[list[workloads.Batch]]:
    """Batches by `count`, one list for each step; the last may have fewer."""
    left = iter(batches)
    while step := list(islice(left, count)):
        yield step


def train_step(training: Training, batches: Sequence[workloads.Batch]) -> None:
    """One step of the optimizer, over the micro-batches it accumulates gradients of."""
    samples = sum(len(targets) for _, targets in batches)
    training.optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(batches, start=1):
        with _synchronized_at_last(training.model, number, len(batches)):
            loss = _loss(training, inputs, targets)
            # The gradient is of the mean over all samples: a micro-batch among N equal ones counts one N-th.
            share = loss if len(batches) == 1 else loss * (len(targets) / samples)
            share.backward()  # type: ignore[no-untyped-call]
    training.optimizer.step()


def _loss(training: Training, inputs: Tensor, targets: Tensor) -> Tensor:
    config, device = training.config, training.device
    inputs = inputs.to(device, non_blocking=True, memory_format=_memory_format(config))
    targets = targets.to(device, non_blocking=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=config.bf16):
        return nn.functional.cross_entropy(training.model(inputs), targets)


def _synchronized_at_last(model: nn.Module, number: int, count: int) -> AbstractContextManager[None]:
    """Where a micro-batch's forward and backward run: gradients wait to be synchronized for the last of a step's."""
    if isinstance(model, FSDPModule) and count > 1:
        model.set_requires_gradient_sync(number == count)
    if isinstance(model, DistributedDataParallel) and number < count:
        return model.no_sync()
    return nullcontext()


def _memory_format(config: RecordConfig) -> torch.memory_format:
    return torch.channels_last if config.channels_last else torch.preserve_format
