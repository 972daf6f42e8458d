"""`StepTimes` and `HostTimes`: how long steps take, and their hosts."""

from __future__ import annotations

import time
from itertools import pairwise

import torch

NS_PER_MS = 1_000_000


class StepTimes:
    """Times steps by events on the current stream of a GPU; on a CPU, by the host's clock."""

    def __init__(self, gpu: int | None) -> None:
        self._gpu = gpu
        self._events: list[torch.cuda.Event] = []
        self._instants_ns: list[int] = []
        self._numbers: list[int] = []

    def mark(self, number: int) -> None:
        """Say that a step has ended, which has a number, or that the one after it is the first."""
        self._numbers.append(number)
        if self._gpu is None:
            self._instants_ns.append(time.perf_counter_ns())
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._gpu))
        self._events.append(event)

    def steps_ns(self) -> list[int]:
        """Return each step's time in ns, from mark to mark; the device must have come to the last one.

        CUDA's events resolve about half a microsecond.
        """
        if self._gpu is None:
            return [end - begin for begin, end in pairwise(self._instants_ns)]
        return [round(begin.elapsed_time(end) * NS_PER_MS) for begin, end in pairwise(self._events)]

    def numbers(self) -> list[int]:
        """Return each step's number."""
        return self._numbers[1:]


class HostTimes:
    """Times what the host takes for a step that begins with the device at rest, so that no full queue holds it up."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._steps_ns: list[int] = []
        self._numbers: list[int] = []

    def begin(self) -> None:
        """Say that a step begins, and that the device is at rest."""
        self._began_ns = time.perf_counter_ns()

    def end(self, number: int) -> None:
        """Say that the host has launched the step, which has a number."""
        self._numbers.append(number)
        self._steps_ns.append(time.perf_counter_ns() - self._began_ns)

    def steps_ns(self) -> list[int]:
        """Return the host's time for each step in ns."""
        return self._steps_ns

    def numbers(self) -> list[int]:
        """Return each step's number."""
        return self._numbers
