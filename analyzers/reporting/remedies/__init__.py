"""Rules of advice: what to change, and the gain.

`advised` is what a piece of advice is, and the step that figures are measured by; `observations` what rules look at;
`rules` has those on devices and their order, `communication_advice` those on buckets and transfers, `straggler_advice`
those on ranks that wait; `pipeline_advice`, `sharded_advice` and `tensor_advice` those on single strategies;
`graph_gains` has what they bring by the graph of causes.

Decisions: docs/dev/decisions/reporting.md
"""

from analyzers.reporting.remedies.advised import Advice
from analyzers.reporting.remedies.graph_gains import is_found, replayed
from analyzers.reporting.remedies.observations import HOST_CAUSES, Copies, DeviceIdle, Evidence
from analyzers.reporting.remedies.rules import advice, is_cheap, why_not_launched
from analyzers.reporting.remedies.straggler_advice import Late, late_ranks
