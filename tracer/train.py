"""The training loop that `tracer record` measures, as one rank runs it: `python -m tracer.train CONFIG FOLDER`.

It knows of the recording only that a session wants to hear of each step, and when it has enough.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from itertools import chain, count, cycle
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from tracer import compat, manifest, workloads
from tracer.calibrate import measure, write_links
from tracer.config import CalibrationPlan, RecordConfig
from tracer.epochs import train_epochs
from tracer.errors import TracerError
from tracer.ranks import leave_notes, pick_device, progress_of
from tracer.session import Progress, Session
from tracer.step import begin, micro_batches, train_step


def train(config: RecordConfig, folder: Path) -> None:
    """Record steps, train whole epochs, measure the links; leave traces and this rank's part in the folder."""
    rank = int(os.environ["RANK"])
    device = pick_device(config.device)
    if config.backend is not None:
        dist.init_process_group(config.backend)

    progress = progress_of(rank, folder)
    recorded = record_steps(config, folder, device, progress)
    # The epochs begin with weights of their own. FSDP's modules refer to one another: this is when they go.
    gc.collect()
    epochs = train_epochs(config, device, progress)
    manifest.write_part(folder, msgspec.structs.replace(recorded, epochs=epochs))
    if config.calibration is not None:
        # Now that nothing is timed or profiled any more, and as long as there is a process group.
        calibrate_links(config.calibration, folder, device, progress)
    if dist.is_initialized():
        dist.destroy_process_group()


def record_steps(config: RecordConfig, folder: Path, device: torch.device, progress: Progress) -> manifest.Part:
    """Train until the session has all it wants; what this rank knows of the recording."""
    rank, _ = compat.rank_and_size()
    training = begin(config, device)
    with Session(folder, training.model, training.optimizer, config.plan, progress) as session:
        for step in micro_batches(endless_batches(config), config.grad_accumulation):
            train_step(training, step)
            if not session.step():
                break
    return manifest.part(rank, training.model, config, session.samples_ns)


def calibrate_links(plan: CalibrationPlan, folder: Path, device: torch.device, progress: Progress) -> None:
    """Leave in the folder what the run's links can do, or a note why not: the recording is good without it."""
    try:
        found = measure(plan, device, lambda label, done, total: progress("measuring the links", done, total))
        write_links(folder, found, device)
        notes = found.notes
    except TracerError as error:
        notes = [f"links are not calibrated: {error}"]
    if dist.get_rank() == 0:
        leave_notes(folder, notes)


def endless_batches(config: RecordConfig) -> Iterator[workloads.Batch]:
    """This process's batches, all of one size, without end."""
    batch, pinned = config.process_batch, config.device == "cuda"
    if config.data is None:
        return cycle(workloads.synthetic_batches(config.model, batch, config.image_size, pinned))
    loader = workloads.cifar10_loader(config.data, batch, pinned, whole=False)
    return chain.from_iterable(workloads.cifar10_epoch(loader, number) for number in count())


if __name__ == "__main__":
    train(msgspec.json.decode(sys.argv[1], type=RecordConfig), Path(sys.argv[2]))
