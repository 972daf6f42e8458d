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
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from analyzers.manifest import LINKS
from tracer import workloads
from tracer.calibrate import measure, write_links
from tracer.config import CalibrationPlan, RecordConfig
from tracer.errors import TracerError
from tracer.manifest import RUN, Facts
from tracer.ranks import LAUNCHER, die_with, leave_notes, pick_device, progress_of, refusing
from tracer.recorder import Progress, Recorder, Subject


def train(config: RecordConfig, folder: Path) -> None:
    """Train the workload until the session has all it wants; leave traces and this rank's part in the folder."""
    rank = int(os.environ["RANK"])
    device = pick_device(config.device)
    if config.backend is not None:
        dist.init_process_group(config.backend)

    torch.manual_seed(config.seed)
    model = parallelize(workloads.build_model(config.model).to(device), config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    loss_of = nn.CrossEntropyLoss()
    torch.manual_seed(config.seed + rank)

    progress = progress_of(rank, folder)
    with Recorder(folder, Subject(model, facts(config), optimizer), config.plan, progress) as session:
        for inputs, targets in batches(config, rank):
            inputs = inputs.to(device, non_blocking=True)
            targets = targets.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=config.bf16):
                loss = loss_of(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not session.step():
                break

    if config.calibration is not None:
        # Now that nothing is timed or profiled any more, and as long as there is a process group.
        calibrate_links(config.calibration, folder, device, progress)
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


def parallelize(model: nn.Module, config: RecordConfig) -> nn.Module:
    """The model under the strategy that was asked for."""
    if config.strategy == "ddp":
        device_ids = None if config.device == "cpu" else [torch.cuda.current_device()]
        return DistributedDataParallel(model, device_ids=device_ids, bucket_cap_mb=config.bucket_mb)
    if config.strategy == "dp":
        return nn.DataParallel(model, device_ids=list(range(config.devices)))
    if config.strategy == "fsdp":
        for unit in workloads.shard_units(model):
            fully_shard(unit)
        fully_shard(model)
    return model


def batches(config: RecordConfig, rank: int) -> Iterator[workloads.Batch]:
    """This process's batches, without end. nn.DataParallel splits one batch over all its devices."""
    batch = config.batch * (config.devices if config.strategy == "dp" else 1)
    pinned = config.device == "cuda"
    if config.data is None:
        return workloads.synthetic(config.model, batch, config.image_size, pinned)
    return workloads.cifar10(config.data, batch, workloads.Shard(rank, config.processes), pinned)


def facts(config: RecordConfig) -> Facts:
    """What run.json says of the workload."""
    data = msgspec.to_builtins(config.data) if config.data else "synthetic"
    return Facts(
        command=config.command,
        model=config.model,
        strategy=config.strategy,
        backend=config.backend,
        batch_per_gpu=config.batch,
        bucket_cap_mb=config.bucket_mb,
        settings={
            "amp": "bf16" if config.bf16 else None,
            "image_size": config.image_size,
            "seed": config.seed,
            "data": data,
        },
    )


def main(config: RecordConfig, folder: Path) -> None:
    """One rank of `tracer record`."""
    with refusing(int(os.environ["RANK"]), folder):
        train(config, folder)


if __name__ == "__main__":
    die_with(int(os.environ.get(LAUNCHER, 0)))
    main(msgspec.json.decode(sys.argv[1], type=RecordConfig), Path(sys.argv[2]))
