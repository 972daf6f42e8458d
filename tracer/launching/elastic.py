"""Launch of ranks through torch.distributed.run, all stopped by the first failure."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.run import config_from_args, get_args_parser

from tracer.config import DeviceType, Hook
from tracer.errors import RankFailed, Stopped, TracerError, UsageError
from tracer.launching.environment import command_environment, environment, rank_environment, script_environment
from tracer.recording import LAUNCHER, PROGRESS, REFUSAL, WORK, Progress, die_with, read_errors

LOGS = f"{WORK}/logs"
LAST_LINES = 15
# A traceback's last line, as Python or torch prints it.
RAISED = re.compile(r"(?:\[rank\d+\]: )?(\w[\w.]*(?:Error|Exception)\b.*)")
POLL_S = 0.1
Program = Literal["train", "calibrate"]


def quiet_launcher() -> None:
    """Silence torch's launcher, which reports failures at length through logging; ours says them once."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Job:
    """What every rank runs, `python ARGUMENTS`, how many ranks this host has, and on which devices.

    `torchrun` has options of torchrun's own, as `--nnodes=2`, for a job over several hosts.
    """

    arguments: tuple[str, ...]
    device: DeviceType
    processes: int
    torchrun: tuple[str, ...] = ()


def rank_arguments(program: Program, config: str, folder: Path) -> tuple[str, ...]:
    """Build the arguments for our ranks: a program of the workload, its config and the folder that it fills."""
    return ("-m", "tracer.workload", program, config, str(folder))


def launch(job: Job, folder: Path, progress: Progress, on_look: Callable[[], object] = lambda: None) -> None:
    """Run every rank of our own job to its end; each leaves its files and its output in `folder`.

    Raises RankFailed, with the first failed rank's last lines and exit code, after all ranks have been stopped.
    """
    logs = DefaultLogsSpecs(log_dir=str(folder / LOGS), redirects=Std.ALL)
    wanted = rank_environment(job.device, job.processes, folder) | {LAUNCHER: str(os.getpid())}
    with environment(wanted), following(folder, progress, on_look):
        try:
            elastic_launch(_launcher(job, logs), sys.executable)("-u", *job.arguments)
        except ChildFailedError as error:
            raise _failure(error, folder) from error
        except SignalException as error:
            stopped = f"stopped by {error.sigval.name}"
            raise Stopped(f"{stopped}; nothing was kept", 128 + error.sigval, stopped) from error


def launch_script(job: Job, recording: Hook) -> int:
    """Run a script in every rank, recorded from outside, its output untouched; return the first failure's exit code.

    0 where all ended well, 128 + its number where a signal ended one.
    """
    folder = Path(recording.folder)
    logs = DefaultLogsSpecs(log_dir=str(folder / LOGS))
    with environment(script_environment(job.device, job.processes, recording)):
        try:
            elastic_launch(_launcher(job, logs), sys.executable)("-u", *job.arguments)
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            return _exit_code(failure.exitcode)
        except SignalException as error:
            return 128 + int(error.sigval)
    return 0


def launch_command(command: Sequence[str], recording: Hook) -> int:
    """Run a command that starts its own ranks, recorded from outside, its output untouched; return its exit code.

    Raises UsageError where there is no such command.
    """
    wanted, parent = command_environment(recording), os.getpid()
    try:
        process = subprocess.Popen(command, env=os.environ | wanted, preexec_fn=lambda: die_with(parent))
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be run ({error.strerror})") from error
    with _passing_on_signals(process):
        return _exit_code(process.wait())


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


@contextmanager
def _passing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """What asks this process to end goes to the child, which ends as it will; a terminal's Ctrl-C reaches it anyway."""
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number)),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN if sys.stdin.isatty() else _to(process)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to(process: subprocess.Popen[bytes]) -> Callable[..., None]:
    return lambda number, frame: process.send_signal(number)


def _launcher(job: Job, logs: DefaultLogsSpecs) -> LaunchConfig:
    """torchrun's own reading of its options; on one host those that need no port of their own."""
    on_one_host = (
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={uuid.uuid4().hex}",
        "--local-addr=localhost",
    )
    options = get_args_parser().parse_args(
        [f"--nproc-per-node={job.processes}", *(job.torchrun or on_one_host), *job.arguments]
    )
    if options.master_port is None:
        options.master_port = 29500  # torchrun's own default, which it fills in later
    try:
        config, _, _ = config_from_args(options)
    except (ValueError, AssertionError) as error:
        raise UsageError(f"torchrun's options: {error}") from error
    return replace(config, logs_specs=logs)


@contextmanager
def following(folder: Path, progress: Progress, on_look: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Look into a folder now and then until the block ends, and pass on what rank 0 writes about its progress."""
    (folder / WORK).mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder / PROGRESS, progress, on_look, ended.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(file: Path, progress: Progress, on_look: Callable[[], object], wait: Callable[[float], bool]) -> None:
    position = 0
    last = False
    while not last:
        last = wait(POLL_S)
        on_look()
        if not file.exists():
            continue
        with file.open(encoding="utf-8") as lines:
            lines.seek(position)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        position += len(whole.encode())
        for line in whole.splitlines():
            label, *steps = line.split("\t")
            if len(steps) == 2:  # a full disk cuts lines short
                progress(label, *map(int, steps))


def _failure(error: ChildFailedError, folder: Path) -> RankFailed:
    """The first rank that failed: what it said last, and its own exit code (torchrun's would be 1)."""
    rank, failure = error.get_first_failure()
    code = failure.exitcode
    for refusal in read_errors(folder, REFUSAL.format(rank="*")):
        # What ends next, and how, follows from it: a rank may abort when another has closed their connection.
        return RankFailed(refusal, TracerError.exit_code)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    last_lines = [line for log in sorted((folder / LOGS).glob(f"**/{rank}/stderr.log")) for line in _last_lines(log)]
    message = f"rank {rank} failed ({how}); all ranks were stopped and nothing was kept"
    raised = [match[1] for line in last_lines if (match := RAISED.match(line))] or last_lines
    brief = ": ".join([f"rank {rank} failed ({how})", *raised[-1:]])
    return RankFailed(message, _exit_code(code), brief, [f"  rank {rank}: {line}" for line in last_lines])


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").rstrip().splitlines()[-LAST_LINES:]
