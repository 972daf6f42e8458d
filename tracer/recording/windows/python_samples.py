"""Samples of the main thread's Python stack, by a timer's signal.

    operators    |op|.................|op|.........|op|
    timer         !     !     !     !     !     !     !         what comes inside of an operator,
    handler        !    !     !     !      !    !      !        or of any other call of C, waits for Python to go on

What is interrupted is the thread that takes the steps, and no other; no handler or timer of the program's is replaced.
Nothing here may fail a recording: what cannot be sampled leaves no samples, and `why_not`.

Decisions: docs/dev/decisions/recording.md
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from analyzers.paths import read_text
from tracer.recording.windows.stack_frames import StackNames
from tracer.recording.windows.trace_file import MOMENT, HostRow

# What a sample costs, and how far shares are from true ones: docs/dev/decisions/recording.md.
PERIOD_NS = 500_000
# With so many samples every other one is dropped, and from then on they are taken half as often.
MOST_SAMPLES = 1 << 14
# So many frames of a stack are looked at for one of the program's own, and so many of them are written.
MOST_FRAMES, SHOWN_FRAMES = 32, 8
CATEGORY = "python_sample"
STATUS = Path("/proc/self/status")
# Where nobody handles it, it is ignored: a program that puts all signals back ends the sampling, and not itself.
SIGNAL = signal.SIGURG
# Of linux/time.h, bits/siginfo-consts.h and linux/time.h.
CLOCK_MONOTONIC, SIGEV_THREAD_ID, TIMER_ABSTIME = 1, 4, 1
SECOND_NS = 1_000_000_000


class _SignalEvent(ctypes.Structure):
    """struct sigevent of sigevent(3type): 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )


class _Schedule(ctypes.Structure):
    """struct itimerspec of timer_settime(2)."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class PythonSamples:
    """Samples this thread's stack from being entered until `end`, where it is the main one, on Linux.

    None are taken unless `sampling`; where they cannot be `why_not` says why.
    """

    def __init__(self, sampling: bool = True) -> None:
        self._sampling = sampling
        self.why_not: str | None = None
        self._tid = threading.get_native_id()
        self._is_handling = False
        self._timer: _Timer | None = None
        self._period_ns = PERIOD_NS
        self._due_ns = 0
        # When each was noted on the system's clock, for how long its signal had waited; code and instruction by frame.
        # One tuple each: what holds others counts for Python's collector, which is the program's.
        self._samples: list[tuple[int, int, tuple[Any, ...]]] = []

    def __enter__(self) -> PythonSamples:
        try:
            if self._sampling:
                self._begin()
        except (OSError, AttributeError, LookupError, ValueError) as error:
            self.why_not = f"the system has no timer for it ({error})"
            self.end()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _begin(self) -> None:
        if sys.platform != "linux":
            self.why_not = "timers for one thread are Linux's"
        elif threading.current_thread() is not threading.main_thread():
            self.why_not = "Python handles signals in the main thread, and another one takes the steps"
        elif _wakes_others():
            self.why_not = "each signal wakes an event loop of the program's (signal.set_wakeup_fd)"
        elif _is_taken(SIGNAL):
            self.why_not = f"the program handles, ignores or blocks {SIGNAL.name}"
        else:
            self._timer = _Timer(SIGNAL, self._tid)
            self._is_handling = True
            signal.signal(SIGNAL, self._note)
            # Calls that a signal interrupts go on by themselves, where the system can have them do so.
            signal.siginterrupt(SIGNAL, False)
            self._start()

    def end(self) -> None:
        """Take no more samples, and leave the signal as it was found."""
        if self._timer is not None:
            self._timer.delete()
            self._timer = None
        # A handler that the program has put there meanwhile stays, as ours does where another thread ends it.
        is_ours = self._is_handling and signal.getsignal(SIGNAL) == self._note
        if is_ours and threading.current_thread() is threading.main_thread():
            signal.signal(SIGNAL, signal.SIG_DFL)

    def _start(self) -> None:
        """Have the timer send signals, the first after a period."""
        self._due_ns = time.monotonic_ns() + self._period_ns
        if self._timer is not None:
            self._timer.start(self._due_ns, self._period_ns)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal: no text is made, no code called of the program's."""
        now_ns, clock_ns = time.time_ns(), time.monotonic_ns()
        places: list[CodeType | int] = []
        while frame is not None and len(places) < 2 * MOST_FRAMES:
            places += (frame.f_code, frame.f_lasti)
            frame = frame.f_back
        held_ns = max(clock_ns - self._due_ns, 0)
        self._samples.append((now_ns, held_ns, tuple(places)))
        self._due_ns += held_ns - held_ns % self._period_ns + self._period_ns
        if len(self._samples) == MOST_SAMPLES:
            del self._samples[::2]
            self._period_ns *= 2
            with suppress(OSError):
                self._start()

    def rows(self) -> Iterator[HostRow]:
        """Yield a row for each sample: the program's innermost function, and the innermost frames of the stack."""
        names = StackNames()
        for now_ns, held_ns, places in self._samples:
            frames = names.frames(places[::2], places[1::2])
            if frames:
                arguments = {"held_ns": held_ns, "stack": [frame.line for frame in frames[:SHOWN_FRAMES]]}
                place = next((frame for frame in frames if frame.is_own), frames[0])
                yield HostRow(CATEGORY, place.function, self._tid, now_ns, None, arguments, MOMENT)


class _Timer:
    """A timer that sends one thread a signal. Raises OSError where the system has none, AttributeError without one."""

    def __init__(self, number: int, tid: int) -> None:
        self._library = _library()
        self._timer = ctypes.c_void_p()
        event = _SignalEvent(signo=number, notify=SIGEV_THREAD_ID, thread=tid)
        self._check(self._library.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)))

    def start(self, first_ns: int, every_ns: int) -> None:
        """Send signals from an instant of the monotonic clock on."""
        schedule = _Schedule(*divmod(every_ns, SECOND_NS), *divmod(first_ns, SECOND_NS))
        self._check(self._library.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(schedule), None))

    def delete(self) -> None:
        """Send no more."""
        self._library.timer_delete(self._timer)

    def _check(self, failed: int) -> None:
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _library() -> ctypes.CDLL:
    """Return the C library that has timers: its own from glibc 2.34 on, librt before."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)


def _wakes_others() -> bool:
    """Whether the program has the numbers of all signals written into a file of its own."""
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        # As event loops set it: whether it warns cannot be asked for.
        signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    return descriptor != -1


def _is_taken(number: signal.Signals) -> bool:
    """Whether anybody in this process, Python or not, handles, ignores or blocks a signal."""
    told = dict(line.split(":", 1) for line in read_text(STATUS).splitlines())
    taken = any(int(told[mask], 16) >> number - 1 & 1 for mask in ("SigCgt", "SigIgn", "SigBlk"))
    return taken or signal.getsignal(number) != signal.SIG_DFL
