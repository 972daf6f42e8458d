"""Candidates for one collective: kernels that end together at some offset.

Each of b's ends is apart from each of a's. Offsets at which many agree are looked at.

    a       #....##...
    b       ..#....##.      one offset explains all of them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.arrays import Float64, Int64, Mask, joint, keys_by_part, medians
from analyzers.collectives.alignment.sequences import Kernels, Offset, Pairs, agree

# Of clocks that are kept in time, and of steps that are known on both sides.
FEWEST_PAIRS = 3
# Ends of one collective on two members: clocks and ring progress. Seen on H200s: 30 us over NVLink, 80 us over host
# memory, 500 us over sockets, where a transfer takes many times that.
NOISE_NS = 60_000
NOISE_SHARE = 0.25
# Widths of the windows in which offsets are counted.
WINDOWS_NS = (30_000, 200_000, 1_500_000)
MOST_OFFSETS = 6
MOST_CANDIDATES = 1 << 22
# Farther apart than any two clocks.
FARTHEST_NS = int(np.iinfo(np.int64).max) // 2
# Of kernels that end near one another so many are looked at, before and behind.
MOST_NEIGHBOURS = 32


class Candidates(NamedTuple):
    """Rows of a and b that may be one collective, how far apart they end, and of which pair of members they are."""

    a: Int64
    apart_ns: Int64
    pair: Int64


def candidates_of(a: Kernels, b: Kernels, compatible: Mask) -> tuple[Candidates, Mask]:
    """Return rows that may be one collective, and for each pair whether step numbers say so."""
    rows_a, rows_b = np.flatnonzero(a.synchronizes), np.flatnonzero(b.synchronizes)
    count_a, count_b = synchronizing(a), synchronizing(b)
    stride = np.where(count_a * count_b > MOST_CANDIDATES, count_a * count_b // MOST_CANDIDATES + 1, 1)
    pair_a = a.pair[rows_a]
    rows_a = rows_a[(np.arange(len(rows_a)) - (np.cumsum(count_a) - count_a)[pair_a]) % stride[pair_a] == 0]
    # Each row of a with all of b's of its pair.
    pair = a.pair[rows_a]
    count = count_b[pair]
    i = np.repeat(rows_a, count)
    j = rows_b[
        np.arange(count.sum()) + np.repeat((np.cumsum(count_b) - count_b)[pair] - (np.cumsum(count) - count), count)
    ]
    fits = compatible[a.signature[i], b.signature[j]] & agree(a.sequence[i], b.sequence[j])
    i, j = i[fits], j[fits]
    same_step = (a.step[i] == b.step[j]) & (a.step[i] >= 0)
    # One kernel whose step is known may be the one whose partner is lost.
    witnesses = np.minimum(
        np.bincount(a.pair[np.unique(i[same_step])], minlength=a.pairs),
        np.bincount(b.pair[np.unique(j[same_step])], minlength=a.pairs),
    )
    fewer = np.minimum(np.bincount(pair, minlength=a.pairs), count_b)
    anchored = (witnesses >= FEWEST_PAIRS) | ((2 * witnesses >= fewer) & (fewer > 0))
    kept = np.where(anchored[a.pair[i]], same_step, agree(a.step[i], b.step[j]))
    i, j = i[kept], j[kept]
    return Candidates(i, b.end_ns[j] - a.end_ns[i], a.pair[i]), anchored


def find_densest(candidates: Candidates, a: Kernels) -> tuple[Int64, Int64]:
    """Return offsets that many candidates of a pair agree on, with the pair, each row's vote shared by its candidates.

    A line of a table is a pair of members here, its candidates by how far apart they end.
    """
    if not len(candidates.a):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    votes = 1 / np.bincount(candidates.a, minlength=len(a))[candidates.a]
    order = np.lexsort((candidates.apart_ns, candidates.pair))
    which, line = np.unique(candidates.pair[order], return_inverse=True)
    count = np.bincount(line)
    place = np.arange(len(order)) - (np.cumsum(count) - count)[line]
    apart = np.full((len(which), int(count.max())), FARTHEST_NS, dtype=np.int64)
    total = np.zeros((len(which), int(count.max()) + 1))
    apart[line, place], total[line, place + 1] = candidates.apart_ns[order], votes[order]
    total = np.cumsum(total, axis=1)
    is_there = np.arange(apart.shape[1]) < count[:, None]
    lines = np.arange(len(which))
    pairs: list[Int64] = []
    offsets: list[Int64] = []
    rank: list[Int64] = []
    for width in WINDOWS_NS:
        past = _find_past(apart, count, width)
        score = np.where(is_there, np.take_along_axis(total, past, axis=1) - total[:, :-1], 0)
        for _ in range(MOST_OFFSETS):
            first = score.argmax(axis=1)
            found = score[lines, first] > 0
            if not found.any():
                break
            past_first = past[lines, first]
            low = apart[lines, first + (past_first - first - 1) // 2].astype(np.float64)
            high = apart[lines, first + (past_first - first) // 2].astype(np.float64)
            pairs.append(which[found])
            offsets.append(((low + high) / 2)[found].astype(np.int64))
            rank.append(np.full(int(found.sum()), len(rank)))
            begin = apart[lines, first][:, None]
            score[(apart > begin - width) & (apart < begin + width)] = 0
    by_pair = np.lexsort((np.concatenate(rank), np.concatenate(pairs)))
    return np.concatenate(pairs)[by_pair], np.concatenate(offsets)[by_pair]


def _find_past(apart: Int64, count: Int64, width: int) -> Int64:
    """Return for each place of each line where those end that lie less than a width behind it."""
    return np.stack(
        [
            np.r_[
                np.searchsorted(one[:size], one[:size] + width, side="right"), np.zeros(len(one) - size, dtype=np.int64)
            ]
            for one, size in zip(apart, count.tolist(), strict=True)
        ]
    )


def around(a: Kernels, b: Kernels, compatible: Mask, offset_ns: Int64) -> list[Offset | None]:
    """Return for each pair the offset that the kernels around it show."""
    found: list[Offset | None] = [None] * a.pairs
    left, ns = np.arange(a.pairs), offset_ns.copy()
    for _ in range(3):
        if not len(left):
            break
        of_a, of_b = (a, b) if len(left) == a.pairs else (a.of_pairs(left), b.of_pairs(left))
        pairs = keep_mutual(near(of_a, of_b, compatible, ns[left]))
        of_pair = of_a.pair[pairs.a]
        count, middle = np.bincount(of_pair, minlength=len(left)), medians(pairs.apart_ns, of_pair, len(left))
        shift_ns = whole(middle)
        ns[left] += shift_ns
        deviation_ns = whole(medians(np.abs(pairs.apart_ns - middle[of_pair]), of_pair, len(left)))
        figures = zip(left.tolist(), ns[left].tolist(), deviation_ns.tolist(), count.tolist(), strict=True)
        for pair, *figure in figures:
            found[pair] = Offset(*figure) if figure[-1] else None
        left = left[(count > 0) & (np.abs(shift_ns) >= 100)]
    return found


def near(a: Kernels, b: Kernels, compatible: Mask, offset_ns: Int64) -> Pairs:
    """Return all compatible pairs of synchronizing kernels that end within the noise of one another."""
    rows_a, rows_b = np.flatnonzero(a.synchronizes), np.flatnonzero(b.synchronizes)
    rows_b = rows_b[np.lexsort((b.end_ns[rows_b], b.pair[rows_b]))]
    centre, ends = a.end_ns[rows_a], b.end_ns[rows_b] - offset_ns[b.pair[rows_b]]
    reach = NOISE_NS + (NOISE_SHARE * a.dur_ns[rows_a]).astype(np.int64)
    of_a = a.pair[rows_a]
    keys = keys_by_part((b.pair[rows_b], ends), (of_a, centre - reach), (of_a, centre), (of_a, centre + reach))
    first, middle = np.searchsorted(keys[0], keys[1]), np.searchsorted(keys[0], keys[2])
    past = np.searchsorted(keys[0], keys[3], side="right")
    first, past = np.maximum(first, middle - MOST_NEIGHBOURS), np.minimum(past, middle + MOST_NEIGHBOURS)
    count = past - first
    i = np.repeat(rows_a, count)
    j = rows_b[np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)]
    apart = b.end_ns[j] - offset_ns[b.pair[j]] - a.end_ns[i]
    fits = compatible[a.signature[i], b.signature[j]] & agree(a.step[i], b.step[j])
    fits &= agree(a.sequence[i], b.sequence[j])
    fits &= np.abs(apart) <= NOISE_NS + NOISE_SHARE * np.minimum(a.dur_ns[i], b.dur_ns[j])
    return Pairs(i, j, apart).take(fits)


def keep_mutual(pairs: Pairs) -> Pairs:
    """Return each row with the row that ends nearest to it, where that is so from both sides."""
    order = np.argsort(np.abs(pairs.apart_ns), kind="stable")
    pairs = pairs.take(order)
    first_a, first_b = np.zeros(len(pairs), dtype=bool), np.zeros(len(pairs), dtype=bool)
    first_a[np.unique(pairs.a, return_index=True)[1]] = True
    first_b[np.unique(pairs.b, return_index=True)[1]] = True
    kept = pairs.take(first_a & first_b)
    return kept.take(np.argsort(kept.a, kind="stable"))


def synchronizing(kernels: Kernels) -> Int64:
    """Count the synchronizing kernels of each pair."""
    return np.bincount(kernels.pair[kernels.synchronizes], minlength=kernels.pairs)


def whole(values: Float64) -> Int64:
    """Return values without their fractions; 0 for none."""
    return np.nan_to_num(values).astype(np.int64)


def count_near_others(a: Kernels, b: Kernels, apart_ns: Float64) -> Int64:
    """Count each pair's synchronizing kernels of a that have one of b's, of another step, near at small offsets."""
    rows_a, rows_b = np.flatnonzero(a.synchronizes), np.flatnonzero(b.synchronizes)
    reach = (apart_ns[a.pair[rows_a]] + NOISE_NS + NOISE_SHARE * a.dur_ns[rows_a]).astype(np.int64) + 1
    in_any, in_same = a.pair[rows_a], b.pair[rows_b]
    near_any = _count_near((in_any, a.end_ns[rows_a]), reach, (in_same, b.end_ns[rows_b]))
    # What has no step may be of any: it counts as another's.
    steps = joint(np.r_[in_any, in_same], np.r_[a.step[rows_a], b.step[rows_b]])
    known_a, known_b = a.step[rows_a] >= 0, b.step[rows_b] >= 0
    of_a, of_b = (steps[: len(rows_a)], steps[len(rows_a) :])
    near_same = np.zeros(len(rows_a), dtype=np.int64)
    near_same[known_a] = _count_near(
        (of_a[known_a], a.end_ns[rows_a][known_a]), reach[known_a], (of_b[known_b], b.end_ns[rows_b][known_b])
    )
    return np.bincount(in_any[near_any > near_same], minlength=a.pairs)


def _count_near(of_a: tuple[Int64, Int64], reach: Int64, of_b: tuple[Int64, Int64]) -> Int64:
    """Count for each of a's instants those of b's of the same part that are within reach."""
    part, instant = of_a
    low, high, others = keys_by_part((part, instant - reach), (part, instant + reach), of_b)
    others = np.sort(others)
    count: Int64 = np.searchsorted(others, high, side="right") - np.searchsorted(others, low)
    return count


def most_alike(kernels: Kernels, width: int) -> int:
    """Return how many pairs of one member's kernels, of different steps, lie as far apart at most, to within a width.

    Where each pair has another first member it is not looked for: as many as there are.
    """
    size = len(kernels) // kernels.pairs
    ends = kernels.end_ns[: size * kernels.pairs].reshape(kernels.pairs, size)
    rows = np.flatnonzero(kernels.synchronizes[:size])
    if len(kernels) != ends.size or (ends != ends[0]).any() or len(rows) ** 2 > MOST_CANDIDATES:
        return len(kernels)
    step, end_ns = kernels.step[rows], kernels.end_ns[rows]
    others = (step[:, None] != step) | (step < 0)
    apart = np.sort((end_ns[:, None] - end_ns)[others])
    return int((np.searchsorted(apart, apart + width, side="right") - np.arange(len(apart))).max(initial=0))
