"""The built-in training, its epochs, and the calibration of links.

`train` is the story of one rank, top to bottom, with `models_and_data`, `images`, `training_step` and `epochs`; the
room `strategies` wraps models; `calibrate` is the other program that runs as a rank, and `__main__` starts the one or
the other. Importing this room imports torch.

Decisions: docs/dev/decisions/workload.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.workload.images import check_first_batch, open_images


def __getattr__(name: str) -> object:
    # torchvision takes two seconds to import, and who calibrates needs nothing from it.
    if name in ("check_first_batch", "open_images"):
        from tracer.workload import images

        return getattr(images, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
