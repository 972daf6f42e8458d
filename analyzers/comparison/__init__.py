"""Changes between two runs, scaling of sweeps, conditions for CI.

`runs` and `sweeps` compare (`change`, `permutation_test` and `serial` judge each figure), `verdict` says in a sentence
what came of it, and what A's advice had promised. `step_alignment` sets two steps side by side. `scaling` and
`scaling_cell` study a sweep, `scaling_pairs` compares its cells, `scaling_limits` says what limits it. `conditions` and
`condition_names` read and judge `--fail-on`. Types are in `document` and `scaling_document`, tables in `frames`.

Decisions: docs/dev/decisions/comparison.md
"""

from analyzers.comparison.change import Change
from analyzers.comparison.condition_names import RunFigures, cell_names, headline_figures, judged_cells, names
from analyzers.comparison.conditions import Condition, Figure, Names, parse
from analyzers.comparison.document import (
    REST,
    CellChange,
    Comparison,
    FigureOf,
    StepAccount,
    SweepComparison,
    comparison_json,
)
from analyzers.comparison.frames import CHANGES, SWEEP_TABLES
from analyzers.comparison.runs import compare
from analyzers.comparison.scaling import read_study, study
from analyzers.comparison.scaling_document import (
    SCALING_SCHEMA,
    TOLD,
    CellRow,
    CellStep,
    Ratio,
    Scaling,
    StrongRow,
    Subtraction,
    WeakRow,
    scaling_json,
)
from analyzers.comparison.step_alignment import AlignedStep, StepStrip, aligned_steps
from analyzers.comparison.sweeps import compare_sweeps
