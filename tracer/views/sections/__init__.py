"""Sections of a report.

`screen` is its message, and the bar of its step; `overview` has the order of the rest, and sections of its own; then
`ranks`, `idle`, `causes`, `communication`, `groups`, `compute`, `pipeline`, `step_timeline`, `advice` and the room
`model`. Other results are in the room `results`, which a report does not load.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.sections.advice import (
    ListedAdvice,
    advice_section,
    further_words,
    gains_remark,
    listed_advice,
    true_cost,
)
from tracer.views.sections.causes import MEANINGS as CAUSE_MEANINGS
from tracer.views.sections.causes import by_charge, causes_in_full, causes_sentence
from tracer.views.sections.communication import by_collective, communication_section, waiting
from tracer.views.sections.compute import compute_section, short
from tracer.views.sections.groups import by_group, line_title
from tracer.views.sections.idle import MEANINGS as IDLE_MEANINGS
from tracer.views.sections.idle import idle_section
from tracer.views.sections.model import BUCKET_FIGURES, LAYER_FIGURES, by_bucket, by_expert, layers_section, why_none
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
    run_title,
)
from tracer.views.sections.pipeline import pipeline_section
from tracer.views.sections.ranks import bar, by_rank, communicates, device_name, folded, named
from tracer.views.sections.screen import (
    bar_is_of_profiled,
    bar_shares,
    drawn_shares,
    first_screen_text,
    profiled_ns,
    profiled_words,
    shares_of_bar,
    step_sentence,
    trust_words,
)
from tracer.views.sections.step_timeline import lane_labels, letter, meanings
