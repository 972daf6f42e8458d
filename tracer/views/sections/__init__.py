"""Sections of a report, a comparison, a sweep, or a prediction.

A report: `screen` is its message; `overview` has the order of the rest, and sections of its own; then `ranks`, `idle`,
`communication`, `groups`, `compute`, `pipeline`, `step_timeline`, `advice` and the room `model`; `column_help` explains
their tables' heads. A comparison: `comparison` with `comparison_tables`. Other results are in the room `results`.

Decisions: docs/decisions/views.md
"""

from tracer.views.sections.advice import ListedAdvice, advice_section, gains_remark, listed_advice, true_cost
from tracer.views.sections.column_help import explained
from tracer.views.sections.communication import by_collective, communication_section, waiting
from tracer.views.sections.comparison import (
    changed_means,
    comparison_text,
    comparison_title,
    part_label,
    untold,
)
from tracer.views.sections.comparison_tables import told_tables, untold_table
from tracer.views.sections.compute import compute_section, short
from tracer.views.sections.groups import by_group, line_title
from tracer.views.sections.idle import MEANINGS as IDLE_MEANINGS
from tracer.views.sections.idle import idle_section
from tracer.views.sections.model import by_bucket, by_expert, layers_section, why_none
from tracer.views.sections.overview import (
    By,
    by_step,
    controls,
    epochs,
    loader,
    memory,
    notices_text,
    report_sections,
    report_text,
    representative,
    representative_window,
    run_title,
)
from tracer.views.sections.pipeline import pipeline_section
from tracer.views.sections.ranks import by_rank, communicates, device_name, named
from tracer.views.sections.results import (
    as_markdown,
    basis,
    calibration_text,
    cap,
    gpus,
    grouped,
    hidden_means,
    hta_text,
    no_longer_hidden,
    own,
    picture_of,
    prediction_text,
    scale_out_section,
    scaling_tables,
    scaling_text,
    scaling_title,
    scenarios,
    sentence,
    signed,
)
from tracer.views.sections.screen import (
    exposed_words,
    first_screen,
    first_screen_text,
    step_sentence,
    step_words,
    trust_words,
)
from tracer.views.sections.step_timeline import lane_labels, letter, meanings

__all__ = [
    "IDLE_MEANINGS",
    "By",
    "ListedAdvice",
    "advice_section",
    "as_markdown",
    "basis",
    "by_bucket",
    "by_collective",
    "by_expert",
    "by_group",
    "by_rank",
    "by_step",
    "calibration_text",
    "cap",
    "changed_means",
    "communicates",
    "communication_section",
    "comparison_text",
    "comparison_title",
    "compute_section",
    "controls",
    "device_name",
    "epochs",
    "explained",
    "exposed_words",
    "first_screen",
    "first_screen_text",
    "gains_remark",
    "gpus",
    "grouped",
    "hidden_means",
    "hta_text",
    "idle_section",
    "lane_labels",
    "layers_section",
    "letter",
    "line_title",
    "listed_advice",
    "loader",
    "meanings",
    "memory",
    "named",
    "no_longer_hidden",
    "notices_text",
    "own",
    "part_label",
    "picture_of",
    "pipeline_section",
    "prediction_text",
    "report_sections",
    "report_text",
    "representative",
    "representative_window",
    "run_title",
    "scale_out_section",
    "scaling_tables",
    "scaling_text",
    "scaling_title",
    "scenarios",
    "sentence",
    "short",
    "signed",
    "step_sentence",
    "step_words",
    "told_tables",
    "true_cost",
    "trust_words",
    "untold",
    "untold_table",
    "waiting",
    "why_none",
]
