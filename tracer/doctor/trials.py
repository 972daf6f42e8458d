"""Trials of both profilers, in processes that may crash or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from analyzers.paths import read_file, read_text
from tracer.atomic_files import temporary_folder
from tracer.doctor.findings import Finding
from tracer.errors import TracerError
from tracer.own_python import safe_environment

# Importing torch takes seconds, on a cold network disk a minute.
LONGEST_S = 180.0
KINETO, CUPTI = "torch.profiler", "CUPTI"
PURPOSES = {KINETO: "full windows: operators, and whose work each kernel is", CUPTI: "light windows at the least cost"}
CONSEQUENCES = {KINETO: "no kernels in traces", CUPTI: "light windows by Kineto, which stretches steps more"}
FORBIDDEN = ("INSUFFICIENT_PRIVILEGES", "NVGPUCTRPERM", "NOT_PERMITTED", "PERMISSION")
PROGRAM = (sys.executable, "-m", "tracer.doctor.trial_process")
# Of CUPTI's errors, and of `device_activity`'s words.
OTHERS = ("SUBSCRIBER", "BUSY", "USES CUPTI")
PARAMETERS = Path("/proc/driver/nvidia/params")
PERMIT = (
    "have an administrator write `options nvidia NVreg_RestrictProfilingToAdminUsers=0` to "
    "/etc/modprobe.d/nvidia.conf and reboot, or run as root, in a container with --cap-add SYS_ADMIN "
    "(developer.nvidia.com/ERR_NVGPUCTRPERM)"
)


class Trial(msgspec.Struct, frozen=True):
    """How many kernels a profiler saw of one that was launched, through which library; or why it saw nothing."""

    profiler: str
    kernels: int = 0
    library: str | None = None
    why: str | None = None


def try_profilers(profilers: Sequence[str]) -> list[Trial]:
    """Try each in a process of its own: none shall find what another left."""
    return [try_profiler(profiler) for profiler in profilers]


def try_profiler(profiler: str, program: Sequence[str] = PROGRAM, longest_s: float = LONGEST_S) -> Trial:
    """Return a program's trial of a profiler, or how it ended without one. It is given the profiler and a file."""
    try:
        with temporary_folder("tracer-doctor-") as folder:
            file = folder / "trial"
            ending = _run([*program, profiler, str(file)], longest_s)
            return msgspec.json.decode(read_file(file), type=Trial) if file.exists() else Trial(profiler, why=ending)
    except TracerError as error:
        return Trial(profiler, why=str(error))


def trial_findings(trials: Sequence[Trial], parameters: str) -> Iterator[Finding]:
    """Judge the trials; `parameters` is what the driver's file of that name says."""
    for trial in trials:
        via = f"{trial.library}: " if trial.library else ""
        if trial.why is None and trial.kernels:
            yield Finding(trial.profiler, "ok", f"{via}{PURPOSES[trial.profiler]}")
        else:
            why = trial.why or "it saw no kernel"
            detail = f"{via}{why}; {CONSEQUENCES[trial.profiler]}"
            yield Finding(trial.profiler, "no", detail, _remedy(trial, parameters))


def driver_parameters(file: Path = PARAMETERS) -> str:
    """Return what the driver says of its parameters, nothing where it cannot be read."""
    try:
        return read_text(file)
    except OSError:
        return ""


def _remedy(trial: Trial, parameters: str) -> str:
    # CUPTI's names of its errors, and torch's words for them.
    complaint = (trial.why or "").upper()
    is_forbidden = any(word in complaint for word in FORBIDDEN)
    if is_forbidden or (not trial.why and "RmProfilingAdminOnly: 1" in parameters):
        return PERMIT
    if not trial.why or any(word in complaint for word in OTHERS):
        return "end other profilers of this GPU: nsys, ncu, a DCGM that profiles"
    return ""


def _run(command: Sequence[str], longest_s: float) -> str:
    """Run a trial's process; how it ended, in words, which count where it left no trial."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | safe_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=longest_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its trial took longer than {longest_s:.0f} s"
    except OSError as error:
        return f"its trial could not be started ({error.strerror})"
    if done.returncode < 0:
        return f"its trial was killed by {signal.Signals(-done.returncode).name}"
    last = done.stderr.strip().splitlines()[-1:]
    return ": ".join([f"its trial ended with exit code {done.returncode}", *last])
