"""Host states of a rank: garbage collections, run queue, switches, faults, clock.

    the process     gc.callbacks                    garbage collections, in memory taken before
    a thread        /proc/self/task/TID/schedstat   time in which it could have run and had no core
    the main one    getrusage(RUSAGE_THREAD)        involuntary switches, page faults read from disk

Counters are read at the marks between steps. Nothing here may fail a recording: what a system does not say is null.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from analyzers.paths import open_file, read_text
from analyzers.run import HostStates
from tracer.recording.windows import COUNTER, HostRow

# So many collections of a block of steps become rows; a step's time has all of them.
MOST_COLLECTIONS = 1 << 16
THREADS = Path("/proc/self/task")
# torch's name of a thread that runs a device's backward pass (c10/util/thread_name.h names it; from torch 2.6 on).
AUTOGRAD = "pt_autograd_"
# One that never ran a backward pass has taken less: torch starts one for every device that it sees.
IDLE_NS = 1_000_000
COUNTERS = {"involuntary switches": "ru_nivcsw", "page faults": "ru_majflt"}
CPUINFO = Path("/proc/cpuinfo")


class Collections:
    """Begin and end of every garbage collection while it is entered, on the system's clock, in ns."""

    def __init__(self) -> None:
        self._columns = [array("q", bytes(8 * MOST_COLLECTIONS)) for _ in range(4)]
        self._began_ns = 0
        self.count = 0  # since the last `begin`
        self.total_ns = 0

    def __enter__(self) -> Collections:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._note)

    def begin(self) -> None:
        """Keep collections from now on, and none from before."""
        self.count = 0

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield begin, end, generation and thread of each collection that was kept."""
        kept = min(self.count, MOST_COLLECTIONS)
        yield from zip(*(column[:kept] for column in self._columns), strict=True)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.time_ns()
            return
        ended_ns = time.time_ns()
        self.total_ns += ended_ns - self._began_ns
        if self.count < MOST_COLLECTIONS:
            noted = (self._began_ns, ended_ns, info["generation"], threading.get_native_id())
            for column, value in zip(self._columns, noted, strict=True):
                column[self.count] = value
        self.count += 1


class Reading(msgspec.Struct, frozen=True):
    """Counters at the end of a step, which has a number from 1, as the system gives them: steps pass meanwhile."""

    step: int
    time_ns: int
    gc_ns: int
    main: bytes
    autograd: list[bytes]
    usage: Any


@dataclass
class HostWatch:
    """Reads a rank's counters step by step, in blocks of steps that follow one another."""

    collections: Collections = field(default_factory=Collections)
    _blocks: list[list[Reading]] = field(default_factory=list)
    _main: _Thread | None = None
    _tid: int = 0
    _autograd: list[_Thread] = field(default_factory=list)
    _cpu_mhz: list[float | None] = field(default_factory=list)

    def begin(self, step: int) -> None:
        """Begin a block: the next step is the one after `step`, on this thread."""
        self.collections.begin()
        self._tid = threading.get_native_id()
        self._main = _Thread(self._tid)
        self._autograd = [thread for thread in map(_Thread, _autograd_threads()) if thread.has_worked()]
        self._blocks.append([])
        self.mark(step)

    def mark(self, step: int) -> None:
        """Say that a step has ended."""
        main = self._main.read() if self._main is not None else b""
        autograd = [thread.read() for thread in self._autograd]
        self._blocks[-1].append(Reading(step, time.time_ns(), self.collections.total_ns, main, autograd, self._usage()))

    @property
    def read_s(self) -> float:
        """Return when counters were last read, on the system's clock."""
        return self._blocks[-1][-1].time_ns / 1e9

    def _usage(self) -> Any:
        """The main thread's usage; None on another thread, and but on Linux."""
        of_thread = getattr(resource, "RUSAGE_THREAD", None)
        is_main = threading.get_native_id() == self._tid
        return resource.getrusage(of_thread) if of_thread is not None and is_main else None

    def read_clock(self) -> None:
        """Read the clock of the CPU that this thread is on."""
        self._cpu_mhz.append(_cpu_mhz())

    def rows(self) -> list[HostRow]:
        """Return rows of the steps since the last `begin`: collections, and how long threads waited for cores."""
        block, pid = self._blocks[-1], os.getpid()
        found = [
            HostRow("gc", f"gc of generation {generation}", thread, begin_ns, end_ns, {"generation": generation})
            for begin_ns, end_ns, generation, thread in self.collections.rows()
        ]
        for before, after in pairwise(block):
            main, autograd = _waited(before.main, after.main), _most_waited(before.autograd, after.autograd)
            waits = {"main": main, "autograd": autograd}
            counts = {name: _counted(before.usage, after.usage, of) for name, of in COUNTERS.items()}
            for name, values in (("waiting for a core (ns per step)", waits), ("of the main thread", counts)):
                known = {key: value for key, value in values.items() if value is not None}
                found.append(HostRow("host_state", name, pid, before.time_ns, None, known, COUNTER))
        return found

    def forget(self) -> None:
        """Begin another recording: what was read before is of an earlier one."""
        self._blocks, self._cpu_mhz = [], []

    def states(self) -> HostStates:
        """Return what was read of each step."""
        steps = [pair for block in self._blocks for pair in pairwise(block)]
        return HostStates(
            step=[after.step for _, after in steps],
            host_ns=[after.time_ns - before.time_ns for before, after in steps],
            gc_ns=[after.gc_ns - before.gc_ns for before, after in steps],
            runnable_ns=[_waited(before.main, after.main) for before, after in steps],
            autograd_runnable_ns=[_most_waited(before.autograd, after.autograd) for before, after in steps],
            switches=[_counted(before.usage, after.usage, "ru_nivcsw") for before, after in steps],
            faults=[_counted(before.usage, after.usage, "ru_majflt") for before, after in steps],
            cpu_mhz=[*self._cpu_mhz],
        )


def _waited(before: bytes, after: bytes) -> int | None:
    """The time that schedstat(5) says a thread waited for a core in between."""
    told = [text.split() for text in (before, after)]
    return int(told[1][1]) - int(told[0][1]) if all(len(numbers) == 3 for numbers in told) else None


def _most_waited(before: list[bytes], after: list[bytes]) -> int | None:
    """The most that one of autograd's threads waited."""
    waits = (_waited(*pair) for pair in zip(before, after, strict=True))
    return max((ns for ns in waits if ns is not None), default=None)


def _counted(before: Any, after: Any, counter: str) -> int | None:
    return getattr(after, counter) - getattr(before, counter) if before is not None and after is not None else None


class _Thread:
    """A thread of this process, its schedstat held open: opening takes longer than reading."""

    def __init__(self, tid: int) -> None:
        self._file: int | None = None
        with suppress(OSError), open_file(THREADS / str(tid) / "schedstat") as file:
            self._file = os.dup(file.fileno())

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def read(self) -> bytes:
        """Return what it says: time that it ran, time that it waited for a core, turns; nothing once it has ended."""
        if self._file is not None:
            with suppress(OSError):
                return os.pread(self._file, 80, 0)
        return b""

    def has_worked(self) -> bool:
        ran_ns, *_ = self.read().split() or [b"0"]
        return int(ran_ns) >= IDLE_NS


def _autograd_threads() -> list[int]:
    found = []
    with suppress(OSError):
        for task in sorted(int(task.name) for task in THREADS.iterdir()):
            with suppress(OSError):  # it may have ended meanwhile
                if read_text(THREADS / str(task) / "comm").startswith(AUTOGRAD):
                    found.append(task)
    return found


def _cpu_mhz() -> float | None:
    """The clock of the CPU that this thread is on, as the kernel's governor says, else as /proc/cpuinfo does."""
    try:
        cpu = int(ctypes.CDLL(None).sched_getcpu())
        governed = Path(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")
        if governed.exists():
            return int(read_text(governed)) / 1000
        clocks = [line for line in read_text(CPUINFO).splitlines() if line.startswith("cpu MHz")]
        return float(clocks[cpu].partition(":")[2])
    except (AttributeError, OSError, ValueError, IndexError):
        return None
