"""`DeviceActivity`: what this process's GPUs do between two moments, through CUPTI alone."""

from __future__ import annotations

import ctypes
from functools import cache
from types import TracebackType

from tracer.recording.cupti.library import ENABLED_KINDS, FORCED, Cupti, CuptiUnusable
from tracer.recording.cupti.native_callbacks import NativeCallbacks, compile_callbacks
from tracer.recording.cupti.records import DeviceRow, device_rows

# How far the clock of records may be from the system's, in ns.
CLOCK_ERROR_NS = 1_000_000


@cache
def prepared() -> tuple[Cupti, NativeCallbacks]:
    """Return the library and callbacks for it, made once a process. Raises CuptiUnusable."""
    cupti = Cupti()
    try:
        return cupti, compile_callbacks()
    except ImportError as error:
        raise CuptiUnusable("llvmlite is not installed: pip install llvmlite") from error


class DeviceActivity:
    """Records kernels, copies and memsets while it is entered; the devices should be idle at both ends."""

    def __init__(self) -> None:
        """Raises CuptiUnusable where CUPTI cannot be used."""
        self._cupti, self._callbacks = prepared()
        self.rows: list[DeviceRow] = []
        self.dropped = 0

    def __enter__(self) -> DeviceActivity:
        self._callbacks.reset()
        # Kineto's profiles leave a clock of their own behind.
        self._cupti.call("cuptiActivityRegisterTimestampCallback", ctypes.c_void_p(self._callbacks.timestamp))
        requested, completed = self._callbacks.requested, self._callbacks.completed
        self._cupti.call("cuptiActivityRegisterCallbacks", ctypes.c_void_p(requested), ctypes.c_void_p(completed))
        for kind in ENABLED_KINDS:
            self._cupti.call("cuptiActivityEnable", kind)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for activity in ENABLED_KINDS:
            self._cupti.call("cuptiActivityDisable", activity)
        self._cupti.call("cuptiActivityFlushAll", FORCED)
        self.dropped = self._cupti.dropped()

    def now_ns(self) -> int:
        """Return the time on the clock of records."""
        return self._cupti.timestamp_ns()

    def decode(self) -> None:
        """Turn what was recorded into rows, before anything else is recorded."""
        self.rows = device_rows(self._cupti, self._callbacks.filled())
