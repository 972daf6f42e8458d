"""The built-in training: models, data, strategy, step, epochs, calibration of links.

`train` is the story of one rank, top to bottom. Importing this room imports torch.

Decisions: docs/decisions/workload.md
"""

from tracer.workload.models_and_data import cifar10_test_set, open_cifar10

__all__ = [
    "cifar10_test_set",
    "open_cifar10",
]
