"""How time and memory of each phase of a report grow: events, steps, layers, collectives and ranks doubled in turn.

    python benchmarks/growth.py [--of steps,ranks] [--doublings 3] [--rounds 2]

Draws runs (tests/support/growing.py) in which one thing doubles and all others stay, and prints for each phase the
processor seconds of the largest run, the least of several rounds, and by what they and the peak of memory grow with
each doubling. What grows by more than 2.3, once it takes long enough to be measured, is named below: n log n gives 2.2.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.growing import GROWING, Size, phases, write_run

# Where each begins; all others are as in REST then.
REST = Size(events=4, steps=4, layers=8, collectives=8, ranks=2)
BEGINS = {"events": 16, "steps": 16, "layers": 32, "collectives": 32, "ranks": 8}
MOST = 2.3
# Below these a ratio says more of the machine than of the program.
LEAST_S = 0.02
LEAST_BYTES = 2_000_000


@dataclass(frozen=True)
class Cost:
    """What a phase takes."""

    seconds: float
    peak_bytes: int


def cost(compute: Callable[[], object], rounds: int) -> Cost:
    """Processor seconds, the least of several, and the peak of what is allocated meanwhile."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        compute()
        seconds.append(time.process_time() - began)
    tracemalloc.start()
    compute()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Cost(min(seconds), peak)


def measure(growing: str, doublings: int, rounds: int) -> dict[str, list[Cost]]:
    """What each phase costs, from the smallest run to the largest."""
    costs: dict[str, list[Cost]] = {}
    for power in range(doublings + 1):
        with tempfile.TemporaryDirectory() as folder:
            size = replace(REST, **{growing: BEGINS[growing] << power})
            for name, compute in phases(write_run(Path(folder) / "run", size)):
                costs.setdefault(name, []).append(cost(compute, rounds))
    return costs


def ratios(values: Sequence[float], least: float) -> list[float | None]:
    """By how much each is larger than the one before; None where that is too small to tell."""
    return [larger / smaller if smaller >= least else None for smaller, larger in pairwise(values)]


def words(found: Sequence[float | None]) -> str:
    return " ".join("   -" if ratio is None else f"{ratio:4.1f}" for ratio in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default=",".join(GROWING), help=f"of {', '.join(GROWING)} (default: all)")
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    fast: list[str] = []
    for growing in options.of.split(","):
        costs = measure(growing, options.doublings, options.rounds)
        largest = BEGINS[growing] << options.doublings
        print(f"\n{growing}: {BEGINS[growing]} to {largest}, growth with each doubling")
        print(f"{'':10} {'s':>7} {'MB':>7}   {'time':{5 * options.doublings}} memory")
        for name, found in costs.items():
            grown = {
                "time": ratios([each.seconds for each in found], LEAST_S),
                "memory": ratios([each.peak_bytes for each in found], LEAST_BYTES),
            }
            last = found[-1]
            of_time, of_memory = map(words, grown.values())
            print(f"{name:10} {last.seconds:7.3f} {last.peak_bytes / 1e6:7.1f}   {of_time}  {of_memory}", flush=True)
            # The last doubling: what is bounded grows no more there.
            fast += [
                f"{name} in {growing}: {what} {steps[-1]:.1f}"
                for what, steps in grown.items()
                if steps[-1] is not None and steps[-1] > MOST
            ]
    print("\n" + ("\n".join(["faster than n log n:", *fast]) if fast else "nothing grows faster than n log n"))


if __name__ == "__main__":
    main()
