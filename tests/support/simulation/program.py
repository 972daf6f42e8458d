"""Programs of a rank: the operations of one step under each strategy, with the faults of its world in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from tests.support.simulation.device import Group, Transfer, chance
from tests.support.simulation.host import (
    AUTOGRAD,
    COMPUTE,
    MAIN,
    Begin,
    BlockingCopy,
    Busy,
    Call,
    End,
    Launch,
    NextBatch,
    OnThread,
    Operation,
    Pause,
    Record,
    Synchronize,
    SynchronizeEvent,
    Wait,
)
from tests.support.simulation.world import World

COPY = "gpu_memcpy"
COPIES, SHARES, REDUCER = 30, 19, 17  # streams of copies, of what shared layers reduce, of the default group
D2D, H2D = "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pinned -> Device)"
PINNED_GBPS, TO_DEVICE_GBPS, TO_HOST_GBPS = 50.0, 7.0, 1.3
NAMES = {  # how torch calls a collective: its c10d operator, its row, its range, its kernel
    "all_reduce": ("c10d::allreduce_", "allreduce", "nccl:all_reduce", "AllReduce_Sum_f32_RING_LL"),
    "broadcast": ("c10d::broadcast_", "broadcast", "nccl:broadcast", "Broadcast_RING_LL"),
    "all_gather": ("c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base", "AllGather_RING_LL"),
    "reduce_scatter": (
        "c10d::_reduce_scatter_base_",
        "_reduce_scatter_base",
        "nccl:_reduce_scatter_base",
        "ReduceScatter_Sum_f32_RING_LL",
    ),
    "send": ("c10d::send", "send", "nccl:send", "SendRecv"),
    "recv": ("c10d::recv_", "recv", "nccl:recv", "SendRecv"),
}
OPERATORS = (
    ("aten::addmm", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>(Params)"),
    ("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"),
    ("aten::native_layer_norm", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)"),
    ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"),
)
ACCUMULATE = "torch::autograd::AccumulateGrad"
COPIES_OUT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


class Writer:
    """Writes a rank's program. What is written in a segment has the same luck whatever stands in others."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.operations: list[Operation] = []
        self.batch_number = 0
        self._number = 0

    def has(self, kind: str) -> float:
        return self.world.size(kind, self.rank)

    @contextmanager
    def segment(self, *name: object) -> Iterator[None]:
        before, self._number = self._number, crc32(repr(name).encode()) << 16
        yield
        self._number = before

    def add(self, *operations: Operation) -> None:
        for operation in operations:
            operation.number = self._number
            self._number += 1
        self.operations += operations

    @contextmanager
    def range(
        self, name: str, category: str = "user_annotation", sequence: int | None = None, **said: Any
    ) -> Iterator[None]:
        self.add(Begin(category, name, json.dumps(said)[1:-1], sequence))
        yield
        self.add(End())

    @contextmanager
    def operator(self, name: str, sequence: int | None = None, **said: Any) -> Iterator[None]:
        with self.range(name, "cpu_op", sequence, **said):
            yield

    def busy(self, us: float) -> None:
        self.add(Busy(int(us * 1000)))

    def kernel(self, operator: str, kernel: str, us: float, sequence: int | None = None) -> None:
        """An operator that launches one kernel."""
        world = self.world
        with self.operator(operator, sequence):
            self.busy(world.operator_us)
            self.add(Launch(kernel, int(us * 1000)))
            self.busy(1)
        self.busy(world.python_us)

    def copy(self, operator: str, nbytes: int, what: str = D2D) -> None:
        """An operator that launches one copy that blocks nothing."""
        gbps = PINNED_GBPS if what == H2D else 1500
        with self.operator(operator), self.operator("aten::copy_"):
            self.busy(2)
            self.add(Launch(what, 900 + int(nbytes / gbps), "cudaMemcpyAsync", kind=COPY, nbytes=nbytes))

    def transfer(self, kind: str, group: Group, nbytes: int, peer: int | None = None) -> Transfer:
        """What a collective, or a message to or from a peer, of so many bytes takes on the world's links."""
        world, rank = self.world, self.rank
        ranks = group.ranks if peer is None else (rank, peer) if kind == "send" else (peer, rank)
        share = (len(ranks) - 1) / len(ranks)
        factor = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(kind, 1.0)
        slow = max(world.size("slow link", member) for member in ranks) or 1.0
        ns = int(slow * (world.latency_us * 1000 + nbytes * factor / world.link_gbps))
        return Transfer(kind, group, ranks, nbytes, ns, peer)

    def collective(self, transfer: Transfer, key: str, stream: int) -> None:
        """A c10d call: its stream waits for what the caller's holds; the event of its end is called `key`."""
        operator, _, span, kernel = NAMES[transfer.kind]
        with self.operator(operator):
            self.busy(8)
            with self.operator("record_param_comms", **said_of(transfer)):
                self.busy(3)
                self.add(Record(f"{key}:ready"))
                self.add(Wait(f"{key}:ready", stream))
                with self.range(span):
                    self.busy(12)
                    self.add(Call("cudaEventRecord", 1_200), Call("cudaStreamWaitEvent", 1_000))
                    name = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
                    self.add(Launch(name, 0, "cuLaunchKernelEx", stream=stream, transfer=transfer))
                    self.add(Call("cudaEventRecord", 1_200), Call("cudaStreamWaitEvent", 1_000))
                self.add(Record(key, stream))
                self.busy(4)
                self.add(Call("cudaEventRecord", 1_000))
            self.busy(2)

    def wait(self, transfer: Transfer, key: str) -> None:
        """`work.wait()`: the compute stream waits for the collective's end."""
        said = said_of(transfer) | {"Collective name": "wait", "dtype": "Byte", "Group size": 1}
        said |= {"In msg nelems": 0, "Out msg nelems": 0, "Process Group Ranks": "[]"}
        with self.operator(
            "record_param_comms", **{k: v for k, v in said.items() if k not in ("Src Rank", "Dst Rank")}
        ):
            self.busy(1)
            self.add(Wait(key))

    # What all strategies have.

    def batch(self, number: int) -> None:
        """The next batch comes, and goes to the device."""
        with self.segment("batch", number):
            with self.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                self.add(Pause(int((self.world.input_ms + self.has("slow input")) * 1e6)))
                if self.has("starved input"):
                    self.add(NextBatch(int(self.has("starved input") * 1e6)))
            self.busy(10)
        with self.segment("batch to device", number):
            with self.operator("aten::to"), self.operator("aten::_to_copy"), self.operator("aten::copy_"):
                self.busy(8)
                self._to_device(int(self.world.input_mb * 1e6))
            self.busy(2)

    def _to_device(self, size: int) -> None:
        if self.has("pageable input"):
            dur_ns, name = 2_000 + int(size / TO_DEVICE_GBPS), "Memcpy HtoD (Pageable -> Device)"
            self.add(BlockingCopy(name, dur_ns, "cudaMemcpyAsync", kind=COPY, nbytes=size))
            self.add(Synchronize(COMPUTE))
            return
        dur_ns, call = 2_000 + int(size / PINNED_GBPS), "cudaMemcpyAsync"
        if not self.world.copy_stream:
            self.add(Launch(H2D, dur_ns, call, kind=COPY, nbytes=size))
            return
        # It goes where the batch before lies, when that one's forward is done.
        self.add(Wait("forward done", COPIES))
        self.add(Launch(H2D, dur_ns, call, kind=COPY, stream=COPIES, nbytes=size))
        self.add(Record("batch", COPIES), Wait("batch"))

    def sleep(self) -> None:
        """What Python does before forward that no row tells: nothing, a sleep; a collection has a row."""
        with self.segment("sleep"):
            if self.has("late host"):
                self.add(Pause(int(self.has("late host") * 1e6)))
            if self.has("saved steps"):
                self.add(Pause(int(self.has("saved steps") * 1e6), 6))
            if self.has("collections"):
                row = ("gc", "gc of generation 2", '"generation": 2')
                self.add(Pause(int(self.has("collections") * 1e6), 3, row))

    def forward(self, layers: list[int], batch: int) -> None:
        """The module's own forward."""
        with self.range("nn.Module: (model) (Net)"):
            self.busy(10)
            for layer in layers:
                with self.segment("forward", layer, batch), self.range(f"nn.Module: layers.{layer} (Block)"):
                    self.busy(12)
                    self.layer_forward(layer)
                    self.reduce_shares("shares")
                self.behind_layer(layer, len(layers), batch)

    def behind_layer(self, layer: int, layers: int, batch: int) -> None:
        """What faults put behind a layer's forward: `.item()`, a wait, this layer's share of the step's cudaMalloc."""
        items, events = int(self.has("blocking items")), int(self.has("event waits"))
        count = int(self.has("allocations"))
        with self.segment("behind", layer, batch):
            if items and not (layer + 1) % items:
                self.item()
            if events and not (layer + 1) % events:
                self.add(Record("behind"), SynchronizeEvent("behind"))
            for _ in range(count * layer // layers, count * (layer + 1) // layers):
                with self.operator("aten::empty"):
                    self.add(Call("cudaMalloc", 180_000, stretches=False))

    def layer_forward(self, layer: int) -> None:
        for place in range(self.world.kernels):
            name, kernel = OPERATORS[place % len(OPERATORS)]
            self.kernel(name, kernel, self.kernel_us(layer, place), self.sequence(layer, place))

    def reduce_shares(self, key: str) -> None:
        """Tensor parallelism: the layer's output, or its input's gradient, is summed over the ranks that share it."""
        if self.world.tensor > 1:
            size = int(self.world.activation_mb * 1e6)
            transfer = self.transfer("all_reduce", self.world.sharing(self.rank), size)
            with self.operator("_c10d_functional::all_reduce_"):
                self.collective(transfer, key, SHARES)
            with self.operator("_c10d_functional::wait_tensor"):
                self.wait(transfer, key)

    def sequence(self, layer: int, place: int) -> int:
        """What joins an operator of forward to its node of backward, within a step."""
        return (self.batch_number * 64 + layer) * 64 + place

    def layer_backward(self, layer: int) -> None:
        for place in reversed(range(self.world.kernels)):
            name, kernel = OPERATORS[place % len(OPERATORS)]
            node = name.removeprefix("aten::").title().replace("_", "") + "Backward0"
            said = {"sequence": self.sequence(layer, place), "Fwd thread id": 1}
            with self.operator(f"autograd::engine::evaluate_function: {node}", **said):
                self.busy(3)
                with self.operator(node, **said):
                    for half in (0, 1):
                        self.kernel(f"{name}_backward", kernel, self.kernel_us(layer, place, half + 1))

    def kernel_us(self, layer: int, place: int, half: int = 0) -> float:
        """What this kernel takes, on every rank."""
        return self.world.kernel_us * (0.33 + 1.34 * chance(layer, place, half, 5))

    def item(self) -> None:
        with self.operator("aten::item"), self.operator("aten::_local_scalar_dense"):
            self.busy(4)
            name = "Memcpy DtoH (Device -> Pinned)"
            self.add(Launch(name, 1_500, "cudaMemcpyAsync", kind=COPY, nbytes=4))
            self.add(Synchronize(COMPUTE))
        self.busy(3)

    def offload(self) -> None:
        """Something goes to the host: while it goes on, or from pageable memory's staging buffer bit by bit."""
        size, call = int(self.world.output_mb * 1e6), "cudaMemcpyAsync"
        if not size:
            return
        with self.segment("offload"), self.operator("aten::to"), self.operator("aten::_to_copy"):
            self.busy(8)
            with self.operator("aten::copy_"):
                if self.has("pageable output"):
                    dur_ns, name = 2_000 + int(size / TO_HOST_GBPS), "Memcpy DtoH (Device -> Pageable)"
                    self.add(BlockingCopy(name, dur_ns, call, kind=COPY, nbytes=size), Synchronize(COMPUTE))
                else:
                    dur_ns, name = 2_000 + int(size / PINNED_GBPS), "Memcpy DtoH (Device -> Pinned)"
                    self.add(Launch(name, dur_ns, call, kind=COPY, nbytes=size))

    def loss(self, batch: int) -> None:
        with self.segment("loss", batch):
            if self.world.copy_stream:
                self.add(Record("forward done"))
            self.kernel("aten::log_softmax", "void (anonymous namespace)::softmax_warp_forward<float>(int)", 4)
            self.kernel("aten::nll_loss_forward", "void at::native::nll_loss_forward_reduce_cuda_kernel<float>(int)", 4)

    @contextmanager
    def on_autograd(self, batch: int) -> Iterator[None]:
        """A backward: the main thread calls the engine, whose thread works until it is done."""
        with self.segment("hand over", batch):
            name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
            self.kernel("aten::ones_like", name, 1)
            self.busy(60)
        self.add(OnThread(AUTOGRAD))
        yield
        self.add(OnThread(MAIN))
        with self.segment("hand back", batch):
            self.busy(40)

    def average(self) -> None:
        """Numbers that are printed, averaged over all ranks one by one, and then asked for."""
        with self.segment("average"):
            for number in range(int(self.has("small reductions"))):
                transfer = self.transfer("all_reduce", self.world.everyone, 4)
                self.collective(transfer, f"number {number}", REDUCER)
                self.wait(transfer, f"number {number}")
            if self.has("small reductions"):
                self.item()

    def free(self) -> None:
        with self.segment("free"):
            for _ in range(int(self.has("allocations"))):
                self.add(Synchronize(None, "cudaFree", 120_000))

    def optimize(self) -> None:
        """SGD: a few kernels for all parameters, or many."""
        with self.segment("optimizer"), self.range("Optimizer.step#SGD.step"):
            self.busy(30)
            count, whole_us = int(self.has("many launches")), 3 * max(4.0, self.world.layer_mb * self.world.layers / 8)
            name = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>>(int)"
            if not count:
                for _ in range(3):
                    self.kernel("aten::_foreach_add_", name, whole_us / 3)
            for _ in range(count):
                self.kernel("aten::add_", OPERATORS[1][1], max(1.5, whole_us / count))
        with self.segment("zero"), self.range("Optimizer.zero_grad#SGD.zero_grad"):
            self.busy(25)


def said_of(transfer: Transfer) -> dict[str, Any]:
    """What PyTorch says of a collective, in its row and on its kernel; of a message, its process group's ranks."""
    elements = transfer.nbytes // 4
    part = elements // len(transfer.group.ranks)
    said: dict[str, Any] = {
        "Collective name": NAMES[transfer.kind][1],
        "dtype": "Float",
        "In msg nelems": part if transfer.kind == "all_gather" else elements,
        "Out msg nelems": part if transfer.kind == "reduce_scatter" else elements,
        "Group size": len(transfer.group.ranks),
        "Process Group Name": transfer.group.name,
        "Process Group Description": transfer.group.description,
        "Process Group Ranks": str([*transfer.group.ranks]),
        "In split size": "[]",
        "Out split size": "[]",
    }
    if transfer.peer is not None:
        said["Dst Rank" if transfer.kind == "send" else "Src Rank"] = transfer.peer
    return said
