"""NCCL beside NVLink: named where run.json shows it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.collectives.warnings import _beside_nvlink
from analyzers.notices import Code
from analyzers.run import Manifest

OVER_MEMORY = Manifest(transport="SHM/direct", devices=["NVIDIA H100 80GB HBM3"] * 2, hosts=["vm"])


def test_nccl_over_host_memory_where_nvlink_is_is_named_with_what_keeps_it():
    told = replace(OVER_MEMORY, environment={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "0"})
    (warning,) = _beside_nvlink(told)
    assert warning.code == Code.NVLINK_NOT_USED
    assert "over SHM/direct, though NVLink joins these GPUs: NCCL_P2P_DISABLE=1" in str(warning)
    assert warning.remedy == "unset NCCL_P2P_DISABLE"
    (unnamed,) = _beside_nvlink(OVER_MEMORY)
    assert "NCCL_DEBUG=INFO" in str(unnamed.remedy)


UNLIKE: list[dict[str, Any]] = [
    {"transport": "P2P/CUMEM"},
    {"transport": None},
    {"hosts": ["one", "other"]},
    {"devices": ["NVIDIA H100 PCIe"] * 2},
    {"devices": ["NVIDIA H200 NVL"] * 2},
    {"devices": []},
]


@pytest.mark.parametrize("changed", UNLIKE, ids=str)
def test_where_nvlink_is_used_or_may_not_be_there_nothing_is_said(changed):
    assert [*_beside_nvlink(replace(OVER_MEMORY, **changed))] == []
    assert [*_beside_nvlink(None)] == []
