"""Host of a rank while a run is simulated: a program of operations, one after the other, on two threads by turns.

A program is written once for a rank and run again in every step: what an operation takes is nominal, and a step, an
operation's number and a rank's factor make its length. An operation that touches the device is done when the clock
has come to it; one that blocks is done again when what it waited for is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.simulation.device import Activity, Clock, Device, Event, Recorded, Transfer, Waits, chance

COMPUTE = 7  # the compute stream's number
# So many launches may be pending; a call that finds them all blocks until a batch of them is done.
QUEUE, BATCH = 1_030, 6
RETURNS_NS = 4_000  # what a synchronizing call takes by itself
STAGING_NS = 300_000  # a pageable copy to the host returns when its staging buffer is emptied
MAIN, AUTOGRAD = 0, 1
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Mode:
    """What steps are watched by, and how many times longer their host's dense time is for it."""

    window: str | None = None  # None, light or full
    stretch: float = 1.0
    row_ns: int = 0  # what writing down each row takes the host


@dataclass(frozen=True)
class Pace:
    """Factors of one rank: its host's dense time, its kernels; how far each step's kernels are off, at random."""

    host: float = 1.0
    kernels: float = 1.0
    uneven: float = 0.0
    noise: float = 1.0


@dataclass(slots=True)
class Row:
    """A row of the host in a trace."""

    category: str
    name: str
    thread: int
    start_ns: int
    end_ns: int
    args: str  # JSON, without its braces


class Meeting:
    """Where the hosts of all ranks wait for one another."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._there: list[Host] = []

    def come(self, host: Host) -> None:
        self._there.append(host)
        if len(self._there) == self._size:
            there, self._there = self._there, []
            together_ns = max(each.ns for each in there)
            for each in there:
                each.ns = together_ns
                each.clock.at(max(together_ns, each.clock.now_ns), each.resume)


@dataclass(eq=False)
class Host:
    """One rank's host, and what was written down of it."""

    rank: int
    seed: int
    clock: Clock
    device: Device
    pace: Pace
    meeting: Meeting
    program: Iterable[Sequence[Operation]] = ()
    ns: int = 0
    mode: Mode = Mode()
    step: int = 0
    thread: int = MAIN
    phase: int = 0  # of the operation that is being done: it has begun to wait
    events: dict[str, Event] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    marks: dict[int, tuple[int, Event]] = field(default_factory=dict)  # by step: its begin on the host, on the device
    host_steps: list[tuple[int, int]] = field(default_factory=list)  # step, and how long its host took it
    open: list[tuple[str, str, int, int, str]] = field(default_factory=list)
    correlation: int = 20_000
    external: int = 1_000
    awaited: list[Event] = field(default_factory=list)
    ended: bool = False
    closed_ns: dict[str, int] = field(default_factory=dict)  # by window: when its last step ended, synchronized
    collected_ns: dict[int, int] = field(default_factory=dict)  # by step, in garbage collections
    made_ns: int = 0  # when the loader's workers have made the next batch
    taken_ns: list[int] = field(default_factory=list)  # when each batch was taken from them

    def start(self) -> None:
        self._steps = iter(self.program)
        self._operations: Sequence[Operation] = ()
        self._at = 0
        self.clock.at(self.ns, self.resume)

    def resume(self) -> None:
        """Go on until something blocks, or is not yet due."""
        while True:
            operations, at = self._operations, self._at
            while at < len(operations):
                if not operations[at].do(self):
                    self._at = at
                    return
                at += 1
            following = next(self._steps, None)
            if following is None:
                self.ended = True
                return
            self._operations, self._at = following, 0

    def is_early(self) -> bool:
        """Whether the clock has not come to this host's time; it comes back then."""
        if self.ns > self.clock.now_ns:
            self.clock.at(self.ns, self.resume)
            return True
        return False

    def enter(self, step: int) -> None:
        self.step = step
        self._salt = int(chance(self.seed, self.rank, step, 11) * (1 << 60)) | 1
        noise, pace = self.pace.noise, self.pace
        self._dense = pace.host * self.mode.stretch * (1 + 0.015 * noise * (2 * chance(self._salt, 1) - 1))
        self._kernels = pace.kernels * (1 + pace.uneven * (2 * chance(self._salt, 2) - 1))

    def luck(self, number: int) -> float:
        """Between -1 and 1, for one operation of one step."""
        mixed = ((number ^ self._salt) * 0xBF58476D1CE4E5B9) & _MASK
        mixed ^= mixed >> 31
        return self.pace.noise * ((((mixed * 0x94D049BB133111EB) & _MASK) >> 11) / (1 << 52) - 1)

    def dense_ns(self, ns: int, number: int) -> int:
        """What so much of dense host time takes in this step."""
        return int(ns * self._dense * (1 + 0.15 * self.luck(number)))

    def kernel_ns(self, ns: int, number: int) -> int:
        return max(700, int(ns * self._kernels * (1 + 0.01 * self.luck(number))))

    def operator(self) -> int:
        """The External id of the operator that the host is in; 0 without one."""
        return next((external for category, _, _, external, _ in reversed(self.open) if category == "cpu_op"), 0)

    def called(self, category: str, name: str, since_ns: int) -> None:
        """Write down a call that ends now."""
        self.correlation += 1
        if self.mode.window == "full":
            external = self.operator()
            known = f'"External id": {external}, ' if external else ""
            args = f'{known}"correlation": {self.correlation}'
            self.rows.append(Row(category, name, self.thread, since_ns, self.ns, args))
            self.ns += self.mode.row_ns


class Operation:
    """Something that a host does."""

    __slots__ = ("number",)
    number: int  # what its luck hangs on: the same with and without a fault

    def do(self, host: Host) -> bool:
        """Do it, or say that it is not done yet; it is done again then."""
        raise NotImplementedError


class Busy(Operation):
    """Dense host time: Python, an operator's dispatch. A profiler stretches it."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def do(self, host: Host) -> bool:
        host.ns += host.dense_ns(self.ns, self.number)
        return True


class Pause(Operation):
    """Time that no profiler stretches, in every so many-th step: a sleep, a wait for input; a collection has a row."""

    __slots__ = ("every", "ns", "row")

    def __init__(self, ns: int, every: int = 1, row: tuple[str, str, str] | None = None) -> None:
        self.ns, self.every, self.row = ns, every, row

    def do(self, host: Host) -> bool:
        if host.step % self.every == 0 and self.ns:
            since_ns = host.ns
            host.ns += int(self.ns * (1 + 0.02 * host.luck(self.number)))
            if self.row is not None:
                host.collected_ns[host.step] = host.ns - since_ns
                if host.mode.window == "full":
                    host.rows.append(Row(*self.row[:2], host.thread, since_ns, host.ns, self.row[2]))
        return True


class Begin(Operation):
    """A range or operator begins."""

    __slots__ = ("args", "category", "name", "sequence")

    def __init__(self, category: str, name: str, args: str = "", sequence: int | None = None) -> None:
        self.category, self.name, self.args, self.sequence = category, name, args, sequence

    def do(self, host: Host) -> bool:
        if host.mode.window == "full":
            host.external += 1
            args = self.args
            if self.sequence is not None:
                number = f'"Sequence number": {host.step * 100_000 + self.sequence}'
                args = f"{args}, {number}" if args else number
            host.open.append((self.category, self.name, host.ns, host.external, args))
        return True


class End(Operation):
    """The innermost range ends."""

    __slots__ = ()

    def do(self, host: Host) -> bool:
        if host.mode.window == "full":
            category, name, since_ns, external, args = host.open.pop()
            args = f'"External id": {external}' + (f", {args}" if args else "")
            host.rows.append(Row(category, name, host.thread, since_ns, host.ns, args))
            host.ns += host.mode.row_ns
        return True


class OnThread(Operation):
    """The other thread goes on; the one before is inside a call that has no row."""

    __slots__ = ("thread",)

    def __init__(self, thread: int) -> None:
        self.thread = thread

    def do(self, host: Host) -> bool:
        host.thread = self.thread
        return True


class Call(Operation):
    """A call of the driver that the device does not notice."""

    __slots__ = ("category", "name", "ns", "stretches")

    def __init__(self, name: str, ns: int, category: str = "cuda_runtime", stretches: bool = True) -> None:
        self.name, self.ns, self.category, self.stretches = name, ns, category, stretches

    def do(self, host: Host) -> bool:
        since_ns = host.ns
        host.ns += host.dense_ns(self.ns, self.number) if self.stretches else self.ns
        host.called(self.category, self.name, since_ns)
        return True


class Launch(Call):
    """A call that puts a kernel, copy or memset into a stream; it blocks while the queue is full."""

    __slots__ = ("activity", "dur_ns", "kind", "nbytes", "stream", "transfer")

    def __init__(
        self,
        activity: str,
        dur_ns: int,
        call: str = "cudaLaunchKernel",
        *,
        kind: str = "kernel",
        stream: int = COMPUTE,
        nbytes: int = 0,
        transfer: Transfer | None = None,
    ) -> None:
        super().__init__(call, 5_000, "cuda_driver" if call.startswith("cu") and call[2].isupper() else "cuda_runtime")
        self.activity, self.dur_ns, self.kind, self.stream = activity, dur_ns, kind, stream
        self.nbytes, self.transfer = nbytes, transfer

    def do(self, host: Host) -> bool:
        if host.is_early():
            return False
        if host.device.pending >= QUEUE:
            host.device.wait_for_room(QUEUE - BATCH, host.resume)
            return False
        since_ns = host.ns
        host.ns = max(host.ns, host.clock.now_ns) + host.dense_ns(self.ns, self.number)
        host.called(self.category, self.name, since_ns)
        host.device.submit(self._launched(host, since_ns))
        return True

    def _launched(self, host: Host, since_ns: int) -> Activity:
        dur_ns = host.kernel_ns(self.dur_ns, self.number) if self.kind == "kernel" else self.dur_ns
        window = host.mode.window
        return Activity(
            host.rank,
            self.stream,
            self.activity,
            self.kind,
            host.step,
            dur_ns,
            self.nbytes,
            self.transfer,
            host.correlation,
            host.operator() if window == "full" else 0,
            since_ns,
            host.ns,
            window,
            min(max((1 + host.luck(self.number ^ 0x5A5A)) / 2, 0.0), 1.0),
        )


class BlockingCopy(Launch):
    """A copy from or to pageable memory: its call returns when it is done."""

    __slots__ = ()

    def do(self, host: Host) -> bool:
        if host.phase == 0:
            if host.is_early():
                return False
            copy = self._launched(host, host.ns)
            copy.launched_ns = host.ns + self.ns
            copy.correlation = host.correlation + 1
            copy.then = host.resume
            host.phase = 1
            host.device.submit(copy)
            return False
        host.phase, since_ns = 0, host.ns
        host.ns = host.clock.now_ns + (STAGING_NS if "DtoH" in self.activity else RETURNS_NS)
        host.called(self.category, self.name, since_ns)
        return True


class Record(Call):
    """An event is put into a stream."""

    __slots__ = ("key", "stream")

    def __init__(self, key: str, stream: int = COMPUTE, name: str = "cudaEventRecordWithFlags") -> None:
        super().__init__(name, 1_200)
        self.key, self.stream = key, stream

    def do(self, host: Host) -> bool:
        if host.is_early():
            return False
        super().do(host)
        event = host.events[self.key] = Event()
        host.device.stream(self.stream).submit(Recorded(event, host.ns))
        return True


class Wait(Call):
    """A stream is told to wait for the event that was last recorded by this name; for none before the first."""

    __slots__ = ("key", "stream")

    def __init__(self, key: str, stream: int = COMPUTE) -> None:
        super().__init__("cudaStreamWaitEvent", 1_000)
        self.key, self.stream = key, stream

    def do(self, host: Host) -> bool:
        if host.is_early():
            return False
        super().do(host)
        if self.key in host.events:
            host.device.stream(self.stream).submit(Waits(host.events[self.key]))
        return True


class Synchronize(Call):
    """The host waits for what a stream holds; without one, for all streams, as a cudaFree does before it works."""

    __slots__ = ("stream",)

    def __init__(self, stream: int | None = None, name: str = "", ns: int = RETURNS_NS) -> None:
        super().__init__(name or ("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"), ns)
        self.stream = stream

    def do(self, host: Host) -> bool:
        if host.phase == 0:
            if host.is_early():
                return False
            host.phase = 1
            streams = host.device.streams
            awaited = [*streams.values()] if self.stream is None else [host.device.stream(self.stream)]
            host.awaited = [Event() for _ in awaited]
            for stream, event in zip(awaited, host.awaited, strict=True):
                stream.submit(Recorded(event, host.ns))
        if any(event.ns < 0 for event in host.awaited):
            for event in host.awaited:
                if event.ns < 0 and host.resume not in event.hosts:
                    event.hosts.append(host.resume)
            return False
        host.phase, since_ns = 0, host.ns
        host.ns = max([host.ns, host.clock.now_ns, *(event.ns for event in host.awaited)]) + self.ns
        host.called(self.category, self.name, since_ns)
        return True


class Barrier(Operation):
    """The hosts of all ranks wait for one another."""

    __slots__ = ()

    def do(self, host: Host) -> bool:
        if host.phase == 0:
            host.phase = 1
            host.meeting.come(host)
            return False
        host.phase = 0
        return True


class Enter(Operation):
    """A step begins that is watched in this mode."""

    __slots__ = ("mode", "step")

    def __init__(self, step: int, mode: Mode) -> None:
        self.step, self.mode = step, mode

    def do(self, host: Host) -> bool:
        host.mode = self.mode
        host.enter(self.step)
        return True


class Close(Operation):
    """A window ends, with the device at rest: its last step does."""

    __slots__ = ()

    def do(self, host: Host) -> bool:
        host.closed_ns[host.mode.window or ""] = host.ns
        return True


class SynchronizeEvent(Call):
    """The host waits for an event."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        super().__init__("cudaEventSynchronize", RETURNS_NS)
        self.key = key

    def do(self, host: Host) -> bool:
        event = host.events[self.key]
        if host.phase == 0:
            if host.is_early():
                return False
            if event.ns < 0:
                host.phase = 1
                event.hosts.append(host.resume)
                return False
        host.phase, since_ns = 0, host.ns
        host.ns = max(host.ns, host.clock.now_ns, event.ns) + self.ns
        host.called(self.category, self.name, since_ns)
        return True


class NextBatch(Operation):
    """The next batch of workers that each take their time for one and may be so many batches ahead."""

    __slots__ = ("ahead", "period_ns")

    def __init__(self, period_ns: int, ahead: int = 4) -> None:
        self.period_ns, self.ahead = period_ns, ahead

    def do(self, host: Host) -> bool:
        begun_ns = host.taken_ns[-self.ahead] if len(host.taken_ns) >= self.ahead else 0
        host.made_ns = max(host.made_ns, begun_ns) + int(self.period_ns * (1 + 0.02 * host.luck(self.number)))
        host.ns = max(host.ns, host.made_ns)
        host.taken_ns.append(host.ns)
        return True


class Mark(Call):
    """A step begins: the recorder's event in the compute stream; the host's time is kept too."""

    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        super().__init__("cudaEventRecordWithFlags", 3_000)
        self.step = step

    def do(self, host: Host) -> bool:
        if host.is_early():
            return False
        super().do(host)
        event = Event()
        host.marks[self.step] = host.ns, event
        host.device.stream(COMPUTE).submit(Recorded(event, host.ns))
        return True


class HostTimer(Operation):
    """The host's time of one step that begins with the device at rest: begun, then ended."""

    __slots__ = ("ends",)

    def __init__(self, ends: bool) -> None:
        self.ends = ends

    def do(self, host: Host) -> bool:
        if self.ends:
            step, begun_ns = host.host_steps[-1]
            host.host_steps[-1] = step, host.ns - begun_ns
        else:
            host.host_steps.append((host.step, host.ns))
        return True
