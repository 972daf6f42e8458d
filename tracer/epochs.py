"""Whole epochs without a profiler, timed, from weights that no step has touched: what training comes to.

Their loss, accuracy and time go into run.json; a recording's few steps, some of them without gradient synchronization,
say nothing of the first two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import torch
import torch.distributed as dist

from analyzers.manifest import Epoch
from tracer import compat, workloads
from tracer.config import RecordConfig
from tracer.ranges import inner
from tracer.session import Progress
from tracer.step import (
    Tally,
    Training,
    autocast,
    begin,
    learning_rate,
    micro_batches,
    own_gpus,
    to_device,
    train_step,
)


class RankEpoch(msgspec.Struct, frozen=True):
    """One epoch as one rank saw it. Of labels only those count whose rank is asked for accuracy."""

    time_ns: int
    steps: int
    samples: int
    loss_sum: float | None  # null where it is no number
    labels: int
    correct: int
    learning_rate: float


@dataclass(frozen=True, eq=False)
class Data:
    """What one process trains on: batches by the epoch's number. Without a test set of `None` accuracy is not known."""

    batches: Callable[[int], Iterable[workloads.Batch]]
    is_synthetic: bool
    test_set: workloads.Batch | None = None


def train_epochs(config: RecordConfig, device: torch.device, progress: Progress) -> list[RankEpoch]:
    """Train the epochs that are asked for; what this rank saw of each."""
    if config.epochs is None:
        return []
    training, data = begin(config, device), epoch_data(config)
    return [train_epoch(training, data, number, progress) for number in range(config.epochs.count)]


def epoch_data(config: RecordConfig) -> Data:
    """This process's part of the data. All ranks' parts are equally long: DistributedSampler repeats a few samples."""
    batch, pinned = config.process_batch, config.device == "cuda"
    if config.data is None:
        batches = workloads.synthetic_batches(config.model, batch, config.image_size, pinned)
        samples = math.ceil(config.epoch_samples / config.processes)
        return Data(lambda number: workloads.synthetic_epoch(batches, samples), True)
    loader = workloads.cifar10_loader(config.data, batch, pinned, whole=True)
    return Data(partial(workloads.cifar10_epoch, loader), False, workloads.cifar10_test_set(config.data.folder))


def train_epoch(training: Training, data: Data, number: int, progress: Progress) -> RankEpoch:
    """Train the epoch of that number, from 0. Its time ends with its last step, before the model is tested."""
    config = training.config
    steps = math.ceil(config.epoch_samples / config.global_batch)
    label = f"epoch {number + 1} of {config.epochs.count if config.epochs else 1}"
    tally = Tally(training.device, scored=data.is_synthetic)
    done, rate = 0, 0.0
    start_ns = _meet(training)
    for done, batches in enumerate(micro_batches(data.batches(number), config.grad_accumulation), start=1):
        rate = learning_rate(config, number + (done - 1) / steps)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        train_step(training, batches, tally)
        progress(label, done, steps)
    _synchronize(training)
    time_ns = time.perf_counter_ns() - start_ns
    labels, correct = (tally.labels, int(tally.correct)) if data.is_synthetic else _tested(training, data)
    loss = float(tally.loss)
    return RankEpoch(
        time_ns=time_ns,
        steps=done,
        samples=tally.samples,
        loss_sum=loss if math.isfinite(loss) else None,
        labels=labels,
        correct=correct,
        learning_rate=rate,
    )


def merged(ranks: Sequence[Sequence[RankEpoch]]) -> list[Epoch]:
    """All ranks' views of each epoch as one."""
    return [_merged(number, seen) for number, seen in enumerate(zip(*ranks, strict=True), start=1)]


def _merged(number: int, seen: Sequence[RankEpoch]) -> Epoch:
    losses = [rank.loss_sum for rank in seen if rank.loss_sum is not None]
    labels = sum(rank.labels for rank in seen)
    return Epoch(
        epoch=number,
        time_ns=max(rank.time_ns for rank in seen),
        steps=seen[0].steps,
        loss=sum(losses) / sum(rank.samples for rank in seen) if len(losses) == len(seen) else None,
        accuracy=sum(rank.correct for rank in seen) / labels if labels else None,
        learning_rate=seen[0].learning_rate,
    )


def _tested(training: Training, data: Data) -> tuple[int, int]:
    """How many labels the test set has, and how many of them rank 0's replica finds: its running statistics are kept.

    Sharded weights take all ranks to run a forward.
    """
    rank, _ = compat.rank_and_size()
    if data.test_set is None or (rank != 0 and training.config.strategy != "fsdp"):
        return 0, 0
    labels, correct = len(data.test_set[1]), evaluate(training, data.test_set)
    return (labels, correct) if rank == 0 else (0, 0)


@torch.no_grad()
def evaluate(training: Training, test_set: workloads.Batch) -> int:
    """How many labels of the test set the model finds."""
    # Without DDP around it, whose forward would broadcast buffers to ranks that do not take part.
    model = inner(training.model)
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=training.device)
    for batch in workloads.cifar10_test_batches(test_set, training.config.batch):
        inputs, labels = to_device(training, batch)
        with autocast(training):
            correct += (model(inputs).argmax(1) == labels).sum()
    model.train()
    return int(correct)


def _meet(training: Training) -> int:
    """Every rank is here and no device has work left: the moment an epoch begins, in ns."""
    if dist.is_initialized():
        dist.all_reduce(torch.zeros(1, device=training.device))
    _synchronize(training)
    return time.perf_counter_ns()


def _synchronize(training: Training) -> None:
    for gpu in own_gpus(training.config):
        torch.cuda.synchronize(gpu)
