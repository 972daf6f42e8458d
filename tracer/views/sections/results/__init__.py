"""Sections of results other than a report.

`comparison` with `comparison_tables` arrange a comparison; `scaling` with `scaling_citations`, `prediction`,
`calibration` and `hta` a sweep, a prediction, a calibration, HTA's tables; `scaling_panels` a sweep's pictures.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.sections.results.calibration import calibration_text
from tracer.views.sections.results.comparison import (
    changed_means,
    comparison_text,
    comparison_title,
    part_label,
    promise_words,
    untold,
)
from tracer.views.sections.results.comparison_tables import told_tables, untold_table
from tracer.views.sections.results.hta import hta_text
from tracer.views.sections.results.prediction import (
    basis,
    cap,
    gpus,
    hidden_means,
    no_longer_hidden,
    other_scenarios,
    own,
    own_gpus,
    prediction_text,
    row_words,
    rows_besides_caps,
    scale_out_section,
    scenarios,
    signed,
)
from tracer.views.sections.results.scaling import (
    as_markdown,
    grouped,
    scaling_tables,
    scaling_text,
    scaling_title,
)
from tracer.views.sections.results.scaling_panels import (
    MOST_CELLS,
    PANELS,
    RowMarks,
    cell_words,
    epoch_over_batch,
    left_out,
    strong_over_gpus,
    study_panels,
    subtraction_rows,
    weak_over_gpus,
)
