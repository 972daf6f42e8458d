"""Device of a rank while a run is simulated: streams, events, collectives, on a clock of events.

clock        heap of (instant, what then happens): nothing looks ahead of it
stream       first in, first out: an activity begins when the one before it has ended, its launch has arrived and
             the events that the stream was told to wait for have fired
event        fires when its stream has done all that was queued before it
meeting      a collective or a message: it moves data once all members' activities have begun
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

# At least, and so much more by chance (5th to 95th percentile on H100 and H200: 0.5 to 2.4, 0.9 to 2.4, 1.1 to 2.8 us):
REACH_NS, REACH_SPREAD_NS = 1_200, 900  # from a launch call's end to the earliest start
GAP_NS, GAP_SPREAD_NS = 900, 600  # between two activities of a stream
HANDOVER_NS, HANDOVER_SPREAD_NS = 1_500, 1_000  # from an event on one stream to the start on another
ONE_WAY, BUFFERED_BYTES = ("broadcast", "send", "recv"), 1 << 19
JITTER_NS = 5_000  # so far apart are the ends of a collective's members, at most
_MASK = (1 << 64) - 1
Communicator = tuple[str, tuple[int, ...]]


def chance(*key: int) -> float:
    """A number in [0, 1) that a key always gives: what is alike in two runs has the same luck in both."""
    state = 0x9E3779B97F4A7C15
    for part in key:
        state = ((state ^ part) * 0xBF58476D1CE4E5B9) & _MASK
        state ^= state >> 29
    return (((state * 0x94D049BB133111EB) & _MASK) >> 11) / (1 << 53)


class Clock:
    """What happens when. Of two things at one instant the one that was asked for first happens first."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._next: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, ns: int, act: Callable[[], None]) -> None:
        """Have something happen, not before now."""
        assert ns >= self.now_ns, "the past is over"
        self._asked += 1
        heapq.heappush(self._next, (ns, self._asked, act))

    def run(self) -> None:
        """Let everything happen."""
        waiting = self._next
        while waiting:
            self.now_ns, _, act = heapq.heappop(waiting)
            act()


@dataclass(frozen=True)
class Group:
    """A process group."""

    name: str
    ranks: tuple[int, ...]
    description: str = "undefined"


@dataclass(slots=True)
class Transfer:
    """What the members of a collective or message move together, and how long it takes them."""

    kind: str
    group: Group
    ranks: tuple[int, ...]  # who takes part: the group, of a message its two ends
    nbytes: int
    ns: int
    peer: int | None = None  # of a message

    @property
    def is_buffered(self) -> bool:
        """Whether its root, the first of its ranks, need not wait for the others: their buffers hold what it sends."""
        return self.kind in ONE_WAY and self.nbytes <= BUFFERED_BYTES

    @property
    def communicator(self) -> Communicator:
        return self.group.name, self.ranks


@dataclass(slots=True, eq=False)
class Activity:
    """A kernel, copy or memset. Times are on the run's one true clock, in ns; -1 is not yet."""

    rank: int
    stream: int
    name: str
    category: str
    step: int
    dur_ns: int
    nbytes: int
    transfer: Transfer | None
    correlation: int
    external: int
    called_ns: int
    launched_ns: int
    window: str | None
    luck: float = 0.0  # from 0 to 1: how much of each spread it meets
    waited_ns: int = 0  # the latest of the events that its stream waited for before it
    start_ns: int = -1
    end_ns: int = -1
    then: Callable[[], None] | None = None  # a host that the copy blocks
    left_ns: float = 0.0  # of its work, at `since_ns`, where nothing runs beside it
    since_ns: int = -1

    def __str__(self) -> str:
        return f"{self.name[:40]} of rank {self.rank} on stream {self.stream} [{self.start_ns}, {self.end_ns})"


@dataclass(slots=True, eq=False)
class Event:
    """A point in a stream's order; it has fired when `ns` is known."""

    ns: int = -1
    streams: list[Stream] = field(default_factory=list)
    hosts: list[Callable[[], None]] = field(default_factory=list)

    def fire(self, ns: int) -> None:
        self.ns = ns
        for stream in self.streams:
            stream.advance()
        for resume in self.hosts:
            resume()
        self.streams, self.hosts = [], []


@dataclass(slots=True)
class Recorded:
    """An event in a stream's queue, and when it was put there."""

    event: Event
    called_ns: int


@dataclass(slots=True)
class Waits:
    """A stream's order to wait for an event of another."""

    event: Event


class Stream:
    """One queue of a device."""

    def __init__(self, device: Device, number: int) -> None:
        self.device, self.number = device, number
        self.free_ns = 0
        self._told_ns = 0  # the latest event that what comes next has to follow
        self._queue: deque[Activity | Recorded | Waits] = deque()
        self.running: Activity | None = None

    def submit(self, item: Activity | Recorded | Waits) -> None:
        self._queue.append(item)
        if self.running is None and len(self._queue) == 1:
            self.advance()

    def advance(self) -> None:
        """Do all that can be done now."""
        queue = self._queue
        while queue and self.running is None:
            item = queue[0]
            if type(item) is Activity:
                queue.popleft()
                self._begin(item)
            elif type(item) is Recorded:
                queue.popleft()
                item.event.fire(max(self.free_ns, self._told_ns, item.called_ns))
            elif type(item) is Waits:
                if item.event.ns < 0:
                    if self not in item.event.streams:
                        item.event.streams.append(self)
                    return
                queue.popleft()
                self._told_ns = max(self._told_ns, item.event.ns)

    def _begin(self, activity: Activity) -> None:
        luck = activity.luck
        reaches_ns = activity.launched_ns + REACH_NS + int(luck * REACH_SPREAD_NS)
        follows_ns = self.free_ns + GAP_NS + int(luck * GAP_SPREAD_NS)
        handed_ns = self._told_ns + HANDOVER_NS + int(luck * HANDOVER_SPREAD_NS)
        activity.waited_ns = self._told_ns
        activity.start_ns = max(reaches_ns, follows_ns, handed_ns if self._told_ns > self.free_ns else 0)
        activity.since_ns, activity.left_ns = activity.start_ns, activity.dur_ns
        self.running = activity
        if activity.transfer is None:
            self.retime()
        else:
            self.device.network.arrive(self, activity, activity.transfer)
            if self.device.strain != 1:
                self.device.clock.at(activity.start_ns, self.device.transfers_began)

    def retime(self) -> None:
        """Say when the kernel or copy that runs will have ended, as fast as it is from now on."""
        activity = self.running
        if activity is None or activity.transfer is not None:
            return
        now_ns = self.device.clock.now_ns
        slower = self.device.strain if self.device.transfers and activity.category == "kernel" else 1.0
        if activity.end_ns >= 0 and now_ns > activity.since_ns:
            worked_ns = activity.left_ns * (now_ns - activity.since_ns) / (activity.end_ns - activity.since_ns)
            activity.left_ns, activity.since_ns = activity.left_ns - worked_ns, now_ns
        ends_ns = activity.since_ns + max(0, round(activity.left_ns * slower))
        if ends_ns != activity.end_ns:
            self.ends(activity, ends_ns)

    def ends(self, activity: Activity, ns: int) -> None:
        """Say when the activity that runs will have ended; what was said before no longer holds."""
        activity.end_ns = ns
        self.device.clock.at(ns, self._finish)

    def _finish(self) -> None:
        activity = self.running
        if activity is None or activity.end_ns != self.device.clock.now_ns:
            return
        self.running = None
        self.free_ns = activity.end_ns
        self.device.finished(activity)
        self.advance()


class Network:
    """Collectives and messages on their way: the k-th of a group on one rank is the k-th on all of its members."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock, self._seed = clock, seed
        self._places: dict[tuple[int, Communicator], int] = {}
        self._arrived: dict[tuple[Communicator, int], list[tuple[Stream, Activity]]] = {}
        self.instances: list[list[Activity]] = []

    def arrive(self, stream: Stream, activity: Activity, transfer: Transfer) -> None:
        """One member's activity has begun, or will at its start."""
        communicator = transfer.communicator
        place = self._places.get((activity.rank, communicator), 0)
        self._places[activity.rank, communicator] = place + 1
        members = self._arrived.setdefault((communicator, place), [])
        members.append((stream, activity))
        if transfer.is_buffered:
            self._leave(members, transfer.ranks[0])
        elif len(members) == len(transfer.ranks):
            done_ns = max(member.start_ns for _, member in members) + _slowest_ns(members)
            for own, member in members:
                self._end(own, member, done_ns)
        if len(members) == len(transfer.ranks):
            del self._arrived[communicator, place]
            self.instances.append([member for _, member in members])
            kinds = {(member.name, member.transfer.nbytes) for _, member in members if member.transfer is not None}
            assert len(kinds) == 1, f"members disagree on what they do: {kinds}"

    def _leave(self, members: list[tuple[Stream, Activity]], root: int) -> None:
        """The root leaves its data in buffers and goes; who comes before it waits for it, and for nobody else."""
        begun_ns = next((member.start_ns for _, member in members if member.rank == root), None)
        if begun_ns is None:
            return
        for stream, member in members:
            if member.end_ns < 0:
                self._end(stream, member, max(begun_ns, member.start_ns) + _slowest_ns(members))

    def _end(self, stream: Stream, activity: Activity, done_ns: int) -> None:
        jitter = chance(self._seed, 7, activity.rank, activity.step, int(activity.luck * (1 << 40)))
        stream.ends(activity, done_ns + int(JITTER_NS * jitter))

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits for a member any more."""
        return not self._arrived


def _slowest_ns(members: list[tuple[Stream, Activity]]) -> int:
    return max(member.transfer.ns for _, member in members if member.transfer is not None)


class Device:
    """A rank's streams, how many launches are pending, and how much slower compute is beside communication."""

    def __init__(self, clock: Clock, network: Network, strain: float = 1.0) -> None:
        self.clock, self.network, self.strain = clock, network, strain
        self.transfers = 0  # so many kernels of communication run
        self.pending = 0
        self.streams: dict[int, Stream] = {}
        self.done: list[Activity] = []
        self.has_room: Callable[[], None] | None = None
        self.room = 0

    def stream(self, number: int) -> Stream:
        if number not in self.streams:
            self.streams[number] = Stream(self, number)
        return self.streams[number]

    def submit(self, activity: Activity) -> None:
        self.pending += 1
        self.stream(activity.stream).submit(activity)

    def wait_for_room(self, pending: int, then: Callable[[], None]) -> None:
        """Call a blocked host when no more than so many launches are pending."""
        self.room, self.has_room = pending, then

    def transfers_began(self) -> None:
        """A kernel of communication begins to run, or to wait for its members."""
        self.transfers += 1
        if self.transfers == 1:
            self._retime()

    def _retime(self) -> None:
        for stream in self.streams.values():
            stream.retime()

    def finished(self, activity: Activity) -> None:
        self.pending -= 1
        if activity.transfer is not None and self.strain != 1:
            self.transfers -= 1
            if not self.transfers:
                self._retime()
        if activity.window is not None:
            self.done.append(activity)
        if activity.then is not None:
            activity.then()
        if self.has_room is not None and self.pending <= self.room:
            resume, self.has_room = self.has_room, None
            resume()
