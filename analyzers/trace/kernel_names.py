"""Classification of device events by kernel name: compute, communication, copy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Category(IntEnum):
    """The rows of a trace that analyses read; everything else in a trace is left out."""

    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    LAUNCH = 4  # a call of the CUDA or HIP runtime or driver, on the host
    OPERATOR = 5  # cpu_op
    ANNOTATION = 6  # user_annotation, on the host
    PYTHON = 7  # python_function, written with Python stacks; by far the most rows where there are any
    FLOW = 8  # the ends of the arrows between launches and kernels, forward and backward
    SYNC = 9  # a stream or the host waiting; such rows are kept apart from all others


class Kind(IntEnum):
    """What a device spends time on. HOST rows are never device activity."""

    HOST = 0
    COMPUTE = 1
    COMM = 2
    COPY = 3


DEVICE_CATEGORIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)

# A name starts at the beginning, after a return type ("void "), or after a namespace ("deep_ep::").
_START = r"(?:^|[\s:*&])"
_COMMUNICATION = re.compile(
    "|".join(
        [
            # NCCL to 2.18 (the oldest, ncclAllReduceRingLLKernel_sum_f32), from 2.19 (ncclDevKernel_), and its
            # symmetric-memory kernels from 2.27; RCCL keeps NCCL's names or its own.
            _START + r"nccl[A-Za-z]*Kernel",
            _START + r"ncclSym",
            _START + r"rccl",
            _START + r"msccl(?:pp)?Kernel",  # RCCL's MSCCL algorithms
            # PyTorch's symmetric memory and intra-node all-reduce; TensorRT-LLM and FlashInfer use the same words.
            r"(?i:nvshmem)",
            _START + r"multimem_",
            r"(?i:(?:one|two)_?shot_?all_?reduce)",
            r"(?i:all_?reduce\w*_(?:one|two)_?shot)",
            _START + r"hybridCubeMeshAllReduce",
            _START + r"cross_device_reduce_",  # vLLM and SGLang
            r"deep_ep::(?:intranode|internode|internode_ll)::",  # DeepEP's dispatch and combine
        ]
    )
)
# Rows about a stream's or the host's waiting, which are no activity of the device whatever category they carry.
_WAITING = frozenset({"Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync", "Device Sync"})
_LOOKS_LIKE_COMMUNICATION = re.compile(
    "nccl|rccl|allreduce|all_reduce|allgather|reduce_scatter|alltoall|sendrecv", re.IGNORECASE
)


def is_waiting(name: str) -> bool:
    """Whether a row tells about a synchronization rather than about work."""
    return name in _WAITING


def is_communication(kernel: str) -> bool:
    """Whether a kernel's name is that of a collective or point-to-point operation."""
    return _COMMUNICATION.search(kernel) is not None


def looks_like_communication(kernel: str) -> bool:
    """Whether a kernel that no rule knows still has a word for communication in its name."""
    return not is_communication(kernel) and _LOOKS_LIKE_COMMUNICATION.search(kernel) is not None


def kinds(
    category: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str], crosses_devices: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Return the Kind of every row, int8 in the rows' shape; each distinct kernel name is looked at once.

    `crosses_devices` marks copies between two different devices.
    """
    kernel = category == Category.KERNEL
    communicates = np.zeros(len(names), dtype=bool)
    for code in np.unique(name[kernel]):
        communicates[code] = is_communication(names[code])
    copy = (category == Category.MEMCPY) | (category == Category.MEMSET)
    kind = np.full(len(category), Kind.HOST, dtype=np.int8)
    kind[kernel] = np.where(communicates[name[kernel]], Kind.COMM, Kind.COMPUTE)
    kind[copy] = np.where(crosses_devices[copy], Kind.COMM, Kind.COPY)
    return kind
