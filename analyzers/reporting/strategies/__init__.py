"""Rules of advice for single strategies, from their own rows.

`advised` is what a piece of advice is, and the step that figures are measured by; `sharded_advice` is on FSDP.

Decisions: docs/decisions/reporting.md
"""

from analyzers.reporting.strategies.advised import Advice, StepTime
from analyzers.reporting.strategies.sharded_advice import advice_on_sharded

__all__ = ["Advice", "StepTime", "advice_on_sharded"]
