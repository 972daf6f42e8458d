"""Simulation of a world: recorded as `tracer record` would, or left alone for its true pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median

from tests.support.simulation.device import Activity, Clock, Device, Network
from tests.support.simulation.host import (
    Barrier,
    Close,
    Enter,
    Host,
    HostTimer,
    Mark,
    Meeting,
    Mode,
    Operation,
    Pace,
    Synchronize,
)
from tests.support.simulation.strategies import step_of
from tests.support.simulation.world import Fault, World

SETTLING = 6  # steps until a pace is steady
MEASURED = 36  # divisible by three: every third step may have a collection
REST = 2  # steps of a round whose hosts are timed with the device at rest
FIRST_NS = 1_000_000
PLAIN = Mode()
Block = tuple[str, list[int]]
Plan = Callable[[list[Operation]], Iterator[list[Operation]]]


@dataclass(frozen=True, eq=False)
class Simulated:
    """A recorded run, and the truth beside it; times are ns on the one clock of all ranks.

    `blocks` are the recording's, in order: what watched them, and their steps' numbers.
    """

    world: World
    hosts: list[Host]
    network: Network
    blocks: list[Block]

    @property
    def step_ns(self) -> float:
        """The true step: the mean of the unprofiled ones of a long run, once its pace is steady."""
        return steady_pace(self.world)[0]

    @property
    def typical_ns(self) -> float:
        """The median of those steps, which differs from their mean where single ones are odd."""
        return steady_pace(self.world)[1]

    def steps(self, what: str) -> list[list[int]]:
        """The steps' numbers of each block that was watched so."""
        return [steps for name, steps in self.blocks if name == what]

    def activities(self, rank: int, window: str) -> list[Activity]:
        """What ran on a rank's device in a window, by its end."""
        return [activity for activity in self.hosts[rank].device.done if activity.window == window]

    def steps_ns(self, rank: int, steps: Sequence[int]) -> list[int]:
        """How long these steps took, by the events in the compute stream between them."""
        marks = self.hosts[rank].marks
        return [marks[step + 1][1].ns - marks[step][1].ns for step in steps]

    def host_ns(self, rank: int) -> list[int]:
        """What launching a step took a rank's host, unprofiled, with the device at rest before."""
        return [ns for _, ns in self.hosts[rank].host_steps]


def simulate(world: World) -> Simulated:
    """Record a run of this world: rounds of blocks, of which the last one's windows are kept."""
    blocks: list[Block] = []
    step = 0
    for number in range(1, world.rounds + 1):
        for what in ("rest", "warm", "unprofiled", *(("light", "full") if number == world.rounds else ())):
            count = {"rest": REST, "warm": 1}.get(what, world.steps)
            blocks.append((what, [*range(step, step + count)]))
            # A mark ends a block's last step too; no step has two.
            step += count + 1
    hosts, network = _run(world, lambda program: _watched(world, blocks, program))
    return Simulated(world, hosts, network, blocks)


def price(world: World, *faults: Fault) -> float:
    """Return what these faults together cost a step, ns: the mean step with them less that without, both unprofiled.

    Other faults of the world stay. What a fault does not touch has the same luck in both.
    """
    return steady_pace(world.having(*faults))[0] - steady_pace(world.without(*faults))[0]


@lru_cache(maxsize=256)
def steady_pace(world: World) -> tuple[float, float]:
    """Return the mean and the median step of the slowest rank, ns, without any profiler, once the pace is steady."""
    last = SETTLING + MEASURED
    hosts, _ = _run(world, lambda program: _unwatched(program, last))
    steps = []
    for host in hosts:
        ends = [host.marks[step][1].ns for step in range(SETTLING, last + 1)]
        steps.append([end - begin for begin, end in pairwise(ends)])
    slowest = max(steps, key=sum)
    return sum(slowest) / MEASURED, float(median(slowest))


def _run(world: World, plan: Plan) -> tuple[list[Host], Network]:
    clock, meeting = Clock(), Meeting(world.ranks)
    network, hosts = Network(clock, world.seed), []
    for rank in range(world.ranks):
        host = Host(rank, world.seed, clock, Device(clock, network, world.strain), _pace(world, rank), meeting)
        host.ns = FIRST_NS + 40_000 * rank
        host.program = plan(step_of(world, rank))
        host.start()
        hosts.append(host)
    clock.run()
    assert network.is_quiet, "a member never came: the simulated program is wrong"
    assert all(host.ended for host in hosts), "a host waits for something that never comes"
    return hosts, network


def _pace(world: World, rank: int) -> Pace:
    return Pace(
        world.size("slow host", rank) or 1.0,
        world.size("slow gpu", rank) or 1.0,
        world.size("uneven work", rank),
        world.noise,
    )


def _unwatched(program: list[Operation], steps: int) -> Iterator[list[Operation]]:
    for step in range(steps):
        yield [Enter(step, PLAIN), *_numbered(Mark(step)), *program]
    yield _numbered(Mark(steps))


def _watched(world: World, blocks: Sequence[Block], program: list[Operation]) -> Iterator[list[Operation]]:
    """The recorder's own operations around each block's steps."""
    modes = {"light": Mode("light", world.light_stretch), "full": Mode("full", world.stretch, int(world.row_us * 1000))}
    for what, steps in blocks:
        mode = modes.get(what, PLAIN)
        if what in modes:
            yield [Enter(steps[0], PLAIN), *_numbered(Synchronize()), Barrier()]
        for step in steps:
            if what == "rest":
                timed = [*_numbered(Synchronize()), HostTimer(False), *program, HostTimer(True)]
                yield [Enter(step, mode), *timed]
            elif what == "warm":
                yield [Enter(step, mode), *program]
            else:
                yield [Enter(step, mode), *_numbered(Mark(step)), *program]
        if what not in ("rest", "warm"):
            end = [*_numbered(Mark(steps[-1] + 1))]
            yield [*end, *_numbered(Synchronize(), Close())] if what in modes else end


def _numbered(*operations: Operation) -> list[Operation]:
    """The recorder's operations, whose luck no program's hangs on."""
    for operation in operations:
        operation.number = 1
    return [*operations]
