"""`python -m tracer.workload train CONFIGS FOLDER`, or `calibrate CONFIG FOLDER`: one rank."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

from tracer.config import CalibrateConfig, RecordConfig, received


def main(program: str, config: str, folder: Path) -> None:
    """Run one rank of a program."""
    # Imports leave half a million objects and no garbage: looking for some takes half a second.
    gc.disable()
    from tracer.recording import LAUNCHER, die_with

    launcher = int(os.environ.get(LAUNCHER, 0))
    if not die_with(launcher) and launcher:
        sys.exit("the launcher has ended")
    if program == "train":
        from tracer.workload import train

        _collect_from_here()
        train.main(received(config, list[RecordConfig]), folder)
    else:
        from tracer.workload import calibrate

        _collect_from_here()
        calibrate.main(received(config, CalibrateConfig), folder)


def _collect_from_here() -> None:
    gc.freeze()
    gc.enable()


def _end() -> NoReturn:
    """End this process without taking down its half million objects one by one, which takes a second.

    Our launcher starts ranks with `-u`: nothing that they said is still to be written.
    """
    atexit._run_exitfuncs()
    os._exit(0)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    finally:
        # Behind an error's last words, triton would call leaked what it does not see freed.
        gc.unfreeze()
    _end()
