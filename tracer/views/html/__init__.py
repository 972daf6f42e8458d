"""Pages for a browser, each one file that loads nothing.

`report_page`, `comparison_page` and `scaling_page` fill `templates`; `report_top` is what a report's page begins with,
and the order of its sections; `notebook_cell` has what a notebook shows, `chart` is what pages draw as SVG,
`charts` a report's and a sweep's, `timeline_data` is what the timeline's script draws. Templates, scripts and styles
are in static/.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.html.charts import by_gpus, cap_places
from tracer.views.html.comparison_page import comparison_html
from tracer.views.html.notebook_cell import comparison_cell, report_cell
from tracer.views.html.report_page import error_html, report_html, scripts_policy
from tracer.views.html.scaling_page import scaling_html
