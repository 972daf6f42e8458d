"""How much communication is hidden, and how long it takes: tracer beside HTA and DDP's own logger, on the same runs.

    python benchmarks/overlap.py RUN ... --hta PYTHON

HTA's overlap is of whole full windows, so that ours is taken of the same here; its rounding is switched off, and its
last step kept, which it drops by default. DDP's logger (`_get_ddp_logging_data`) measured the runs themselves while
they were recorded: run.json keeps what it said. `--hta` names the python of an environment that has HTA 0.5.0; without
it that column is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import analyzers
from analyzers.rank.columns.activity import activities

HTA = """
import json, logging, sys, warnings
logging.disable(50)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True).get_comm_comp_overlap(visualize=False)
print(json.dumps({str(rank): share for rank, share in zip(found["rank"], found["comp_comm_overlap_pctg"])}))
"""


def main() -> None:
    """Print a line for each run and rank."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--hta", metavar="PYTHON", help="the python of an environment with HTA 0.5.0")
    options = parser.parse_args()
    for folder in options.runs:
        run = analyzers.load(folder)
        theirs = hta_overlap(folder, options.hta) if options.hta else {}
        for rank, share in overlaps(run).items():
            hta = f"   HTA {theirs[rank]:6.2f} %" if rank in theirs else ""
            print(f"{run.name:28} rank {rank}   overlap {share:6.2f} %{hta}")
        print(f"{run.name:28} {against_the_logger(run)}")


def overlaps(run: analyzers.Run) -> dict[int, float]:
    """The share of communication that compute hides, in per cent, of each rank's whole full window."""
    found = {}
    for trace in run.ranks:
        for activity in activities(replace(trace, timed=trace.events))[:1]:
            if activity.comm.length_ns():
                hidden_ns = (activity.comm & activity.compute).length_ns()
                found[trace.rank] = 100 * hidden_ns / activity.comm.length_ns()
    return found


def against_the_logger(run: analyzers.Run) -> str:
    """Reductions of a step as the report has them, and as DDP's logger has them."""
    report = analyzers.report(run)
    windows = len(report.windows) or 1
    total_ms, transfer_ms, hidden_ms = (
        sum(getattr(row, name) or 0 for row in report.buckets) / windows / 1e6
        for name in ("dur_ns", "transfer_ns", "overlapped_ns")
    )
    ours = f"reductions {total_ms:.3f} ms a step, of it transfer {transfer_ms:.3f}, hidden {hidden_ms:.3f}"
    said = (run.manifest.settings.get("ddp") or {}) if run.manifest is not None else {}
    if "avg_backward_comm_time" not in said:
        return ours
    logged, overlapped = said["avg_backward_comm_time"] / 1e6, said["avg_backward_compute_comm_overlap_time"] / 1e6
    return f"{ours}; DDP's logger: {logged:.3f} ms, overlapped {overlapped:.3f}"


def hta_overlap(folder: Path, python: str) -> dict[int, float]:
    """HTA's overlap of each rank, in per cent; its own parser wants a folder of traces and nothing else."""
    with tempfile.TemporaryDirectory() as alone:
        for file in folder.glob("rank*.json.gz"):
            shutil.copy(file, alone)
        environment = os.environ | {"HTA_DISABLE_NS_ROUNDING": "1"}
        done = subprocess.run([python, "-c", HTA, alone], capture_output=True, text=True, env=environment, check=True)
    return {int(rank): share for rank, share in json.loads(done.stdout.splitlines()[-1]).items()}


if __name__ == "__main__":
    main()
