"""TensorBoard: files of scalars and texts, and our tab.

The `plugin` is TensorBoard's entry point, and the only module that imports it at once.

Decisions: docs/decisions/views.md
"""

from tracer.views.tensorboard.event_files import report_files, study_files

__all__ = [
    "report_files",
    "study_files",
]
