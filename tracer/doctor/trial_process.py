"""Process that tries one profiler: `python -m tracer.doctor.trial_process PROFILER FILE`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from analyzers.json_documents import compact
from tracer.doctor.findings import in_one_line
from tracer.doctor.trials import CUPTI, KINETO, Trial
from tracer.errors import TracerError


def main(profiler: str, file: Path) -> None:
    """Try a profiler, and leave the trial in a file."""
    file.write_bytes(compact(tried(profiler, {KINETO: _by_kineto, CUPTI: _by_cupti}[profiler])))


def tried(profiler: str, attempt: Callable[[], Trial]) -> Trial:
    """Return the trial, or why it failed."""
    try:
        return attempt()
    except TracerError as error:
        return Trial(profiler, why=str(error))
    except Exception as error:  # whatever torch, the driver and CUPTI raise
        return Trial(profiler, why=in_one_line(error))


def _by_kineto() -> Trial:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        _launch_kernel()
    kernels = sum(str(event.device_type) == "DeviceType.CUDA" for event in found.events() or ())
    return Trial(KINETO, kernels, f"Kineto of torch {torch.__version__}")


def _by_cupti() -> Trial:
    from tracer.recording.windows import checked_activity, loaded_cupti

    cupti = loaded_cupti()
    library = f"{cupti.path.name}, version {cupti.version}"
    # The first makes the context, in which recordings find CUPTI, too.
    _launch_kernel()
    try:
        with checked_activity() as activity:
            _launch_kernel()
        rows = activity.rows()
    except TracerError as error:
        return Trial(CUPTI, library=library, why=str(error))
    return Trial(CUPTI, sum(row.category == "kernel" for row in rows), library)


def _launch_kernel() -> None:
    import torch

    torch.ones(1024, device="cuda").mul_(2)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
