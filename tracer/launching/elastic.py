"""Launch of ranks through torch.distributed.run, all stopped by the first failure."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from types import FrameType
from typing import IO, Literal

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing import api as torch_launcher
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.run import config_from_args, get_args_parser

from analyzers.paths import open_file
from tracer.config import HOOK, DeviceType, Hook, sent
from tracer.errors import RankFailed, Stopped, TracerError, UsageError
from tracer.launching.guard_process import KILL, RELEASED, started_by
from tracer.launching.oom_kills import oom_kills
from tracer.own_python import environment, safe_environment
from tracer.recording import HOOK_FOLDER, LAUNCHER, NCCL_LOG, PROGRESS, REFUSAL, WORK, Progress, die_with, read_errors

LOGS = f"{WORK}/logs"
# The environment variable by which the guard process finds what the launcher started.
GUARD = "TRACER_GUARD"
_GUARD_PROGRAM = Path(__file__).with_name("guard_process.py")
LAST_LINES = 15
LAST_BYTES = 100_000
# A traceback's last line, as Python or torch prints it.
RAISED = re.compile(r"(?:\[rank\d+\]: )?(\w[\w.]*(?:Error|Exception)\b.*)")
POLL_S = 0.1
# What schedulers and terminals send: to end a job, and to say that its end is near.
ASKS_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
ANNOUNCES = (signal.SIGUSR1, signal.SIGUSR2)
# So long our own ranks, which have nothing to save, may take to end; a script's have what torchrun gives them.
PATIENCE_S, TORCHRUNS_S = 8.0, 30
# Who waits so long for ranks to end is told how to wait no more.
TOLD_AFTER_S = 1.0
Program = Literal["train", "calibrate"]
Handler = Callable[[int, FrameType | None], object]
Say = Callable[[str], object]
AGAIN = "Ctrl-C again ends all at once"


def quiet_launcher() -> None:
    """Silence torch's launcher, which reports failures at length through logging; ours says them once."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]:
        # torch gives each a level of its own.
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
    kills = oom_kills()
    with environment(wanted), following(folder, progress, on_look), guarded() as guard:
        ending = Ending(guard, _stop, patience_s=PATIENCE_S)
        try:
            with _handling(ASKS_TO_END + ANNOUNCES, ending):
                _run_ranks(job, logs, guard, ending)
        except ChildFailedError as error:
            raise _failure(error, folder, kills != oom_kills()) from error
        except SignalException as error:
            stopped = f"stopped by {error.sigval.name}"
            raise Stopped(f"{stopped}; nothing was kept", 128 + error.sigval, stopped) from error


def launch_script(job: Job, recording: Hook, say: Say) -> int:
    """Run a script in every rank, recorded from outside, its output untouched; return the first failure's exit code.

    0 where all ended well, 128 + its number where a signal ended one. `say` hears what is waited for at the end.
    """
    folder = Path(recording.folder)
    logs = DefaultLogsSpecs(log_dir=str(folder / LOGS))
    wanted = script_environment(job.device, job.processes, recording)
    with environment(wanted), _handling(ANNOUNCES, _tell_children), guarded() as guard:
        waits_for = f"waiting for the ranks, which may be saving, for {TORCHRUNS_S} s at most"
        ending = Ending(guard, _stop, lambda: say(f"{waits_for}; {AGAIN}"))
        try:
            with _handling(ASKS_TO_END, ending):
                _run_ranks(job, logs, guard, ending)
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            return _exit_code(failure.exitcode)
        except SignalException as error:
            return 128 + int(error.sigval)
    return 0


def launch_command(command: Sequence[str], recording: Hook, say: Say) -> int:
    """Run a command that starts its own ranks, recorded from outside, its output untouched; return its exit code.

    `say` hears what is waited for at the end. Raises UsageError where there is no such command.
    """
    wanted, parent = command_environment(recording), os.getpid()
    with guarded() as guard:
        environ = os.environ | wanted | {GUARD: guard.token}
        try:
            process = subprocess.Popen(command, env=environ, preexec_fn=lambda: die_with(parent))
        except OSError as error:
            guard.release()
            raise UsageError(f"{command[0]}: cannot be run ({error.strerror})") from error
        passed_on: set[int] = set()

        def pass_on(number: int, frame: FrameType | None) -> None:
            # A terminal's Ctrl-C reaches the command anyway.
            if number != signal.SIGINT or not sys.stdin.isatty():
                passed_on.add(number)
                process.send_signal(number)

        ending = Ending(guard, pass_on, lambda: say(f"waiting for {command[0]} to end; {AGAIN}"))
        with _handling(ASKS_TO_END, ending), _handling(ANNOUNCES, pass_on):
            code = process.wait()
        if not passed_on.intersection(ASKS_TO_END):
            # Else a shell, say, has ended, and not what it waited for.
            guard.release()
    return _exit_code(code)


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


class Ending:
    """Handler of signals that ask to end: the first is acted upon, and Ctrl-C behind it kills what still runs.

    What runs on for `patience_s` is killed too; `tell` is called where one waits for it for a moment.
    """

    def __init__(
        self, guard: Guard, act: Handler, tell: Callable[[], object] = lambda: None, patience_s: float | None = None
    ) -> None:
        self._guard, self._act, self._patience_s, self._tell = guard, act, patience_s, tell
        self._is_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._is_asked and number == signal.SIGINT:
            self._guard.kill()
            return
        if not self._is_asked:
            self._is_asked = True
            self._after(TOLD_AFTER_S, self._tell)
            if self._patience_s is not None:
                self._after(self._patience_s, self._guard.kill)
        self._act(number, frame)

    def _after(self, seconds: float, act: Callable[[], object]) -> None:
        def later() -> None:
            if not self._guard.ended.wait(seconds):
                with suppress(OSError):  # nobody reads what is said any more
                    act()

        threading.Thread(target=later, daemon=True).start()


@contextmanager
def _heard_by(ending: Ending) -> Iterator[None]:
    """Have torch's launcher install our handler as ranks start: its own would raise once more amidst ending them."""
    name = "_terminate_process_handler"
    before = getattr(torch_launcher, name, None)
    setattr(torch_launcher, name, ending)
    try:
        yield
    finally:
        setattr(torch_launcher, name, before)


def _run_ranks(job: Job, logs: DefaultLogsSpecs, guard: Guard, ending: Ending) -> None:
    """Run ranks to their end, by torch's launcher. Raises ChildFailedError, SignalException."""
    with environment({GUARD: guard.token}), _heard_by(ending):
        try:
            elastic_launch(_launcher(job, logs), sys.executable)("-u", *job.arguments)
        except ChildFailedError:
            guard.release()
            raise
        guard.release()


@contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Handler) -> Iterator[None]:
    """Handle signals by a function until the block ends; what torch's launcher changes of them meanwhile is undone."""
    before = {number: signal.getsignal(number) for number in numbers}
    in_reach = threading.current_thread() is threading.main_thread()  # none but it may handle signals
    for number in [number for number in numbers if in_reach and number not in _left_ignored()]:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items() if in_reach else ():
            signal.signal(number, earlier)


def _stop(number: int, frame: FrameType | None) -> None:
    """End as torch's launcher does where one of its signals comes."""
    raise SignalException(f"process {os.getpid()} got signal {number}", signal.Signals(number))


def _tell_children(number: int, frame: FrameType | None) -> None:
    """Pass a signal on to the ranks, which have sessions of their own."""
    for pid in started_by(os.getpid()):
        with suppress(OSError):
            os.kill(pid, number)


def _launcher(job: Job, logs: DefaultLogsSpecs) -> LaunchConfig:
    """torchrun's own reading of its options; on one host those that need no port of their own."""
    on_one_host = (
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={uuid.uuid4().hex}",
        "--local-addr=localhost",
    )
    # A script's own words are not torchrun's to read: it would take `--n=5` for one of its options.
    options = get_args_parser().parse_args([f"--nproc-per-node={job.processes}", *(job.torchrun or on_one_host), "-"])
    if options.master_port is None:
        options.master_port = 29500  # torchrun's own default, which it fills in later
    try:
        config, _, _ = config_from_args(options)
    except (ValueError, AssertionError) as error:
        raise UsageError(f"torchrun's options: {error}") from error
    if hasattr(config, "signals_to_handle"):  # torch 2.9 and later
        names = config.signals_to_handle.split(",")
        heard = [name for name in names if getattr(signal, name, None) not in _left_ignored()]
        config = replace(config, signals_to_handle=",".join(heard))
    return replace(config, logs_specs=logs)


def _left_ignored() -> list[signal.Signals]:
    """What nohup has this process ignore; a shell's `&` has it ignore SIGINT, which may be sent all the same."""
    return [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else []


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


def _follow(
    file: Path,
    progress: Progress,
    on_look: Callable[[], object],
    wait: Callable[[float], bool],
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    position, newest, silent_min = 0, ("", 0, 0), 0
    last, heard_s = False, now_s()
    while not last:
        last = wait(POLL_S)
        on_look()
        whole = _whole_lines(file, position)
        position += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            label, *steps = line.split("\t")
            if len(steps) == 2:  # a full disk cuts lines short
                newest, heard_s, silent_min = (label, int(steps[0]), int(steps[1])), now_s(), 0
                progress(*newest)
        label, done, total = newest
        if done < total and (now_s() - heard_s) // 60 > silent_min:
            silent_min += 1
            progress(f"{label}: no step has ended for {silent_min} min", done, total)


def _whole_lines(file: Path, position: int) -> bytes:
    if not file.exists():
        return b""
    with open_file(file) as lines:
        lines.seek(position)
        text = lines.read()
    return text[: text.rfind(b"\n") + 1]


def _failure(error: ChildFailedError, folder: Path, any_killed: bool) -> RankFailed:
    """The first rank that failed: what it said last, and its own exit code (torchrun's would be 1).

    `any_killed`: meanwhile the kernel has killed a process of ours for want of memory.
    """
    rank, failure = error.get_first_failure()
    code = failure.exitcode
    for refusal in read_errors(folder, REFUSAL.format(rank="*")):
        # What ends next, and how, follows from it: a rank may abort when another has closed their connection.
        return RankFailed(refusal, TracerError.exit_code)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    out_of_memory = -code == signal.SIGKILL and any_killed
    if -code == signal.SIGKILL:
        how += f", {'' if out_of_memory else 'perhaps '}by the kernel, for want of memory"
    last_lines = [line for log in sorted((folder / LOGS).glob(f"**/{rank}/stderr.log")) for line in _last_lines(log)]
    message = f"rank {rank} failed ({how}); all ranks were stopped and nothing was kept"
    raised = [match[1] for line in last_lines if (match := RAISED.match(line))] or last_lines
    brief = ": ".join([f"rank {rank} failed ({how})", *raised[-1:]])
    said = [f"  rank {rank}: {line}" for line in last_lines]
    return RankFailed(message, _exit_code(code), brief, said, out_of_memory)


def _last_lines(log: Path) -> list[str]:
    """What a rank said last; a log may have grown over days."""
    with open_file(log) as said:
        said.seek(max(0, said.seek(0, os.SEEK_END) - LAST_BYTES))
        return said.read().decode(errors="replace").rstrip().splitlines()[-LAST_LINES:]


def environment_of(folder: Path, device: DeviceType | None, threads: int | None = None) -> dict[str, str]:
    """Return the environment that processes need to leave their traces in a folder.

    `device` is None where nobody knows what they run on, `threads` where they have as many as they take.
    """
    # Without it CUPTI stays attached after a profile, and the unprofiled steps pay for it:
    # docs/dev/decisions/recording.md.
    wanted = {"TEARDOWN_CUPTI": "1"}
    if threads is not None:
        wanted["OMP_NUM_THREADS"] = str(threads)
    if device != "cpu" and "NCCL_DEBUG" not in os.environ:
        # NCCL says only in its own log which transport it chose.
        log = folder / WORK / NCCL_LOG
        wanted |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": str(log)}
    wanted = {key: value for key, value in wanted.items() if key not in os.environ}
    return wanted | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})


def rank_environment(device: DeviceType, processes: int, folder: Path) -> dict[str, str]:
    """Return the same for our own ranks."""
    # Ranks on a CPU share its cores. Ranks on GPUs get torchrun's default: more threads take the host's time
    # from launching kernels, most of all under the profiler.
    threads = max((os.cpu_count() or 1) // processes, 1) if device == "cpu" else 1
    return environment_of(folder, device, threads) | safe_environment()


def script_environment(device: DeviceType, processes: int, recording: Hook) -> dict[str, str]:
    """Return the same for a script's recorded ranks: as many threads as torchrun would give them."""
    return environment_of(Path(recording.folder), device, 1 if processes > 1 else None) | hook_environment(recording)


def command_environment(recording: Hook) -> dict[str, str]:
    """Return the same for a command that starts its own recorded ranks, on devices that it chooses."""
    return environment_of(Path(recording.folder), None) | hook_environment(recording)


def hook_environment(recording: Hook) -> dict[str, str]:
    """Return what makes every Python process of a script run our hook first."""
    places = [str(HOOK_FOLDER), os.environ.get("PYTHONPATH", "")]
    return {HOOK: sent(recording), "PYTHONPATH": os.pathsep.join(filter(None, places))}


@dataclass(frozen=True)
class Guard:
    """A guard process; what is started with `token` in its environment, as GUARD, ends with this process."""

    token: str
    pipe: IO[bytes]
    ended: threading.Event = field(default_factory=threading.Event)  # what was started has

    def release(self) -> None:
        """Say that what was started has ended as it should: what it leaves running may go on."""
        self.ended.set()
        with suppress(OSError, ValueError):  # somebody has killed the guard, or told it to kill
            self.pipe.write(RELEASED)

    def kill(self) -> None:
        """Kill at once what was started and still runs."""
        with suppress(OSError, ValueError):
            self.pipe.write(KILL)
            self.pipe.close()


@contextmanager
def guarded() -> Iterator[Guard]:
    """Have all that is started with the guard's token end with this process, or with the block unless it is released.

    On Linux alone: other systems do not show processes' environments.
    """
    token = token_hex(16)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD_PROGRAM), f"{GUARD}={token}"],
        bufsize=0,
        stdin=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # a terminal's Ctrl-C is not for it
    )
    assert process.stdin is not None
    guard = Guard(token, process.stdin)
    try:
        yield guard
    finally:
        guard.ended.set()
        process.stdin.close()
        process.wait()
