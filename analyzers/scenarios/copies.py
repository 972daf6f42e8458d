"""Copies from and to pageable memory as pinned, asynchronous ones."""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Int64, Mask, values_at
from analyzers.causes import Lags, is_memcpy
from analyzers.rank import EdgeKind
from analyzers.scenarios.scenario import Scenario, Subject, Told, everywhere
from analyzers.units import count, size

# What pinned copies reach where the run has none of a megabyte or more (52 to 55 measured over PCIe 5).
PINNED_GBPS = 50.0
LARGE_COPY = 1_000_000
# Of fewer bytes a copy takes what its wait takes.
SMALL_COPY = 4096
# The call of a copy that does not block.
COPY_CALL_NS = 10_000


def copies_pinned(lags: Lags) -> Lags:
    """Return the lags with pageable copies as pinned ones: no waiting, launched as any other, at the pinned rate."""
    copies = pageable_copies(lags, "Pageable")
    behind = behind_copies(lags, copies)
    facts, graph = lags.facts, lags.graph
    call = facts.call
    blocks = (graph.edges.kind == EdgeKind.BLOCK) & (call >= 0) & (copies | behind)[call]
    changed = lags.without(blocks)
    calls = (graph.edges.kind == EdgeKind.CALL) & (call >= 0) & copies[call]
    changed = changed.at(calls, np.minimum(COPY_CALL_NS * lags.common.host_shares[calls], lags.ns[calls]))
    runs = is_memcpy(lags) & _named(lags, "Pageable")
    nbytes = values_at(facts.of_activities("nbytes"), facts.activity)
    pinned = nbytes[runs] / _pinned_gbps(lags, nbytes)
    return changed.at(runs, np.minimum(pinned[:, None], lags.ns[runs]))


def _pinned_gbps(lags: Lags, nbytes: Int64) -> float:
    large = is_memcpy(lags) & _named(lags, "Pinned") & (nbytes >= LARGE_COPY)
    ns = lags.ns[large].sum()
    return float(nbytes[large].sum() * lags.ns.shape[1] / ns) if ns > 0 else PINNED_GBPS


def _named(lags: Lags, part: str) -> Mask:
    """Whether names of what runs on edges hold a text."""
    has = np.array([part in name for name in lags.facts.names], dtype=bool)
    named: Mask = (lags.facts.activity >= 0) & has[lags.facts.name]
    return named


def pageable_copies(lags: Lags, part: str) -> Mask:
    """Return which calls launched a pageable copy in whose name a text is."""
    graph = lags.graph
    first_call = np.cumsum([0, *(len(rank.calls) for rank in graph.parts)])
    chosen = np.zeros(int(first_call[-1]), dtype=bool)
    for place, rank in enumerate(graph.parts):
        has = np.array([part in name and "Pageable" in name for name in rank.names], dtype=bool)
        calls = rank.activities.call[has[rank.activities.name] & (rank.activities.call >= 0)]
        chosen[calls + first_call[place]] = True
    return chosen


def behind_copies(lags: Lags, copies: Mask) -> Mask:
    """Return which synchronizing calls stand right behind such a copy on its thread."""
    thread = lags.facts.of_calls("thread")
    synchronizes = np.array(["StreamSynchronize" in name for name in lags.facts.call_name], dtype=bool)
    before = np.r_[False, copies[:-1] & (thread[:-1] == thread[1:])]
    behind: Mask = synchronizes & before
    return behind


def _tell(subject: Subject) -> Told:
    """Say how much goes in which direction, and how fast."""
    lags = subject.lags
    runs = is_memcpy(lags) & _named(lags, "Pageable")
    nbytes, taken_ns = values_at(lags.facts.of_activities("nbytes"), lags.facts.activity, 0), subject.recorded_ns
    moved = []
    for direction, words, remedy, problem in _DIRECTIONS:
        chosen = runs & _named(lags, direction)
        ns = subject.per_step(chosen, taken_ns)
        if ns:
            whole, times = subject.per_step(chosen, nbytes), subject.per_step(chosen)
            place, _ = subject.busiest(chosen, taken_ns)
            at, each = f" ({place})" if place else "", f"per {subject.step_word} {words}"
            rates = f"{whole / ns:.3g} GB/s; pinned copies reach {_pinned_gbps(lags, nbytes):.3g}"
            because = f"{size(round(whole))} {each}{at} at {rates}"
            if nbytes[chosen].max(initial=0) < SMALL_COPY:
                because = f"{count(max(round(times), 1), 'transfer')} of {size(round(whole / times))} {each}{at}"
                remedy = _SMALL if direction == "HtoD" else remedy
            moved.append((ns, because, remedy, problem))
    if not moved:
        return Told()
    _, told, remedies, problems = zip(*sorted(moved, reverse=True), strict=True)
    problem = "copies from and to pageable memory block the CPU" if len(moved) > 1 else problems[0]
    return Told(problem, "; ".join(remedies), "; ".join(told))


_TO_DEVICE = "pin the memory that is copied from (pin_memory=True in the DataLoader) and copy with non_blocking=True"
_TO_HOST = "leave .cpu() out of the step, or copy into pinned memory with non_blocking=True"
_SMALL = "make small tensors on the device (device=...), or copy them with non_blocking=True: each copy waits for it"
_DIRECTIONS = (
    ("HtoD", "to the device", _TO_DEVICE, "copies from pageable memory to the device block the CPU"),
    ("DtoH", "to the host", _TO_HOST, "copies from the device to pageable memory block the CPU"),
)

COPIES = everywhere(
    Scenario("copies", "pageable copies", copies_pinned, "copies from and to pinned memory, non_blocking=True"),
    lambda subject: bool(pageable_copies(subject.lags, "Pageable").any()),
    _tell,
)
