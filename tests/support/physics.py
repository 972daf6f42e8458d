"""How collectives run on devices: ops, what they carry and when each member may leave.

rank 0   compute    |all_reduce waiting.......transfer|
rank 1   compute compute          |all_reduce transfer|
                                  ^ the last arrival
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Ranks = tuple[int, ...]

SYNCHRONIZING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
ITEMSIZE = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Byte": 1}
EAGER_BYTES = 1 << 20  # what the links' buffers hold: a member that sends no more need not wait for its receivers
LATENCY_NS = 8_000
SPOKEN = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}
SPOKEN |= {"all_to_all": "all_to_allv", "send_recv": "send"}
KERNELS = {
    "all_reduce": "AllReduce_Sum_{}_RING_LL",
    "barrier": "AllReduce_Sum_{}_RING_LL",
    "all_gather": "AllGather_RING_LL",
    "reduce_scatter": "ReduceScatter_Sum_{}_RING_LL",
    "broadcast": "Broadcast_RING_LL",
    "reduce": "Reduce_Sum_{}_RING_LL",
}
SUFFIX = {"Float": "f32", "BFloat16": "bf16", "Half": "f16", "Long": "i64", "Byte": "u8"}

# For kinds that let members leave early: whose arrivals a member waits for, places counted from the root.
WAITS_FOR: dict[str, Callable[[int, int], Sequence[int]]] = {
    "broadcast": lambda place, size: range(place + 1),
    "reduce": lambda place, size: range(place, size),
    "gather": lambda place, size: (place,) if place else range(size),
    "scatter": lambda place, size: (0, place),
    "send_recv": lambda place, size: (0, place),
}


@dataclass(frozen=True)
class Compute:
    """A kernel that takes so long on the compute stream."""

    us: int
    thread: int = 0


@dataclass(frozen=True)
class Collective:
    """One operation of every team of a group; `elements` counts the whole buffer, `root` is a place in the team.

    `{}` in the name is replaced by the team's number; without it all teams' groups are called alike. A coalesced
    operation's kernel carries no metadata, its host operator does. `waited`: the compute stream waits for its end.
    A group's operations queue up whatever `lane` of streams they are launched on; two peers have a queue of their own.
    """

    kind: str
    elements: int = 1 << 20
    dtype: str = "Float"
    name: str = "0"
    teams: tuple[Ranks, ...] = ()
    root: int = 0
    coalesced: bool = False
    uneven: bool = False
    waited: bool = False
    lane: int = 0
    thread: int = 1

    @property
    def nbytes(self) -> int:
        return 0 if self.kind == "barrier" else self.elements * ITEMSIZE[self.dtype]

    @property
    def kernel(self) -> str:
        name = KERNELS.get(self.kind, "SendRecv").format(SUFFIX[self.dtype])
        return f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)"

    def group(self, team: int) -> str:
        """The process group's name."""
        return self.name.format(team)

    def queue(self, team: int, ranks: Ranks) -> str:
        """What serializes it: its group, or for messages their two ends."""
        return f"{self.group(team)}:{ranks}" if self.kind == "send_recv" else self.group(team)

    def messages(self, place: int, size: int) -> tuple[int, int]:
        """Elements in and out, as PyTorch says them on the member at this place."""
        whole, part = self.elements, self.elements // size
        if self.kind == "barrier":
            return 0, 0
        if self.kind in ("all_gather", "gather"):
            return part, whole
        if self.kind in ("reduce_scatter", "scatter"):
            return whole, part
        return (whole + 64 * place, whole + 64 * (size - 1 - place)) if self.uneven else (whole, whole)

    def transfer_ns(self, size: int, gbps: float) -> int:
        """How long the data take on links of so many GB/s, as bus bandwidth counts."""
        share = (size - 1) / size
        factor = {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0, "send_recv": 1.0}.get(self.kind, share)
        return LATENCY_NS + round(self.nbytes * factor / gbps)

    def departures(self, arrived: Sequence[int], transfer_ns: int) -> list[int]:
        """The instant at which each member's part is done."""
        size = len(arrived)
        if self.kind in SYNCHRONIZING or self.nbytes > EAGER_BYTES:
            return [max(arrived) + transfer_ns] * size
        waits_for = WAITS_FOR[self.kind]
        places = [(member - self.root) % size for member in range(size)]
        awaited = [[arrived[(other + self.root) % size] for other in waits_for(place, size)] for place in places]
        return [max(instants) + transfer_ns for instants in awaited]


Op = Compute | Collective


def rows(ranks: int, width: int) -> tuple[Ranks, ...]:
    """The rows of a mesh so wide."""
    return tuple(tuple(range(start, start + width)) for start in range(0, ranks, width))


def columns(ranks: int, width: int) -> tuple[Ranks, ...]:
    """The columns of a mesh so wide."""
    return tuple(tuple(range(start, ranks, width)) for start in range(width))


def pairs(ranks: int, first: int = 0) -> tuple[Ranks, ...]:
    """Senders with their receivers, each rank to the next, from `first` on."""
    return tuple((rank, rank + 1) for rank in range(first, ranks - 1, 2))


def ddp(buckets: Sequence[int] = (2_365_450, 2_360_320, 2_492_416, 683_072), buffers: int = 2) -> tuple[Op, ...]:
    """A step of DDP: buffers are broadcast before forward, buckets reduced while backward computes."""
    shared = [Collective("broadcast", 9600 >> 3 * k, waited=True, thread=0) for k in range(buffers)]
    reduced = [part for size in buckets for part in (Compute(300, thread=1), Collective("all_reduce", size))]
    return (*shared, Compute(400), *reduced, Compute(100, thread=1))


def fsdp(layers: int = 6, elements: int = 12_596_224, dtype: str = "BFloat16") -> tuple[Op, ...]:
    """A step of sharded training: all layers alike, so that nothing but order tells its collectives apart.

    As PyTorch has it, one group's gathers and scatters are on two streams.
    """
    gather = Collective("all_gather", elements, dtype, waited=True)
    forward = [part for _ in range(layers) for part in (gather, Compute(200))]
    backward = [
        part
        for _ in range(layers)
        for part in (gather, Compute(400, thread=1), Collective("reduce_scatter", elements, dtype, lane=1))
    ]
    return (*forward, *backward, Compute(150))


def mesh(ranks: int, width: int) -> tuple[Op, ...]:
    """A step on a mesh: tensor parallel along rows, gradients along columns, a second group of the same columns."""
    along, across = rows(ranks, width), columns(ranks, width)
    return (
        *(Collective("all_gather", 65_536, "BFloat16", "rows{}", along, waited=True), Compute(120)),
        *(Collective("reduce_scatter", 65_536, "BFloat16", "rows{}", along, waited=True), Compute(180)),
        *(Collective("all_reduce", 1 << 20, "Float", "columns{}", across), Compute(200, thread=1)),
        *(Collective("all_reduce", 1 << 20, "Float", "again{}", across), Compute(60, thread=1)),
        *(Collective("all_reduce", 1, "Float", "0"), Compute(50)),
    )


def every_kind(ranks: int) -> tuple[Op, ...]:
    """A step with one of each kind, small and large, with and without metadata of its own."""
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
    small = [part for kind in kinds for part in (Collective(kind, 16_384, waited=True), Compute(90))]
    large = [part for kind in kinds for part in (Collective(kind, 1 << 22, root=1, waited=True), Compute(150))]
    sends = [Collective("send_recv", 8192, name="0", teams=pairs(ranks, first), waited=True) for first in (0, 1)]
    return (
        *small,
        *large,
        *sends,
        Collective("all_to_all", 1 << 18, uneven=True, waited=True),
        Collective("all_gather", 1 << 21, coalesced=True, waited=True),
        Compute(70),
        Collective("barrier", 0, "Byte", waited=True),
    )
