"""Timed epochs without a profiler, from fresh weights.

Their loss, accuracy and time go into run.json; a recording's few steps, some of them without gradient synchronization,
say nothing of the first two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from analyzers.run import Epoch
from tracer.config import RecordConfig
from tracer.recording import Progress, gpus_of, inner, rank_and_size
from tracer.workload import models_and_data as workloads
from tracer.workload.images import Batch, ImageSet, evaluation_batches, image_epoch, image_loader, open_images
from tracer.workload.strategies import STRATEGY_OF
from tracer.workload.training_step import (
    Tally,
    Training,
    autocast,
    begin,
    learning_rate,
    microbatches,
    to_device,
    train_step,
)


@dataclass(frozen=True)
class Seen:
    """One epoch as one rank saw it. Of labels only those count whose rank is asked for accuracy."""

    time_ns: int
    samples: int
    loss_sum: float
    labels: int
    correct: int


@dataclass(frozen=True, eq=False)
class Data:
    """What one process trains on: batches by the epoch's number; and the images that they are of, None: synthetic."""

    batches: Callable[[int], Iterable[Batch]]
    images: ImageSet | None = None


def train_epochs(config: RecordConfig, device: torch.device, progress: Progress) -> list[Epoch]:
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
        samples = math.ceil(config.epoch_samples / config.world_size)
        return Data(lambda number: workloads.synthetic_epoch(batches, samples))
    images = open_images(config.data)
    return Data(partial(image_epoch, image_loader(images, config.data, batch, pinned, whole=True)), images)


def train_epoch(training: Training, data: Data, number: int, progress: Progress) -> Epoch:
    """Train the epoch of that number, from 0. Its time ends with its last step, before the model is tested."""
    config = training.config
    steps = math.ceil(config.epoch_samples / config.global_batch)
    label = f"epoch {number + 1} of {config.epochs.count if config.epochs else 1}"
    tally = Tally(training.device, scored=data.images is None)
    done, rate = 0, 0.0
    start_ns = _meet(training)
    for done, batches in enumerate(microbatches(data.batches(number), config.grad_accumulation), start=1):
        rate = learning_rate(config, number + (done - 1) / steps)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        train_step(training, batches, tally)
        progress(label, done, steps)
    _synchronize(training)
    time_ns = time.perf_counter_ns() - start_ns
    labels, correct = (tally.labels, int(tally.correct)) if data.images is None else _tested(training, data.images)
    seen = of_all_ranks(Seen(time_ns, tally.samples, float(tally.loss), labels, correct), training.device)
    return Epoch(
        epoch=number + 1,
        time_ns=seen.time_ns,
        steps=done,
        loss=seen.loss_sum / seen.samples if seen.samples and math.isfinite(seen.loss_sum) else None,
        accuracy=seen.correct / seen.labels if seen.labels else None,
        learning_rate=rate,
    )


def of_all_ranks(seen: Seen, device: torch.device) -> Seen:
    """All ranks' views of an epoch as one: the time of the slowest, everything else added up."""
    if not dist.is_initialized():
        return seen
    slowest = torch.tensor(seen.time_ns, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    counts = torch.tensor([seen.samples, seen.labels, seen.correct], device=device)
    loss_sum = torch.tensor(seen.loss_sum, dtype=torch.float64, device=device)
    for tensor in (counts, loss_sum):
        dist.all_reduce(tensor)
    samples, labels, correct = counts.tolist()
    return Seen(int(slowest), samples, float(loss_sum), labels, correct)


def _tested(training: Training, images: ImageSet) -> tuple[int, int]:
    """How many labels the test set has, and how many of them rank 0's replica finds: its running statistics are kept.

    Sharded weights take all ranks to run a forward.
    """
    rank, _ = rank_and_size()
    if images.test is None or (rank != 0 and not STRATEGY_OF[training.config.strategy].forward_takes_all_ranks):
        return 0, 0
    labels, correct = len(images.test[1]), evaluate(training, images)
    return (labels, correct) if rank == 0 else (0, 0)


@torch.no_grad()
def evaluate(training: Training, images: ImageSet) -> int:
    """How many labels of the test set the model finds."""
    # Without DDP around it, whose forward would broadcast buffers to ranks that do not take part.
    model = inner(training.model)
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=training.device)
    for batch in evaluation_batches(images, training.config.batch):
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
    for gpu in gpus_of(training.model):
        torch.cuda.synchronize(gpu)
