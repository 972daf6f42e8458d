"""Runs ranks through torch.distributed.run's launcher: the first that fails stops all."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tracer.config import DeviceType
from tracer.errors import RankFailed, TracerError
from tracer.links import NCCL_LOG
from tracer.ranks import PROGRESS, REFUSAL
from tracer.session import Progress

LOGS = "logs"
LAST_LINES = 15
POLL_S = 0.1


@dataclass(frozen=True)
class Job:
    """What every rank runs, `python -m MODULE CONFIG FOLDER`, and how many ranks there are on which devices."""

    module: str
    config: str
    device: DeviceType
    processes: int


def launch(job: Job, folder: Path, progress: Progress) -> None:
    """Run every rank of a job to its end; each leaves its files in `folder`.

    Raises RankFailed, with the first failed rank's last lines and exit code, after all ranks have been stopped.
    """
    launcher = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / LOGS), redirects=Std.ALL),
    )
    arguments = ("-m", job.module, job.config, str(folder))
    with _environment(rank_environment(job, folder)), _watching(folder / PROGRESS, progress):
        try:
            elastic_launch(launcher, sys.executable)(*arguments)
        except ChildFailedError as error:
            raise _failure(error, folder) from error
        except SignalException as error:
            raise RankFailed(f"stopped by {error.sigval.name}; nothing was kept", 128 + error.sigval) from error


def rank_environment(job: Job, folder: Path) -> dict[str, str]:
    """What the ranks' environment needs beyond this process's own; what the user has set stays as it is."""
    wanted = {
        # Without it CUPTI stays attached after a profile, and the unprofiled steps pay for it: DECISIONS.md.
        "TEARDOWN_CUPTI": "1",
        # Ranks on a CPU share its cores. Ranks on GPUs get torchrun's default: more threads take the host's time
        # from launching kernels, most of all under the profiler.
        "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // job.processes, 1)) if job.device == "cpu" else "1",
    }
    if job.device == "cpu":
        wanted["CUDA_VISIBLE_DEVICES"] = ""
    elif "NCCL_DEBUG" not in os.environ:
        # NCCL says only in its own log which transport it chose.
        wanted |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": str(folder / NCCL_LOG)}
    return {key: value for key, value in wanted.items() if key not in os.environ or key == "CUDA_VISIBLE_DEVICES"}


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


@contextmanager
def _watching(file: Path, progress: Progress) -> Iterator[None]:
    """Pass on what rank 0 writes into its progress file, until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(file, progress, ended.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(file: Path, progress: Progress, wait: Callable[[float], bool]) -> None:
    position = 0
    last = False
    while not last:
        last = wait(POLL_S)
        if not file.exists():
            continue
        with file.open(encoding="utf-8") as lines:
            lines.seek(position)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        position += len(whole.encode())
        for line in whole.splitlines():
            label, done, total = line.split("\t")
            progress(label, int(done), int(total))


def _failure(error: ChildFailedError, folder: Path) -> RankFailed:
    """The first rank that failed: what it said last, and its own exit code (torchrun's would be 1)."""
    rank, failure = error.get_first_failure()
    code = failure.exitcode
    for refusal in sorted(folder.glob(REFUSAL.format(rank="*"))):
        # What ends next, and how, follows from it: a rank may abort when another has closed their connection.
        return RankFailed(refusal.read_text(encoding="utf-8"), TracerError.exit_code)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    said = [line for log in sorted((folder / LOGS).glob(f"**/{rank}/stderr.log")) for line in _last_lines(log)]
    lines = "".join(f"\n  rank {rank}: {line}" for line in said)
    message = f"rank {rank} failed ({how}); all ranks were stopped and nothing was kept{lines}"
    return RankFailed(message, 128 - code if code < 0 else code)


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").rstrip().splitlines()[-LAST_LINES:]
