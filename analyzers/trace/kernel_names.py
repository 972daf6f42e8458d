"""Classification of device events by kernel name: compute, communication, copy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analyzers.texts import keep_answers
from analyzers.trace.libraries import has_hint, library_of


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
    ABSENT = 10  # a device event that the rank's other window holds, light or full, and this one does not
    OVERHEAD = 11  # the profiler's own work, or the driver's, on whatever thread
    COLLECTION = 12  # a garbage collection of Python's, which `tracer record` writes into its traces
    SAMPLE = 13  # a moment and the Python function of then, which it writes too; kept apart from all others


class Kind(IntEnum):
    """What a device spends time on. HOST rows are never device activity."""

    HOST = 0
    COMPUTE = 1
    COMM = 2
    COPY = 3


# Kernels and what copies or sets memory are a device's: no other category is less.
LAST_DEVICE_CATEGORY = Category.MEMSET

# Rows about a stream's or the host's waiting, which are no activity of the device whatever category they carry.
_WAITING = frozenset({"Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync", "Device Sync"})

# What the Itanium ABI makes of a::b::kernel<...>(...): _ZN1a1b6kernelI...
_MANGLED = re.compile(r"_Z(?P<nested>N?[rVK]*)")
_LENGTH = re.compile(r"L?(\d{1,4})")
_BRACKET = re.compile("[<>(]")
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_\w*)::")


def path_of(kernel: str) -> str:
    """Return a kernel's own name behind its namespaces, mangled or not: `a::b::kernel`."""
    return _UNNAMED.sub("", _demangled(kernel) or _without_types(kernel))


# Kernels of PyTorch, CUTLASS and CUB that carry out whatever their first telling template argument names.
_WRAPPER = re.compile(
    r"elementwise_kernel|^multi_tensor_apply|^reduce_kernel$|^Kernel\d*$|^device_kernel$|^DeviceReduce"
)
_NAMED = re.compile(r"[A-Za-z_]\w*(?!\w|::)")
_UNTELLING = re.compile(
    r"(?:[AB]?Unary|Binary)\w*Functor|ReduceOp|\w*TensorListMetadata|gpu_kernel_impl\w*|\w*_nocast|func_wrapper_t"
    r"|float\d?|double|u?int\w*|long|bool|unsigned|char|short|void|const|anonymous|namespace|__nv_bfloat16|BFloat16|Half"
    r"|complex|\w+_t|lambda|true|false|operator|enable_if"
)


def short_name(kernel: str) -> str:
    """Return a kernel's name for where there is little room: what it does, without namespaces and types."""
    if kernel.startswith(("Memcpy", "Memset")):
        return kernel.partition(" (")[0]
    own = path_of(kernel).rpartition("::")[2] or kernel
    begin = kernel.find("<", kernel.find(own) + 1)
    if begin < 0 or not _WRAPPER.search(own):
        return own
    for word in _NAMED.finditer(kernel, begin):
        if word[0] == "array":  # what follows are pointers and how they are loaded
            break
        if not _UNTELLING.fullmatch(word[0]):
            return word[0]
    return own


def _demangled(kernel: str) -> str | None:
    """The names in a mangled name, up to the first template argument; None where it is not mangled."""
    match = _MANGLED.match(kernel)
    if match is None:
        return None
    parts, at = [], match.end()
    while (length := _LENGTH.match(kernel, at)) is not None:
        at = length.end() + int(length[1])
        parts.append(kernel[length.end() : at])
        if not match["nested"]:
            break
    return "::".join(parts)


def _without_types(kernel: str) -> str:
    """The name without return type, template arguments and parameters; those of a namespace or class are cut out."""
    text = _UNNAMED.sub("", kernel).partition(" [clone")[0]
    name, depth, begin, end = [], 0, 0, len(text)
    for match in _BRACKET.finditer(text):
        bracket, place = match[0], match.start()
        if bracket == "(" and not depth:
            end = place
            break
        if bracket == "<":
            if not depth:
                name.append(text[begin:place])
            depth += 1
        elif bracket == ">" and depth:
            depth -= 1
            begin = place + 1
    if not depth:
        name.append(text[begin:end])
    return "".join(name).rstrip().rpartition(" ")[2].lstrip("*&")


def is_waiting(name: str) -> bool:
    """Whether a row tells about a synchronization rather than about work."""
    return name in _WAITING


@keep_answers
def is_communication(kernel: str) -> bool:
    """Whether a kernel's name is that of a collective or point-to-point operation."""
    return library_of(path_of(kernel)) is not None


@keep_answers
def looks_like_communication(kernel: str) -> bool:
    """Whether a kernel that no library knows still has a word for communication in its name."""
    path = path_of(kernel)
    return library_of(path) is None and has_hint(path, kernel)


def kinds(
    category: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str], communicating: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Return the Kind of every row, int8 in the rows' shape; each distinct kernel name is looked at once.

    `communicating` marks device rows that communicate whatever they are called: copies between two different devices,
    and rows that say which collective they carry out.
    """
    kernel = category == Category.KERNEL
    communicates = np.zeros(len(names), dtype=bool)
    for code in np.flatnonzero(np.bincount(name[kernel])).tolist():
        communicates[code] = is_communication(names[code])
    copy = (category == Category.MEMCPY) | (category == Category.MEMSET)
    kind = np.full(len(category), Kind.HOST, dtype=np.int8)
    kind[kernel] = np.where(communicates[name[kernel]], Kind.COMM, Kind.COMPUTE)
    kind[copy] = Kind.COPY
    kind[communicating] = Kind.COMM
    return kind
