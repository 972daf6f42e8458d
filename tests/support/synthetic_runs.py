"""Whole runs simulated: what every rank's host and device would do, as Kineto documents, with the truth beside them.

    made = build(World(ranks=4, program=ddp(), lead_us=5000, offsets_ns=(0, 3_000_000)))
    made.documents[2]      one rank's trace
    made.truth             every instance: which kernels belong together

The host launches ahead of the device, so at the profiler's opening a device may still run what was launched before:
kernels at the head without launch, metadata or step. All times are whole nanoseconds of one true clock; a rank's own
clock is applied when its document is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from random import Random
from typing import Any

from tests.support.damage import Document, Event, Member, us
from tests.support.generator import BASE_NS, START_US
from tests.support.physics import SPOKEN, Collective, Compute, Op, Ranks, ddp, every_kind, fsdp, mesh

START_NS = START_US * 1000
REACH_NS = 4_000  # from a launch to the earliest start
GAP_NS = 1_000  # between kernels of one stream
KINETO_LISTS = 30  # Kineto cuts longer lists


@dataclass(frozen=True)
class World:
    """A run to simulate. What is given by rank may be shorter than the ranks: the others have nothing of it."""

    ranks: int = 4
    steps: int = 3
    program: tuple[Op, ...] = ()
    programs: tuple[tuple[Op, ...], ...] = ()  # by step from the first on, where steps differ
    seed: int = 0
    first_step: int = 4
    warmup: int = 1  # steps before the profiler opens
    windows: tuple[tuple[int, int], ...] = ()  # by rank, its own first and last profiled step
    jitter: float = 1.0  # 0: all steps are perfectly alike
    late_us: float = 150.0  # a rank comes so much late to an op, at random
    skew_us: tuple[int, ...] = ()  # by rank, what each compute takes more
    noise_us: float = 6.0  # the most by which a ring's members end apart
    link_gbps: float = 150.0
    lead_us: int = 3000  # how far a host runs ahead of its device at most
    leads_us: tuple[int, ...] = ()  # by rank, where hosts differ in that
    offsets_ns: tuple[int, ...] = ()  # by rank, what its clock is ahead
    drift_ppm: tuple[float, ...] = ()  # by rank, what its clock gains
    heads_us: tuple[int, ...] = ()  # by rank, by how much its device's record opens before the first step
    tails_us: tuple[int, ...] = ()  # by rank, how long after the last step its device's record goes on; else all of it
    missing: float = 0.0  # share of NCCL kernels that the profiler lost
    metadata: bool = True  # False: a CUDA-only profile
    absent: tuple[int, ...] = ()  # ranks without a file
    devices_per_host: int = 8
    numbered_higher: tuple[int, ...] = ()  # by rank, by how much its steps' numbers are
    hosts: tuple[str, ...] = ()  # by rank, as its trace names it


@dataclass(frozen=True)
class Kernel:
    """What was launched and run, on the true clock. `instance` counts collectives' instances; -1 is compute."""

    rank: int
    step: int
    op: Op
    team: int
    ranks: Ranks
    instance: int
    launch_ns: int
    launched_ns: int
    start_ns: int
    end_ns: int
    stream: int
    correlation: int
    external: int


@dataclass(frozen=True)
class Instance:
    """One collective: its kernels that were written, and whether every member that has a file has its own."""

    kind: str
    group: str
    ranks: Ranks
    step: int
    members: frozenset[Member]
    complete: bool


@dataclass(frozen=True, eq=False)
class Made:
    """A built world."""

    documents: list[Document]
    truth: list[Instance]
    kernels: list[Kernel]  # the NCCL kernels that were written, in true time
    world: World


@dataclass
class Machine:
    """One rank while the world runs: its host, its compute stream, and a queue for each group it is in."""

    world: World
    rank: int
    host_ns: int = START_NS
    compute_ns: int = START_NS
    streams: dict[str, int] = field(default_factory=dict)
    correlation: int = 1000
    external: int = 0
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.world.seed}:{self.rank}")
        self.correlation += self.random.randrange(5000)

    def about(self, ns: float) -> int:
        """This long, give or take."""
        return round(ns * (1 + self.world.jitter * self.random.uniform(-0.03, 0.03)))

    def drained_ns(self) -> int:
        return max(self.compute_ns, *self.streams.values(), 0)

    def keep_lead(self) -> None:
        """A host that is too far ahead waits for its device."""
        lead_us = (*self.world.leads_us, *[self.world.lead_us] * self.world.ranks)[self.rank]
        self.host_ns = max(self.host_ns, self.drained_ns() - lead_us * 1000)

    def launch(self) -> tuple[int, int]:
        """The call that launches a kernel: its start and its end on the host."""
        self.keep_lead()
        start = self.host_ns + self.about(20_000)
        self.host_ns = start + self.about(9_000)
        self.correlation += self.random.randint(1, 9)
        self.external += self.random.randint(1, 5)
        return start, self.host_ns

    def stream(self, queue: str, lane: int) -> int:
        return 19 + 4 * list(self.streams).index(queue) + lane

    def compute(self, op: Compute, step: int) -> None:
        called, returned = self.launch()
        start = max(called + REACH_NS, self.compute_ns + GAP_NS)
        self.compute_ns = start + self.about((op.us + of_rank(self.world.skew_us, self.rank)) * 1000)
        self.ran(op, step, (0, (), -1), (called, returned), (start, self.compute_ns), 7)

    def arrive(self, queue: str) -> tuple[tuple[int, int], int]:
        """Launch a collective: the call, and when its kernel starts, after what compute there is and its stream."""
        self.compute_ns += round(self.world.jitter * self.random.expovariate(1.0) * self.world.late_us * 1000)
        called, returned = self.launch()
        free = self.streams.setdefault(queue, START_NS)
        return (called, returned), max(called + REACH_NS, self.compute_ns + 500, free + GAP_NS)

    def ran(
        self,
        op: Op,
        step: int,
        which: tuple[int, Ranks, int],
        call: tuple[int, int],
        span: tuple[int, int],
        stream: int,
    ) -> None:
        self.kernels.append(Kernel(self.rank, step, op, *which, *call, *span, stream, self.correlation, self.external))

    def opened_ns(self) -> int:
        return self.steps[self.window()[0]][0]

    def closed_ns(self) -> int:
        return self.steps[self.window()[1]][1]

    def window(self) -> tuple[int, int]:
        world = self.world
        return (*world.windows, *[(world.first_step, world.first_step + world.steps - 1)] * world.ranks)[self.rank]

    def clock(self, true_ns: int) -> int:
        """What this rank's clock shows."""
        gained = round((true_ns - START_NS) * of_rank(self.world.drift_ppm, self.rank) / 1e6)
        return true_ns + of_rank(self.world.offsets_ns, self.rank) + gained

    def has_launch(self, kernel: Kernel) -> bool:
        return self.opened_ns() <= kernel.launch_ns < self.closed_ns()

    def has_kernel(self, kernel: Kernel) -> bool:
        """Whether the profiler saw it run; without a tail it sees all that was launched while it was open."""
        if kernel.start_ns < self.opened_ns() - 1000 * of_rank(self.world.heads_us, self.rank):
            return False
        if self.rank >= len(self.world.tails_us):
            return kernel.launch_ns < self.closed_ns()
        return kernel.start_ns < self.closed_ns() + 1000 * self.world.tails_us[self.rank]


def of_rank(values: tuple[Any, ...], rank: int) -> Any:
    return values[rank] if rank < len(values) else 0


def of_step(world: World, step: int) -> tuple[Op, ...]:
    """The program of a step."""
    number = step - world.first_step
    return world.programs[number] if 0 <= number < len(world.programs) else world.program


def simulate(world: World) -> list[Machine]:
    """Run the program: every rank in the same order, so that no two wait for each other."""
    machines = [Machine(world, rank) for rank in range(world.ranks)]
    instances = count()
    for step in range(world.first_step - world.warmup, world.first_step + world.steps):
        begun = [machine.host_ns + machine.about(2_000) for machine in machines]
        for op in of_step(world, step):
            if isinstance(op, Compute):
                for machine in machines:
                    machine.compute(op, step)
                continue
            for team, ranks in enumerate(op.teams or (tuple(range(world.ranks)),)):
                meet(op, step, (team, ranks, next(instances)), [machines[rank] for rank in ranks])
        for machine, start in zip(machines, begun, strict=True):
            machine.compute_ns = machine.drained_ns()
            machine.keep_lead()
            machine.host_ns += machine.about(10_000)
            machine.steps[step] = start, machine.host_ns
    return machines


def meet(op: Collective, step: int, which: tuple[int, Ranks, int], members: list[Machine]) -> None:
    """One instance: all members launch, the data move, each leaves when its part is done, some a little later."""
    world, queue = members[0].world, op.queue(*which[:2])
    calls, arrived = zip(*(machine.arrive(queue) for machine in members), strict=True)
    transfer = members[0].about(op.transfer_ns(len(members), world.link_gbps))
    noise = world.jitter * min(1000 * world.noise_us, max(80_000, transfer * 0.15))
    for machine, call, start, done in zip(members, calls, arrived, op.departures(arrived, transfer), strict=True):
        end = done + round(machine.random.random() * noise)
        machine.streams[queue] = end
        if op.waited:
            machine.compute_ns = max(machine.compute_ns, end)
        machine.ran(op, step, which, call, (start, end), machine.stream(queue, op.lane))


def build(world: World) -> Made:
    """Every rank's document, and the truth."""
    machines = [machine for machine in simulate(world) if machine.rank not in world.absent]
    lost = Random(f"{world.seed}:lost")
    collectives = [(machine, kernel) for machine in machines for kernel in machine.kernels if kernel.instance >= 0]
    written = [
        kernel
        for machine, kernel in collectives
        if machine.has_kernel(kernel) and (not world.missing or lost.random() >= world.missing)
    ]
    kept = {(kernel.rank, kernel.correlation) for kernel in written}
    documents = [document(machine, kept) for machine in machines]
    return Made(documents, truth(world, written), written, world)


def truth(world: World, written: Iterable[Kernel]) -> list[Instance]:
    """The kernels of each instance, in the order of instances."""
    together: dict[int, list[Kernel]] = {}
    for kernel in written:
        together.setdefault(kernel.instance, []).append(kernel)
    found = []
    for _, kernels in sorted(together.items()):
        one = kernels[0]
        present = set(one.ranks) - set(world.absent)
        members = frozenset((k.rank, k.rank % world.devices_per_host, k.correlation) for k in kernels)
        name = one.op.group(one.team)
        found.append(Instance(one.op.kind, name, one.ranks, one.step, members, len(members) == len(present)))
    return found


def document(machine: Machine, kept: set[tuple[int, int]]) -> Document:
    """One rank's trace; of the NCCL kernels only those kept."""
    world, rank = machine.world, machine.rank
    events = list(annotations(machine)) if world.metadata else []
    for kernel in machine.kernels:
        launched = machine.has_launch(kernel)
        if launched:
            events += host_rows(machine, kernel)
        if (rank, kernel.correlation) in kept or (kernel.instance < 0 and machine.has_kernel(kernel)):
            events.append(device_row(machine, kernel, launched))
    groups = process_groups(world)
    said = {"backend": "nccl", "rank": rank, "world_size": world.ranks, "pg_count": len(groups), "pg_config": groups}
    return {
        "schemaVersion": 1,
        "distributedInfo": said,
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
        "traceName": f"rank{rank}.json",
        **({"host_name": world.hosts[rank]} if rank < len(world.hosts) else {}),
    }


def process_groups(world: World) -> list[dict[str, Any]]:
    """What `distributedInfo` says of the groups, each name once."""
    named = {"0": tuple(range(world.ranks))}
    for op in (*world.program, *chain(*world.programs)):
        if isinstance(op, Collective) and op.kind != "send_recv":
            named |= {op.group(team): ranks for team, ranks in enumerate(op.teams) if op.group(team) not in named}
    return [{"pg_name": name, "pg_size": len(ranks), "ranks": list(ranks)} for name, ranks in named.items()]


def annotations(machine: Machine) -> Iterator[Event]:
    """The profiler's steps on the host."""
    first, last = machine.window()
    for step, (start, end) in machine.steps.items():
        if first <= step <= last:
            number = step + of_rank(machine.world.numbered_higher, machine.rank)
            yield row(machine, "user_annotation", f"ProfilerStep#{number}", (start, end), 0, {"Ev Idx": step})


def row(machine: Machine, category: str, name: str, span: tuple[int, int], thread: int, args: dict[str, Any]) -> Event:
    """A row of the host, on this rank's clock."""
    start, end = map(machine.clock, span)
    process = 900 + machine.rank
    place = {"pid": process, "tid": process + 70 * thread, "ts": us(start), "dur": us(end - start)}
    return {"ph": "X", "cat": category, "name": name, **place, "args": args}


def host_rows(machine: Machine, kernel: Kernel) -> Iterator[Event]:
    """The call that launched a kernel, inside the operator that says what it carries."""
    known = {"External id": kernel.external} if machine.world.metadata else {}
    call = kernel.launch_ns, kernel.launched_ns
    if isinstance(kernel.op, Collective) and known:
        around = call[0] - 15_000, call[1] + 1_000
        args = known | metadata(kernel, machine.world)
        args |= {"Rank": kernel.op.root} if kernel.op.kind in ("gather", "scatter") else {}
        yield row(machine, "cpu_op", "record_param_comms", around, kernel.op.thread, args)
    how = ("cuda_driver", "cuLaunchKernelEx") if kernel.instance >= 0 else ("cuda_runtime", "cudaLaunchKernel")
    yield row(machine, *how, call, kernel.op.thread, known | {"correlation": kernel.correlation})


def device_row(machine: Machine, kernel: Kernel, launched: bool) -> Event:
    """The kernel; what was launched before the opening is known by nothing but its name."""
    device = machine.rank % machine.world.devices_per_host
    args = {"device": device, "context": 1, "stream": kernel.stream, "correlation": kernel.correlation}
    name = "void gemm<float>(float*)"
    known = launched and machine.world.metadata
    if known:
        args = {"External id": kernel.external} | args
    if isinstance(kernel.op, Collective):
        name = kernel.op.kernel
        args |= metadata(kernel, machine.world) if known and not kernel.op.coalesced else {}
    place = {"pid": device, "tid": kernel.stream}
    start, end = machine.clock(kernel.start_ns), machine.clock(kernel.end_ns)
    return {"ph": "X", "cat": "kernel", "name": name, **place, "ts": us(start), "dur": us(end - start), "args": args}


def metadata(kernel: Kernel, world: World) -> dict[str, Any]:
    """What PyTorch says of a collective; of a message, its whole process group's ranks and the peer."""
    op, place = kernel.op, kernel.ranks.index(kernel.rank)
    assert isinstance(op, Collective)
    elements_in, elements_out = op.messages(place, len(kernel.ranks))
    name, ranks, peer = SPOKEN.get(op.kind, op.kind), kernel.ranks, {}
    if op.kind == "send_recv":
        name, ranks = ("recv" if place else "send"), tuple(range(world.ranks))
        peer = {"Src Rank": kernel.ranks[0]} if place else {"Dst Rank": kernel.ranks[1]}
    listed = ", ".join(map(str, ranks[:KINETO_LISTS])) + (", ..." if len(ranks) > KINETO_LISTS else "")
    return {
        "Collective name": name,
        "In msg nelems": elements_in,
        "Out msg nelems": elements_out,
        "Group size": len(ranks),
        "dtype": op.dtype,
        "Process Group Name": op.group(kernel.team),
        "Process Group Ranks": f"[{listed}]",
        **peer,
    }


def any_world(random: Random) -> World:
    """A world of any kind, of up to eight ranks, for tests that try many."""
    ranks = random.choice([2, 4, 8])
    programs = [ddp(), ddp((700_000,) * 5, 3), fsdp(random.randint(2, 6)), every_kind(ranks), mesh(ranks, ranks // 2)]
    slow = random.random() < 0.2
    return World(
        ranks=ranks,
        steps=random.randint(2, 4),
        program=random.choice(programs),
        seed=random.randrange(10**9),
        warmup=random.randint(1, 3),
        jitter=random.choice([0.0, 0.1, 1.0, 1.0]),
        late_us=random.choice([5.0, 150.0, 900.0]),
        skew_us=tuple(random.choice([0, 0, 40, 200]) for _ in range(ranks)),
        noise_us=500.0 if slow else random.choice([3.0, 20.0, 80.0]),
        link_gbps=4.0 if slow else random.choice([25.0, 150.0, 300.0]),
        lead_us=random.choice([0, 1500, 6000]),
        offsets_ns=tuple(random.choice([0, 0, random.randint(-(10**9), 10**9)]) for _ in range(ranks)),
        leads_us=tuple(random.choice([0, 1500, 6000]) for _ in range(random.choice([0, ranks]))),
        drift_ppm=tuple(random.uniform(-5, 5) for _ in range(ranks)),
        heads_us=tuple(random.choice([0, 0, 2000]) for _ in range(ranks)),
        devices_per_host=random.choice([2, 8]),
    )
