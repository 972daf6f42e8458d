"""Sections of a report.

`screen` is its message; `overview` has the order of the rest, and sections of its own; then `ranks`, `idle`,
`communication`, `groups`, `compute`, `pipeline`, `step_timeline`, `advice` and the room `model`; `column_help` explains
their tables' heads. Other results are in the room `results`, which a report does not load.

Decisions: docs/decisions/views.md
"""

from tracer.views.sections.advice import ListedAdvice, advice_section, gains_remark, listed_advice, true_cost
from tracer.views.sections.column_help import explained
from tracer.views.sections.communication import by_collective, communication_section, waiting
from tracer.views.sections.compute import compute_section, short
from tracer.views.sections.groups import by_group, line_title
from tracer.views.sections.idle import MEANINGS as IDLE_MEANINGS
from tracer.views.sections.idle import idle_section
from tracer.views.sections.model import by_bucket, by_expert, layers_section, why_none
from tracer.views.sections.overview import (
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
    "ListedAdvice",
    "advice_section",
    "by_bucket",
    "by_collective",
    "by_expert",
    "by_group",
    "by_rank",
    "by_step",
    "communicates",
    "communication_section",
    "compute_section",
    "controls",
    "device_name",
    "epochs",
    "explained",
    "exposed_words",
    "first_screen",
    "first_screen_text",
    "gains_remark",
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
    "notices_text",
    "pipeline_section",
    "report_sections",
    "report_text",
    "representative",
    "representative_window",
    "run_title",
    "short",
    "step_sentence",
    "step_words",
    "true_cost",
    "trust_words",
    "waiting",
    "why_none",
]
