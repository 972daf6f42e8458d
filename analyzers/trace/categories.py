"""Categories of rows: those read, other devices', other programs'."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from analyzers.trace.kernel_names import Category

CATEGORIES = {
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "cuda_runtime": Category.LAUNCH,
    "cuda_driver": Category.LAUNCH,
    "hip_runtime": Category.LAUNCH,
    "hip_driver": Category.LAUNCH,
    "cpu_op": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_sync": Category.SYNC,
    "overhead": Category.OVERHEAD,
    "gc": Category.COLLECTION,
    "python_sample": Category.SAMPLE,
    "ac2g": Category.FLOW,
    "fwdbwd": Category.FLOW,
    # Categories were capitalized before 2022.
    "Kernel": Category.KERNEL,
    "Memcpy": Category.MEMCPY,
    "Memset": Category.MEMSET,
    "Runtime": Category.LAUNCH,
    "Operator": Category.OPERATOR,
}
# What else Kineto writes of the host: the profile's own span, and moments.
_OF_HOST = frozenset({"", "Trace", "cpu_instant_event"})

# Devices that Kineto's plugins and torch's other backends record, and that no rule here knows: their categories begin
# so (libkineto's ActivityType), or a process of theirs is called so (Ascend's torch_npu and msprof, which writes
# device rows without a category).
_DEVICES = {
    "MTIA": re.compile("mtia_"),
    "XPU": re.compile("xpu_"),
    "HPU": re.compile("hpu_"),
    "Glow": re.compile("glow_"),
    "a PrivateUse1 device": re.compile("privateuse1_"),
    "Ascend": re.compile("async_npu$|Ascend Hardware$|NPU$|CANN$|HCCL$"),
}
_PROGRAMS = {
    "viztracer": re.compile("FEE$|viztracer"),
    "TensorFlow's or JAX's profiler": re.compile("/(?:host|device|job):"),
    "Chrome": re.compile("toplevel$|devtools|disabled-by-default-|blink|v8$|cc$|CrBrowserMain|CrRendererMain"),
}
# The phases of events that name processes and threads, and of moments of a thread.
NAMING, MOMENT = "M", "i"
# Of what stands outside of the events, so much is looked at.
_LOOKED_AT = 1 << 16
_JSON = re.compile(rb'\s*[{\[]\s*["{}\[\]]')


class _Row(Protocol):
    ph: str
    cat: str
    name: str
    args: Any


class Marks:
    """What tells who wrote a trace: categories of its spans, names of its processes."""

    def __init__(self) -> None:
        self.categories: set[str] = set()
        self.processes: set[str] = set()

    def see(self, phase: str, category: str) -> None:
        """Take the marks of events of one phase and category."""
        if phase in ("X", "B"):
            self.categories.add(category)

    def see_names(self, events: Iterable[_Row]) -> None:
        """Take the names of processes."""
        named = (event.args.label for event in events if event.ph == NAMING and event.name == "process_name")
        self.processes |= {label for label in named if isinstance(label, str)}

    def add(self, marks: Marks) -> None:
        """Take the marks that another process saw."""
        self.categories |= marks.categories
        self.processes |= marks.processes

    def refusal(self, outside: bytes) -> str | None:
        """Return why the file is not to be analysed, None where it is; `outside` is its text around the events."""
        marks = self.categories | self.processes
        devices = {name: _match(pattern, marks) for name, pattern in _DEVICES.items()}
        listed = [f"{name} ({', '.join(found)})" for name, found in devices.items() if found]
        if listed:
            return f"holds rows of {' and '.join(listed)}, a device without rules; tracer reads those of CUDA and ROCm"
        if not self.categories or not self.categories.isdisjoint(CATEGORIES.keys() | _OF_HOST - {""}):
            return None
        marks |= set(re.findall(r'"(\w+)"\s*:', outside[:_LOOKED_AT].decode(errors="replace")))
        program = next((name for name, pattern in _PROGRAMS.items() if _match(pattern, marks)), "another program")
        return f"no trace of torch.profiler: it looks like one of {program}; give a file that torch.profiler exported"

    @property
    def unknown(self) -> list[str]:
        """Return the categories of spans that are neither read nor known to be the host's."""
        return sorted(self.categories - CATEGORIES.keys() - _OF_HOST)


def _match(pattern: re.Pattern[str], marks: Iterable[str]) -> list[str]:
    return sorted(mark[:40] for mark in marks if pattern.match(mark))


def guess_format(head: bytes) -> str | None:
    """Return what a file that is no JSON seems to be, by its first bytes; None where they do not tell."""
    if head.startswith(b"SQLite format 3"):
        return "an SQLite database; an export of Nsight Systems has to be a file of this machine, not packed or piped"
    # Perfetto's trace is a list of packets, field 1 of a message: the tag 0x0a, a length, the packet.
    if (
        head[:1] == b"\n"
        and not _JSON.match(head)
        and any(byte < 9 or 13 < byte < 32 or byte > 126 for byte in head[1:])
    ):
        return "Perfetto's binary format (.pftrace)"
    return None
