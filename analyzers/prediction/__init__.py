"""What steps would take: the answers of `tracer whatif`.

`options` is what is asked for, `answering` asks the graph's scenarios and the settings of the run's strategy, `answers`
are what it says, `first_sentence` what of it is said first, `evidence` what speaks for and against it.

Decisions: docs/dev/decisions/prediction.md
"""

from analyzers.prediction.answering import usual, whatif
from analyzers.prediction.answers import (
    SCENARIOS,
    WHATIF_SCHEMA,
    AtGpus,
    Baseline,
    Prediction,
    ScaleOut,
    WhatIf,
    doubts,
    from_json,
    is_own,
    to_json,
)
from analyzers.prediction.evidence import MeasuredFrom
from analyzers.prediction.options import Options
