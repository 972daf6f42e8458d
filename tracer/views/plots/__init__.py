"""Pictures to publish, drawn with matplotlib.

`pictures` lists them by kind: `report_charts`, `step_timeline`, `scaling`, `prediction`. `axes` and `layout` are the
helpers.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.plots.axes import FORMS
from tracer.views.plots.pictures import report_picture, scaling_picture
from tracer.views.plots.prediction import prediction_picture
from tracer.views.plots.scaling import PICTURES, plots
