"""The process's libcupti, and calls of its activity API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from analyzers.paths import read_text
from tracer.errors import TracerError

MAPS = Path("/proc/self/maps")

# CUpti_ActivityKind of cupti_activity.h.
MEMCPY, MEMSET, CONCURRENT_KERNEL, MEMCPY2 = 1, 2, 10, 22
# Copies between devices, MEMCPY2, come with MEMCPY.
ENABLED_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
MAX_LIMIT_REACHED = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED: a buffer holds no further record


class CuptiUnusable(TracerError):
    """Why this process's device activity cannot be recorded through CUPTI."""


class Cupti:
    """A libcupti that is loaded."""

    def __init__(self, path: Path) -> None:
        """Raises CuptiUnusable where it says no version."""
        self.path = path
        self._library = ctypes.CDLL(str(self.path))
        version = ctypes.c_uint32()
        self.call("cuptiGetVersion", ctypes.byref(version))
        self.version = int(version.value)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a CUptiResult. Raises CuptiUnusable for what it complains of."""
        result = self._function(name)(*arguments)
        if result:
            raise CuptiUnusable(f"{name}: {self._in_words(result)}")

    def timestamp_ns(self) -> int:
        """Return the time on the clock of records."""
        now = ctypes.c_uint64()
        self.call("cuptiGetTimestamp", ctypes.byref(now))
        return int(now.value)

    def next_record(self, buffer: int, valid_bytes: int, record: ctypes.c_void_p) -> bool:
        """Move `record`, null at first, to the next one in a buffer; False at its end."""
        result = self._function("cuptiActivityGetNextRecord")(
            ctypes.c_void_p(buffer), ctypes.c_size_t(valid_bytes), ctypes.byref(record)
        )
        if result not in (0, MAX_LIMIT_REACHED):
            raise CuptiUnusable(f"cuptiActivityGetNextRecord: {self._in_words(result)}")
        return not result

    def dropped(self) -> int:
        """Return how many records found no buffer since the last time this was asked."""
        count = ctypes.c_size_t()
        self.call("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(count))
        return int(count.value)

    def _function(self, name: str) -> Callable[..., int]:
        try:
            return getattr(self._library, name)  # type: ignore[no-any-return]  # ctypes makes its functions on demand
        except AttributeError as error:
            raise CuptiUnusable(f"CUPTI has no {name}") from error

    def _in_words(self, result: int) -> str:
        words = ctypes.c_char_p()
        self._function("cuptiGetResultString")(result, ctypes.byref(words))
        return (words.value or b"").decode(errors="replace") or f"error {result}"


def loaded_cupti() -> Cupti:
    """Return the one that torch has loaded, as Kineto's profiles do. Raises CuptiUnusable where there is none."""
    # Without a driver some versions crash at any call.
    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise CuptiUnusable("there is no NVIDIA GPU")
    return Cupti(_loaded_library())


def _loaded_library() -> Path:
    """The libcupti that is in this process already: another copy would know nothing of torch's contexts."""
    try:
        mapped = [line.split(maxsplit=5)[-1] for line in read_text(MAPS).splitlines()]
    except OSError as error:
        raise CuptiUnusable(f"{MAPS} cannot be read ({error.strerror or error})") from error
    libraries = [Path(name) for name in mapped if Path(name).name.startswith("libcupti.so")]
    if not libraries:
        raise CuptiUnusable("torch has loaded no libcupti")
    return libraries[0]
