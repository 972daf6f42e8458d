"""Alignment of two members' kernel sequences, despite missing kernels and unequal clocks.

    a       ##   #  ###     ##   #  ###          two steps of three collectives
    b         ##  #       ##  #                  one kernel lost, a clock of its own
            |_| |_|       |_| |_|                the offset at which ends agree, and the step numbers, say how

Synchronizing collectives end together on all members, so that one offset between the clocks must explain the ends of
all pairs. Where two offsets explain them about as well there is no alignment. Members may number their steps
differently: then ends that agree on one clock are believed, and a step's number is not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.collectives.sequences import TIGHTEST_NS, Kernels, Offset, Pairs, agree, have_met, steady_pairs

# Ends of one collective on two members: clocks and ring progress. Seen on H200s: 30 us over NVLink, 80 us over host
# memory, 500 us over sockets, where a transfer takes many times that.
NOISE_NS = 60_000
NOISE_SHARE = 0.25
# From here on the noise that the pairs themselves show counts: so many times their median deviation.
DEVIATIONS = 5
# Widths of the windows in which offsets are counted.
WINDOWS_NS = (30_000, 200_000, 1_500_000)
MOST_OFFSETS = 6
# What clocks of hosts that are kept in time differ by at most; and how many pairs speak for themselves.
KEPT_IN_TIME_NS = 1_000_000
MUCH_EVIDENCE = 40
# What one clock shows ends apart by at most, beside a share of the transfer: rings over host memory (see NOISE_NS).
ONE_CLOCK_NS = 100_000
MOST_CANDIDATES = 1 << 22
# When an offset is believed, and when a rival of it is about as good. Tried out on the damaged and shifted runs of
# tests/support/synthetic_runs.py and damage.py, where no pair may be wrong: looser ones let a step's neighbour pass.
FEWEST_PAIRS = 3  # of clocks that are kept in time, and of steps that are known on both sides
SHARE_EXPLAINED = 0.8  # of the kernels of whichever member has fewer, where only much evidence speaks
CLOSER = 3.0  # times as close is closer
SHARE_MET = 0.9  # of pairs in order on one clock: nobody leaves a synchronizing collective before all have come
# When ends that agree with steps numbered otherwise deny the step numbers: at clocks that are not apart; anywhere with
# more pairs that are no farther apart, or with far more; anywhere far closer.
NO_FARTHER = 1.5  # times as far apart
DENY_AT_ZERO = 0.25  # share of the best's pairs
DENY_BY_PAIRS = (1.1, 2.0)  # times as many
DENY_BY_CLOSENESS = (0.4, 5.0)  # share of the best's pairs, and times as close
FEW_CLOSE = 5
CLOSEST_NS = 100  # below which none is closer than another
RIVAL_FREE = (0.2, 0.7)  # share of the best's pairs, and of what it explains, where no step numbers help
RIVAL_LOSSY = 0.6  # share of the best's pairs, where kernels are missing
RIVAL_RENUMBERED = 0.9  # the same, where clocks kept in time speak against the rival
RIVAL_WHOLE = (0.9, 0.75)  # share of its pairs, and of the steps' edges that it pairs, where none are
# Ends that agree by chance lie anywhere within this.
BY_CHANCE_NS = 1_000_000
# What a deviation of few pairs may hide: this, and half the noise where there are up to so many.
LEAST_DOUBT_NS = 1_000
FEW_PAIRS = 10
# Of kernels that end near one another so many are looked at, before and behind.
MOST_NEIGHBOURS = 32


def find_offset(a: Kernels, b: Kernels, compatible: Mask, one_clock: bool = False) -> Offset | None:
    """Return b's clock offset against a's at which synchronizing collectives end together; None where none is clear.

    `compatible[s, t]` says whether signatures s and t may be one collective, `one_clock` that both are known to share
    a host: then ends alone tell which steps are one, however they are numbered.
    """
    in_turn = _offset_in_turn(a, b, one_clock)
    if one_clock and in_turn is not None:
        return in_turn
    others = _of_other_steps(a, b, compatible)
    if in_turn is not None and not _is_denied(a, b, in_turn, others):
        return in_turn
    offsets, anchored = _offsets(a, b, compatible)
    if one_clock:
        most_ns = _most_on_one_clock_ns(a, b)
        offsets, others = (
            [offset for offset in candidates if abs(offset.ns) <= most_ns] for candidates in (offsets, others)
        )
    best = max(offsets, key=_merit, default=None)
    if best is None or _is_denied(a, b, best, others):
        fewest = FEWEST_PAIRS if one_clock else FEW_CLOSE
        return _clear_of_steps(a, b, compatible, best, [*offsets, *others], fewest)
    if not anchored and not _is_plausible(a, b, best):
        return None
    rivals = [offset for offset in offsets if _is_apart(offset, best)]
    if any(_is_about_as_good(a, b, compatible, rival, best, anchored) for rival in rivals):
        return None
    return best


def _offset_in_turn(a: Kernels, b: Kernels, one_clock: bool) -> Offset | None:
    """Return the offset that pairs in order show, of steps that both members hold whole.

    None where their ends do not agree at it: on one clock where they never met, which numbers of other steps show, too.
    """
    pairs, most_ns = steady_pairs(a, b), _most_on_one_clock_ns(a, b)
    if len(pairs) < FEWEST_PAIRS:
        return None
    offset_ns = int(np.median(pairs.apart_ns))
    deviation_ns = int(np.median(np.abs(pairs.apart_ns - offset_ns)))
    if one_clock:
        # gloo's ranks leave milliseconds apart, so that their ends say nothing of a clock that is known to be one.
        offset_ns = offset_ns if abs(offset_ns) <= most_ns else 0
        agrees = bool(have_met(a, b, pairs, offset_ns).mean() >= SHARE_MET)
    else:
        agrees = deviation_ns <= most_ns or (a.opened_together and b.opened_together)
    return Offset(offset_ns, deviation_ns, len(pairs)) if agrees else None


def _offsets(a: Kernels, b: Kernels, compatible: Mask) -> tuple[list[Offset], bool]:
    """Return offsets that many pairs agree on, and whether step numbers say which may be pairs."""
    candidates, anchored = _candidates(a, b, compatible)
    by_ns = {offset.ns: offset for ns in _densest(candidates) if (offset := _around(a, b, compatible, ns))}
    return list(by_ns.values()), anchored


def _of_other_steps(a: Kernels, b: Kernels, compatible: Mask) -> list[Offset]:
    """Return offsets at which pairs end together whose members number steps differently, all by as much."""
    if not ((a.step >= 0).any() and (b.step >= 0).any()):
        return []
    bare_a, bare_b = (replace(member, step=np.full(len(member), -1)) for member in (a, b))
    candidates, _ = _candidates(bare_a, bare_b, compatible)
    by_shift = {}
    # Few of a long run may be left to show that the clocks are one.
    for ns in (0, *_densest(candidates)):
        pairs = mutual(near(bare_a, bare_b, compatible, ns))
        higher = _higher(a.step[pairs.a], b.step[pairs.b])
        offset = _around(*renumbered(a, b, higher), compatible, ns) if higher else None
        if offset is not None:
            by_shift[offset.ns, higher] = replace(offset, higher=higher)
    return list(by_shift.values())


def _higher(step_a: Int64, step_b: Int64) -> int:
    """Return how much higher most pairs' steps are numbered on b."""
    apart, count = np.unique((step_b - step_a)[(step_a >= 0) & (step_b >= 0)], return_counts=True)
    return int(apart[np.argmax(count)]) if len(apart) else 0


def renumbered(a: Kernels, b: Kernels, higher: int) -> tuple[Kernels, Kernels]:
    """Return both members with common step numbers, where b's are higher by `higher`."""
    return _raised(a, max(higher, 0)), _raised(b, max(-higher, 0))


def _raised(kernels: Kernels, by: int) -> Kernels:
    return replace(kernels, step=np.where(kernels.step >= 0, kernels.step + by, -1)) if by else kernels


def _most_on_one_clock_ns(a: Kernels, b: Kernels) -> float:
    """Return how far apart one clock shows ends at most: rings' progress, which grows with the transfer."""
    typical = [float(np.median(member.dur_ns[member.synchronizes])) for member in (a, b) if member.synchronizes.any()]
    return ONE_CLOCK_NS + NOISE_SHARE * min(typical, default=0)


def _is_plausible(a: Kernels, b: Kernels, best: Offset) -> bool:
    """Whether an offset that no step number confirms is that of clocks that are kept in time, or has much evidence.

    Where each member shows one step, any two steps that are alike align, at an offset of some steps' length.
    """
    fewer = min(int(a.synchronizes.sum()), int(b.synchronizes.sum()))
    if abs(best.ns) <= KEPT_IN_TIME_NS:
        return best.pairs >= FEWEST_PAIRS
    return best.pairs >= MUCH_EVIDENCE and best.pairs >= SHARE_EXPLAINED * fewer


def _is_denied(a: Kernels, b: Kernels, best: Offset, others: list[Offset]) -> bool:
    """Whether ends speak against step numbers. They hardly can where these leave the clocks alone: both agree then."""
    most_ns = _most_on_one_clock_ns(a, b)
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
    return (closer and other.pairs >= max(FEW_CLOSE, share * best.pairs)) or _denies_by_pairs(other, best)


def _denies_by_pairs(other: Offset, best: Offset) -> bool:
    times = DENY_BY_PAIRS[0] if _is_no_farther(other, best) else DENY_BY_PAIRS[1]
    return other.pairs >= times * best.pairs and _merit(other) >= _merit(best)


def _is_no_farther(other: Offset, best: Offset) -> bool:
    """Whether ends are as close; few pairs may be so by chance."""
    little_ns = _doubt_ns(best) if best.pairs < FEW_PAIRS else CLOSEST_NS
    return other.deviation_ns <= NO_FARTHER * best.deviation_ns + little_ns


def _clear_of_steps(
    a: Kernels, b: Kernels, compatible: Mask, best: Offset | None, offsets: list[Offset], fewest: int
) -> Offset | None:
    """Return the offset for differently numbered steps, if clocks are not apart and nothing is about as good."""
    most_ns = _most_on_one_clock_ns(a, b)
    at_zero = [offset for offset in offsets if offset.higher and abs(offset.ns) <= most_ns and offset.pairs >= fewest]
    clearest = max(at_zero, key=_merit, default=None)
    if clearest is None or (best is not None and _merit(clearest) < _merit(best)):
        return None
    rivals = [offset for offset in offsets if _is_apart(offset, clearest) or offset.higher != clearest.higher]
    return None if any(_rivals_renumbered(a, b, compatible, rival, clearest) for rival in rivals) else clearest


def _rivals_renumbered(a: Kernels, b: Kernels, compatible: Mask, rival: Offset, best: Offset) -> bool:
    """Whether a rival is about as good as an offset of steps that are numbered differently."""
    if rival.higher == best.higher:
        return _is_about_as_good(*renumbered(a, b, best.higher), compatible, rival, best, anchored=True)
    if abs(rival.ns) <= KEPT_IN_TIME_NS:
        return _rivals_freely(a, b, rival, best)
    return _is_as_close(rival, best) and rival.pairs >= RIVAL_RENUMBERED * best.pairs


def refine_offset(a: Kernels, b: Kernels, compatible: Mask, rough: Offset) -> Offset | None:
    """Refine a known offset with these kernels; None where none of them end together at it."""
    kernels = renumbered(a, b, rough.higher)
    refined = _offset_in_turn(*kernels, one_clock=False)
    if refined is None or abs(refined.ns - rough.ns) > NOISE_NS:
        refined = _around(*kernels, compatible, rough.ns)
    return refined and replace(refined, higher=rough.higher)


def _candidates(a: Kernels, b: Kernels, compatible: Mask) -> tuple[Pairs, bool]:
    """Return rows that may be one collective, and whether step numbers say so."""
    rows_a, rows_b = np.flatnonzero(a.synchronizes), np.flatnonzero(b.synchronizes)
    if len(rows_a) * len(rows_b) > MOST_CANDIDATES:
        rows_a = rows_a[:: len(rows_a) * len(rows_b) // MOST_CANDIDATES + 1]
    fits = compatible[a.signature[rows_a][:, None], b.signature[rows_b]]
    step_a, step_b = a.step[rows_a][:, None], b.step[rows_b]
    fits &= agree(a.sequence[rows_a][:, None], b.sequence[rows_b])
    same_step = fits & (step_a == step_b) & (step_a >= 0)
    # One kernel whose step is known may be the one whose partner is lost.
    witnesses, fewer = min(same_step.any(axis=1).sum(), same_step.any(axis=0).sum()), min(len(rows_a), len(rows_b))
    anchored = bool(witnesses >= FEWEST_PAIRS or 2 * witnesses >= fewer > 0)
    i, j = np.nonzero(same_step if anchored else fits & agree(step_a, step_b))
    i, j = rows_a[i], rows_b[j]
    return Pairs(i, j, b.end_ns[j] - a.end_ns[i]), anchored


def _densest(candidates: Pairs) -> list[int]:
    """Return offsets that many candidates agree on, each row's vote shared among its candidates."""
    if not len(candidates):
        return []
    votes = 1 / np.bincount(candidates.a)[candidates.a]
    order = np.argsort(candidates.apart_ns, kind="stable")
    apart, total = candidates.apart_ns[order], np.r_[0, np.cumsum(votes[order])]
    offsets = []
    for width in WINDOWS_NS:
        past = np.searchsorted(apart, apart + width, side="right")
        score = total[past] - total[:-1]
        for _ in range(MOST_OFFSETS):
            first = int(np.argmax(score))
            if score[first] <= 0:
                break
            offsets.append(int(np.median(apart[first : past[first]])))
            score[(apart > apart[first] - width) & (apart < apart[first] + width)] = 0
    return offsets


def _around(a: Kernels, b: Kernels, compatible: Mask, offset_ns: int) -> Offset | None:
    """Return the offset that the pairs around it show."""
    for _ in range(3):
        pairs = mutual(near(a, b, compatible, offset_ns))
        if not len(pairs):
            return None
        shift = int(np.median(pairs.apart_ns))
        offset_ns += shift
        if abs(shift) < 100:
            break
    deviation = int(np.median(np.abs(pairs.apart_ns - np.median(pairs.apart_ns))))
    return Offset(offset_ns, deviation, len(pairs))


def near(a: Kernels, b: Kernels, compatible: Mask, offset_ns: int) -> Pairs:
    """Return all compatible pairs of synchronizing kernels that end within the noise of one another."""
    rows_a, rows_b = np.flatnonzero(a.synchronizes), np.flatnonzero(b.synchronizes)
    rows_b = rows_b[np.argsort(b.end_ns[rows_b], kind="stable")]
    ends, centre = b.end_ns[rows_b] - offset_ns, a.end_ns[rows_a]
    reach = NOISE_NS + (NOISE_SHARE * a.dur_ns[rows_a]).astype(np.int64)
    first, past = np.searchsorted(ends, centre - reach), np.searchsorted(ends, centre + reach, side="right")
    middle = np.searchsorted(ends, centre)
    first, past = np.maximum(first, middle - MOST_NEIGHBOURS), np.minimum(past, middle + MOST_NEIGHBOURS)
    count = past - first
    i = np.repeat(rows_a, count)
    j = rows_b[np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)]
    apart = b.end_ns[j] - offset_ns - a.end_ns[i]
    fits = compatible[a.signature[i], b.signature[j]] & agree(a.step[i], b.step[j])
    fits &= agree(a.sequence[i], b.sequence[j])
    fits &= np.abs(apart) <= NOISE_NS + NOISE_SHARE * np.minimum(a.dur_ns[i], b.dur_ns[j])
    return Pairs(i, j, apart).take(fits)


def mutual(pairs: Pairs) -> Pairs:
    """Return each row with the row that ends nearest to it, where that is so from both sides."""
    order = np.argsort(np.abs(pairs.apart_ns), kind="stable")
    pairs = pairs.take(order)
    first_a, first_b = np.zeros(len(pairs), dtype=bool), np.zeros(len(pairs), dtype=bool)
    first_a[np.unique(pairs.a, return_index=True)[1]] = True
    first_b[np.unique(pairs.b, return_index=True)[1]] = True
    kept = pairs.take(first_a & first_b)
    return kept.take(np.argsort(kept.a, kind="stable"))


def _merit(offset: Offset) -> float:
    """Return the score of an offset: its pairs' likelihood, against ends anywhere within a millisecond."""
    return offset.pairs * float(np.log(BY_CHANCE_NS / (offset.deviation_ns + _doubt_ns(offset)) + 1))


def _doubt_ns(offset: Offset) -> float:
    """Return what few pairs' deviation hides: by chance a wrong alignment's few may agree more closely."""
    return LEAST_DOUBT_NS + 0.5 * NOISE_NS * min(1, FEW_PAIRS / offset.pairs)


def _is_apart(rival: Offset, best: Offset) -> bool:
    return abs(rival.ns - best.ns) > TIGHTEST_NS + DEVIATIONS * best.deviation_ns


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
    pairs = mutual(near(a, b, compatible, offset.ns))
    explained = 0
    for kernels, matched in ((a, pairs.a), (b, pairs.b)):
        rows = np.flatnonzero(kernels.synchronizes & (kernels.step >= 0))
        edge = np.diff(kernels.step[rows], prepend=-1, append=-1) != 0
        explained += int(np.isin(rows[edge[:-1]], matched).sum() + np.isin(rows[edge[1:]], matched).sum())
    return explained
