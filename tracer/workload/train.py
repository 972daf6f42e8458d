"""Training of the built-in workload as one rank.

`python -m tracer.workload train CONFIGS FOLDER`. One recording after another, each in its own place below the folder.
The loop knows of a recording only that it wants to hear of each step, and when it has enough.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import chain, count, cycle
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from analyzers.run import LINKS, Dataset
from tracer.config import DATA_SETS, RecordConfig
from tracer.errors import TracerError
from tracer.recording import (
    OUT_OF_MEMORY,
    RUN,
    Facts,
    Progress,
    RankPart,
    Recorder,
    Subject,
    leave_notes,
    pick_device,
    progress_of,
    refusing,
    write_part,
)
from tracer.workload import models_and_data as workloads
from tracer.workload.calibrate import measure, write_links
from tracer.workload.epochs import train_epochs
from tracer.workload.images import image_epoch, image_loader, open_images
from tracer.workload.training_step import begin, microbatches, train_step


def train(config: RecordConfig, folder: Path, device: torch.device, progress: Progress) -> None:
    """Record steps, train whole epochs, measure the links; leave traces and this rank's part in the folder."""
    _forget_peak_memory(config)
    recorded = record_steps(config, folder, progress, device)
    # The epochs begin with weights of their own. FSDP's modules refer to one another: this is when they go.
    gc.collect()
    epochs = train_epochs(config, device, progress)
    gc.collect()
    if config.calibration is not None:
        # Now that nothing is timed or profiled any more, and as long as there is a process group.
        calibrate_links(config, folder, device, progress)
    write_part(folder / RUN, msgspec.structs.replace(recorded, epochs=epochs, ended=True))


def record_steps(config: RecordConfig, folder: Path, progress: Progress, device: torch.device) -> RankPart:
    """Train until the recorder has all it wants; what this rank knows of the recording."""
    training = begin(config, device)
    subject = Subject(training.model, facts(config), training.optimizer, goes_on=True)
    with Recorder(folder, subject, config.plan, progress) as recorder:
        for step in microbatches(endless_batches(config), config.grad_accumulation):
            train_step(training, step)
            if not recorder.step():
                break
    assert recorder.part is not None
    return recorder.part


def calibrate_links(config: RecordConfig, folder: Path, device: torch.device, progress: Progress) -> None:
    """Leave beside the traces what the run's links can do, or a note why not: the recording is good without it."""
    assert config.calibration is not None
    try:
        measurement = measure(
            config.calibration, device, lambda label, done, total: progress("measuring the links", done, total)
        )
        write_links(measurement, folder.parent if config.place else folder, folder / RUN / LINKS, device)
        notes = measurement.notes
    except TracerError as error:
        notes = [f"links are not calibrated: {error}"]
    if dist.get_rank() == 0:
        leave_notes(folder.parent if config.place else folder, notes)


def _forget_peak_memory(config: RecordConfig) -> None:
    """Begin anew with what was most in use, after other recordings of this process, on its own GPUs alone."""
    if config.device == "cpu":
        return  # the system keeps the greatest of the whole process
    torch.cuda.empty_cache()
    for gpu in range(config.devices) if config.traits.one_process else (torch.cuda.current_device(),):
        torch.cuda.reset_peak_memory_stats(gpu)


def endless_batches(config: RecordConfig) -> Iterator[workloads.Batch]:
    """This process's batches, all of one size, without end."""
    batch, pinned = config.process_batch, config.device == "cuda"
    if config.data is None:
        return cycle(workloads.synthetic_batches(config.model, batch, config.image_size, pinned))
    loader = image_loader(open_images(config.data), config.data, batch, pinned, whole=False)
    return chain.from_iterable(image_epoch(loader, number) for number in count())


def _data_name(config: RecordConfig) -> str:
    return "synthetic" if config.data is None else DATA_SETS[config.data.name][0]


def facts(config: RecordConfig) -> Facts:
    """What run.json says of the workload."""
    return Facts(
        command=config.command,
        model=config.model,
        strategy=config.strategy,
        backend=config.backend,
        batch_per_gpu=config.batch,
        bucket_cap_mb=config.ddp.bucket_mb,
        dataset=Dataset(_data_name(config), config.epoch_samples, config.data is None),
        settings={
            "amp": "bf16" if config.bf16 else None,
            "image_size": config.image_size,
            "seed": config.seed,
            "data": msgspec.to_builtins(config.data) if config.data else "synthetic",
            "channels_last": config.channels_last,
            "compile": config.compile,
            "grad_accumulation": config.grad_accumulation,
            "lr": config.learning_rate.base,
            "lr_scaling": config.learning_rate.scaling,
            "lr_warmup": config.learning_rate.warmup_epochs,
            "zero_init_residual": config.zero_init_residual,
            "ddp_options": msgspec.to_builtins(config.ddp) if config.traits.takes_ddp_options else None,
        },
    )


def main(configs: list[RecordConfig], folder: Path) -> None:
    """One rank of `tracer record` or of a row of `tracer sweep`: all its recordings, in one process group."""
    rank, first = int(os.environ["RANK"]), configs[0]
    device, progress = pick_device(first.device), progress_of(rank, folder)
    with refusing(rank, folder):
        if first.backend is not None:
            dist.init_process_group(first.backend)
        for config in configs:
            part = folder / config.place
            try:
                train(config, part, device, _of_place(config, progress))
            except (RuntimeError, MemoryError) as error:
                if (said := _memory_ended(error)) is None:
                    raise
                why = f"rank {rank} is out of memory at batch {config.batch}: {said}"
                part.mkdir(parents=True, exist_ok=True)
                (part / OUT_OF_MEMORY).write_text(why, encoding="utf-8")
                raise TracerError(f"{why}; lower --batch") from error
        if dist.is_initialized():
            dist.destroy_process_group()


def _memory_ended(error: Exception) -> str | None:
    """Return what an allocator says that has no memory left, None of any other error."""
    if isinstance(error, MemoryError):
        return str(error) or "no memory on the host"
    if isinstance(error, torch.OutOfMemoryError):
        return str(error).partition(".")[0]
    # A CPU's is a RuntimeError (c10/core/impl/alloc_cpu.cpp): `[enforce fail at ...] . DefaultCPUAllocator: ...`.
    _, allocator, words = str(error).partition("DefaultCPUAllocator: ")
    return f"{allocator}{words}".partition(".")[0] if allocator else None


def _of_place(config: RecordConfig, progress: Progress) -> Progress:
    """Progress that says which of several recordings it is of."""
    if not config.place:
        return progress
    return lambda label, done, total: progress(f"{config.place}: {label}", done, total)
