"""Strategies of the built-in workload, each wrapping a model its way.

`protocol` says what a strategy does, `ddp`, `fsdp`, `data_parallel` and `single` each do it; they are listed here once.
What the command line knows of them without torch is STRATEGY_TRAITS of `tracer.config`.

Decisions: docs/dev/decisions/workload.md
"""

from tracer.config import Strategy
from tracer.workload.strategies.data_parallel import DataParallelStrategy
from tracer.workload.strategies.ddp import DdpStrategy
from tracer.workload.strategies.fsdp import FsdpStrategy
from tracer.workload.strategies.protocol import WorkloadStrategy
from tracer.workload.strategies.single import SingleStrategy

STRATEGY_OF: dict[Strategy, WorkloadStrategy] = {
    "ddp": DdpStrategy(),
    "dp": DataParallelStrategy(),
    "fsdp": FsdpStrategy(),
    "single": SingleStrategy(),
}
