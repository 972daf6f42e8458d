"""Pages for a browser, each one file that loads nothing.

Decisions: docs/decisions/views.md
"""

from tracer.views.html.comparison_page import comparison_html
from tracer.views.html.prediction_curve import by_gpus, cap_places
from tracer.views.html.report_page import report_html
from tracer.views.html.scaling_page import scaling_html

__all__ = [
    "by_gpus",
    "cap_places",
    "comparison_html",
    "report_html",
    "scaling_html",
]
