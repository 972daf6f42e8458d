"""One file per subcommand: its options, one call, and what it prints.

`record` (and `record_script`, for a SCRIPT), `report`, `compare`, `whatif`, `view`, `export`, `plot`,
`tensorboard`, `calibrate`, `sweep`, `hta`, `mcp`, `doctor`; what several share is in `options`.
`completion` writes the scripts by which shells complete all of these.

Decisions: docs/dev/decisions/structure.md
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tracer.commands.completion import SHELLS, completion_script

# Each with its line of help, in the order in which `tracer --help` lists them.
COMMANDS = {
    "record": "record a training script, or a built-in workload, and report where its time goes",
    "report": "where the time of a run's steps went, measured from its traces",
    "compare": "what changed between two runs or sweeps, beyond their steps' own spread",
    "whatif": "what a run's steps would take with other buckets, more GPUs, or other links: predicted, with the error",
    "view": "a run in the browser: its page, Perfetto, or TensorBoard",
    "export": "a run's lanes, buckets and layers as a timeline for Perfetto, or its rows as tables for databases",
    "plot": "a run's or a sweep's figures as pictures: PNG, SVG, PDF",
    "tensorboard": "write runs and sweeps for TensorBoard: scalars of each step, the report as text, a sweep's hparams",
    "calibrate": "measure what the links between devices can do: bandwidth of each collective over message sizes",
    "sweep": "how training scales over devices and batches, measured from a sweep's recordings",
    "hta": "HolisticTraceAnalysis' critical path, idle causes, queues, launches, kernels and comparison",
    "mcp": "answers for coding agents, by the Model Context Protocol: summaries, tables, comparisons of runs",
    "doctor": "what this machine can record, and what is missing for what",
}
# The one that runs a SCRIPT.
RECORD = "record"


def command(name: str) -> ModuleType:
    """Import a subcommand: its description is `__doc__`, its options `add_arguments`, and what it does `run`."""
    return import_module(f"tracer.commands.{name}")
