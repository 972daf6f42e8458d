"""The training loop that `tracer record` measures, as one rank runs it: `python -m tracer.train CONFIG FOLDER`.

It knows of the recording only that a session wants to hear of each step, and when it has enough.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from analyzers.manifest import LINKS
from tracer import workloads
from tracer.calibrate import measure, write_links
from tracer.config import CalibrationPlan, RecordConfig
from tracer.errors import TracerError
from tracer.manifest import RUN, Facts, write_part
from tracer.ranks import LAUNCHER, die_with, leave_notes, pick_device, progress_of, refusing
from tracer.recorder import Progress, Recorder, Subject
from tracer.step import begin, micro_batches, train_step


def train(config: RecordConfig, folder: Path) -> None:
    """Train the workload until the session has all it wants; leave traces and this rank's part in the folder."""
    rank = int(os.environ["RANK"])
    device = pick_device(config.device)
    if config.backend is not None:
        dist.init_process_group(config.backend)

    training = begin(config, device)
    torch.manual_seed(config.seed + rank)

    progress = progress_of(rank, folder)
    subject = Subject(training.model, facts(config), training.optimizer, goes_on=True)
    with Recorder(folder, subject, config.plan, progress) as session:
        for step in micro_batches(batches(config, rank), config.grad_accumulation):
            train_step(training, step)
            if not session.step():
                break

    if config.calibration is not None:
        # Now that nothing is timed or profiled any more, and as long as there is a process group.
        calibrate_links(config.calibration, folder, device, progress)
    assert session.part is not None
    write_part(folder / RUN, msgspec.structs.replace(session.part, ended=True))
    if dist.is_initialized():
        dist.destroy_process_group()


def calibrate_links(plan: CalibrationPlan, folder: Path, device: torch.device, progress: Progress) -> None:
    """Leave in the folder what the run's links can do, or a note why not: the recording is good without it."""
    try:
        found = measure(plan, device, lambda label, done, total: progress("measuring the links", done, total))
        write_links(found, folder, folder / RUN / LINKS, device)
        notes = found.notes
    except TracerError as error:
        notes = [f"links are not calibrated: {error}"]
    if dist.get_rank() == 0:
        leave_notes(folder, notes)


def batches(config: RecordConfig, rank: int) -> Iterator[workloads.Batch]:
    """This process's batches, without end. nn.DataParallel splits one batch over all its devices."""
    batch = config.batch * (config.devices if config.strategy == "dp" else 1)
    pinned = config.device == "cuda"
    if config.data is None:
        return workloads.synthetic(config.model, batch, config.image_size, pinned)
    return workloads.cifar10(config.data, batch, workloads.Shard(rank, config.world_size), pinned)


def facts(config: RecordConfig) -> Facts:
    """What run.json says of the workload."""
    data = msgspec.to_builtins(config.data) if config.data else "synthetic"
    return Facts(
        command=config.command,
        model=config.model,
        strategy=config.strategy,
        backend=config.backend,
        batch_per_gpu=config.batch,
        bucket_cap_mb=config.ddp.bucket_mb,
        settings={
            "amp": "bf16" if config.bf16 else None,
            "image_size": config.image_size,
            "seed": config.seed,
            "data": data,
            "channels_last": config.channels_last,
            "compile": config.compile,
            "grad_accumulation": config.grad_accumulation,
            "ddp_options": msgspec.to_builtins(config.ddp) if config.strategy == "ddp" else None,
        },
    )


def main(config: RecordConfig, folder: Path) -> None:
    """One rank of `tracer record`."""
    with refusing(int(os.environ["RANK"]), folder):
        train(config, folder)


if __name__ == "__main__":
    die_with(int(os.environ.get(LAUNCHER, 0)))
    main(msgspec.json.decode(sys.argv[1], type=RecordConfig), Path(sys.argv[2]))
