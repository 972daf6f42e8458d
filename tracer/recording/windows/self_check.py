"""Self-check of CUPTI: a memset, copy and kernel of our own.

Versions say little: any of CUDA 12.1 to 13.5 may be in a process. Rows of known work say whether it is read rightly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracer.recording.windows.libcupti import Cupti, CuptiUnusable
from tracer.recording.windows.records import DeviceRow

KERNEL = "tracer_self_check"
# What every driver compiles: PTX for the oldest GPUs that any supported CUDA knows.
PTX = f".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry {KERNEL}() {{ ret; }}\n"
GRID, BLOCK = (3, 2, 1), (64, 2, 1)
WORDS, COPIED_BYTES = 1021, 1234
MEMORY_BYTES = 16 << 10
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: it waits for nothing of the training's


class Driver:
    """The process's CUDA driver, of which only what is called by name is known."""

    def __init__(self, library: Any = None) -> None:
        """Raises CuptiUnusable where there is none."""
        try:
            self._library = ctypes.CDLL("libcuda.so.1") if library is None else library
        except OSError as error:
            raise CuptiUnusable(f"the driver cannot be loaded ({error})") from error

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a CUresult. Raises CuptiUnusable for what it complains of."""
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CuptiUnusable(f"the driver has no {name}") from error
        if result := function(*arguments):
            raise CuptiUnusable(f"{name} returned {result}")


class SelfCheck:
    """Work of known size on a stream of its own, and whether rows say as much of it."""

    def __init__(self, cupti: Cupti, driver: Driver) -> None:
        self._driver = driver
        self._cupti = cupti
        self._stream = 0
        self._device = 0

    def launch(self) -> None:
        """Have the current context's device do the work, and wait for its end. Raises CuptiUnusable."""
        context, device, stream = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint32()
        self._driver.call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            raise CuptiUnusable("this thread has no CUDA context")
        self._driver.call("cuCtxGetDevice", ctypes.byref(device))
        with self._kernel() as kernel, self._memory() as memory, self._own_stream() as own:
            self._cupti.call("cuptiGetStreamIdEx", context, own, ctypes.c_uint8(0), ctypes.byref(stream))
            half = ctypes.c_uint64(memory.value + MEMORY_BYTES // 2)
            self._driver.call("cuMemsetD32Async", memory, ctypes.c_uint(0), ctypes.c_size_t(WORDS), own)
            self._driver.call("cuMemcpyDtoDAsync_v2", half, memory, ctypes.c_size_t(COPIED_BYTES), own)
            sizes = map(ctypes.c_uint, (*GRID, *BLOCK, 0))
            self._driver.call("cuLaunchKernel", kernel, *sizes, own, None, None)
            self._driver.call("cuStreamSynchronize", own)
        self._device, self._stream = device.value, stream.value

    def judge(self, rows: Sequence[DeviceRow], begin_ns: int, end_ns: int) -> None:
        """Hold rows that were recorded from `begin_ns` to `end_ns` against what was launched. Raises CuptiUnusable."""
        ours = [row for row in rows if row.stream == self._stream]
        read = [(row.category, row.device, _size(row)) for row in ours]
        launched = [
            ("gpu_memset", self._device, [4 * WORDS]),
            ("gpu_memcpy", self._device, [COPIED_BYTES]),
            ("kernel", self._device, [KERNEL, *GRID, *BLOCK]),
        ]
        if read != launched:
            raise CuptiUnusable(f"version {self._cupti.version} says {read} of a self-check that did {launched}")
        times = [time for row in ours for time in (row.start_ns, row.end_ns)]
        if times != sorted(times) or times[0] < begin_ns or times[-1] > end_ns:
            raise CuptiUnusable(f"version {self._cupti.version} has wrong times of a self-check: {times}")

    @contextmanager
    def _kernel(self) -> Iterator[ctypes.c_void_p]:
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver.call("cuModuleLoadData", ctypes.byref(module), PTX.encode())
        try:
            self._driver.call("cuModuleGetFunction", ctypes.byref(kernel), module, KERNEL.encode())
            yield kernel
        finally:
            self._driver.call("cuModuleUnload", module)

    @contextmanager
    def _memory(self) -> Iterator[ctypes.c_uint64]:
        memory = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(MEMORY_BYTES))
        try:
            yield memory
        finally:
            self._driver.call("cuMemFree_v2", memory)

    @contextmanager
    def _own_stream(self) -> Iterator[ctypes.c_void_p]:
        stream = ctypes.c_void_p()
        self._driver.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(NON_BLOCKING))
        try:
            yield stream
        finally:
            self._driver.call("cuStreamDestroy_v2", stream)


def _size(row: DeviceRow) -> list[Any]:
    if row.category == "kernel":
        return [row.name, *row.arguments["grid"], *row.arguments["block"]]
    return [row.arguments["bytes"]]
