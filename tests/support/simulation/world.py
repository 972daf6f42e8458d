"""Worlds to simulate, and what can be wrong in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.support.simulation.device import Group

DDP, PIPELINE, FSDP = STRATEGIES = ("ddp", "pipeline", "fsdp")


@dataclass(frozen=True)
class Fault:
    """Something that makes a run slower, of a size whose unit its kind says, on one rank or on all."""

    kind: str
    size: float
    rank: int | None = None

    def hits(self, rank: int) -> bool:
        return self.rank is None or self.rank == rank


def late_host(rank: int, ms: float) -> Fault:
    """A rank's Python sleeps so long in every step."""
    return Fault("late host", ms, rank)


def slow_host(rank: int, factor: float) -> Fault:
    """All dense host time of a rank takes so many times as long."""
    return Fault("slow host", factor, rank)


def slow_gpu(rank: int, factor: float) -> Fault:
    """A rank's kernels take so many times as long."""
    return Fault("slow gpu", factor, rank)


def slow_input(ms: float, rank: int | None = None) -> Fault:
    """The next batch takes so much longer to come, on one rank or on all."""
    return Fault("slow input", ms, rank)


def starved_input(ms: float, rank: int | None = None) -> Fault:
    """The loader's workers make a batch in so long: where a step takes longer, it does not wait for them."""
    return Fault("starved input", ms, rank)


def event_waits(layers: int) -> Fault:
    """Behind every so many-th layer of forward the host waits for an event: cudaEventSynchronize."""
    return Fault("event waits", layers)


def small_reductions(count: int) -> Fault:
    """So many numbers are averaged over ranks one by one behind backward, and asked for together."""
    return Fault("small reductions", count)


def blocking_items(layers: int) -> Fault:
    """Behind every so many-th layer of forward a number is asked for: `.item()`."""
    return Fault("blocking items", layers)


def pageable_input() -> Fault:
    """The batch (`input_mb`) comes from pageable memory, instead of pinned."""
    return Fault("pageable input", 1)


def pageable_output() -> Fault:
    """What goes to the host (`output_mb`) goes to pageable memory, instead of pinned."""
    return Fault("pageable output", 1)


def allocations(count: int) -> Fault:
    """So many cudaMalloc a step in forward, and as many cudaFree behind backward: no memory is kept."""
    return Fault("allocations", count)


def slow_link(factor: float, rank: int | None = None) -> Fault:
    """All transfers take so many times as long, or those in which one rank takes part."""
    return Fault("slow link", factor, rank)


def unequal_stage(rank: int, layers: int) -> Fault:
    """A pipeline's stage has so many layers more."""
    return Fault("unequal stage", layers, rank)


def moved_layers(rank: int, layers: int) -> Fault:
    """A pipeline's stage has so many layers that the next one, or of the last one the first, should have."""
    return Fault("moved layers", layers, rank)


def uneven_work(share: float) -> Fault:
    """Kernels are longer or shorter by up to this share, by chance, for each rank and step."""
    return Fault("uneven work", share)


def collections(ms: float) -> Fault:
    """Python collects its garbage for so long in every third step, on all ranks."""
    return Fault("collections", ms)


def saved_steps(ms: float, rank: int = 0) -> Fault:
    """A rank's Python is busy for so long in every sixth step, with what no row tells: a file is written."""
    return Fault("saved steps", ms, rank)


def broadcast_buffers(count: int) -> Fault:
    """DDP broadcasts so many buffers before each forward."""
    return Fault("broadcast buffers", count)


def unused_parameters(ms: float) -> Fault:
    """DDP looks for unused parameters, which takes the host so long."""
    return Fault("unused parameters", ms)


def many_launches(count: int) -> Fault:
    """The optimizer launches so many small kernels instead of a few."""
    return Fault("many launches", count)


def synchronized_batches() -> Fault:
    """Gradients are reduced behind every micro-batch, not the last alone."""
    return Fault("synchronized batches", 1)


# Faults that only one strategy can have.
OF_STRATEGY = {
    "broadcast buffers": DDP,
    "unused parameters": DDP,
    "synchronized batches": DDP,
    "unequal stage": PIPELINE,
    "moved layers": PIPELINE,
}


@dataclass(frozen=True)
class World:
    """A training, and what is wrong in it. Times are those of the program without a profiler.

    Kernels of a layer's forward are `kernels`, of its backward twice as many. A kernel takes `kernel_us` give or take
    two quarters, always the same for the same kernel; its launch takes the host 5 us, `operator_us` of dispatch and
    `python_us` between operators, which makes a run bound by its hosts or by its devices.
    """

    strategy: str = DDP
    ranks: int = 2
    layers: int = 6
    kernels: int = 8
    kernel_us: float = 60.0
    operator_us: float = 14.0
    python_us: float = 6.0
    layer_mb: float = 8.0  # of parameters, or of their gradients, in a layer
    activation_mb: float = 4.0  # of a pipeline's message
    buckets: int = 3
    batches: int = 1  # accumulated, or a pipeline's microbatches
    input_ms: float = 0.2
    input_mb: float = 1.0
    output_mb: float = 0.0  # goes to the host in each step, while it goes on
    copy_stream: bool = False  # the batch goes to the device on a stream of its own
    tensor: int = 1  # DDP: ranks that share each layer, and reduce its output forward and backward
    strain: float = 1.0  # compute takes so many times as long while communication runs beside it
    link_gbps: float = 100.0
    latency_us: float = 12.0
    stretch: float = 1.6  # of dense host time in the full window
    row_us: float = 0.0  # and what each of its rows takes the host
    light_stretch: float = 1.04
    steps: int = 6  # in each window and in each block
    rounds: int = 3
    noise: float = 1.0
    hosts: int = 1  # machines, with as many ranks each
    offsets_ms: tuple[float, ...] = ()  # by machine, what its clock shows too much
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        assert self.strategy in STRATEGIES
        assert 1 <= self.buckets <= self.layers, "a bucket holds a layer at least"
        assert self.ranks % self.tensor == 0, "all groups are of one size"
        assert self.tensor == 1 or self.strategy == DDP
        for fault in self.faults:
            self._check(fault)

    def _check(self, fault: Fault) -> None:
        """A fault that could do nothing has no price."""
        same = [other for other in self.faults if other.kind == fault.kind and other.rank in (None, fault.rank)]
        assert len(same) == 1, f"{fault.kind} twice on a rank"
        assert OF_STRATEGY.get(fault.kind, self.strategy) == self.strategy, f"no {fault.kind} in {self.strategy}"
        assert fault.rank is None or fault.rank < self.ranks
        assert fault.kind != "pageable output" or self.output_mb, "nothing goes to the host"
        assert fault.kind != "synchronized batches" or self.batches > 1, "there is one batch a step"
        of_input = fault.kind in ("slow input", "starved input")
        assert not of_input or self.strategy != PIPELINE or not fault.rank, "the first stage alone has input"
        by_layer = fault.kind in ("blocking items", "event waits")
        assert not by_layer or 1 <= fault.size <= self.layers, "there are fewer layers"

    @property
    def everyone(self) -> Group:
        """The default process group."""
        return Group("0", tuple(range(self.ranks)), "default_pg")

    def sharing(self, rank: int) -> Group:
        """The ranks that share this one's layers."""
        first = rank - rank % self.tensor
        return Group(str(1 + first // self.tensor), tuple(range(first, first + self.tensor)), "mesh_tp")

    def data_parallel(self, rank: int) -> Group:
        """The ranks that have the same parameters as this one."""
        if self.tensor == 1:
            return self.everyone
        place = rank % self.tensor
        name = str(1 + self.ranks // self.tensor + place)
        return Group(name, tuple(range(place, self.ranks, self.tensor)), "mesh_dp")

    def groups(self, rank: int) -> list[Group]:
        """All process groups that a rank is in."""
        everyone = self.everyone
        if self.strategy == PIPELINE:
            return [everyone, *(Group(name, everyone.ranks, "pp") for name in ("1", "2"))]
        if self.strategy == FSDP:
            return [everyone, Group("1", everyone.ranks)]
        return [everyone] if self.tensor == 1 else [everyone, self.sharing(rank), self.data_parallel(rank)]

    def machine(self, rank: int) -> int:
        """The machine that a rank runs on."""
        return rank * self.hosts // self.ranks

    def size(self, kind: str, rank: int) -> float:
        """How large a fault is on a rank; 0 without it."""
        return sum(fault.size for fault in self.faults if fault.kind == kind and fault.hits(rank))

    def having(self, *faults: Fault) -> World:
        """The same world, with these faults too."""
        return replace(self, faults=(*self.faults, *(fault for fault in faults if fault not in self.faults)))

    def without(self, *faults: Fault) -> World:
        """The same world, without these faults."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault not in faults))


# Worlds whose devices set the pace, whose hosts do, and whose hosts are hardly ahead.
DEVICE_BOUND = World(kernel_us=90.0, operator_us=10.0, python_us=4.0)
HOST_BOUND = World(kernel_us=8.0, operator_us=22.0, python_us=12.0)
BALANCED = World(kernel_us=48.0, operator_us=18.0, python_us=10.0)


def random_healthy(seed: int) -> World:
    """A world without faults, of any strategy and size."""
    random = Random(seed)
    by_factor = random.random() < 0.5
    strategy = random.choice([DDP, DDP, DDP, PIPELINE, FSDP])
    ranks = random.choice([2, 3, 4]) if strategy == PIPELINE else random.choice([2, 2, 4, 8])
    layers = random.randint(3, 8) if ranks > 2 else random.randint(4, 24)
    bound = random.choice([DEVICE_BOUND, HOST_BOUND, BALANCED])
    return World(
        strategy=strategy,
        ranks=ranks,
        layers=layers,
        kernels=random.randint(3, 8),
        layer_mb=random.choice([1.0, 4.0, 16.0]),
        buckets=random.randint(1, layers),
        batches=random.randint(ranks, 2 * ranks) if strategy == PIPELINE else random.choice([1, 1, 3]),
        link_gbps=random.choice([20.0, 100.0, 300.0]),
        input_ms=random.choice([0.05, 0.3, 1.0]),
        copy_stream=random.random() < 0.3,
        tensor=2 if strategy == DDP and ranks > 2 and random.random() < 0.3 else 1,
        strain=random.choice([1.0, 1.0, 1.15]),
        stretch=random.uniform(1.3, 2.0) if by_factor else 1.1,
        row_us=0.0 if by_factor else random.uniform(0.7, 1.5),
        seed=seed,
        kernel_us=bound.kernel_us * random.uniform(0.8, 1.2),
        operator_us=bound.operator_us * random.uniform(0.8, 1.2),
        python_us=bound.python_us * random.uniform(0.8, 1.2),
    )
