"""`DeviceActivity`: what this process's GPUs do meanwhile, through CUPTI alone."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import ExitStack, suppress
from functools import cache
from types import TracebackType

from analyzers.errors import install_hint
from tracer.recording.windows.libcupti import ENABLED_KINDS, FORCED, Cupti, CuptiUnusable, loaded_cupti
from tracer.recording.windows.native_callbacks import ARENA_BYTES, NativeCallbacks, compile_callbacks
from tracer.recording.windows.records import DeviceRow, device_rows
from tracer.recording.windows.self_check import Driver, SelfCheck

# How far the clock of records may be from the system's, in ns, for its unit to be the same.
CLOCK_ERROR_NS = 1_000_000
# Set by profilers that CUDA loads into the process, as Nsight's.
INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
MB = 1_000_000
# Callbacks through which a self-check was recorded and read as it was.
_CHECKED: set[NativeCallbacks] = set()


@cache
def prepared() -> tuple[Cupti, NativeCallbacks]:
    """Return the library and callbacks for it, made once a process. Raises CuptiUnusable."""
    cupti = loaded_cupti()
    try:
        callbacks = compile_callbacks()
    except ImportError as error:
        raise CuptiUnusable(f"llvmlite is not installed: {install_hint('record')}") from error
    except Exception as error:  # an older llvmlite, no memory, a processor that it does not know
        raise CuptiUnusable(f"llvmlite cannot compile its callbacks ({type(error).__name__}: {error})") from error
    # CUPTI may call them until the process is gone, when Python has long taken itself apart.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callbacks))
    return cupti, callbacks


def why_unusable() -> str | None:
    """Return why this process's device activity cannot be recorded through CUPTI, None where it can."""
    try:
        device_activity()
    except CuptiUnusable as error:
        return str(error)
    return None


def other_user() -> str | None:
    """Return what else uses CUPTI in this process; None if nothing is known to."""
    injected = next((variable for variable in INJECTED if os.environ.get(variable)), None)
    if injected is not None:
        return f"what {injected} names"
    if "cupti" in sys.modules:
        return "cupti-python"
    proton = sys.modules.get("triton.profiler.flags")
    return "Proton" if proton is not None and getattr(proton.flags, "profiling_on", False) else None


def device_activity() -> DeviceActivity:
    """Return what records this process's device activity. Raises CuptiUnusable where CUPTI cannot be used."""
    other = other_user()
    if other is not None:
        raise CuptiUnusable(f"{other} uses CUPTI in this process")
    return DeviceActivity(*prepared())


def checked_activity() -> DeviceActivity:
    """Return the same, where work of our own was recorded and read as it was. Raises CuptiUnusable.

    CUPTI stays attached behind that, which costs steps that are not recorded: for windows alone.
    """
    activity = device_activity()
    activity.check(Driver())
    return activity


class DeviceActivity:
    """Records kernels, copies and memsets while it is entered; devices should be idle at both ends."""

    def __init__(self, cupti: Cupti, callbacks: NativeCallbacks) -> None:
        self._cupti, self._callbacks = cupti, callbacks
        self._dropped = 0

    def check(self, driver: Driver) -> None:
        """Record work of our own on the current context, once a process. Raises CuptiUnusable for rows unlike it."""
        if self._callbacks in _CHECKED:
            return
        known = SelfCheck(self._cupti, driver)
        with self:
            begin_ns = self.now_ns()
            known.launch()
            end_ns = self.now_ns()
        known.judge(self.rows(), begin_ns - CLOCK_ERROR_NS, end_ns + CLOCK_ERROR_NS)
        _CHECKED.add(self._callbacks)

    def __enter__(self) -> DeviceActivity:
        """Raises CuptiUnusable where CUPTI forbids it."""
        self._callbacks.reset()
        # Kineto's profiles leave a clock of their own behind.
        self._cupti.call("cuptiActivityRegisterTimestampCallback", ctypes.c_void_p(self._callbacks.timestamp))
        requested, completed = self._callbacks.requested, self._callbacks.completed
        self._cupti.call("cuptiActivityRegisterCallbacks", ctypes.c_void_p(requested), ctypes.c_void_p(completed))
        try:
            for kind in ENABLED_KINDS:
                self._cupti.call("cuptiActivityEnable", kind)
            self._check_clock()
        except CuptiUnusable:
            with suppress(CuptiUnusable):  # the first complaint is the one to hear of
                self._disable()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._disable()
        finally:
            self._cupti.call("cuptiActivityFlushAll", FORCED)
        self._dropped = self._cupti.dropped()
        self._check_clock()

    def now_ns(self) -> int:
        """Return the time on the clock of rows, the system's."""
        return self._cupti.timestamp_ns()

    def rows(self) -> list[DeviceRow]:
        """Decode what was recorded, before anything else is. Raises CuptiUnusable where that is not all of it."""
        lacking = self._callbacks.lacking()
        if self._dropped or lacking:
            lost = f"{self._dropped} records" if self._dropped else f"{lacking} buffers of records"
            raise CuptiUnusable(f"{lost} found no place in {ARENA_BYTES / MB:.0f} MB")
        return device_rows(self._cupti, self._callbacks.filled())

    def _disable(self) -> None:
        """Disable every kind, also where one cannot be. Raises CuptiUnusable."""
        with ExitStack() as disabled:
            for kind in ENABLED_KINDS:
                disabled.callback(self._cupti.call, "cuptiActivityDisable", kind)

    def _check_clock(self) -> None:
        """See that CUPTI has taken over our clock: a rank's events are compared with other ranks' by it."""
        before_ns, now_ns, after_ns = time.time_ns(), self._cupti.timestamp_ns(), time.time_ns()
        if not before_ns - CLOCK_ERROR_NS <= now_ns <= after_ns + CLOCK_ERROR_NS:
            raise CuptiUnusable(f"its clock is {now_ns - before_ns} ns from the system's")
