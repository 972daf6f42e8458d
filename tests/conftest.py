"""What all tests share.

Files that launch ranks wait more than they compute: begun first, they end beside the others, not after them.
"""

import pytest
from hypothesis import settings

# How long a case takes says how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

LAUNCHING = ("test_sweep", "test_record", "test_outside", "test_calibration", "test_variants", "test_loader")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LAUNCHING)
