"""Promises of A's advice, beside what came in B.

A    advice: rank 1 late 3.67, buffers 0.95 of 12.13 ms       B    advice: neither; 8.16 ms
     promised together 4.20                                        came 3.98
"""

from __future__ import annotations

from analyzers.comparison.change import Change
from analyzers.comparison.document import Promise, PromisedGain
from analyzers.reporting import Advice, Report
from analyzers.scenarios import ODD

# What two runs must have alike for the one to be the other with its advice followed.
ALIKE = ("world_size", "model", "strategy", "batch_per_gpu")
# How far bytes of gradients may be off a whole multiple of the other run's: no_sync and bf16 divide them.
MOST_OFF = 0.03


def promised(a: Report, b: Report, step: Change | None) -> Promise | None:
    """Return what A's findings at a place promised that B's do not name again, and by how much B's step is shorter.

    None where there is none, or where the runs are not the same training. `step` is the change of the unprofiled step.
    """
    if not _are_alike(a, b):
        return None
    asked = [piece for piece in a.summary.advice if piece.gain_ns is not None and piece.code != ODD]
    gone = _gone(asked, b)
    if not gone:
        return None
    came_ns = -step.difference if step is not None and step.difference is not None else None
    limits = step.interval if step is not None else None
    between = [-limits[1], -limits[0]] if limits is not None else None
    # What odd steps cost is of the mean step.
    odd_ns = sum(piece.figure_ns for piece in a.summary.advice if piece.code == ODD and piece.gain_ns is not None)
    return Promise([_gain(piece) for piece in gone], _together_ns(a, odd_ns, asked, gone), came_ns, between)


def odd_gone(a: Report, b: Report) -> PromisedGain | None:
    """Return what A's finding on odd steps promised of the mean step, where B names none; None else."""
    gone = _gone([piece for piece in a.summary.advice if piece.code == ODD], b)
    return _gain(gone[0]) if gone and _are_alike(a, b) else None


def _are_alike(a: Report, b: Report) -> bool:
    named = all(getattr(a.run, name) == getattr(b.run, name) for name in ALIKE)
    return named and _are_multiples(a.traffic.get("gradients"), b.traffic.get("gradients"))


def _are_multiples(a: float | None, b: float | None) -> bool:
    """Whether one number of bytes is so many times the other; of one that is not known nothing speaks against it."""
    times = max(a, b) / min(a, b) if a and b else 1.0
    return abs(times - round(times)) <= MOST_OFF * times


def _gone(asked: list[Advice], b: Report) -> list[Advice]:
    left = {(piece.code, piece.at) for piece in b.summary.advice}
    return [piece for piece in asked if (piece.code, piece.at) not in left]


def _together_ns(a: Report, odd_ns: int, asked: list[Advice], gone: list[Advice]) -> int:
    """Return what some advice brings: by the replay of all of it where all is followed, else no more than that."""
    total_ns = sum(piece.figure_ns for piece in gone)
    together_ns = a.summary.advice_together_ns
    if together_ns is None:
        return total_ns
    together_ns -= odd_ns
    return together_ns if len(gone) == len(asked) else min(total_ns, together_ns)


def _gain(piece: Advice) -> PromisedGain:
    low_ns, high_ns = piece.within_ns or (piece.figure_ns, piece.figure_ns)
    return PromisedGain(piece.code, piece.at, piece.problem, piece.figure_ns, [low_ns, high_ns])
