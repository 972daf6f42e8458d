"""`python -m tests.support.killing`: kill launchers of recordings at random moments, and say what they leave.

Each way to record in turn; processes are found by a mark of this program's own, not by the guard's. Ends with 1 where
a process outlived its launcher by more than PATIENCE_S, or the next recording did not remove what was left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import analyzers
from tests.support.launching import ROOT, environment_of_training
from tracer.atomic_files import remove_abandoned
from tracer.launching.guard_process import marked

PATIENCE_S = 15.0
MARK = "KILLED_RECORDING"
LOOP = str(ROOT / "tests" / "support" / "scripts" / "loop.py")
SCRIPT = [LOOP, "--steps", "1000000"]
SHORT = ["--wait", "2", "--warmup", "1", "--active", "2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
WAYS = {
    "workload": ["record", *SHORT, "--ranks", "2", "--batch", "2", "--rounds", "50"],
    "script": ["record", *SHORT, "--ranks", "2", "--every", "40", "--rounds", "1", *SCRIPT],
    "command": ["record", *SHORT, "--every", "40", "--rounds", "1", *TORCHRUN, *SCRIPT],
    "shell": [
        "record",
        *SHORT,
        "--every",
        "40",
        "--rounds",
        "1",
        "sh",
        "-c",
        " ".join([*TORCHRUN, *SCRIPT]) + "; true",
    ],
    "sweep": ["sweep", *SHORT, "--ranks", "1,2", "--batch", "2,4", "--rounds", "10"],
}


def start(way: str, output: Path) -> tuple[subprocess.Popen[bytes], bytes]:
    """Start a recording; it, and what its processes have in their environment."""
    mark = uuid4().hex
    command, *words = WAYS[way]
    environment = environment_of_training() | {MARK: mark}
    process = subprocess.Popen(
        [sys.executable, "-m", "tracer", command, "-o", str(output), *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return process, f"{MARK}={mark}".encode()


def kill(way: str, output: Path, after_s: float) -> bool:
    """Kill a recording's launcher; whether all of its processes ended in time."""
    process, mark = start(way, output)
    time.sleep(after_s)
    running = len(marked(mark))
    process.kill()
    process.wait()
    killed = time.monotonic()
    while (left := marked(mark)) and time.monotonic() - killed < PATIENCE_S:
        time.sleep(0.05)
    took_s = time.monotonic() - killed
    say(f"{way:9} killed after {after_s:5.2f} s: {running} processes, {len(left)} left after {took_s:.2f} s")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return not left


def check_readable(folder: Path) -> None:
    """Read every run that is not hidden: what was half-written raises AnalysisError."""
    for manifest in folder.glob("**/run.json"):
        if not any(part.startswith(".") for part in manifest.relative_to(folder).parts):
            analyzers.report(analyzers.load(manifest.parent))


def remove_left(folder: Path) -> list[str]:
    """Remove what the next recordings of these names would; what is hidden all the same."""
    for hidden in folder.glob("**/.*.partial-*"):
        remove_abandoned(hidden.with_name(hidden.name.partition(".partial-")[0].removeprefix(".")))
    return sorted(str(left.relative_to(folder)) for left in folder.glob("**/.*"))


def main() -> int:
    """Kill, look, and kill again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--within", type=float, default=25.0, metavar="S", help="the latest moment")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)  # no secret
    good = True
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.times):
            way = list(WAYS)[number % len(WAYS)]
            good &= kill(way, Path(place) / f"{way}{number}", moments.uniform(0, options.within))
            check_readable(Path(place))
        recorded = len(list(Path(place).glob("**/run.json")))
        left = remove_left(Path(place))
        say(f"{recorded} recordings, all of which can be read; the next ones leave of the killed: {left or 'nothing'}")
    return 0 if good and not left else 1


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
