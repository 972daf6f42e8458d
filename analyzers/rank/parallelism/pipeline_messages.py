"""Messages of pipelines, and actions by them alone.

first stage      F s F s r B F s r B        F on the thread that sends, B on autograd's; of a first or last stage
one between    r F s r B s r F s r B s      no message lies between a backward and the forward beside it
last stage     r F B s r F B s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, begins, first_of
from analyzers.rank.columns import Attribution, Communication, Steps
from analyzers.rank.host import Places
from analyzers.rank.parallelism.pipeline_spans import ActionSpans, join_spans, number_in_step
from analyzers.rank.strategies import PIPELINE, role_of
from analyzers.trace import Collective


@dataclass(frozen=True, eq=False)
class Messages:
    """The pipeline's messages by launch: where, to and from whom, and which rows of communication they are.

    `is_described`: their process group is called a pipeline's.
    """

    row: Int64
    places: Places
    sent_to: Sequence[tuple[int, ...]]
    received_from: Sequence[tuple[int, ...]]
    is_described: bool

    @property
    def launched_ns(self) -> Int64:
        """Return when each was launched."""
        return self.places.instant_ns

    @property
    def peers(self) -> tuple[int, ...]:
        """Return all ranks that they are to or from."""
        return tuple(sorted({rank for ranks in (*self.sent_to, *self.received_from) for rank in ranks}))

    @property
    def nameless(self) -> int:
        """Return of how many nothing tells between whom they are."""
        both = zip(self.sent_to, self.received_from, strict=True)
        return sum(not sent and not received for sent, received in both)


def find_messages(attribution: Attribution, comm: Communication) -> Messages:
    """Return messages launched outside of modules and autograd's nodes: a ring's attention sends inside of these.

    Where groups are called a pipeline's, those of others are no messages of it.
    """
    host = attribution.host
    rows = np.flatnonzero((comm.kind == Collective.SEND_RECV) & ~comm.is_copy & (comm.called >= 0))
    places = host.places(comm.called[rows])
    kept = (attribution.nodes.spans.around(places) < 0) & (attribution.modules.around(places) < 0)
    roles = [role_of(call.group.description) if call.group is not None else None for call in comm.calls]
    of_pipeline = np.array([*(role == PIPELINE.name for role in roles), False], dtype=bool)[comm.call[rows]]
    if of_pipeline.any():
        kept &= of_pipeline
    order = np.flatnonzero(kept)[np.argsort(places.instant_ns[kept], kind="stable")]
    calls = [comm.calls[code] if code >= 0 else None for code in comm.call[rows[order]].tolist()]
    return Messages(
        row=rows[order],
        places=places.take(order),
        sent_to=[call.sent_to if call is not None else () for call in calls],
        received_from=[call.received_from if call is not None else () for call in calls],
        is_described=bool(of_pipeline.any()),
    )


def spans_by_messages(messages: Messages, launches: Places, steps: Steps) -> ActionSpans | None:
    """Return the actions of one rank that launches compute at these places, and holds one stage; None if not told.

    A forward is sent on, or received where a backward or nothing else follows; a backward is what other threads launch
    between two messages. Both are numbered in order. Each must have its messages, as many as all others.
    """
    near = _neighbours(messages, steps)
    launches = launches.take(np.argsort(launches.instant_ns, kind="stable"))
    launches = launches.take(steps.index_at(launches.instant_ns) >= 0)
    if near is None or not len(launches):
        return None
    previous, following = near
    one = _stretches(messages, launches, steps)
    is_sent_on = _between(messages.sent_to, following, one.block, one.closed)
    is_received = _between(messages.received_from, previous, one.opened, one.block)
    is_forward = ~one.is_other & (is_sent_on | (is_received & ((one.closed == one.block) | (following == UNKNOWN))))
    is_returned = _between(messages.sent_to, previous, one.block, one.closed)
    if (is_sent_on & one.is_other).any() or (is_returned & is_forward).any():
        return None  # what goes round, as attention's keys and values
    instant_ns, of = launches.instant_ns, one.take(is_forward)
    forward = np.stack([instant_ns[_without_what_begins(of)], instant_ns[of.last] + 1])
    of = one.take(one.is_other)
    parts = np.flatnonzero(begins(of.step) | begins(of.block))
    ended = of.last[np.r_[parts[1:], len(of)] - 1] if len(parts) else of.last
    backward = np.stack([instant_ns[of.first[parts]], instant_ns[ended] + 1])
    if not _have_messages(messages, near, (forward[0], backward[0]), steps):
        return None
    return join_spans(forward, backward, number_in_step(forward[0], steps), number_in_step(backward[0], steps))


def go_round(messages: Messages, launches: Places, steps: Steps) -> bool:
    """Whether messages are a pipeline's that is no chain, as of several stages a rank: no actions are told by them.

    A rank gives to whom it takes from, while threads beside launch backwards, and a step begins with messages one way:
    attention's that go round are exchanges from the first on.
    """
    launched, step = np.sort(launches.instant_ns), steps.index_at(messages.launched_ns)
    inside = steps.index_at(launched) >= 0
    thread = messages.places.thread
    if messages.nameless or not inside.any() or not (np.unique(launches.thread) != thread[0]).any():
        return False
    before = np.searchsorted(launched[inside], messages.launched_ns)
    first = np.flatnonzero((step >= 0) & (before == first_of(before, begins(step)))).tolist()
    given, taken = ({rank for ranks in each for rank in ranks} for each in (messages.sent_to, messages.received_from))
    both = any(messages.sent_to[row] for row in first) and any(messages.received_from[row] for row in first)
    return given == taken and not both and len(np.unique(thread)) == 1


@dataclass(frozen=True, eq=False)
class _Stretches(Columns):
    """Launches one behind the other, the `first` to the `last`, on one thread, in a step, without a message between.

    As many messages as `block` says come before; of these, those from `opened` on lie right before, and those up to
    `closed` right behind. `is_other`: on another thread than messages.
    """

    first: Int64
    last: Int64
    step: Int64
    is_other: Mask
    opened: Int64
    block: Int64
    closed: Int64


def _stretches(messages: Messages, launches: Places, steps: Steps) -> _Stretches:
    step = steps.index_at(launches.instant_ns)
    block = np.searchsorted(messages.launched_ns, launches.instant_ns, side="right")
    is_other = launches.thread != messages.places.thread[0]
    first = np.flatnonzero(begins(step) | begins(block) | begins(is_other.astype(np.int64)))
    last = np.r_[first[1:], len(step)] - 1
    step, block = step[first], block[first]
    before = np.searchsorted(messages.launched_ns, steps.start_ns[step])
    behind = np.searchsorted(messages.launched_ns, steps.end_ns[step])
    opened = np.where(begins(step), before, np.roll(block, 1))
    closed = np.where(begins(step[::-1])[::-1], behind, np.roll(block, -1))
    return _Stretches(first, last, step, is_other[first], opened, block, closed)


def _between(ranks: Sequence[tuple[int, ...]], rank: int, low: Int64, high: Int64) -> Mask:
    """Whether any of the messages [low, high) is to or from a rank."""
    count = _count_up(ranks, rank)
    is_any: Mask = count[high] > count[low]
    return is_any


def _without_what_begins(forwards: _Stretches) -> Int64:
    """Return the launch with which each forward begins: a step's first has no more than the largest other of the step.

    What else is launched before the first message of a step is no forward's, as where gradients are set to zero.
    """
    is_first = begins(forwards.step)
    first = np.flatnonzero(is_first)
    others = np.where(is_first, 0, forwards.last - forwards.first + 1)
    most = np.maximum.reduceat(others, first) if len(first) else first
    begun = forwards.first.copy()
    begun[first] = np.where(most > 0, np.maximum(begun[first], forwards.last[first] + 1 - most), begun[first])
    return begun


def _neighbours(messages: Messages, steps: Steps) -> tuple[int, int] | None:
    """Return the ranks of the stages before and behind, UNKNOWN for none; None where messages do not tell.

    In each step the first stage sends first, and every other receives from the stage before.
    """
    first = begins(steps.index_at(messages.launched_ns)) & (steps.index_at(messages.launched_ns) >= 0)
    rows = np.flatnonzero(first).tolist()
    to, of = {messages.sent_to[row][:1] for row in rows}, {messages.received_from[row][:1] for row in rows}
    sends = to != {()}
    begun = to if sends else of
    if len(begun) != 1 or begun == {()} or messages.nameless or len(np.unique(messages.places.thread)) > 1:
        return None
    nearest = next(iter(begun))[0]
    others = [rank for rank in messages.peers if rank != nearest]
    if len(others) > (not sends):
        return None  # stages that go round, or somebody else's messages
    return (UNKNOWN, nearest) if sends else (nearest, next(iter(others), UNKNOWN))


def _count_up(ranks: Sequence[tuple[int, ...]], rank: int) -> Int64:
    """Return how many of the first n messages are to or from a rank, for each n."""
    return np.cumsum([0, *(each.count(rank) for each in ranks)])


def _have_messages(messages: Messages, near: tuple[int, int], began: tuple[Int64, Int64], steps: Steps) -> bool:
    """Whether in each step there are as many messages each way as forwards, which are as many as backwards."""
    edges = np.r_[steps.start_ns, steps.end_ns[-1:]]
    at = np.searchsorted(messages.launched_ns, edges)
    forwards, backwards = (np.diff(np.searchsorted(start, edges)) for start in began)
    previous, following = near
    carried = (
        (messages.received_from, previous, forwards),
        (messages.sent_to, following, forwards),
        (messages.sent_to, previous, backwards),
        (messages.received_from, following, backwards),
    )
    for ranks, rank, actions in carried:
        count = np.diff(_count_up(ranks, rank)[at])
        if rank != UNKNOWN and ((count % np.maximum(actions, 1) > 0) | ((count > 0) != (actions > 0))).any():
            return False
    return bool((backwards == forwards).all())
