"""Files that launch ranks wait more than they compute: begun first, they end beside the others, not after them."""

import pytest

LAUNCHING = ("test_sweep", "test_record", "test_outside", "test_calibration", "test_variants", "test_loader")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LAUNCHING)
