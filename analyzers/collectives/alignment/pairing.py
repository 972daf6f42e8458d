"""Pairing of two aligned members' kernels into collectives.

    a       ##  #   #   ##
    b       ##  #       ##          the third of a's has lost its partner, and takes no other's
            ||  |       ||

A pair is taken only where no neighbour could be meant as well: a kernel may be left alone, but never gets the wrong
partner. Kernels whose ends say nothing pair in order, where none of their kind is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analyzers.arrays import Int64, Mask, firsts, joint
from analyzers.collectives.alignment.candidates import NOISE_NS, NOISE_SHARE, keep_mutual, near
from analyzers.collectives.alignment.common_offset import DEVIATIONS, ONE_CLOCK_NS
from analyzers.collectives.alignment.sequences import (
    NEVER,
    TIGHTEST_NS,
    Kernels,
    Offset,
    Pairs,
    agree,
    have_met,
    in_segments,
    in_turn,
    steady_pairs,
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
    if offset is None:
        return match_in_order(a, b, compatible)
    return match_at(a, b, compatible, Apart(np.array([offset.ns]), np.array([offset.deviation_ns])))


def match_at(a: Kernels, b: Kernels, compatible: Mask, apart: Apart) -> Int64:
    """Return the partner of each of a's kernels, -1 for none, where b's clocks are known to be later by offsets."""
    at_one = replace(b, end_ns=b.end_ns - apart.ns[b.pair])
    partner = np.full(len(a), -1, dtype=np.int64)
    for pairs in (
        _none_missing(a, at_one, compatible, apart.deviation_ns),
        _beyond_doubt(a, at_one, compatible, apart.deviation_ns),
    ):
        new = (partner[pairs.a] < 0) & ~np.isin(pairs.b, partner)
        partner[pairs.a[new]] = pairs.b[new]
    _uncross(partner)
    _match_between(a, at_one, compatible, apart.deviation_ns, partner)
    _match_in_order(a, b, compatible, partner)
    _uncross(partner)
    return partner


def match_in_order(a: Kernels, b: Kernels, compatible: Mask) -> Int64:
    """Return the same where the clocks are not known: the order alone pairs, where nothing is missing."""
    partner = np.full(len(a), -1, dtype=np.int64)
    _match_in_order(a, b, compatible, partner)
    _uncross(partner)
    return partner


class Apart(NamedTuple):
    """How much later b's clock is than a's, and how far ends deviate from that, for each pair of members."""

    ns: Int64
    deviation_ns: Int64


def _none_missing(a: Kernels, b: Kernels, compatible: Mask, deviation_ns: Int64) -> Pairs:
    """Pair synchronizing kernels, in order, whose signature and step both members surely hold completely.

    All members may have lost as many: ends must still agree to within the noise, or better than with any neighbour.
    """
    keys = [np.flatnonzero(member.synchronizes & member.complete & member.sure) for member in (a, b)]
    order_a, order_b = in_turn(a, keys[0], b, keys[1])
    pairs = Pairs(order_a, order_b, b.end_ns[order_b] - a.end_ns[order_a])
    apart, shortest = np.abs(pairs.apart_ns), np.minimum(a.dur_ns[order_a], b.dur_ns[order_b])
    close = apart <= _tight_ns(deviation_ns)[a.pair[order_a]] + TIGHT_SHARE * shortest
    alone = _clear_ns(a, b, compatible, pairs) >= CLEARANCE_IN_ORDER * apart
    # gloo's ranks leave milliseconds apart, the more so the longer one of them has waited.
    longest = np.maximum(a.dur_ns[order_a], b.dur_ns[order_b])
    wide = apart <= WIDEST_NS + NOISE_SHARE * longest
    certain = apart <= ONE_CLOCK_NS + NOISE_SHARE * shortest
    if a.opened_together and b.opened_together:
        certain |= have_met(a, b, pairs, np.zeros(a.pairs, dtype=np.int64))
    return pairs.take(close | (alone & wide) | (certain & np.isin(order_a, steady_pairs(a, b).a)))


def _tight_ns(deviation_ns: Int64) -> Int64:
    """Return the noise that each offset's pairs show, several times over."""
    return np.maximum(TIGHTEST_NS, np.minimum(NOISE_NS, DEVIATIONS * deviation_ns))


def _clear_ns(a: Kernels, b: Kernels, compatible: Mask, pairs: Pairs) -> Int64:
    """Return how far the next kernel is, on either member, that a pair could be confused with."""
    # Kernels whose signature is open may stand for any; then all of them are neighbours.
    classes = _number_classes(compatible)
    return np.minimum(_measure_clearance(a, classes)[pairs.a], _measure_clearance(b, classes)[pairs.b])


def _uncross(partner: Int64) -> None:
    """Let go of pairs that cross: all members run a group's collectives in one order."""
    rows = np.flatnonzero(partner >= 0)
    if not len(rows):
        return
    theirs = partner[rows]
    before = np.r_[-1, np.maximum.accumulate(theirs)[:-1]]
    after = np.r_[np.minimum.accumulate(theirs[::-1])[::-1][1:], NEVER]
    partner[rows[(theirs <= before) | (theirs >= after)]] = -1


def _beyond_doubt(a: Kernels, b: Kernels, compatible: Mask, deviation_ns: Int64) -> Pairs:
    """Return pairs of synchronizing kernels that end together, with no neighbour that could be meant."""
    pairs = keep_mutual(near(a, b, compatible, np.zeros(a.pairs, dtype=np.int64)))
    apart, of_pair = np.abs(pairs.apart_ns), a.pair[pairs.a]
    kept = _clear_ns(a, b, compatible, pairs) >= CLEARANCE * apart + CLEAR_DEVIATIONS * deviation_ns[of_pair]
    tight = _tight_ns(deviation_ns)[of_pair] + TIGHT_SHARE * np.minimum(a.dur_ns[pairs.a], b.dur_ns[pairs.b])
    kept &= apart <= tight
    kept |= (a.sequence[pairs.a] >= 0) & (b.sequence[pairs.b] >= 0)
    return _confirm_pairs(a, b, pairs.take(kept))


def _match_between(a: Kernels, b: Kernels, compatible: Mask, deviation_ns: Int64, partner: Int64) -> None:
    """Match what lies between two matched neighbours, or a step's edges, where both hold as many alike in order.

    Ends are not asked, since a communicator runs its operations in order. But what synchronizes must have met.
    """
    taken = np.full(len(b), -1, dtype=np.int64)
    taken[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    rows, before = [], []
    for kernels, to in ((a, partner), (b, taken)):
        behind = _count_marked(kernels, to >= 0)
        has_neighbours = (behind > 0) & (behind < np.bincount(kernels.pair[to >= 0], minlength=a.pairs)[kernels.pair])
        between = np.flatnonzero((to < 0) & ((kernels.step >= 0) | has_neighbours))
        rows.append(between)
        before.append(behind[between])
    i, j, segment = in_segments(a, rows[0], b, rows[1], (before[0], before[1]))
    pairs = Pairs(i, j, b.end_ns[j] - a.end_ns[i])
    unlike = ~compatible[a.signature[i], b.signature[j]] | (a.synchronizes[i] != b.synchronizes[j])
    apart = a.synchronizes[i] & ~have_met(a, b, pairs, np.zeros(a.pairs, dtype=np.int64), deviation_ns[a.pair[i]])
    certain = _none_of_segment(unlike | apart | _may_lack_others(a, b, i, j), segment)
    partner[i[certain]] = j[certain]


def _none_of_segment(doubtful: Mask, segment: Int64) -> Mask:
    """Whether no pair of each one's segment is doubtful."""
    certain: Mask = np.bincount(segment[doubtful], minlength=int(segment.max(initial=-1)) + 1)[segment] == 0
    return certain


def _may_lack_others(a: Kernels, b: Kernels, i: Int64, j: Int64) -> Mask:
    """Whether the members of each pair of rows may have lost as many of its kind in its step, each another.

    So it may be where a launch beside a row has lost its event, and where any of the group differ in what they hold of
    a step elsewhere, unless one of both surely holds all.
    """
    lossy = a.is_beside_lost[i] | b.is_beside_lost[j] | _differ(a, b)
    return lossy & ~(a.complete & a.sure)[i] & ~(b.complete & b.sure)[j]


def _differ(a: Kernels, b: Kernels) -> bool:
    """Whether members hold unequal numbers of a signature in a step that both have."""
    pair, step, signature = _both(a, b)
    of_a = np.arange(len(pair)) < len(a)
    _, held = np.unique(joint(pair, step, signature), return_inverse=True)
    _, place = np.unique(joint(pair, step), return_inverse=True)
    places = int(place.max(initial=-1)) + 1
    shared = (np.bincount(place[of_a], minlength=places) > 0) & (np.bincount(place[~of_a], minlength=places) > 0)
    return bool((_unequal(held, of_a)[held] & shared[place] & (step >= 0)).any())


def _both(a: Kernels, b: Kernels) -> tuple[Int64, Int64, Int64]:
    """Return pair, step and signature of a's rows, and then of b's."""
    pair, step, signature = (
        np.concatenate([getattr(kernels, name) for kernels in (a, b)]) for name in ("pair", "step", "signature")
    )
    return pair, step, signature


def _unequal(held: Int64, of_a: Mask) -> Mask:
    """Whether a has another number of rows of each kind than b."""
    size = int(held.max(initial=-1)) + 1
    unequal: Mask = np.bincount(held[of_a], minlength=size) != np.bincount(held[~of_a], minlength=size)
    return unequal


def _confirm_pairs(a: Kernels, b: Kernels, pairs: Pairs) -> Pairs:
    """Return pairs less those that another place in a step denies, which both members hold whole as it seems.

    Then ends differ by more than the offset's pairs show, and only the place confirms a pair.
    """
    rows = [np.flatnonzero(member.synchronizes & member.complete) for member in (a, b)]
    i, j = in_turn(a, rows[0], b, rows[1])
    expected = np.full(len(a), -1, dtype=np.int64)
    expected[i] = j
    confirmed = expected[pairs.a] == pairs.b
    denied = np.zeros(a.pairs, dtype=bool)
    denied[a.pair[pairs.a[(expected[pairs.a] >= 0) & ~confirmed]]] = True
    return pairs.take(confirmed | ~denied[a.pair[pairs.a]])


def _count_marked(kernels: Kernels, marked: Mask) -> Int64:
    """Return how many rows of its own pair are marked up to each row, itself included."""
    total = np.r_[0, np.cumsum(marked, dtype=np.int64)]
    counted: Int64 = total[1:] - total[firsts(kernels.pair, kernels.pairs)[kernels.pair]]
    return counted


def _number_classes(compatible: Mask) -> Int64:
    """Return one number for signatures that may be confused with one another, directly or by way of others."""
    number = np.arange(len(compatible))
    while True:
        merged = np.where(compatible, number[None, :], len(number)).min(axis=1)
        if (merged == number).all():
            return number
        number = merged


def _measure_clearance(kernels: Kernels, classes: Int64) -> Int64:
    """Return how far each kernel's end is from the next in its class on the same member."""
    group = kernels.pair * len(classes) + classes[kernels.signature]
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
    segments: list[Int64] = []
    unmatched: list[Int64] = []
    clean = _clean_steps(a, b, partner, taken)
    for kernels, matched, is_clean in ((a, partner >= 0, clean[: len(a)]), (b, taken >= 0, clean[len(a) :])):
        is_unmatched = ~kernels.synchronizes & ~matched & kernels.complete & (kernels.sure | is_clean)
        unmatched.append(np.flatnonzero(is_unmatched))
        segments.append(_count_marked(kernels, matched & kernels.synchronizes)[is_unmatched])
    alike = a.signature[unmatched[0]], b.signature[unmatched[1]]
    i, j, segment = in_segments(a, unmatched[0], b, unmatched[1], alike, (segments[0], segments[1]))
    # That both lost one of two alike, each another, is no likelier than other chances: of many it is.
    several = np.bincount(segment)[segment] > 1
    certain = _none_of_segment(several & _may_lack_others(a, b, i, j), segment)
    partner[i[certain]] = j[certain]


def _clean_steps(a: Kernels, b: Kernels, partner: Int64, taken: Int64) -> Mask:
    """Return which of a's rows, and then of b's, are in steps that seem to miss nothing.

    Both members hold the same there, and all synchronizing kernels are matched.
    """
    pair, step, signature = _both(a, b)
    of_a = np.arange(len(pair)) < len(a)
    _, place = np.unique(joint(pair, step), return_inverse=True)
    _, held = np.unique(joint(place, signature), return_inverse=True)
    differ = _unequal(held, of_a)
    alone = np.concatenate([a.synchronizes & (partner < 0), b.synchronizes & (taken < 0)])
    clean = np.ones(int(place.max(initial=-1)) + 1, dtype=bool)
    clean[place[alone | differ[held] | (step < 0)]] = False
    return clean[place]


def _match_by_sequence(a: Kernels, b: Kernels, compatible: Mask, partner: Int64, taken: Int64) -> None:
    """Match kernels whose number in the group is known on both members, whatever their ends."""
    rows_a, rows_b = _numbered_once(a, partner < 0), _numbered_once(b, taken < 0)
    both = joint(np.r_[a.pair[rows_a], b.pair[rows_b]], np.r_[a.sequence[rows_a], b.sequence[rows_b]])
    _, i, j = np.intersect1d(both[: len(rows_a)], both[len(rows_a) :], assume_unique=True, return_indices=True)
    i, j = rows_a[i], rows_b[j]
    certain = compatible[a.signature[i], b.signature[j]] & agree(a.step[i], b.step[j])
    partner[i[certain]], taken[j[certain]] = j[certain], i[certain]


def _numbered_once(kernels: Kernels, chosen: Mask) -> Int64:
    """Return chosen rows whose number in the group occurs once on the member: a count that began anew says nothing."""
    numbered = joint(kernels.pair, kernels.sequence)
    _, first, count = np.unique(numbered, return_index=True, return_counts=True)
    rows: Int64 = first[count == 1]
    return rows[chosen[rows] & (kernels.sequence[rows] >= 0)]
