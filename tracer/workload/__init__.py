"""The built-in training, its epochs, and the calibration of links.

`train` is the story of one rank, top to bottom, with `models_and_data`, `training_step` and `epochs`; `calibrate` is
the other program that runs as a rank. Importing this room imports torch.

Decisions: docs/decisions/workload.md
"""

from tracer.workload.models_and_data import cifar10_test_set, open_cifar10

__all__ = [
    "cifar10_test_set",
    "open_cifar10",
]
