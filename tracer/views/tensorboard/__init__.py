"""TensorBoard: files of scalars and texts, and our tab.

`event_files` are made by `tracer tensorboard`; `plugin` serves our tab, is TensorBoard's entry point, and the only
module that imports TensorBoard at once.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.tensorboard.event_files import report_files, study_files
