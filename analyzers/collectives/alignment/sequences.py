"""Sequences of two members' kernels, and their pairs by order alone.

    a       step 4  ##  ##  ##     step 5  ##  ##  ##
    b       step 4   ##  ##  ##    step 5    ##    ##          as many in step 4: order says which are one
                    |_| |_| |_|

A communicator runs its operations in order, so that equal counts of equal operations pair in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import Columns, Int64, Mask, firsts, joint

# What one clock shows of one instant on two devices differs by.
TIGHTEST_NS = 8_000
NEVER = np.iinfo(np.int64).max // 4
# In so many steps a member must hold a signature completely, before its number alone says that none is lost.
FEWEST_STEPS = 3


@dataclass(frozen=True, eq=False)
class Kernels(Columns):
    """The kernels of one member in a group's order: columns of one length. `step` is -1 where it is not known.

    `signature` is what is known of the collective, as a code, `sequence` its number in the group where the trace has
    it, else -1. `complete`: the signature occurs in this step as often as in any step of any member; `sure`: it does so
    often enough elsewhere that none can be missing here. `opened_together`: a recorder opened all members' windows at
    one step, so that each step is whole. `beside_lost`: a launch next to the row has lost its kernel.

    Many pairs of members may be looked at together: then the rows of one pair stand together, `of_pair` numbers pairs
    from 0 on, and there are `pairs` of them.
    """

    end_ns: Int64
    dur_ns: Int64
    step: Int64
    sequence: Int64
    signature: Int64
    synchronizes: Mask
    complete: Mask
    sure: Mask
    opened_together: bool = False
    beside_lost: Mask | None = None
    of_pair: Int64 | None = None
    pairs: int = 1

    @cached_property
    def pair(self) -> Int64:
        """Return which pair of members each row is of."""
        return np.zeros(len(self), dtype=np.int64) if self.of_pair is None else self.of_pair

    @property
    def is_beside_lost(self) -> Mask:
        """Whether a launch next to each row, on its member, has lost its kernel."""
        return np.zeros(len(self), dtype=bool) if self.beside_lost is None else self.beside_lost

    def of_pairs(self, chosen: Int64) -> Kernels:
        """Return the rows of some pairs, which are numbered anew; one may be chosen several times."""
        first = firsts(self.pair, self.pairs)
        count = (first[1:] - first[:-1])[chosen]
        rows = np.arange(count.sum()) + np.repeat(first[chosen] - (np.cumsum(count) - count), count)
        pair = np.repeat(np.arange(len(chosen)), count)
        return replace(self.take(rows), of_pair=pair, pairs=len(chosen))


@dataclass(frozen=True)
class Offset:
    """How much later one clock is than another, and the median deviation of the ends that say so.

    `higher`: by how much the later one's numbers of the same steps are.
    """

    ns: int
    deviation_ns: int
    pairs: int
    higher: int = 0


@dataclass(frozen=True, eq=False)
class Pairs(Columns):
    """Pairs of rows, and how far apart they end at some offset."""

    a: Int64
    b: Int64
    apart_ns: Int64


def agree(number_a: Int64, number_b: Int64) -> Mask:
    """Whether two numbers are the same, as far as both are known."""
    same: Mask = (number_a == number_b) | (number_a < 0) | (number_b < 0)
    return same


def in_turn(a: Kernels, rows_a: Int64, b: Kernels, rows_b: Int64, *more: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Pair the k-th of a's rows with the k-th of b's, by step and signature (and more), where there are as many."""
    i, j, _ = in_segments(a, rows_a, b, rows_b, (a.signature[rows_a], b.signature[rows_b]), *more)
    return i, j


def in_segments(
    a: Kernels, rows_a: Int64, b: Kernels, rows_b: Int64, *more: tuple[Int64, Int64]
) -> tuple[Int64, Int64, Int64]:
    """Pair the same by step (and more), whatever the signatures, and return which pairs are of one segment."""
    sides = [(column[0][rows_a], column[1][rows_b]) for column in ((a.pair, b.pair), (a.step, b.step))]
    sides += more
    _, group = np.unique(joint(*(np.concatenate(side) for side in sides)), return_inverse=True)
    group_a, group_b = group[: len(rows_a)], group[len(rows_a) :]
    size = int(group.max(initial=-1)) + 1
    equal = np.bincount(group_a, minlength=size) == np.bincount(group_b, minlength=size)
    order_a, order_b = np.argsort(group_a, kind="stable"), np.argsort(group_b, kind="stable")
    order_a, order_b = order_a[equal[group_a[order_a]]], order_b[equal[group_b[order_b]]]
    return rows_a[order_a], rows_b[order_b], group_a[order_a]


def have_met(a: Kernels, b: Kernels, pairs: Pairs, offset_ns: Int64, error_ns: Int64 | int = 0) -> Mask:
    """Whether neither of a pair ends before the other has begun, with b's clock later by its pair's offset.

    `error_ns`, by row of `pairs`, is what the offset may be off by.
    """
    later_ns = offset_ns[b.pair[pairs.b]]
    ends = np.stack([a.end_ns[pairs.a], b.end_ns[pairs.b] - later_ns])
    starts = ends - np.stack([a.dur_ns[pairs.a], b.dur_ns[pairs.b]])
    met: Mask = starts.max(axis=0) <= ends.min(axis=0) + TIGHTEST_NS + error_ns
    return met


def steady_pairs(a: Kernels, b: Kernels) -> Pairs:
    """Pair in order the synchronizing kernels whose counts are beyond doubt."""
    steady = steady_signatures(a, b)
    rows = [
        np.flatnonzero(member.synchronizes & member.complete & member.sure & steady[member.pair, member.signature])
        for member in (a, b)
    ]
    i, j = in_turn(a, rows[0], b, rows[1])
    return Pairs(i, j, b.end_ns[j] - a.end_ns[i])


def steady_signatures(a: Kernels, b: Kernels) -> Mask:
    """Whether the number of each signature in a step is beyond doubt: a line for each pair, a column each signature.

    It is where a recorder opened all windows at one step, or where a member holds it completely in several steps: that
    it lacks as many in each of them, and that nobody has more, is no chance.
    """
    signatures = int(max(member.signature.max(initial=-1) for member in (a, b))) + 1
    if a.opened_together and b.opened_together:
        return np.ones((a.pairs, signatures), dtype=bool)
    steady = np.zeros(a.pairs * signatures, dtype=bool)
    for member in (a, b):
        held = member.complete & member.sure
        signature = (member.pair * signatures + member.signature)[held]
        once = np.unique(joint(signature, member.step[held]), return_index=True)[1]
        steady |= np.bincount(signature[once], minlength=len(steady)) >= FEWEST_STEPS
    return steady.reshape(a.pairs, signatures)


def count_steps(kernels: Kernels) -> Int64:
    """Return in how many known steps each pair has synchronizing kernels."""
    rows = np.flatnonzero(kernels.synchronizes & (kernels.step >= 0))
    first = np.unique(joint(kernels.pair[rows], kernels.step[rows]), return_index=True)[1]
    return np.bincount(kernels.pair[rows[first]], minlength=kernels.pairs)


def most_higher(of_pair: Int64, step_a: Int64, step_b: Int64, pairs: int) -> Int64:
    """Return how much higher most of each pair's steps are numbered on b; 0 where nothing says it."""
    known = (step_a >= 0) & (step_b >= 0)
    of_pair, apart = of_pair[known], (step_b - step_a)[known]
    _, first, count = np.unique(joint(of_pair, apart), return_index=True, return_counts=True)
    # The most frequent first, of as frequent ones the lowest.
    order = np.lexsort((apart[first], -count, of_pair[first]))
    which, place = np.unique(of_pair[first][order], return_index=True)
    higher = np.zeros(pairs, dtype=np.int64)
    higher[which] = apart[first][order][place]
    return higher


def renumber(a: Kernels, b: Kernels, higher: Int64) -> tuple[Kernels, Kernels]:
    """Return both members with common step numbers, where b's of each pair are higher by `higher`."""
    return _raise_numbers(a, np.maximum(higher, 0)), _raise_numbers(b, np.maximum(-higher, 0))


def _raise_numbers(kernels: Kernels, by: Int64) -> Kernels:
    if not by.any():
        return kernels
    return replace(kernels, step=np.where(kernels.step >= 0, kernels.step + by[kernels.pair], -1))
