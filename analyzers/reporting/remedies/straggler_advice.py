"""Rule of advice on waiting, and which rank is late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.collectives import STANDS_OUT, WaitingRow
from analyzers.rank import CPU_DEVICE, Cause, device_label
from analyzers.ranks import RankNumber
from analyzers.reporting.measures import WindowLaunches
from analyzers.reporting.remedies.advised import Advice, advised
from analyzers.reporting.remedies.observations import Evidence
from analyzers.statistics import LEAST_SHARE
from analyzers.units import duration, percent, rounded_percent

_WHY = {
    "launch": "its CPU launches late",
    "compute": "it computes longer",
    "collective": "an earlier collective ends late there",
    "input": "it waits for its DataLoader",
    "unknown": "the trace does not show why",
}
# The same as the beginning of a sentence.
_HEAD = {
    "launch": "rank {rank}'s CPU launches late",
    "compute": "rank {rank} computes longer than the others",
    "collective": "rank {rank} is late, since an earlier collective ends late there",
    "input": "rank {rank} waits for its DataLoader",
    "unknown": "rank {rank} is late, and the trace does not show why",
}
_REMEDY = {
    "launch": "find out what delays rank {rank}'s CPU on {host}: other processes, its NUMA node, Python",
    "compute": "give rank {rank} as much work as the others, or find out what slows its device on {host}",
    "collective": "look at the collectives before the late ones on rank {rank}, on {host}",
    "input": "give rank {rank} on {host} more loader workers, or prefetch its input",
    "unknown": "look at rank {rank}, on {host}",
}
_PIPELINE = "if this is a pipeline: more microbatches, another schedule, or stages of equal length"
_EVEN = "give all ranks equal work: even batches, and hosts with nothing else to do"
# From this share of its lateness on, one reason is given as the reason.
NEARLY_ALL = 0.95
# Of what hosts take longer in each of a few full windows, which scatter: so much of the windows shows no more.
UPPER = 75
# From this share of what the others wait on, it is said that they would wait for their own CPUs.
TOLD = 0.1


@dataclass(frozen=True)
class Late:
    """A rank that the others wait for: how long per step, its share of all waiting, and what kept it (ns by reason).

    `gain_ns` is how much shorter a step would be at most if it were not late: the others' CPUs need their time, too.
    """

    rank: RankNumber
    wait_ns: float
    gain_ns: float
    share: float
    reasons: Counter[str]

    @property
    def reason(self) -> str:
        """Return what kept it longest."""
        return self.reasons.most_common(1)[0][0]

    @property
    def is_slow(self) -> bool:
        """Whether its compute takes longer, rather than that it comes late to do as much."""
        return self.reason == "compute"

    @property
    def shared_ns(self) -> float:
        """Return how long the others would wait for their own CPUs if it were not late."""
        return self.wait_ns - self.gain_ns

    @property
    def is_hardly_later(self) -> bool:
        """Whether the others' CPUs would keep them waiting for most of what they wait now."""
        return self.shared_ns > self.gain_ns

    @property
    def why(self) -> str:
        """Say why the rank comes late."""
        return "its CPU launches last" if self.is_hardly_later else _WHY[self.reason]

    @property
    def extent(self) -> str:
        """Say for how much of the waiting that is the reason, where there are several."""
        share = self.reasons[self.reason] / self.reasons.total()
        return "" if share >= NEARLY_ALL else f", {rounded_percent(share)} of that for this reason"


def late_ranks(evidence: Evidence) -> list[Late]:
    """Return the ranks that cause more than their share of all waiting, the worst first.

    The others would be as much earlier as they wait for it now, where their own CPUs let them.
    """
    rows = _in_steps(evidence)
    caused = _caused(rows)
    if evidence.cost is None or not evidence.names_ranks or not caused.total():
        return []
    of_rank: dict[int, list[WaitingRow]] = {}
    for row in rows:
        of_rank.setdefault(row.rank, []).append(row)
    exposed_ns, total_ns = evidence.cost.exposed_wait_ns, caused.total()
    late = []
    for rank, ns in caused.most_common():
        others = len(rows) - len(of_rank[rank]) or 1
        wait_ns = min(ns / others, exposed_ns * len(rows) / others, evidence.step_ns)
        if ns / total_ns * len(of_rank) >= STANDS_OUT:
            reasons = _reasons(of_rank[rank])
            gain_ns = min(wait_ns, _later_ns(evidence.launches, rank)) if _is_of_host(reasons) else wait_ns
            late.append(Late(rank, wait_ns, gain_ns, ns / total_ns, reasons))
    return late


def _is_of_host(reasons: Counter[str]) -> bool:
    return reasons.most_common(1)[0][0] == "launch"


def _later_ns(launches: Iterable[WindowLaunches], rank: RankNumber) -> float:
    """Return how much longer a rank's CPU is busy with a step than every other's; infinite where nothing tells.

    That is its step on the host less its calls that wait for the device. The others' launches may be held up by a full
    queue: they take what the late rank's take, whose queue is empty.
    """
    known = [row for row in launches if row.host_ns is not None and row.device != device_label(CPU_DEVICE)]
    mine = {row.step: row for row in known if row.rank == rank}
    others: dict[int, int] = {}
    for row in known:
        if row.rank != rank and row.step in mine:
            busy_ns = _busy_ns(row) - max(row.launching_ns - row.launches * (mine[row.step].call_ns or 0), 0)
            others[row.step] = max(others.get(row.step, 0), busy_ns)
    if not others:
        return np.inf
    later_ns = [_busy_ns(mine[step]) - busy_ns for step, busy_ns in others.items()]
    return max(float(np.percentile(later_ns, UPPER)), 0.0)


def _busy_ns(row: WindowLaunches) -> int:
    return (row.host_ns or 0) - (row.waited_ns or 0)


def advice_on_waiting(evidence: Evidence) -> Iterator[Advice]:
    """Yield what to do about the worst of late ranks, or where no rank is the cause about all of them."""
    late = late_ranks(evidence)
    if late:
        yield _straggler(evidence, late[0])
    elif evidence.cost is not None and _caused(_in_steps(evidence)).total():
        yield from _apart(evidence, evidence.cost.exposed_wait_ns)


def _straggler(evidence: Evidence, late: Late) -> Advice:
    rank, host = late.rank, f"host {evidence.host[late.rank]}" if late.rank in evidence.host else "its host"
    share = rounded_percent(late.wait_ns / evidence.whole_ns)
    return advised(
        "straggler",
        _REMEDY[late.reason].format(rank=rank, host=host),
        late.gain_ns + _slowed_ns(evidence, late),
        f"{_HEAD[late.reason].format(rank=rank)}: {_others(evidence, share)}{late.extent}{_left(evidence, late)}",
        f"{duration(late.wait_ns)} per {evidence.step_word}, and {percent(late.share)} of all waiting"
        f"{_kept(evidence, late)}{_slowed(evidence, late)}",
        at=f"rank {rank}",
    )


def _slowed_ns(evidence: Evidence, late: Late) -> int:
    """Return how much longer compute takes at most beside NCCL kernels that wait for a slow rank, and take SMs."""
    if evidence.cost is None or not late.is_slow:
        return 0
    return max(evidence.cost.contention_ns or 0, 0)


def _slowed(evidence: Evidence, late: Late) -> str:
    slowed_ns = _slowed_ns(evidence, late)
    if slowed_ns < LEAST_SHARE * evidence.whole_ns:
        return ""
    return f"; kernels that wait for it make compute beside them slower, too, by {duration(slowed_ns)} at most"


def _left(evidence: Evidence, late: Late) -> str:
    """Say what cannot be saved, since the others' CPUs take long, too."""
    if late.shared_ns < TOLD * late.wait_ns:
        return ""
    return f", and would wait for {'its own CPU' if evidence.world_size == 2 else 'their own CPUs'} for " + (
        f"{rounded_percent(late.shared_ns / evidence.whole_ns)} if it were not late"
    )


def _apart(evidence: Evidence, exposed_ns: int) -> Iterator[Advice]:
    apart = f"ranks wait for one another for {evidence.part(exposed_ns)}"
    if 2 * evidence.waits_by_kind.get("send_recv", 0) <= sum(evidence.waits_by_kind.values()):
        yield advised("ranks_apart", _EVEN, exposed_ns, f"{apart}, and no single rank is the cause")
    elif all(pipeline.span_ns is None for pipeline in evidence.pipelines):
        # Else the pipeline's bubble is divided, and there is advice on its parts.
        yield advised("pipeline", _PIPELINE, exposed_ns, f"{apart}, mostly for messages from other ranks")


def _in_steps(evidence: Evidence) -> list[WaitingRow]:
    return [row for row in evidence.waiting if row.step is not None]


def _caused(rows: Iterable[WaitingRow]) -> Counter[RankNumber]:
    caused: Counter[RankNumber] = Counter()
    for row in rows:
        caused[RankNumber(row.rank)] += row.caused_ns
    return caused


def _reasons(rows: Iterable[WaitingRow]) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row.caused_by)
    return reasons


def _others(evidence: Evidence, share: str) -> str:
    """Say what part of their step the others wait; a mean over ranks would have the late one's, which waits least."""
    ranks, step = len({row.rank for row in _in_steps(evidence)}), evidence.step_word
    if ranks < evidence.world_size:
        return f"the others that are here spend {share} of their {step} waiting for it"
    if ranks == 2:
        return f"the other rank spends {share} of its {step} waiting for it"
    return f"the other ranks spend {share} of their {step} waiting for it"


def _kept(evidence: Evidence, late: Late) -> str:
    """Say what is known of what kept a rank: its device's clock, or what its host was in while its device idled."""
    if late.rank in evidence.slowed:
        return f", and {evidence.slowed[late.rank]}"
    if late.reason != "launch":
        return ""
    if late.rank in evidence.held_up:
        return f"; {evidence.held_up[late.rank]}"
    devices = [device for device in evidence.idle if device.rank == late.rank]
    python_ns = max((device.ns.get(Cause.PYTHON, 0.0) for device in devices), default=0.0)
    if python_ns < LEAST_SHARE * evidence.step_ns:
        return ""
    return f"; its CPU is in Python, outside PyTorch's operators, for {duration(python_ns)} per step meanwhile"
