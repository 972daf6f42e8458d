"""Rules of advice for single strategies, from their own rows.

`advised` is what a piece of advice is, and the step that figures are measured by; `sharded_advice` is on FSDP,
`tensor_advice` on tensor parallelism.

Decisions: docs/decisions/reporting.md
"""

from analyzers.reporting.strategies.advised import Advice, StepTime
from analyzers.reporting.strategies.sharded_advice import advice_on_sharded
from analyzers.reporting.strategies.tensor_advice import advice_on_tensor

__all__ = ["Advice", "StepTime", "advice_on_sharded", "advice_on_tensor"]
