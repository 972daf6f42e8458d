"""Controls: step times without profiler and without synchronization.

`tracer record` times short blocks of steps in turn: unprofiled, without gradient synchronization, profiled. This module
turns their samples into medians that may be trusted, or into a reason why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec
import numpy as np

from analyzers.notices import Code, Notice
from analyzers.ranks import rank_number
from analyzers.units import ms

# A control that scatters more than this is no control: docs/measuring.md, controls.
WIDEST_SPREAD = 0.05
# From here on the profiler changed what it measured, and the report leads with it.
HIGH_DISTORTION = 1.05
# What no sample, in ns, can be: half a year. A run.json may say anything.
LONGEST_NS = 2**54


class Control(msgspec.Struct, frozen=True):
    """Steps timed on the host, device synchronized around each block: ns per step, by rank, a sample per block."""

    samples_ns: dict[str, list[int]]
    median_ns: int | None
    spread: float | None  # interquartile range over median
    reason: str | None = None  # why median_ns is null

    def in_words(self) -> str:
        """Return the step in words: `30.9 ms`, or what its samples, of which there must be some, scatter around."""
        if self.median_ns is not None:
            return ms(self.median_ns)
        pooled = [sample for samples in self.samples_ns.values() for sample in samples]
        return f"around {ms(float(np.median(pooled)))} (spread {100 * (self.spread or 0):.0f} %)"

    @property
    def has_samples(self) -> bool:
        """Whether any block was timed."""
        return any(self.samples_ns.values())

    @property
    def blocks_ns(self) -> list[float]:
        """Return each block's step: the median over its ranks, whose steps depend on one another."""
        blocks = zip_longest(*self.samples_ns.values())
        trusted = [[ns for ns in block if ns is not None and 0 < ns < LONGEST_NS] for block in blocks]
        return [float(np.median(block)) for block in trusted if block]


def control(samples_ns: Mapping[int, list[int]]) -> Control:
    """Build a control from all ranks' samples; null with a reason where they scatter too widely to be used."""
    by_rank = {str(rank): list(samples) for rank, samples in sorted(samples_ns.items())}
    pooled = np.array([sample for samples in by_rank.values() for sample in samples], dtype=np.int64)
    if not len(pooled):
        return Control(by_rank, None, None, "no samples")
    low, median, high = (float(value) for value in np.percentile(pooled, [25, 50, 75]))
    if median <= 0:
        return Control(by_rank, None, None, "samples of no length")
    spread = (high - low) / median
    if spread > WIDEST_SPREAD:
        return Control(
            by_rank,
            None,
            spread,
            f"samples spread {100 * spread:.1f} %, more than {100 * WIDEST_SPREAD:.0f} %",
        )
    return Control(by_rank, round(median), spread)


def stretch(blocks_ns: Mapping[str, Sequence[float]], window: str) -> float | None:
    """Return profiled step over unprofiled step by their blocks' medians, even where there is no control."""
    under, without = blocks_ns.get(window), blocks_ns.get("unprofiled")
    if not under or not without or np.median(without) <= 0:
        return None
    return float(np.median(under) / np.median(without))


class Controls(msgspec.Struct, frozen=True):
    """The controls of one run; null, with the reason, where the run could not have one."""

    unprofiled: Control | None = None
    nosync: Control | None = None
    light: Control | None = None
    full: Control | None = None
    reasons: dict[str, str] = {}

    def step_ns(self, name: str) -> int | None:
        """Return the median step in one control, null where none can be trusted."""
        timing: Control | None = getattr(self, name)
        return timing.median_ns if timing else None

    def blocks_ns(self) -> dict[str, list[float]]:
        """Return each timed control's blocks, by its name."""
        timed = {name: timing.blocks_ns for name in _NAMES if (timing := getattr(self, name)) is not None}
        return {name: blocks for name, blocks in timed.items() if blocks}

    def distortion(self, window: str) -> float | None:
        """Return profiled step over unprofiled step, for the window (`light` or `full`) that times come from."""
        profiled, unprofiled = self.step_ns(window), self.step_ns("unprofiled")
        return profiled / unprofiled if profiled and unprofiled else None

    def sync_cost_ns(self) -> int | None:
        """Return the unprofiled step less the same step without gradient synchronization."""
        unprofiled, nosync = self.step_ns("unprofiled"), self.step_ns("nosync")
        return unprofiled - nosync if unprofiled is not None and nosync is not None else None

    def why_null(self) -> list[Notice]:
        """Return a notice for every control that is missing."""
        scattered = {name: timing.reason for name in _NAMES if (timing := getattr(self, name)) and timing.reason}
        reasons = self.reasons | scattered
        return [Notice(Code.CONTROL_IS_NULL, f"control {name}: {reason}") for name, reason in reasons.items()]


def joined_controls(parts: Sequence[Controls]) -> Controls:
    """Join the controls that several hosts have for their own ranks."""
    samples: dict[str, dict[int, list[int]]] = {}
    for name in _NAMES:
        for part in parts:
            timing: Control | None = getattr(part, name)
            if timing is not None:
                of_ranks = {rank_number(key): blocks for key, blocks in timing.samples_ns.items()}
                samples.setdefault(name, {}).update(
                    {rank: blocks for rank, blocks in of_ranks.items() if rank is not None}
                )
    return Controls(**{name: control(by_rank) for name, by_rank in samples.items()}, reasons=parts[0].reasons)


_NAMES = ("unprofiled", "nosync", "light", "full")
