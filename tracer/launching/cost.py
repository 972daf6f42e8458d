"""Cost of a sweep to come, by what its past launches took."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from tracer.config import LONG_BLOCK, RecordConfig

# Starting ranks takes so long, mostly to import torch, until a launch has been measured.
START_S = 10.0


@dataclass
class Costs:
    """What cells and launches took: a cell takes its steps, and more for profiles, files and links.

    `step_s` are steps without the profiler, by cell; `beyond_s` what a cell took beyond its steps in the last launch
    that this process made, `launches_s` what launches took beyond their cells.
    """

    configs: Mapping[str, RecordConfig]
    step_s: dict[str, float] = field(default_factory=dict)
    beyond_s: dict[str, float] = field(default_factory=dict)
    launches_s: list[float] = field(default_factory=list)

    def are_measured(self, names: Iterable[str]) -> bool:
        """Whether all of these cells' steps are known; else what is said is the least that it can be."""
        return self.step_s.keys() >= set(names)

    def note(self, name: str, is_first: bool, took_s: float) -> None:
        """Note what a cell took whose step is known; it `is_first` of its rounds."""
        self.beyond_s[name] = max(took_s - steps_s(self.configs[name], self.step_s.get(name, 0.0), is_first), 0.0)

    def left_s(self, recordings: Iterable[tuple[str, bool]], launches: int) -> float:
        """Return what these cells will take in so many launches; with each whether it is the first of its rounds."""
        each_s = (self._cell_s(name, is_first) for name, is_first in recordings)
        return sum(each_s) + launches * (median(self.launches_s) if self.launches_s else START_S)

    def _cell_s(self, name: str, is_first: bool) -> float:
        beyond_s = self.beyond_s.get(name, median(self.beyond_s.values()) if self.beyond_s else 0.0)
        return steps_s(self.configs[name], self._step_s(name), is_first) + beyond_s

    def _step_s(self, name: str) -> float:
        """Return a cell's step as measured, else the least that it can be by the nearest cell; 0 where none is known.

        With more samples a step is no shorter. By how much it is longer depends on whether the device or its CPU sets
        the pace: as much longer as the batch is larger, it would be hours where it is minutes.
        """
        if not self.step_s or name in self.step_s:
            return self.step_s.get(name, 0.0)
        config = self.configs[name]

        def distance(other: str) -> tuple[float, ...]:
            near = self.configs[other]
            strategy = near.strategy != config.strategy
            return abs(math.log(near.devices / config.devices)), strategy, abs(math.log(near.batch / config.batch))

        nearest = min(self.step_s, key=distance)
        return self.step_s[nearest] * min(1.0, _work(config) / _work(self.configs[nearest]))


def steps_s(config: RecordConfig, step_s: float, is_first: bool) -> float:
    """Return what a recording's steps take without the profiler, where one takes so long."""
    plan = config.plan
    long_s = max(plan.unprofiled_s, LONG_BLOCK * step_s) if plan.unprofiled_s else 0.0
    epochs = config.epochs.count if config.epochs is not None and is_first else 0
    epoch_steps = epochs * math.ceil(config.epoch_samples / config.global_batch)
    return long_s + (plan.total(config.device) + epoch_steps) * step_s


def _work(config: RecordConfig) -> int:
    """Return what a step's time goes by: ranks on a CPU share its cores."""
    return config.batch * (config.devices if config.device == "cpu" else 1)


@dataclass
class LaunchClock:
    """Tells what a launch's cells took each, from when its ranks say something first, and what it took beyond."""

    now_s: Callable[[], float] = time.monotonic
    cells_s: float = 0.0

    def __post_init__(self) -> None:
        self._began_s = self.now_s()
        self._last_s: float | None = None

    def hear(self) -> None:
        """Note that ranks have said something."""
        if self._last_s is None:
            self._last_s = self.now_s()

    def cell_s(self) -> float:
        """Return what the cell took that has just been recorded."""
        now_s = self.now_s()
        took_s = now_s - (self._began_s if self._last_s is None else self._last_s)
        self._last_s = now_s
        self.cells_s += took_s
        return took_s

    def beyond_s(self) -> float:
        """Return what the launch took beyond its cells, now that it has ended."""
        return self.now_s() - self._began_s - self.cells_s
