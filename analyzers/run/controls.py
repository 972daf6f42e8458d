"""Controls: step times without profiler and without synchronization.

`tracer record` times short blocks of steps in turn: unprofiled, without gradient synchronization, profiled. Every step
is a sample; a control is the median of the typical ones, and blocks tell how well it is known. `host` is what launching
a step takes each rank's host, without the profiler and with the device at rest before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, zip_longest

import msgspec
import numpy as np

from analyzers.arrays import Float64, Int64, Mask
from analyzers.notices import Code, Notice
from analyzers.ranks import RankNumber, rank_number
from analyzers.statistics import NORMAL, Limits, difference, median_interval, odd_steps

# The controls of which steps are samples, and that of their hosts.
UNPROFILED, HOST = "unprofiled", "host"
_STEPS = (UNPROFILED, "nosync", "light", "full")
_NAMES = (*_STEPS, HOST)
# From here on the profiler changed what it measured, and the report leads with it.
HIGH_DISTORTION = 1.05
# Of fewer steps nothing says what they usually take a host.
FEWEST_OF_HOST = 3
# Odd steps that are further apart have no distance that anybody would plan by. A run.json may number steps as it likes.
FARTHEST_APART = 10_000
# What no sample, in ns, can be: half a year. A run.json may say anything.
LONGEST_NS = 2**54
# So many odd steps of one block, and of no other, are a slow while.
FEWEST_IN_BLOCK = 3
# Numbers of steps, and which of them are odd.
Numbered = tuple[Int64, Mask]


class Control(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """Steps that were timed.

    `steps_ns`: by rank, a list per block. `samples_ns`: older recordings' means of blocks. `numbers`: of the steps,
    from 1. `by_launch`: each block is a launch.
    """

    steps_ns: dict[str, list[list[int]]] = {}
    samples_ns: dict[str, list[int]] = {}
    numbers: list[list[int]] = []
    by_launch: bool = False

    def by_rank(self) -> dict[str, list[list[int]]]:
        """Return each rank's blocks of steps."""
        return self.steps_ns or {rank: [[sample] for sample in samples] for rank, samples in self.samples_ns.items()}

    @cached_property
    def blocks(self) -> list[Float64]:
        """Return the blocks in order: a row for each step, a column for each rank, NaN for what no sample can be."""
        return [_pad_block(ranks) for ranks in zip_longest(*self.by_rank().values(), fillvalue=())]

    @cached_property
    def block_medians_ns(self) -> list[float]:
        """Return each block's step: the median of its typical ones; NaN for a block without any."""
        return [float(np.median(block)) if len(block) else float("nan") for block in self._typical_ns]

    @property
    def blocks_ns(self) -> list[float]:
        """Return each block's step, of the blocks that have any."""
        return [ns for ns in self.block_medians_ns if not np.isnan(ns)]

    @cached_property
    def _steps_ns(self) -> list[Float64]:
        """Return each block's steps, in order: each takes as long as on the rank where it takes longest."""
        return [np.nanmax(block[~np.isnan(block).all(axis=1)], axis=1) for block in self.blocks]

    @cached_property
    def _all_ns(self) -> Float64:
        return np.concatenate([np.zeros(0), *self._steps_ns])

    @cached_property
    def _odd(self) -> Mask:
        """Tell odd steps among all that were timed; among those of their launch, since a slow launch is not odd."""
        if not self.by_launch:
            return odd_steps(self._all_ns)
        return np.concatenate([np.zeros(0, dtype=bool), *map(odd_steps, self._steps_ns)])

    @property
    def odd_steps(self) -> int:
        """Count the steps that are odd: docs/measuring.md, Typical and odd steps."""
        return int(np.count_nonzero(self._odd))

    @cached_property
    def _typical_ns(self) -> list[Float64]:
        starts = np.cumsum([0, *map(len, self._steps_ns)])
        return [block[~self._odd[start:][: len(block)]] for start, block in zip(starts, self._steps_ns, strict=False)]

    @property
    def _longer_ns(self) -> Float64:
        """Return how much longer each step is than the typical one, where launches differ than that of its launch."""
        sizes = [*map(len, self._steps_ns)]
        typical = self.block_medians_ns if self.by_launch else [float(self.median_ns or 0)] * len(sizes)
        longer: Float64 = self._all_ns - np.repeat(typical, sizes)
        return longer

    @property
    def median_ns(self) -> int | None:
        """Return the median of the typical steps; None only where there is none."""
        typical = np.concatenate([np.zeros(0), *self._typical_ns])
        return round(float(np.median(typical))) if len(typical) else None

    def mean_ns(self, every: int | None) -> int | None:
        """Return the mean step, odd ones counted in, ns; None only where there is none.

        Where their distance, `every`, is told, it is the typical step and what they add to it: blocks that are timed
        may hold more or fewer of them than training does. Else it is the mean of what was timed.
        """
        typical_ns, cost = self.median_ns, self.odd_cost_ns(every)
        if every is not None and cost is not None and typical_ns is not None:
            return typical_ns + round(cost[0])
        return round(float(np.mean(self._all_ns))) if len(self._all_ns) else None

    def odd_cost_ns(self, every: int | None) -> tuple[float, Limits] | None:
        """Return what odd steps add to the mean step, ns, and what that lies between; None without any.

        Where their distance, `every`, is told, it is what they are longer by, over that; else what they add to the mean
        of what was timed.
        """
        if not self.odd_steps:
            return None
        longer = self._longer_ns
        added = longer[self._odd] / every if every else np.where(self._odd, longer, 0.0)
        cost = float(added.mean())
        if not every:
            # What typical steps are longer than their median is chance, and no step's that is odd.
            cost = min(cost, max(float(longer.mean()), 0.0))
        apart = NORMAL * float(added.std(ddof=1)) / len(added) ** 0.5 if len(added) > 1 else cost
        return cost, (cost - apart, cost + apart)

    @cached_property
    def numbered_odd(self) -> list[Numbered]:
        """Return each block's steps by their numbers, else by their places in it, and which of them are odd."""
        starts = np.cumsum([0, *map(len, self._steps_ns)]).tolist()
        found = []
        for place, (block, start) in enumerate(zip(self._steps_ns, starts, strict=False)):
            known = self.numbers[place] if place < len(self.numbers) else []
            numbers = known if len(known) == len(block) else range(len(block))
            found.append((np.asarray(numbers, dtype=np.int64), self._odd[start : start + len(block)]))
        return found

    @property
    def sequences(self) -> dict[int, Numbered]:
        """Return what `numbered_odd` has as sequences of numbers that go on, by launch."""
        launches: dict[int, list[Numbered]] = {}
        for place, block in enumerate(self.numbered_odd):
            launches.setdefault(place if self.by_launch else 0, []).append(block)
        return {launch: _merge(blocks) for launch, blocks in launches.items()}

    @property
    def odd_longer_ns(self) -> float:
        """Return how much longer odd steps take than the typical one, the mean over them; 0 without any."""
        return float(np.mean(self._longer_ns[self._odd])) if self.odd_steps else 0.0

    @property
    def slow_block(self) -> tuple[int, int] | None:
        """Return which block, of how many, has all odd steps, three at least and half of its own; None without one.

        Steps at a distance, or at random, are in several blocks; a host that was slower for a while is in one.
        """
        held = [(block, odd) for block, (_, odd) in enumerate(self.numbered_odd, start=1) if odd.any()]
        if self.by_launch or len(self.blocks) < 2 or len(held) != 1:
            return None
        ((block, odd),) = held
        return (block, len(self.blocks)) if np.count_nonzero(odd) >= max(FEWEST_IN_BLOCK, len(odd) / 2) else None

    @property
    def timed_steps(self) -> int:
        """Count all steps that were timed."""
        return len(self._odd)

    @cached_property
    def interval_ns(self) -> Limits | None:
        """Return what that median lies between, by chance in 95 % of recordings; None for a single step."""
        return median_interval(self._typical_ns)


def _merge(blocks: Sequence[Numbered]) -> Numbered:
    """Put steps whose numbers go on from one to the next together: a block without an odd step can say otherwise."""
    return np.concatenate([number for number, _ in blocks]), np.concatenate([odd for _, odd in blocks])


def _odd_distance(sequences: Sequence[Numbered]) -> int | None:
    """Return how far apart odd steps are, where two distances at least say so and no step says otherwise.

    Each sequence has numbers of its own: distances are within it.

    steps timed   1 2 3 4 5 6   - - - - - -   13 14 15 16 17 18      odd: 4, 16
    distance      12, or 6 just as well: step 10 was not timed       not told
    """
    gaps = [np.diff(np.sort(number[odd])) for number, odd in sequences]
    distances = np.concatenate([np.zeros(0, dtype=np.int64), *gaps])
    longest = int(np.gcd.reduce(distances)) if len(distances) > 1 else 0
    divisors = [apart for apart in range(2, min(longest, FARTHEST_APART) + 1) if longest % apart == 0]
    with_odd = [(number, odd) for number, odd in sequences if odd.any()]
    fitting = [apart for apart in divisors if all(_are_apart(*sequence, apart) for sequence in with_odd)]
    return fitting[0] if len(fitting) == 1 else None


def _are_apart(number: Int64, odd: Mask, distance: int) -> bool:
    """Whether the odd ones of some steps are all those at a distance from one another."""
    return np.array_equal(odd, number % distance == number[odd][0] % distance)


def control(
    steps_ns: Mapping[int, list[list[int]]], numbers: Sequence[list[int]] = (), by_launch: bool = False
) -> Control:
    """Build a control from all ranks' blocks of steps, and the steps' numbers where those are known."""
    by_rank = {str(rank): [list(block) for block in blocks] for rank, blocks in sorted(steps_ns.items())}
    return Control(by_rank, numbers=[*numbers], by_launch=by_launch)


def _pad_block(ranks: Sequence[Sequence[int]]) -> Float64:
    """Return one block's steps, a row each, of ranks that may have fewer than others."""
    steps = max(map(len, ranks), default=0)
    rows = np.full((steps, len(ranks)), np.nan)
    for rank, samples in enumerate(ranks):
        rows[: len(samples), rank] = [ns if _is_possible(ns) else np.nan for ns in samples]
    return rows


class Controls(msgspec.Struct, frozen=True):
    """Steps that were only timed, in turn with profiled ones.

    `light`, `full`: under these profiles. `host`: what launching a step takes the CPU.
    """

    unprofiled: Control | None = None
    nosync: Control | None = None
    light: Control | None = None
    full: Control | None = None
    host: Control | None = None
    reasons: dict[str, str] = {}

    def each(self, change: Callable[[Control], Control]) -> Controls:
        """Return the same controls with each timed one changed."""
        timed = {name: timing for name in _NAMES if (timing := getattr(self, name)) is not None}
        return msgspec.structs.replace(self, **{name: change(timing) for name, timing in timed.items()})

    def step_ns(self, name: str) -> int | None:
        """Return the median step in one control, null where none was timed."""
        timing: Control | None = getattr(self, name)
        return timing.median_ns if timing else None

    def mean_ns(self, name: str, every: int | None) -> int | None:
        """Return the mean step in one control, odd steps counted in, null where none was timed."""
        timing: Control | None = getattr(self, name)
        return timing.mean_ns(every) if timing else None

    def host_samples_ns(self) -> dict[RankNumber, list[int]]:
        """Return what single steps took each rank's host, of the ranks where it was timed."""
        by_rank = self.host.by_rank() if self.host is not None else {}
        found: dict[RankNumber, list[int]] = {}
        for key, blocks in by_rank.items():
            number, samples = rank_number(key), [ns for block in blocks for ns in block if _is_possible(ns)]
            if number is not None and samples:
                found[number] = samples
        return found

    def host_step_ns(self) -> dict[RankNumber, float]:
        """Return what a typical step takes each rank's host, the median, of the ranks where enough were timed."""
        timed = {rank: np.array(ns, dtype=np.float64) for rank, ns in self.host_samples_ns().items()}
        return {rank: float(np.median(ns[~odd_steps(ns)])) for rank, ns in timed.items() if len(ns) >= FEWEST_OF_HOST}

    def odd_distance(self) -> int | None:
        """Return how far apart odd steps are: as all controls say together, else as one of them does."""
        timed = [timing for timing in (self.unprofiled, self.light, self.full) if timing is not None]
        numbered = [timing.sequences for timing in timed if timing.numbers]
        launches = dict.fromkeys(launch for sequences in numbered for launch in sequences)
        together = [_merge([of[launch] for of in numbered if launch in of]) for launch in launches]
        # Unprofiled blocks without numbers tell not: each may be several stretches of steps.
        bare = [timing.numbered_odd for timing in (self.light, self.full) if timing is not None and not timing.numbers]
        told = map(_odd_distance, (together, *([*sequences.values()] for sequences in numbered), *bare))
        return next((distance for distance in told if distance is not None), None)

    def interval_ns(self, name: str) -> Limits | None:
        """Return what that median lies between; null where that is not known."""
        timing: Control | None = getattr(self, name)
        return timing.interval_ns if timing else None

    def blocks_ns(self) -> dict[str, list[float]]:
        """Return the blocks of each control of steps, by its name."""
        timed = {name: timing.blocks_ns for name in _STEPS if (timing := getattr(self, name)) is not None}
        return {name: blocks for name, blocks in timed.items() if blocks}

    def distortion(self, window: str) -> float | None:
        """Return profiled step over unprofiled step, for the window (`light` or `full`) that times come from.

        It is the median over rounds.
        """
        ratios = self._ratios(window)
        return float(np.median(ratios)) if ratios else None

    def distortion_interval(self, window: str) -> Limits | None:
        """Return what that ratio lies between; of a single pair, what the steps of its two blocks allow."""
        ratios = self._ratios(window)
        if len(ratios) > 1:
            return median_interval([np.array([ratio]) for ratio in ratios])
        profiled, unprofiled = self.interval_ns(window), self.interval_ns("unprofiled")
        if not ratios or profiled is None or unprofiled is None:
            return None
        return profiled[0] / unprofiled[1], profiled[1] / unprofiled[0]

    def _ratios(self, window: str) -> list[float]:
        """Return each round's profiled step over its unprofiled one: every control has a block a round."""
        profiled: Control | None = getattr(self, window)
        if profiled is None or self.unprofiled is None:
            return []
        pairs = zip(profiled.block_medians_ns, self.unprofiled.block_medians_ns, strict=False)
        return [under / without for under, without in pairs if not np.isnan(under) and not np.isnan(without)]

    def sync_cost_ns(self) -> int | None:
        """Return the unprofiled step less the same step without gradient synchronization."""
        unprofiled, nosync = self.step_ns("unprofiled"), self.step_ns("nosync")
        return unprofiled - nosync if unprofiled is not None and nosync is not None else None

    def sync_cost_interval_ns(self) -> Limits | None:
        """Return what that difference lies between: it holds 0 where the two controls' intervals overlap."""
        unprofiled, nosync = self.interval_ns("unprofiled"), self.interval_ns("nosync")
        return difference(unprofiled, nosync) if unprofiled is not None and nosync is not None else None

    def why_null(self) -> list[Notice]:
        """Return a notice for every control that is missing, and of samples that none can be."""
        timed = {name: timing for name in _NAMES if (timing := getattr(self, name)) is not None}
        empty = [name for name, timing in timed.items() if timing.median_ns is None]
        reasons = self.reasons | dict.fromkeys(empty, "no samples")
        if timed and "unprofiled" not in timed:
            reasons = {"unprofiled": "run.json has none"} | reasons
        notices = [Notice(Code.CONTROL_IS_NULL, f"control {name}: {reason}") for name, reason in reasons.items()]
        return [*notices, *(lost for name, timing in timed.items() if (lost := _refuse(name, timing)) is not None)]


def _refuse(name: str, timing: Control) -> Notice | None:
    samples = [ns for blocks in timing.by_rank().values() for block in blocks for ns in block]
    count = sum(not _is_possible(ns) for ns in samples)
    if not count:
        return None
    text = f"control {name}: {count} of {len(samples)} steps have impossible lengths, and are left out"
    return Notice(Code.SAMPLES_ARE_IMPOSSIBLE, text)


def _is_possible(ns: float) -> bool:
    return 0 < ns < LONGEST_NS


def joined_controls(parts: Sequence[Controls]) -> Controls:
    """Join the controls that several hosts have for their own ranks."""
    joined: dict[str, Control] = {}
    for name in _NAMES:
        timed: list[Control] = [timing for part in parts if (timing := getattr(part, name)) is not None]
        by_rank = {rank_number(key): blocks for timing in timed for key, blocks in timing.by_rank().items()}
        known: dict[int, list[list[int]]] = {rank: blocks for rank, blocks in by_rank.items() if rank is not None}
        if timed:
            joined[name] = control(known, timed[-1].numbers, timed[-1].by_launch)
    return Controls(**joined, reasons=parts[0].reasons)


def controls_of_launches(launches: Sequence[Controls]) -> Controls:
    """Join the controls of launches of one program: what a launch has of a control is one block, perhaps empty."""
    joined: dict[str, Control] = {}
    for name in _NAMES:
        timed: list[Control] = [getattr(launch, name) or Control() for launch in launches]
        numbered = (rank_number(key) for timing in timed for key in timing.by_rank())
        ranks = dict.fromkeys(rank for rank in numbered if rank is not None)
        blocks: dict[int, list[list[int]]] = {
            rank: [_one_block(timing.by_rank().get(str(rank), [])) for timing in timed] for rank in ranks
        }
        if blocks:
            joined[name] = control(blocks, [_one_block(timing.numbers) for timing in timed], by_launch=True)
    return Controls(**joined, reasons=launches[0].reasons)


def _one_block(blocks: Sequence[Sequence[int]]) -> list[int]:
    return [*chain.from_iterable(blocks)]
