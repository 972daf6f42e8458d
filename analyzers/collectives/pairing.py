"""Pairing of two aligned members' kernels into collectives.

    a       ##  #   #   ##
    b       ##  #       ##          the third of a's has lost its partner, and takes no other's
            ||  |       ||

A pair is taken only where no neighbour could be meant as well: a kernel may be left alone, but never gets the wrong
partner. Kernels whose ends say nothing pair in order, where none of their kind is missing.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.collectives.alignment import (
    DEVIATIONS,
    NOISE_NS,
    NOISE_SHARE,
    ONE_CLOCK_NS,
    mutual,
    near,
)
from analyzers.collectives.sequences import (
    NEVER,
    TIGHTEST_NS,
    Kernels,
    Offset,
    Pairs,
    agree,
    have_met,
    in_turn,
    steady_pairs,
    steady_signatures,
)

# A neighbour must be so many times further off than the partner; less where none is missing and order speaks for it.
CLEARANCE = 2.5
CLEARANCE_IN_ORDER = 1.5
CLEAR_DEVIATIONS = 4
# What ends may differ by besides, as a share of the shorter kernel: ring progress grows with the transfer.
TIGHT_SHARE = 0.1
# What pairs in order may end apart by at most, beside their share of the longer kernel.
WIDEST_NS = 1_000_000


def match(a: Kernels, b: Kernels, compatible: Mask, offset: Offset | None) -> Int64:
    """Return for each of a's kernels its partner among b's, -1 where there is none that is beyond doubt."""
    partner = np.full(len(a), -1, dtype=np.int64)
    if offset is not None:
        for pairs in (_none_missing(a, b, compatible, offset), _beyond_doubt(a, b, compatible, offset)):
            new = (partner[pairs.a] < 0) & ~np.isin(pairs.b, partner)
            partner[pairs.a[new]] = pairs.b[new]
        _uncross(partner)
        _match_between(a, b, compatible, offset, partner)
    _match_in_order(a, b, compatible, partner)
    _uncross(partner)
    return partner


def _none_missing(a: Kernels, b: Kernels, compatible: Mask, offset: Offset) -> Pairs:
    """Pair synchronizing kernels, in order, whose signature and step both members surely hold completely.

    All members may have lost as many: ends must still agree to within the noise, or better than with any neighbour.
    """
    keys = [np.flatnonzero(member.synchronizes & member.complete & member.sure) for member in (a, b)]
    order_a, order_b = in_turn(a, keys[0], b, keys[1])
    pairs = Pairs(order_a, order_b, b.end_ns[order_b] - offset.ns - a.end_ns[order_a])
    apart, shortest = np.abs(pairs.apart_ns), np.minimum(a.dur_ns[order_a], b.dur_ns[order_b])
    close = apart <= _tight_ns(offset) + TIGHT_SHARE * shortest
    alone = _clear_ns(a, b, compatible, pairs) >= CLEARANCE_IN_ORDER * apart
    # gloo's ranks leave milliseconds apart, the more so the longer one of them has waited.
    longest = np.maximum(a.dur_ns[order_a], b.dur_ns[order_b])
    wide = apart <= WIDEST_NS + NOISE_SHARE * longest
    certain = apart <= ONE_CLOCK_NS + NOISE_SHARE * shortest
    if a.opened_together and b.opened_together:
        certain |= have_met(a, b, pairs, offset.ns)
    return pairs.take(close | (alone & wide) | (certain & np.isin(order_a, steady_pairs(a, b).a)))


def _tight_ns(offset: Offset) -> int:
    """Return the noise that an offset's pairs show, several times over."""
    return max(TIGHTEST_NS, min(NOISE_NS, DEVIATIONS * offset.deviation_ns))


def _clear_ns(a: Kernels, b: Kernels, compatible: Mask, pairs: Pairs) -> Int64:
    """Return how far the next kernel is, on either member, that a pair could be confused with."""
    # Kernels whose signature is open may stand for any; then all of them are neighbours.
    classes = _classes(compatible)
    return np.minimum(_clearance(a, classes)[pairs.a], _clearance(b, classes)[pairs.b])


def _uncross(partner: Int64) -> None:
    """Let go of pairs that cross: all members run a group's collectives in one order."""
    rows = np.flatnonzero(partner >= 0)
    if not len(rows):
        return
    theirs = partner[rows]
    before = np.r_[-1, np.maximum.accumulate(theirs)[:-1]]
    after = np.r_[np.minimum.accumulate(theirs[::-1])[::-1][1:], NEVER]
    partner[rows[(theirs <= before) | (theirs >= after)]] = -1


def _beyond_doubt(a: Kernels, b: Kernels, compatible: Mask, offset: Offset) -> Pairs:
    """Return pairs of synchronizing kernels that end together, with no neighbour that could be meant."""
    pairs = mutual(near(a, b, compatible, offset.ns))
    apart = np.abs(pairs.apart_ns)
    kept = _clear_ns(a, b, compatible, pairs) >= CLEARANCE * apart + CLEAR_DEVIATIONS * offset.deviation_ns
    tight = _tight_ns(offset) + TIGHT_SHARE * np.minimum(a.dur_ns[pairs.a], b.dur_ns[pairs.b])
    kept &= apart <= tight
    kept |= (a.sequence[pairs.a] >= 0) & (b.sequence[pairs.b] >= 0)
    return _confirmed(a, b, pairs.take(kept))


def _match_between(a: Kernels, b: Kernels, compatible: Mask, offset: Offset, partner: Int64) -> None:
    """Match what lies between two matched neighbours, or a step's edge, where both members hold as many.

    If one of them surely holds all of the step, the other, which has as many here, has lost others. Else both may have
    lost as many here, unless many members all hold as many in the whole trace; and ends must be far from any other's.
    """
    taken = np.full(len(b), -1, dtype=np.int64)
    taken[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    rows = [np.flatnonzero((to < 0) & kernels.synchronizes) for kernels, to in ((a, partner), (b, taken))]
    before_a, before_b = (np.cumsum(to >= 0, dtype=np.int64) for to in (partner, taken))
    i, j = in_turn(a, rows[0], b, rows[1], (before_a[rows[0]], before_b[rows[1]]))
    pairs = Pairs(i, j, b.end_ns[j] - offset.ns - a.end_ns[i])
    apart, shortest = np.abs(pairs.apart_ns), np.minimum(a.dur_ns[i], b.dur_ns[j])
    whole = (a.complete & a.sure)[i] | (b.complete & b.sure)[j]
    certain = whole & steady_signatures(a, b)[a.signature[i]] & (apart <= ONE_CLOCK_NS + NOISE_SHARE * shortest)
    if a.nobody_lacks and b.nobody_lacks:
        has_neighbours = (before_a[i] > 0) & (before_a[i] < (partner >= 0).sum())
        clear = _clear_ns(a, b, compatible, pairs) >= CLEARANCE * apart + CLEAR_DEVIATIONS * offset.deviation_ns
        longest = np.maximum(a.dur_ns[i], b.dur_ns[j])
        certain |= has_neighbours & clear & (apart <= WIDEST_NS + NOISE_SHARE * longest)
    partner[i[certain]] = j[certain]


def _confirmed(a: Kernels, b: Kernels, pairs: Pairs) -> Pairs:
    """Return pairs less those that another place in a step denies, which both members hold whole as it seems.

    Then ends differ by more than the offset's pairs show, and only the place confirms a pair.
    """
    rows = [np.flatnonzero(member.synchronizes & member.complete) for member in (a, b)]
    i, j = in_turn(a, rows[0], b, rows[1])
    expected = np.full(len(a), -1, dtype=np.int64)
    expected[i] = j
    confirmed = expected[pairs.a] == pairs.b
    return pairs.take(confirmed) if ((expected[pairs.a] >= 0) & ~confirmed).any() else pairs


def _classes(compatible: Mask) -> Int64:
    """Return one number for signatures that may be confused with one another, directly or by way of others."""
    number = np.arange(len(compatible))
    while True:
        merged = np.where(compatible, number[None, :], len(number)).min(axis=1)
        if (merged == number).all():
            return number
        number = merged


def _clearance(kernels: Kernels, classes: Int64) -> Int64:
    """Return how far each kernel's end is from the next in its class on the same member."""
    group = classes[kernels.signature]
    order = np.lexsort((kernels.end_ns, group))
    gap = np.diff(kernels.end_ns[order])
    gap[np.diff(group[order]) != 0] = NEVER
    nearest = np.minimum(np.r_[NEVER, gap], np.r_[gap, NEVER])
    clearance = np.empty(len(kernels), dtype=np.int64)
    clearance[order] = nearest
    return clearance


def _match_in_order(a: Kernels, b: Kernels, compatible: Mask, partner: Int64) -> None:
    """Match kernels whose ends say nothing, by their order between those that are matched.

    Where a signature occurs in a step as often on both members as anywhere, none is missing, and order decides.
    """
    taken = np.full(len(b), -1, dtype=np.int64)
    taken[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    _match_by_sequence(a, b, compatible, partner, taken)
    clean = _clean_steps(a, b, partner, taken)
    segments: list[Int64] = []
    unmatched: list[Int64] = []
    for kernels, matched in ((a, partner >= 0), (b, taken >= 0)):
        is_unmatched = (
            ~kernels.synchronizes & ~matched & kernels.complete & (kernels.sure | np.isin(kernels.step, clean))
        )
        unmatched.append(np.flatnonzero(is_unmatched))
        anchors: Int64 = np.cumsum(matched & kernels.synchronizes, dtype=np.int64)
        segments.append(anchors[is_unmatched])
    rows_a, rows_b = in_turn(a, unmatched[0], b, unmatched[1], (segments[0], segments[1]))
    partner[rows_a] = rows_b


def _clean_steps(a: Kernels, b: Kernels, partner: Int64, taken: Int64) -> Int64:
    """Return steps that seem to miss nothing: both members hold the same, all synchronizing kernels are matched."""
    suspect = [kernels.step[kernels.synchronizes & (to < 0)] for kernels, to in ((a, partner), (b, taken))]
    keys = np.concatenate([np.stack([kernels.step, kernels.signature]) for kernels in (a, b)], axis=1)
    held, which = np.unique(keys, axis=1, return_inverse=True)
    size = held.shape[1]
    differ = np.bincount(which[: len(a)], minlength=size) != np.bincount(which[len(a) :], minlength=size)
    steps = np.intersect1d(a.step[a.step >= 0], b.step)
    return np.setdiff1d(steps, np.concatenate([*suspect, held[0][differ]]))


def _match_by_sequence(a: Kernels, b: Kernels, compatible: Mask, partner: Int64, taken: Int64) -> None:
    """Match kernels whose ends say nothing and whose number in the group is known on both members."""
    rows_a = _numbered_once(a, ~a.synchronizes & (partner < 0))
    rows_b = _numbered_once(b, ~b.synchronizes & (taken < 0))
    _, i, j = np.intersect1d(a.sequence[rows_a], b.sequence[rows_b], assume_unique=True, return_indices=True)
    i, j = rows_a[i], rows_b[j]
    certain = compatible[a.signature[i], b.signature[j]] & agree(a.step[i], b.step[j])
    partner[i[certain]], taken[j[certain]] = j[certain], i[certain]


def _numbered_once(kernels: Kernels, chosen: Mask) -> Int64:
    """Return chosen rows whose number in the group occurs once on the member: a count that began anew says nothing."""
    _, first, count = np.unique(kernels.sequence, return_index=True, return_counts=True)
    rows: Int64 = first[count == 1]
    return rows[chosen[rows] & (kernels.sequence[rows] >= 0)]
