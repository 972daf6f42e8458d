"""Local servers for pages, Perfetto and TensorBoard: loopback only.

`files` serves a few files, `tensorboard` starts TensorBoard, `tensorboard_process` is what it
starts.

Decisions: docs/dev/decisions/views.md
"""

from tracer.serving.files import LOOPBACK, Site, files_of, free_port, names_this_machine, new_root, server
from tracer.serving.tensorboard import (
    TENSORBOARD_PORT,
    check_names,
    check_tensorboard,
    serve_tensorboard,
    tensorboard_address,
)
