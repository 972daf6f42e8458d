"""Steps of each strategy: data parallel, a pipeline (1F1B), sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.simulation.device import Transfer
from tests.support.simulation.host import Call, Launch, Operation, Pause, Record, Wait
from tests.support.simulation.program import ACCUMULATE, COPIES_OUT, H2D, REDUCER, Writer
from tests.support.simulation.world import DDP, FSDP, PIPELINE, World

GATHERS, SCATTERS = 22, 26  # streams of FSDP's collectives
DATA = 18  # of gradients, where layers are shared
CHUNK = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float>(int)"
SHARED = "_CopyToModelParallelRegionBackward"
ENGINE = "autograd::engine::evaluate_function: "


def step_of(world: World, rank: int) -> list[Operation]:
    """Return what a rank's host does in a step."""
    writer = Writer(world, rank)
    write = {DDP: write_ddp, PIPELINE: write_pipeline, FSDP: write_fsdp}[world.strategy]
    write(writer)
    return writer.operations


def bucket_layers(world: World) -> list[list[int]]:
    """Return the layers of each of DDP's buckets: the last layer's gradients are ready first."""
    layers, count = [*reversed(range(world.layers))], world.buckets
    return [layers[world.layers * k // count : world.layers * (k + 1) // count] for k in range(count)]


def layers_of_stage(world: World, stage: int) -> int:
    """How many layers a pipeline's stage has."""
    lost = world.size("moved layers", (stage - 1) % world.ranks)
    return world.layers + int(world.size("unequal stage", stage) + world.size("moved layers", stage) - lost)


def write_ddp(writer: Writer) -> None:
    """Forward and backward of each batch; gradients are reduced by bucket while backward goes on."""
    world = writer.world
    for batch in range(world.batches):
        writer.batch_number = batch
        writer.batch(batch)
        if batch == 0:
            writer.sleep()
        reduces = batch == world.batches - 1 or bool(writer.has("synchronized batches"))
        with writer.range("DistributedDataParallel.forward"):
            with writer.segment("ddp", batch):
                writer.busy(25)
            if writer.has("broadcast buffers"):
                _broadcast_buffers(writer, batch)
            writer.forward([*range(world.layers)], batch)
            if writer.has("unused parameters"):
                with writer.segment("unused", batch):
                    _search_unused(writer)
        writer.loss(batch)
        with writer.on_autograd(batch):
            _ddp_backward(writer, batch, reduces)
        if batch == 0:
            writer.offload()
    writer.average()
    writer.free()
    writer.optimize()


def _broadcast_buffers(writer: Writer, batch: int) -> None:
    count = int(writer.has("broadcast buffers"))
    with writer.segment("buffers", batch):
        transfer = writer.transfer("broadcast", writer.world.everyone, 512 * count)
        with writer.operator("aten::flatten_dense_tensors"):
            writer.busy(2 * count)
            name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<int>(int)"
            with writer.operator("aten::cat"):
                writer.busy(8)
                writer.add(Launch(name, 1_600))
        writer.collective(transfer, "buffers", REDUCER)
        writer.wait(transfer, "buffers")
        with writer.operator("aten::unflatten_dense_tensors"):
            writer.busy(2 * count)
        for _ in range(count):
            writer.copy("aten::copy_", 512)


def _search_unused(writer: Writer) -> None:
    with writer.operator("torch.distributed.ddp.reducer::search_unused_parameters"):
        # C++ without rows of its own: no profiler stretches it.
        writer.add(Pause(int(1e6 * writer.has("unused parameters"))))


def _ddp_backward(writer: Writer, batch: int, reduces: bool) -> None:
    world, buckets = writer.world, bucket_layers(writer.world)
    size, stream = int(world.layer_mb * 1e6), DATA if world.tensor > 1 else REDUCER
    for number, layers in enumerate(buckets):
        for layer in layers:
            with writer.segment("backward", layer, batch):
                writer.layer_backward(layer)
                if world.tensor > 1:
                    with writer.operator(ENGINE + SHARED), writer.operator(SHARED):
                        writer.reduce_shares("gradient shares")
            with writer.segment("accumulate", layer, batch), writer.operator(ENGINE + ACCUMULATE):
                _accumulate(writer, size, reduces)
                if reduces and layer == layers[-1]:
                    writer.collective(
                        _bucket(writer, len(layers)), f"bucket {number}", DATA if world.tensor > 1 else REDUCER
                    )
                    if number == len(buckets) - 1 and writer.has("unused parameters"):
                        _reduce_used(writer, stream)
    if reduces:
        _finalize(writer, buckets, batch)


def _bucket(writer: Writer, layers: int) -> Transfer:
    size = int(writer.world.layer_mb * 1e6) * layers
    return writer.transfer("all_reduce", writer.world.data_parallel(writer.rank), size)


def _accumulate(writer: Writer, size: int, reduces: bool) -> None:
    """A layer's gradient is added to what is there; where it is to be reduced, it goes into its bucket."""
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    multiply = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int)"
    dims: dict[str, Any] = {"Input Dims": [[size // 4]], "Input type": ["float"]}
    with writer.operator(ACCUMULATE, **dims):
        writer.busy(4)
        if writer.batch_number:
            writer.kernel("aten::add_", add, 1.5 + size / 1.2e6)
    if reduces:
        with writer.operator("torch::distributed::reducer::mul_out", **dims):
            writer.kernel("aten::mul", multiply, 1.5 + size / 1.8e6)


def _reduce_used(writer: Writer, stream: int) -> None:
    """Which parameters any rank used: all ranks' counts are summed."""
    with writer.segment("reduce used", writer.batch_number):
        writer.copy("aten::to", 4 * writer.world.layers, H2D)
        transfer = writer.transfer("all_reduce", writer.world.data_parallel(writer.rank), 4 * writer.world.layers)
        writer.collective(transfer, "used", stream)


def _finalize(writer: Writer, buckets: Sequence[Sequence[int]], batch: int) -> None:
    """The reducer waits for each bucket, outside of any c10d row, and copies gradients out of it."""
    with writer.segment("finalize", batch):
        for number, layers in enumerate(buckets):
            writer.add(Wait(f"bucket {number}"))
            for _ in layers:
                writer.copy(COPIES_OUT, int(writer.world.layer_mb * 1e6))
    if writer.has("unused parameters"):
        with writer.segment("wait used", batch):
            writer.add(Wait("used"))


def write_pipeline(writer: Writer) -> None:
    """1F1B: a stage runs as many forwards ahead as there are stages behind it, then one of each by turns."""
    world, stage = writer.world, writer.rank
    layers = [*range(layers_of_stage(world, stage))]
    ahead = min(world.batches, world.ranks - 1 - stage)
    writer.sleep()
    for batch in range(world.batches + ahead):
        if batch < world.batches:
            _stage_forward(writer, layers, batch)
        if batch >= ahead:
            _stage_backward(writer, layers, batch - ahead)
    with writer.segment("norm"):
        _sum_norms(writer)
    writer.average()
    writer.free()
    writer.optimize()


def _sum_norms(writer: Writer) -> None:
    """The gradients' norm over all stages, by which they are clipped."""
    transfer = writer.transfer("all_reduce", writer.world.everyone, 4)
    writer.collective(transfer, "norm", REDUCER)
    writer.wait(transfer, "norm")
    writer.kernel(
        "aten::mul_", "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int)", 8
    )


def _message(writer: Writer, peer: int, sends: bool, backward: bool) -> Transfer:
    """A message of one direction: each has a process group, and in it each pair its communicator."""
    group = writer.world.groups(writer.rank)[2 if backward else 1]
    return writer.transfer("send" if sends else "recv", group, int(writer.world.activation_mb * 1e6), peer)


def _receive(writer: Writer, peer: int, backward: bool) -> None:
    transfer = _message(writer, peer, False, backward)
    writer.collective(transfer, "received", 21 if backward else 20)
    writer.wait(transfer, "received")


def _send(writer: Writer, peer: int, backward: bool) -> None:
    writer.collective(_message(writer, peer, True, backward), "sent", 23 if backward else 22)


def _stage_forward(writer: Writer, layers: list[int], batch: int) -> None:
    world, stage = writer.world, writer.rank
    writer.batch_number = batch
    if stage == 0:
        writer.batch(batch)
    with writer.segment("forward message", batch), writer.range(f"PP:{stage}F{batch}"):
        if stage > 0:
            _receive(writer, stage - 1, backward=False)
        writer.forward(layers, batch)
        if stage == world.ranks - 1:
            writer.loss(batch)
        if batch == 0:
            writer.offload()
    if stage < world.ranks - 1:
        with writer.segment("forward sent", batch):
            _send(writer, stage + 1, backward=False)


def _stage_backward(writer: Writer, layers: list[int], batch: int) -> None:
    world, stage = writer.world, writer.rank
    writer.batch_number = batch
    with writer.segment("backward message", batch), writer.range(f"PP:{stage}B{batch}"):
        if stage < world.ranks - 1:
            _receive(writer, stage + 1, backward=True)
        with writer.on_autograd(batch):
            for layer in reversed(layers):
                with writer.segment("backward", layer, batch):
                    writer.layer_backward(layer)
                with writer.segment("accumulate", layer, batch), writer.operator(ENGINE + ACCUMULATE):
                    _accumulate(writer, int(world.layer_mb * 1e6), reduces=False)
    if stage > 0:
        with writer.segment("backward sent", batch):
            _send(writer, stage - 1, backward=True)


def write_fsdp(writer: Writer) -> None:
    """FSDP2: each layer's parameters are gathered before its forward and backward, its gradients scattered behind."""
    world = writer.world
    for batch in range(world.batches):
        writer.batch_number = batch
        writer.batch(batch)
        if batch == 0:
            writer.sleep()
        _fsdp_forward(writer, batch)
        writer.loss(batch)
        with writer.on_autograd(batch):
            _fsdp_backward(writer, batch)
        if batch == 0:
            writer.offload()
    writer.average()
    writer.free()
    writer.optimize()


def _fsdp_forward(writer: Writer, batch: int) -> None:
    with writer.range("nn.Module: (model) (FSDPNet)"):
        for layer in range(writer.world.layers):
            with writer.segment("gather", layer, batch), writer.range(f"FSDP::pre_forward (layers.{layer})"):
                _gather(writer, layer)
                if layer:
                    writer.add(Wait("copied out", GATHERS))
                _copy_out(writer, layer)
            with writer.segment("forward", layer, batch), writer.range(f"nn.Module: layers.{layer} (FSDPBlock)"):
                writer.busy(12)
                writer.layer_forward(layer)
            writer.behind_layer(layer, writer.world.layers, batch)


def _shared(writer: Writer, kind: str) -> Transfer:
    group = writer.world.groups(writer.rank)[kind == "reduce_scatter"]
    return writer.transfer(kind, group, int(writer.world.layer_mb * 1e6))


def _gather(writer: Writer, layer: int) -> None:
    with writer.range(f"FSDP::all_gather (layers.{layer})"):
        writer.busy(20)
        writer.collective(_shared(writer, "all_gather"), f"gathered {layer}", GATHERS)


def _copy_out(writer: Writer, layer: int) -> None:
    with writer.range(f"FSDP::all_gather_copy_out (layers.{layer})"):
        writer.add(Wait(f"gathered {layer}"))
        name = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(int)"
        writer.kernel("fsdp::split_with_sizes_copy", name, 2 + writer.world.layer_mb / 1.8)
        writer.add(Record("copied out"))


def _fsdp_backward(writer: Writer, batch: int) -> None:
    for layer in reversed(range(writer.world.layers)):
        with writer.segment("gather again", layer, batch), writer.range(f"FSDP::pre_backward (layers.{layer})"):
            if layer == writer.world.layers - 1:
                _gather(writer, layer)
            _copy_out(writer, layer)
            if layer:
                with writer.range(f"FSDP::backward_prefetch for layers.{layer - 1}"):
                    writer.add(Wait("copied out", GATHERS))
                    _gather(writer, layer - 1)
        with writer.segment("backward", layer, batch):
            writer.layer_backward(layer)
        with writer.segment("scatter", layer, batch), writer.range(f"FSDP::post_backward_reduce (layers.{layer})"):
            writer.kernel("fsdp::chunk_cat", CHUNK, 6)
            writer.collective(_shared(writer, "reduce_scatter"), "scattered", SCATTERS)
    with writer.segment("scattered", batch), writer.range("FSDP::root_post_backward"):
        writer.add(Wait("scattered"), Call("cudaEventRecord", 800))
