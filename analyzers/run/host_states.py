"""Judge what held hosts up: cores, garbage collections, page faults, clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median_high

from analyzers.notices import Code, Notice
from analyzers.ranks import RankNumber, rank_number
from analyzers.run.manifest import HostStates
from analyzers.units import count, ms

# Below a fiftieth of its steps nothing holds a host up by much.
LEAST_SHARE = 0.02
# By so much of the others' clock a CPU is slow, as a device is.
BELOW = 0.05
# No step has more; a run.json may say anything.
_MOST = 2**54
_TIMES = (
    ("runnable_ns", "its main thread waits {} per step for a core"),
    ("autograd_runnable_ns", "autograd's thread waits {} per step for a core"),
    ("gc_ns", "Python's garbage collections take {} of a step"),
)


def find_held_up(states: Mapping[str, HostStates] | None) -> dict[RankNumber, str]:
    """Return what held a rank's host up, by rank: `its main thread waits 3.10 ms per step for a core`; means of steps.

    `states` are those of run.json, in which ranks are text; a rank that nothing held up has no entry.
    """
    numbered = {rank_number(key): of_rank for key, of_rank in (states or {}).items()}
    ranks = {rank: numbered[rank] for rank in sorted(rank for rank in numbered if rank is not None)}
    clocks_mhz = {rank: clock for rank, of_rank in ranks.items() if (clock := _mean(of_rank.cpu_mhz)) is not None}
    words = {rank: "; ".join([*_held_up(ranks[rank]), *_slow(rank, clocks_mhz)]) for rank in ranks}
    return {rank: said for rank, said in words.items() if said}


def host_notices(states: Mapping[str, HostStates] | None) -> list[Notice]:
    """Return a note for each rank whose host something held up."""
    found = find_held_up(states)
    return [Notice(Code.HOST_IS_HELD_UP, f"rank {rank}'s host: {words}") for rank, words in found.items()]


def _held_up(states: HostStates) -> Iterator[str]:
    step_ns = _mean(states.host_ns) or None
    for name, words in _TIMES:
        lost_ns = _mean(getattr(states, name))
        if lost_ns is not None and step_ns is not None and lost_ns >= LEAST_SHARE * step_ns:
            yield words.format(ms(lost_ns)) + (_switched(states) if name == "runnable_ns" else "")
    faults = _mean(states.faults)
    if faults is not None and faults >= 1:
        yield f"{count(round(faults), 'page fault')} per step are read from disk"


def _switched(states: HostStates) -> str:
    switches = round(_mean(states.switches) or 0)
    return f" (switched out {count(switches, 'time')} per step)" if switches else ""


def _slow(rank: RankNumber, clocks_mhz: Mapping[RankNumber, float]) -> Iterator[str]:
    """Yield that a CPU's clock is below the others'; of the two in the middle the higher one, as for devices."""
    if rank in clocks_mhz and clocks_mhz[rank] < (1 - BELOW) * (others := median_high(clocks_mhz.values())):
        yield f"its CPU runs at {clocks_mhz[rank]:,.0f} MHz where the others' run at {others:,.0f}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what was read and can be; None where there is nothing."""
    known = [value for value in values if value is not None and 0 <= value < _MOST]
    return mean(known) if known else None
