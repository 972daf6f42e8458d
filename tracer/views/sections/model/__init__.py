"""Sections on the model: DDP's `buckets`, `layers`, and `experts` with spread attention.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.sections.model.buckets import BUCKET_FIGURES, by_bucket, why_none
from tracer.views.sections.model.experts import by_expert
from tracer.views.sections.model.layers import LAYER_FIGURES, by_layer, layers_section
