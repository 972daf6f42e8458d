"""Alignment of two members' kernel sequences, despite missing kernels and unequal clocks.

    a       ##   #  ###     ##   #  ###          two steps of three collectives
    b         ##  #       ##  #                  one kernel lost, a clock of its own
            |_| |_|       |_| |_|                the offset at which ends agree, and the step numbers, say how

Synchronizing collectives end together on all members, so that one offset between the clocks must explain the ends of
all pairs. Where two offsets explain them about as well there is no alignment. Members may number their steps
differently: then ends that agree on one clock are believed, and a step's number is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import Float64, Int64, Mask, medians
from analyzers.collectives.alignment.candidates import (
    FEWEST_PAIRS,
    MOST_CANDIDATES,
    NOISE_NS,
    NOISE_SHARE,
    around,
    candidates_of,
    count_near_others,
    find_densest,
    keep_mutual,
    most_alike,
    near,
    synchronizing,
    whole,
)
from analyzers.collectives.alignment.sequences import (
    TIGHTEST_NS,
    Kernels,
    Offset,
    count_steps,
    have_met,
    in_turn,
    most_higher,
    renumber,
    steady_pairs,
)

# What clocks that are one are apart: a rival of any offset, though crowded ends may not vote for it.
NO_OFFSET = np.zeros(1, dtype=np.int64)
# From here on the noise that the pairs themselves show counts: so many times their median deviation.
DEVIATIONS = 5
# What clocks of hosts that are kept in time differ by at most; and how many pairs speak for themselves.
KEPT_IN_TIME_NS = 1_000_000
MUCH_EVIDENCE = 40
# What one clock shows ends apart by at most, beside a share of the transfer: rings over host memory (see NOISE_NS).
ONE_CLOCK_NS = 100_000
# When an offset is believed, and when a rival of it is about as good. Tried out on the damaged and shifted runs of
# tests/support/synthetic_runs.py and damage.py, where no pair may be wrong: looser ones let a step's neighbour pass.
SHARE_EXPLAINED = 0.8  # of the kernels of whichever member has fewer, where only much evidence speaks
CLOSER = 3.0  # times as close is closer
SHARE_MET = 0.9  # of pairs in order on one clock: nobody leaves a synchronizing collective before all have come
# When ends that agree with steps numbered otherwise deny the step numbers: at clocks that are not apart; anywhere far
# closer, or with as many pairs that explain more; where step numbers leave clocks alone, with more pairs or far more.
NO_FARTHER = 1.5  # times as far apart
DENY_AT_ZERO = 0.25  # share of the best's pairs
DENY_BY_PAIRS = (1.1, 2.0)  # times as many
DENY_BY_CLOSENESS = (0.4, 5.0)  # share of the best's pairs, and times as close
FEW_CLOSE = 5
CLOSEST_NS = 100  # below which none is closer than another
# So many deviations off, an end counts as any.
FAR_OFF = 10
RIVAL_FREE = (0.2, 0.7)  # share of the best's pairs, and of what it explains, where no step numbers help
RIVAL_LOSSY = 0.6  # share of the best's pairs, where kernels are missing
RIVAL_RENUMBERED = 0.9  # the same, where clocks kept in time speak against the rival
RIVAL_WHOLE = (0.9, 0.75)  # share of its pairs, and of the steps' edges that it pairs, where none are
# Ends that agree by chance lie anywhere within this.
BY_CHANCE_NS = 1_000_000
# What a deviation of few pairs may hide: this, and half the noise where there are up to so many.
LEAST_DOUBT_NS = 1_000
FEW_PAIRS = 10


def find_offsets(a: Kernels, b: Kernels, compatible: Mask, one_clock: Mask) -> list[Offset | None]:
    """Return b's clock offset against a's at which synchronizing collectives end together; None where none is clear.

    Both hold the kernels of many pairs of members. `compatible[s, t]` says whether signatures s and t may be one
    collective, `one_clock` which pairs are known to share a host: there ends alone tell which steps are one, however
    they are numbered.
    """
    in_turn, most_ns = _offsets_in_turn(a, b, one_clock), _most_on_one_clock_ns(a, b)
    found = [*in_turn]
    left = np.flatnonzero(_may_be_denied(a, b, in_turn, most_ns) & ~one_clock).tolist()
    left = sorted([*left, *(pair for pair, offset in enumerate(in_turn) if offset is None)])
    for some in _portions(a, b, left):
        of_a, of_b = a.of_pairs(some), b.of_pairs(some)
        others = _of_other_steps(of_a, of_b, compatible)
        denied = [
            place
            for place, pair in enumerate(some.tolist())
            if (offset := in_turn[pair]) is None or _is_denied(offset, others[place], most_ns[pair])
        ]
        chosen = np.array(denied, dtype=np.int64)
        offsets, anchored = _find_offsets(of_a.of_pairs(chosen), of_b.of_pairs(chosen), compatible)
        for place, candidates, is_anchored in zip(denied, offsets, anchored.tolist(), strict=True):
            pair = int(some[place])
            evidence = _Evidence(of_a, of_b, place, compatible, float(most_ns[pair]))
            found[pair] = _choose_offset(evidence, candidates, others[place], is_anchored, bool(one_clock[pair]))
    return found


@dataclass(frozen=True, eq=False)
class _Evidence:
    """One pair among several; on one clock its ends lie `most_ns` apart at most."""

    all_a: Kernels
    all_b: Kernels
    pair: int
    compatible: Mask
    most_ns: float

    @cached_property
    def a(self) -> Kernels:
        """Return the kernels of the first member."""
        return self.all_a.of_pairs(np.array([self.pair]))

    @cached_property
    def b(self) -> Kernels:
        """Return those of the second."""
        return self.all_b.of_pairs(np.array([self.pair]))


def _choose_offset(
    of: _Evidence, offsets: list[Offset], others: list[Offset], anchored: bool, one_clock: bool
) -> Offset | None:
    """Return the offset that explains ends best, None where another does about as well."""
    if one_clock:
        offsets, others = (
            [offset for offset in candidates if abs(offset.ns) <= of.most_ns] for candidates in (offsets, others)
        )
    best = max(offsets, key=_score_offset, default=None)
    if best is None or _is_denied(best, others, of.most_ns):
        fewest = FEWEST_PAIRS if one_clock else FEW_CLOSE
        return _clear_of_steps(of, best, [*offsets, *others], fewest)
    if not anchored and not _is_plausible(of.a, of.b, best):
        return None
    if one_clock:
        offsets = [*offsets, *filter(None, around(of.a, of.b, of.compatible, NO_OFFSET))]
    rivals = [offset for offset in offsets if _is_apart(offset, best) or _pairs_otherwise(of, offset, best)]
    if any(_is_about_as_good(of.a, of.b, of.compatible, rival, best, anchored) for rival in rivals):
        return None
    return best


def _portions(a: Kernels, b: Kernels, pairs: list[int]) -> Iterator[Int64]:
    """Yield the pairs in portions whose candidates fit into memory as a table, a line for each pair."""
    candidates = np.minimum(synchronizing(a)[pairs] * synchronizing(b)[pairs], MOST_CANDIDATES)
    # A table is as wide as its widest line: pairs of like width come together.
    order, done = np.argsort(-candidates, kind="stable"), 0
    while done < len(order):
        lines = max(MOST_CANDIDATES // max(int(candidates[order[done]]), 1), 1)
        yield np.array(pairs, dtype=np.int64)[np.sort(order[done : done + lines])]
        done += lines


def _may_be_denied(a: Kernels, b: Kernels, in_turn: Sequence[Offset | None], most_ns: Float64) -> Mask:
    """Whether offsets at which other steps' kernels end together could deny each pair's; never more than there are.

    Bounds that are cheap to know: an offset that denies another needs so many pairs (see `_is_denied`).
    """
    known = np.array([offset is not None for offset in in_turn], dtype=bool)
    if not known.any():
        return known
    figures = [(one.ns, one.deviation_ns, one.pairs) if one is not None else (0, 0, 0) for one in in_turn]
    ns, deviation_ns, count = np.array(figures, dtype=np.int64).T
    fewer, more = np.sort([synchronizing(a), synchronizing(b)], axis=0)
    # All of one member's kernels are of steps numbered otherwise only where the other has a step's more than pairs.
    apart: Mask = np.abs(ns) > most_ns
    by_pairs = np.where(
        apart, (fewer >= count) & ((more - count) * count_steps(a) >= count), fewer >= min(DENY_BY_PAIRS) * count
    )
    at_zero = count_near_others(a, b, most_ns) >= np.maximum(2, DENY_AT_ZERO * count)
    share, times = DENY_BY_CLOSENESS
    # Half of the pairs lie within the deviation of their median; residuals of b's ends are far off in few.
    pairs, far_ns = steady_pairs(a, b), FAR_OFF * deviation_ns
    off = np.abs(pairs.apart_ns - ns[a.pair[pairs.a]]) > far_ns[a.pair[pairs.a]]
    unlike = np.bincount(a.pair[pairs.a[off]], minlength=a.pairs) + synchronizing(b) - count
    width = int((2 * ((deviation_ns - CLOSEST_NS) / times + 1 + far_ns))[known].max())
    alike = most_alike(a, width)
    closer = (deviation_ns > CLOSEST_NS) & (alike >= np.maximum(FEW_CLOSE, share * count) / 2 - unlike)
    may_be: Mask = known & (by_pairs | (apart & (at_zero | closer)))
    return may_be


def _offsets_in_turn(a: Kernels, b: Kernels, one_clock: Mask) -> list[Offset | None]:
    """Return the offset that pairs in order show, of steps that both members hold whole.

    None where their ends do not agree at it: on one clock where they never met, which numbers of other steps show, too.
    """
    pairs, most_ns = steady_pairs(a, b), _most_on_one_clock_ns(a, b)
    of_pair = a.pair[pairs.a]
    count = np.bincount(of_pair, minlength=a.pairs)
    offset_ns = whole(medians(pairs.apart_ns, of_pair, a.pairs))
    deviation_ns = whole(medians(np.abs(pairs.apart_ns - offset_ns[of_pair]), of_pair, a.pairs))
    # gloo's ranks leave milliseconds apart, so that their ends say nothing of a clock that is known to be one.
    offset_ns = np.where(one_clock & (np.abs(offset_ns) > most_ns), 0, offset_ns)
    met = np.bincount(of_pair, weights=have_met(a, b, pairs, offset_ns), minlength=a.pairs)
    agrees = np.where(
        one_clock,
        met / np.maximum(count, 1) >= SHARE_MET,
        (deviation_ns <= most_ns) | (a.opened_together and b.opened_together),
    )
    known = (count >= FEWEST_PAIRS) & agrees
    columns = zip(offset_ns.tolist(), deviation_ns.tolist(), count.tolist(), known.tolist(), strict=True)
    return [Offset(*figures) if is_known else None for *figures, is_known in columns]


def _find_offsets(a: Kernels, b: Kernels, compatible: Mask) -> tuple[list[list[Offset]], Mask]:
    """Return for each pair offsets that many of its kernels agree on, and whether step numbers say which may be one."""
    candidates, anchored = candidates_of(a, b, compatible)
    of_pair, ns = find_densest(candidates, a)
    offsets: list[dict[int, Offset]] = [{} for _ in range(a.pairs)]
    offsets_around = around(a.of_pairs(of_pair), b.of_pairs(of_pair), compatible, ns)
    for pair, offset in zip(of_pair.tolist(), offsets_around, strict=True):
        if offset is not None:
            offsets[pair][offset.ns] = offset
    return [[*one.values()] for one in offsets], anchored


def _of_other_steps(a: Kernels, b: Kernels, compatible: Mask) -> list[list[Offset]]:
    """Return for each pair offsets at which kernels end together whose steps all differ by as much."""
    bare_a, bare_b = (replace(member, step=np.full(len(member), -1)) for member in (a, b))
    of_pair, ns = find_densest(candidates_of(bare_a, bare_b, compatible)[0], a)
    # Few of a long run may be left to show that the clocks are one.
    of_pair, ns = np.r_[np.arange(a.pairs), of_pair], np.r_[np.zeros(a.pairs, dtype=np.int64), ns]
    numbered = np.logical_and(*(np.bincount(one.pair[one.step >= 0], minlength=a.pairs) > 0 for one in (a, b)))
    of_pair, ns = of_pair[numbered[of_pair]], ns[numbered[of_pair]]
    pairs = keep_mutual(near(bare_a.of_pairs(of_pair), bare_b.of_pairs(of_pair), compatible, ns))
    of_a, of_b = a.of_pairs(of_pair), b.of_pairs(of_pair)
    higher = most_higher(of_a.pair[pairs.a], of_a.step[pairs.a], of_b.step[pairs.b], of_a.pairs)
    chosen = np.flatnonzero(higher)
    # Of steps that both hold whole, order says which kernels would be one: no other offset is that of such numbers.
    ordered_ns = _by_order(*renumber(of_a.of_pairs(chosen), of_b.of_pairs(chosen), higher[chosen]))
    ns[chosen] = np.where(np.isnan(ordered_ns), ns[chosen], ordered_ns)
    once = np.unique(np.stack([of_pair, higher, ns])[:, chosen], axis=1, return_index=True)[1]
    chosen = chosen[once]
    offsets_around = around(
        *renumber(of_a.of_pairs(chosen), of_b.of_pairs(chosen), higher[chosen]), compatible, ns[chosen]
    )
    by_shift: list[dict[tuple[int, int], Offset]] = [{} for _ in range(a.pairs)]
    for pair, by, offset in zip(of_pair[chosen].tolist(), higher[chosen].tolist(), offsets_around, strict=True):
        if offset is not None:
            by_shift[pair][offset.ns, by] = replace(offset, higher=by)
    return [[*one.values()] for one in by_shift]


def _by_order(a: Kernels, b: Kernels) -> Float64:
    """Return the median of how far apart each pair's kernels end, in order, in steps that seem whole; NaN for none."""
    rows = [np.flatnonzero(one.synchronizes & one.complete & (one.step >= 0)) for one in (a, b)]
    i, j = in_turn(a, rows[0], b, rows[1])
    return medians(b.end_ns[j] - a.end_ns[i], a.pair[i], a.pairs)


def _most_on_one_clock_ns(a: Kernels, b: Kernels) -> Float64:
    """Return how far apart one clock shows ends at most: rings' progress, which grows with the transfer."""
    typical = [
        medians(member.dur_ns[member.synchronizes], member.pair[member.synchronizes], member.pairs) for member in (a, b)
    ]
    return ONE_CLOCK_NS + NOISE_SHARE * np.nan_to_num(np.fmin(*typical))


def _is_plausible(a: Kernels, b: Kernels, best: Offset) -> bool:
    """Whether an offset that no step number confirms is that of clocks that are kept in time, or has much evidence.

    Where each member shows one step, any two steps that are alike align, at an offset of some steps' length.
    """
    fewer = min(int(a.synchronizes.sum()), int(b.synchronizes.sum()))
    if abs(best.ns) <= KEPT_IN_TIME_NS:
        return best.pairs >= FEWEST_PAIRS
    return best.pairs >= MUCH_EVIDENCE and best.pairs >= SHARE_EXPLAINED * fewer


def _is_denied(best: Offset, others: list[Offset], most_ns: float) -> bool:
    """Whether ends speak against step numbers. They hardly can where these leave the clocks alone: both agree then."""
    rivals = [other for other in others if _is_apart(other, best)]
    if abs(best.ns) <= most_ns:
        return any(_denies_by_pairs(other, best) for other in rivals if abs(other.ns) <= most_ns)
    return any(_denies(other, best, abs(other.ns) <= most_ns) for other in rivals)


def _denies(other: Offset, best: Offset, at_zero: bool) -> bool:
    """Whether ends agree about as well with clocks that are not apart, or far better with others."""
    if at_zero and _is_no_farther(other, best) and other.pairs >= max(2, DENY_AT_ZERO * best.pairs):
        return True
    share, times = DENY_BY_CLOSENESS
    closer = times * other.deviation_ns + CLOSEST_NS < best.deviation_ns
    explains_more = other.pairs >= best.pairs and _score_offset(other) > _score_offset(best)
    return explains_more or (closer and other.pairs >= max(FEW_CLOSE, share * best.pairs))


def _denies_by_pairs(other: Offset, best: Offset) -> bool:
    times = DENY_BY_PAIRS[0] if _is_no_farther(other, best) else DENY_BY_PAIRS[1]
    return other.pairs >= times * best.pairs and _score_offset(other) >= _score_offset(best)


def _is_no_farther(other: Offset, best: Offset) -> bool:
    """Whether ends are as close; few pairs may be so by chance."""
    little_ns = _doubt_ns(best) if best.pairs < FEW_PAIRS else CLOSEST_NS
    return other.deviation_ns <= NO_FARTHER * best.deviation_ns + little_ns


def _clear_of_steps(of: _Evidence, best: Offset | None, offsets: list[Offset], fewest: int) -> Offset | None:
    """Return the offset for differently numbered steps, if clocks are not apart and nothing is about as good."""
    at_zero = [
        offset for offset in offsets if offset.higher and abs(offset.ns) <= of.most_ns and offset.pairs >= fewest
    ]
    clearest = max(at_zero, key=_score_offset, default=None)
    if clearest is None or (best is not None and _score_offset(clearest) < _score_offset(best)):
        return None
    rivals = [offset for offset in offsets if _is_apart(offset, clearest) or offset.higher != clearest.higher]
    return None if any(_rivals_renumbered(of, rival, clearest) for rival in rivals) else clearest


def _rivals_renumbered(of: _Evidence, rival: Offset, best: Offset) -> bool:
    """Whether a rival is about as good as an offset of steps that are numbered differently."""
    if rival.higher == best.higher:
        raised = renumber(of.a, of.b, np.array([best.higher]))
        return _is_about_as_good(*raised, of.compatible, rival, best, anchored=True)
    if abs(rival.ns) <= KEPT_IN_TIME_NS:
        return _rivals_freely(of.a, of.b, rival, best)
    return _is_as_close(rival, best) and rival.pairs >= RIVAL_RENUMBERED * best.pairs


def refine_offsets(a: Kernels, b: Kernels, compatible: Mask, rough: Sequence[Offset]) -> list[Offset | None]:
    """Refine the known offset of each pair with its kernels; None where none of them end together at it."""
    higher, ns = (np.array([getattr(offset, name) for offset in rough], dtype=np.int64) for name in ("higher", "ns"))
    of_a, of_b = renumber(a, b, higher)
    refined = _offsets_in_turn(of_a, of_b, np.zeros(a.pairs, dtype=bool))
    off = [
        pair
        for pair, (offset, known) in enumerate(zip(refined, rough, strict=True))
        if offset is None or abs(offset.ns - known.ns) > NOISE_NS
    ]
    chosen = np.array(off, dtype=np.int64)
    offsets_around = around(of_a.of_pairs(chosen), of_b.of_pairs(chosen), compatible, ns[chosen])
    for pair, offset in zip(off, offsets_around, strict=True):
        refined[pair] = offset
    return [offset and replace(offset, higher=known.higher) for offset, known in zip(refined, rough, strict=True)]


def _score_offset(offset: Offset) -> float:
    """Return the score of an offset: its pairs' likelihood, against ends anywhere within a millisecond."""
    return offset.pairs * float(np.log(BY_CHANCE_NS / (offset.deviation_ns + _doubt_ns(offset)) + 1))


def _doubt_ns(offset: Offset) -> float:
    """Return what few pairs' deviation hides: by chance a wrong alignment's few may agree more closely."""
    return LEAST_DOUBT_NS + 0.5 * NOISE_NS * min(1, FEW_PAIRS / offset.pairs)


def _is_apart(rival: Offset, best: Offset) -> bool:
    return abs(rival.ns - best.ns) > TIGHTEST_NS + DEVIATIONS * best.deviation_ns


def _pairs_otherwise(of: _Evidence, rival: Offset, best: Offset) -> bool:
    """Whether most kernels that both offsets pair get another partner: ends are noisier than the next one is far."""
    if rival == best:
        return False
    of_rival, of_best = (
        keep_mutual(near(of.a, of.b, of.compatible, np.array([offset.ns]))) for offset in (rival, best)
    )
    _, i, j = np.intersect1d(of_rival.a, of_best.a, assume_unique=True, return_indices=True)
    return bool(2 * (of_rival.b[i] != of_best.b[j]).sum() > len(i))


def _is_about_as_good(a: Kernels, b: Kernels, compatible: Mask, rival: Offset, best: Offset, anchored: bool) -> bool:
    """Whether a rival explains the ends as closely, and as much of what both members hold."""
    if not anchored:
        return _rivals_freely(a, b, rival, best)
    if not _is_as_close(rival, best):
        return False
    if not _none_is_missing(a, b):
        # With kernels lost at opposite ends, an alignment that is off by one can pair as many.
        return rival.pairs >= RIVAL_LOSSY * best.pairs
    edges, best_edges = (_edges_explained(a, b, compatible, offset) for offset in (rival, best))
    return rival.pairs >= RIVAL_WHOLE[0] * best.pairs and edges >= RIVAL_WHOLE[1] * best_edges


def _is_as_close(rival: Offset, best: Offset) -> bool:
    return rival.deviation_ns <= CLOSER * best.deviation_ns + _doubt_ns(rival)


def _rivals_freely(a: Kernels, b: Kernels, rival: Offset, best: Offset) -> bool:
    """Whether a rival explains as much, where no step number speaks for either."""
    if not _is_as_close(rival, best):
        return False
    share, best_share = (_share_explained(a, b, offset) for offset in (rival, best))
    return rival.pairs >= max(2, RIVAL_FREE[0] * best.pairs) and share >= RIVAL_FREE[1] * best_share


def _none_is_missing(a: Kernels, b: Kernels) -> bool:
    """Whether both members surely hold all synchronizing kernels of the steps that they share."""
    steps = np.intersect1d(a.step[a.step >= 0], b.step)
    shared = [member.synchronizes & np.isin(member.step, steps) for member in (a, b)]
    return all(bool((member.complete & member.sure)[rows].all()) for member, rows in zip((a, b), shared, strict=True))


def _share_explained(a: Kernels, b: Kernels, offset: Offset) -> float:
    """Return the ratio between pairs and the kernels within the time that both members cover."""
    ends_a, ends_b = a.end_ns[a.synchronizes], b.end_ns[b.synchronizes] - offset.ns
    low, high = max(ends_a.min(), ends_b.min()) - NOISE_NS, min(ends_a.max(), ends_b.max()) + NOISE_NS
    inside = [int(((ends >= low) & (ends <= high)).sum()) for ends in (ends_a, ends_b)]
    return offset.pairs / max(*inside, 1)


def _edges_explained(a: Kernels, b: Kernels, compatible: Mask, offset: Offset) -> int:
    """Return how many steps' first and last kernels have a partner: an alignment off by one leaves them alone."""
    pairs = keep_mutual(near(a, b, compatible, np.array([offset.ns])))
    explained = 0
    for kernels, matched in ((a, pairs.a), (b, pairs.b)):
        rows = np.flatnonzero(kernels.synchronizes & (kernels.step >= 0))
        edge = np.diff(kernels.step[rows], prepend=-1, append=-1) != 0
        explained += int(np.isin(rows[edge[:-1]], matched).sum() + np.isin(rows[edge[1:]], matched).sum())
    return explained
