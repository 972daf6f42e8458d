"""Advice, and what of it is known at most alone.

`advised` is what a piece of advice is, and the step that bounds are measured by; `at_most` has what no replay can be
made of, from `observations`: `sharded_advice`, `tensor_advice`, `attention_advice` and `pipeline_advice` have the rules
of single strategies.

Decisions: docs/dev/decisions/reporting.md
"""

from analyzers.reporting.remedies.advised import Advice
from analyzers.reporting.remedies.at_most import CHEAPER_FORMS, advice_at_most, is_cheap
from analyzers.reporting.remedies.observations import Evidence
