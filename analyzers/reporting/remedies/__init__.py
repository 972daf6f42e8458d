"""Advice, and what of it is known at most alone.

`advised` is what a piece of advice is, what bounds are told from, and the step that they are measured by; `at_most` has
what no replay can be made of, `strategy_advice` the rules of single strategies.

Decisions: docs/dev/decisions/reporting.md
"""

from analyzers.reporting.remedies.advised import Advice, Evidence
from analyzers.reporting.remedies.at_most import CHEAPER_FORMS, advice_at_most, is_cheap
