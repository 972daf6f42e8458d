"""Pipeline actions on one rank's device, and the bubble between them.

host     |F0 |  |F1 |     |B0     |
device      aa.aa   bb.b   mmm   cc.cccc     a forward's kernels, b another's, c a backward's, m a message
actions     |F0 |   |F1|         |B0   |
bubble             ..  ....... ..      the device runs nothing, or messages alone, between the first and the last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct
from analyzers.intervals import Intervals, owned, union_of
from analyzers.rank.columns import CPU_DEVICE, Activity, Attribution, Communication, profiler_steps
from analyzers.rank.host import Places
from analyzers.rank.parallelism.pipeline_messages import Messages, find_messages, go_round, spans_by_messages
from analyzers.rank.parallelism.pipeline_spans import ActionKind, ActionSpans, SpanLaunches, action_spans
from analyzers.run import RankTrace
from analyzers.trace import Collective, Kind

# A rank that sends to, or receives from, several: which of them holds the neighbouring stage is not told.
SEVERAL = -2


@dataclass(frozen=True, eq=False)
class PipelineActions:
    """One rank's actions by start, a row each: of what kind, stage and microbatch, in which step, and when.

    `stage` is UNKNOWN where no range names it. [`start_ns`, `end_ns`) is from the first to the last kernel of compute
    that the action launched, on the rank's own clock, and `busy_ns` how long kernels of the action ran in it: compute,
    copies, and collectives that are no messages of the pipeline; an instant of two actions counts for the earlier.

    `stretch` are the steps and stages in which there are actions, with the bubble of each: int64 rows (step, stage,
    bubble in ns). `previous` and `following` are the ranks from which forwards receive and to which they send, UNKNOWN
    for none, SEVERAL; `peers` all ranks with which the pipeline's messages are exchanged, `nameless` how many messages
    there are of which nothing tells between whom. Steps with actions whose kernels these times do not hold have no
    rows. An action that launches nothing has none either.
    """

    device: int
    step: Int64
    kind: NDArray[np.int8]
    stage: Int64
    microbatch: Int64
    start_ns: Int64
    end_ns: Int64
    busy_ns: Int64
    stretch: NDArray[np.int64]
    previous: int
    following: int
    peers: tuple[int, ...]
    nameless: int = 0
    is_told: bool = True
    goes_round: bool = False

    def __len__(self) -> int:
        return len(self.step)

    def renumbered(self, by: int) -> PipelineActions:
        """Return the same with numbers of steps that are so much higher."""
        return replace(self, step=self.step + by, stretch=self.stretch + np.array([[by], [0], [0]]))


def pipeline_actions(
    trace: RankTrace, devices: Sequence[Activity], attribution: Attribution, comm: Communication
) -> PipelineActions | None:
    """Return one rank's actions at the trace's times; None for a rank that exchanges no messages of a pipeline.

    Where there are messages, but nothing tells one microbatch from the next, there are no rows and `is_told` is False;
    `goes_round` where messages alone are there, of several stages a rank as it seems.
    """
    messages = find_messages(attribution, comm)
    if not len(messages.row) or not devices:
        return None
    steps = profiler_steps(trace.events)
    spans = action_spans(attribution.host, attribution.nodes, messages.launched_ns, steps)
    if spans is None or not len(spans):
        launches = _find_launches(trace, attribution)
        spans, goes_round = spans_by_messages(messages, launches, steps), go_round(messages, launches, steps)
        if spans is None or not len(spans):
            is_pipeline = messages.is_described or (len(attribution.nodes.row) > 0 and len(messages.peers) > 0)
            return _make_untold(messages, goes_round) if is_pipeline or goes_round else None
    previous, following = _find_neighbours(spans, messages)
    if previous == following == UNKNOWN and (spans.stage < 0).all():
        return None  # ranks that exchange something else than what a forward takes or gives
    ran = _find_ran(trace, attribution, spans, comm.correlation[messages.row])
    timed = _measure_times(ran, len(spans))
    step = steps.number_at(spans.start_ns)
    lost = (timed.start_ns < 0) & (step >= 0) & ran.has_launched
    # A first stage has no inputs' gradients to make, so that of its I and W one launches nothing.
    rows = np.flatnonzero((step >= 0) & (timed.start_ns >= 0) & ~np.isin(step, step[lost]))
    rows = rows[np.lexsort((timed.start_ns[rows], step[rows]))]
    chosen = timed.take(rows)
    busy = _find_busy(devices, ran.device, comm, messages)
    return PipelineActions(
        device=ran.device,
        step=step[rows],
        kind=spans.kind[rows],
        stage=spans.stage[rows],
        microbatch=spans.microbatch[rows],
        start_ns=chosen.start_ns,
        end_ns=chosen.end_ns,
        busy_ns=chosen.busy_ns,
        stretch=_measure_stretches(step[rows], spans.stage[rows], chosen, busy),
        previous=previous,
        following=following,
        peers=messages.peers,
        nameless=messages.nameless,
    )


def _find_launches(trace: RankTrace, attribution: Attribution) -> Places:
    """Return where compute was launched."""
    computes = (trace.events.kind[attribution.rows] == Kind.COMPUTE) | trace.is_cpu_run
    return attribution.places.take(computes & (attribution.launches >= 0))


def _make_untold(messages: Messages, goes_round: bool) -> PipelineActions:
    none = np.zeros(0, dtype=np.int64)
    return PipelineActions(
        device=UNKNOWN,
        step=none,
        kind=none.astype(np.int8),
        stage=none,
        microbatch=none,
        start_ns=none,
        end_ns=none,
        busy_ns=none,
        stretch=np.zeros((3, 0), dtype=np.int64),
        previous=SEVERAL,
        following=SEVERAL,
        peers=messages.peers,
        nameless=messages.nameless,
        is_told=False,
        goes_round=goes_round,
    )


def _find_neighbours(spans: ActionSpans, messages: Messages) -> tuple[int, int]:
    """Return the rank that forwards receive from and the one that they send to, by messages inside of them and beside.

    F0 s F1 s r B0 r F2 s r B1      to 1, and from 0: what is received before a B, or sent behind it, is gradients
    """
    following = np.searchsorted(spans.start_ns, messages.launched_ns, side="right")
    is_forward = np.r_[False, spans.kind == ActionKind.FORWARD, False]  # action k is entry k + 1
    inside = messages.launched_ns < np.r_[np.iinfo(np.int64).min, spans.end_ns][following]
    receives = np.where(inside, is_forward[following], is_forward[following + 1])
    received = {rank for row in np.flatnonzero(receives).tolist() for rank in messages.received_from[row]}
    sent = {rank for row in np.flatnonzero(is_forward[following]).tolist() for rank in messages.sent_to[row]}
    return _choose_only(received), _choose_only(sent)


def _choose_only(ranks: set[int]) -> int:
    return SEVERAL if len(ranks) > 1 else next(iter(ranks), UNKNOWN)


@dataclass(frozen=True, eq=False)
class _Ran:
    """Rows of one device that actions launched: which action, when, and whether it is compute.

    `has_launched` says of each action whether it launched any compute, whatever these times hold.
    """

    device: int
    action: Int64
    start_ns: Int64
    end_ns: Int64
    is_compute: Mask
    has_launched: Mask


@dataclass(frozen=True, eq=False)
class _Timed(Columns):
    """When each action ran, and how long its kernels did; starts and ends are UNKNOWN where none did."""

    start_ns: Int64
    end_ns: Int64
    busy_ns: Int64


def _find_ran(trace: RankTrace, attribution: Attribution, spans: ActionSpans, messages: Int64) -> _Ran:
    """Return what actions launched on the device where they launched most; `messages` by correlation are no part."""
    timed, rows, launches = trace.timed, attribution.rows, attribution.launches
    action = _action_of(attribution, spans, launches)
    chosen = action >= 0
    recorded = chosen & ((trace.events.kind[rows] == Kind.COMPUTE) | trace.is_cpu_run)
    has_launched = np.bincount(action[recorded], minlength=len(spans)) > 0
    if not trace.is_cpu_run:
        chosen &= timed.on_device[rows] & ~(
            (timed.kind[rows] == Kind.COMM) & np.isin(timed.correlation[rows], messages)
        )
    rows, action = rows[chosen], action[chosen]
    is_compute = (timed.kind[rows] == Kind.COMPUTE) | trace.is_cpu_run
    devices, count = np.unique(timed.device[rows][is_compute], return_counts=True)
    device = int(devices[np.argmax(count)]) if len(devices) else UNKNOWN
    on_device = timed.device[rows] == device
    rows = rows[on_device]
    return _Ran(
        device=CPU_DEVICE if trace.is_cpu_run else device,
        action=action[on_device],
        start_ns=timed.start_ns[rows],
        end_ns=timed.end_ns[rows],
        is_compute=is_compute[on_device],
        has_launched=has_launched,
    )


def _action_of(attribution: Attribution, spans: ActionSpans, launches: Int64) -> Int64:
    """Return the action that made each launch, whatever thread it is on: in a backward the main thread waits."""
    places = attribution.host.places(launches)
    action = np.searchsorted(spans.start_ns, places.instant_ns, side="right") - 1
    inside = (action >= 0) & (places.instant_ns != UNKNOWN) & (places.instant_ns < spans.end_ns[action])
    overlapped = inside & (spans.launches[action] == SpanLaunches.IN_NODES)
    in_node = attribution.nodes.spans.around(places) >= 0
    # Of the two that torch overlaps in one span the forward is the row before.
    return np.where(inside, action - (overlapped & ~in_node), UNKNOWN)


def _measure_times(ran: _Ran, count: int) -> _Timed:
    """Return when each of so many actions ran, and how long its kernels did; an instant of two is the earlier's."""
    start, end = np.full(count, np.iinfo(np.int64).max), np.full(count, UNKNOWN)
    np.minimum.at(start, ran.action[ran.is_compute], ran.start_ns[ran.is_compute])
    np.maximum.at(end, ran.action[ran.is_compute], ran.end_ns[ran.is_compute])
    start = np.where(end >= 0, start, UNKNOWN)
    begin, finish, row = owned(ran.start_ns, ran.end_ns)
    action = ran.action[row]
    inside = np.minimum(finish, end[action]) - np.maximum(begin, start[action])
    busy = np.zeros(count, dtype=np.int64)
    np.add.at(busy, action, np.maximum(inside, 0))
    return _Timed(start, end, busy)


def _find_busy(devices: Sequence[Activity], device: int, comm: Communication, messages: Messages) -> Intervals:
    """Return when a device runs something else than messages; those without a launch in the trace are messages too."""
    activity = next((one for one in devices if one.device == device), None)
    if activity is None:
        return union_of([], [])
    others = (comm.device == device) & ((comm.kind != Collective.SEND_RECV) | (comm.called >= 0))
    others[messages.row] = False
    if device == CPU_DEVICE:
        others[:] = False  # gloo's threads work beside the host's
    return activity.compute | activity.copy | union_of(comm.start_ns[others], comm.end_ns[others])


def _measure_stretches(step: Int64, stage: Int64, timed: _Timed, busy: Intervals) -> NDArray[np.int64]:
    """Return for each step and stage how long the device is not busy between its first action and its last."""
    each = distinct(step, stage)
    start, end = np.full(len(each), np.iinfo(np.int64).max), np.zeros(len(each), dtype=np.int64)
    np.minimum.at(start, each.index, timed.start_ns)
    np.maximum.at(end, each.index, timed.end_ns)
    bubble = end - start - busy.length_within(start, end)
    return np.stack([*each.columns, bubble])
