"""Rules of advice: what to change, and the gain at most.

`advised` is what a piece of advice is, and the step that figures are measured by; `observations` what rules look at;
`rules` has those on devices and their order, `communication_advice` those on buckets and transfers, `straggler_advice`
those on ranks that wait; `pipeline_advice`, `sharded_advice` and `tensor_advice` those on single strategies.

Decisions: docs/decisions/reporting.md
"""

from analyzers.reporting.remedies.advised import Advice
from analyzers.reporting.remedies.observations import (
    Evidence,
    copies_of,
    gradient_dtypes,
    idle_by_device,
    is_data_parallel,
    latency_ns,
    ranks_hosts,
    slowed_ranks,
    waits_by_kind,
)
from analyzers.reporting.remedies.rules import advice, is_cheap, why_not_launched
from analyzers.reporting.remedies.straggler_advice import Late, late_ranks

__all__ = [
    "Advice",
    "Evidence",
    "Late",
    "advice",
    "copies_of",
    "gradient_dtypes",
    "idle_by_device",
    "is_cheap",
    "is_data_parallel",
    "late_ranks",
    "latency_ns",
    "ranks_hosts",
    "slowed_ranks",
    "waits_by_kind",
    "why_not_launched",
]
