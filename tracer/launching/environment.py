"""Environment variables of recorded processes, set unless the user has set them."""

from __future__ import annotations

import os
from pathlib import Path

from tracer.config import HOOK, DeviceType, Hook, sent
from tracer.own_python import safe_environment
from tracer.recording import HOOK_FOLDER, NCCL_LOG, WORK


def environment_of(folder: Path, device: DeviceType | None, threads: int | None = None) -> dict[str, str]:
    """Return the environment that processes need to leave their traces in a folder.

    `device` is None where nobody knows what they run on, `threads` where they have as many as they take.
    """
    # Without it CUPTI stays attached after a profile, and the unprofiled steps pay for it:
    # docs/dev/decisions/recording.md.
    # Kineto tells of each of its profiles on stderr, among which a script's own words are lost.
    wanted = {"TEARDOWN_CUPTI": "1", "KINETO_LOG_LEVEL": "99"}
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
    return {
        HOOK: sent(recording),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
    }
