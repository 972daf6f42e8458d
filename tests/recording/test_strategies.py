"""Strategies recognised in programs of one process, among 8 ranks that are only made up."""

import functools
import gc
from types import SimpleNamespace

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from analyzers.run import Parallelism, RecordedContext, RecordedMesh, SequenceBuffer
from tracer.recording.strategies import parallelism_of, program_of, strategy_name, watched_splits
from tracer.recording.strategies.ddp import Ddp
from tracer.recording.strategies.meshes import recorded_meshes
from tracer.recording.strategies.parallelism import STRATEGIES

RANK, SIZE = 5, 8


@pytest.fixture(autouse=True)
def ranks():
    """Collectives of these do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=SIZE)
    yield
    dist.destroy_process_group()
    gc.collect()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, inputs):
        return self.down(self.up(self.norm(inputs)).relu())


class Model(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.layers, self.head = nn.ModuleList(Block() for _ in range(layers)), nn.Linear(8, 8)

    def forward(self, inputs):
        for layer in self.layers:
            inputs = layer(inputs)
        return self.head(inputs)


def described(model) -> Parallelism:
    found = parallelism_of(program_of(model, RANK, SIZE))
    assert found.unknown == {}
    assert msgspec.json.decode(msgspec.json.encode(found), type=Parallelism) == found
    return found


def mesh_of(**sizes):
    return init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def test_fully_shard_tells_its_units_and_their_settings():
    mesh = mesh_of(dp_replicate=2, dp_shard=4)
    model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=2)
    fully_shard([model.head], mesh=mesh, reshard_after_forward=False)
    model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])
    found = described(model)
    assert found.strategies == ["fsdp"]
    first, others, head = found.fsdp
    assert (first.modules, first.count, first.forward_prefetch) == ("layers.*", 1, 1)
    assert (others.modules, others.count, others.forward_prefetch) == ("layers.*", 2, 0)
    assert (others.version, others.reshard_after_forward) == (2, 2)
    assert (others.shard_dims, others.replicate_dims) == (["dp_shard"], ["dp_replicate"])
    assert (others.shard_ranks, others.replicate_ranks) == (4, 2)
    assert (others.param_dtype, others.reduce_dtype) == ("bfloat16", "float32")
    assert (head.modules, head.reshard_after_forward, head.param_dtype) == ("head", False, None)


def test_fully_sharded_data_parallel_tells_its_sharding():
    # It takes a GPU to make one.
    model = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
    nn.Module.__init__(model)
    model.sharding_strategy, model.process_group = ShardingStrategy.SHARD_GRAD_OP, dist.group.WORLD
    model.mixed_precision, model.cpu_offload = MixedPrecision(reduce_dtype=torch.float16), CPUOffload()
    model._fsdp_wrapped_module = Model()
    (row,) = described(model).fsdp
    assert (row.modules, row.version, row.sharding, row.reduce_dtype) == ("", 1, "SHARD_GRAD_OP", "float16")
    assert (row.reshard_after_forward, row.shard_ranks) == (False, 8)


def test_meshes_are_told_once_with_this_ranks_groups_and_no_slices():
    mesh = mesh_of(dp=2, cp=2, tp=2)
    kept = [mesh["tp"], mesh["dp", "cp"], mesh["dp", "cp"]._flatten("dp_cp")]
    whole, flat = (row for row in described(Model()).mesh if row.dims[0] in ("dp", "dp_cp"))
    assert kept
    assert (whole.dims, whole.shape, whole.ranks) == (["dp", "cp", "tp"], [2, 2, 2], list(range(8)))
    assert whole.groups == {"5": [mesh.get_group(dim).group_name for dim in range(3)]}
    # Rank 5 is at place 1 of tp.
    assert (flat.dims, flat.shape, flat.ranks) == (["dp_cp"], [4], [1, 3, 5, 7])


def test_plans_of_parallelize_module_are_read_off_the_modules():
    mesh = mesh_of(dp=2, tp=4)
    model = Model()
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    plan = PrepareModuleInput(input_layouts=(None,), desired_input_layouts=(None,))
    parallelize_module(model.head, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    found = described(model)
    assert found.strategies == ["fsdp", "tensor"]
    rows = {row.modules: row for row in found.tensor}
    assert {name: (row.count, row.styles, row.dims) for name, row in rows.items()} == {
        "layers.*.norm": (3, ["SequenceParallel"], ["tp"]),
        "layers.*.up": (3, ["ColwiseParallel"], ["tp"]),
        "layers.*.down": (3, ["RowwiseParallel"], ["tp"]),
        "head": (1, ["PrepareModuleInput"], ["tp"]),
    }
    assert rows["layers.*.up"].placements == {"weight": ["S(0)"], "bias": ["S(0)"]}
    assert rows["layers.*.down"].placements == {"weight": ["S(1)"], "bias": ["R"]}


class ToyExpertParallel(ParallelStyle):
    """A style of a program's own, as torchtitan has them."""

    def _apply(self, module, device_mesh):
        module.register_forward_pre_hook(functools.partial(self.dispatch, mesh=device_mesh))
        return module

    def dispatch(self, module, inputs, mesh):
        return inputs


def test_experts_are_known_by_their_style_and_are_no_tensor_parallelism():
    model, mesh = Model(), mesh_of(ep=8)
    for layer in model.layers:
        parallelize_module(layer.up, mesh, ToyExpertParallel())
    found = described(model)
    assert found.strategies == ["expert"]
    (row,) = found.expert
    assert (row.modules, row.count, row.styles, row.dims) == ("layers.*.up", 3, ["ToyExpertParallel"], ["ep"])


def test_a_schedule_tells_its_stages_whose_models_are_parts_of_the_program():
    group = mesh_of(pp=4, dp=2).get_group("pp")
    parts = [Model(1), Model(2)]
    stages = [
        PipelineStage(part, 2 + 4 * number, 8, torch.device("cpu"), group=group) for number, part in enumerate(parts)
    ]
    schedule = ScheduleInterleaved1F1B(stages, 8, loss_fn=nn.functional.mse_loss)
    program = program_of(parts[0], RANK, SIZE)
    assert program.models == tuple(parts)
    found = parallelism_of(program)
    assert found.strategies == ["pipeline"]
    assert (found.pipeline.schedule, found.pipeline.microbatches) == (type(schedule).__name__, 8)
    assert (found.pipeline.stages, found.pipeline.stages_of_rank) == (8, {"5": [2, 6]})
    assert found.pipeline.group_of_rank == {"5": group.group_name}


def test_a_schedule_of_one_stage_is_the_models_own():
    model = Model()
    group = mesh_of(pp=8).get_group("pp")
    schedule = Schedule1F1B(PipelineStage(model, 5, 8, torch.device("cpu"), group=group), 8, loss_fn=nn.MSELoss())
    program = program_of(model, RANK, SIZE)
    assert program.models == (model,)
    assert parallelism_of(program).pipeline.stages_of_rank == {"5": [5]}
    assert schedule._n_microbatches == 8


def test_a_split_sequence_is_seen_once_and_torch_is_left_as_it_was():
    model, mesh = nn.Linear(4, 4), mesh_of(cp=8)
    split = _attention._context_parallel_buffers
    program = program_of(model, RANK, SIZE)
    with watched_splits(program):
        assert parallelism_of(program).context is None
        for _ in range(2):
            inputs = torch.zeros(2, 32, 4)
            with context_parallel(mesh, buffers=[inputs], buffer_seq_dims=[1], no_restore_buffers={inputs}):
                assert inputs.shape == (2, 4, 4)
            assert _attention._context_parallel_buffers is split
    assert parallelism_of(program).context == RecordedContext(
        dims=["cp"],
        ranks=8,
        buffers=[SequenceBuffer([2, 32, 4], 1)],
        balanced=True,
        load_balancer="_HeadTailLoadBalancer",
        rotate_method="ALL_GATHER",
    )


def test_who_splits_no_sequence_has_torch_as_it_was_at_the_end():
    split = _attention._context_parallel_buffers
    with watched_splits(program_of(nn.Linear(4, 4), RANK, SIZE)):
        assert _attention._context_parallel_buffers is not split
    assert _attention._context_parallel_buffers is split


def test_compiled_modules_are_told():
    model = Model()
    for layer in model.layers:
        layer.compile(backend="eager")
    assert described(model).compiled.modules == ["layers.*"]


class Toy:
    """A strategy as a file of `strategies` would hold it; a line in STRATEGIES lists it."""

    name = "toy"

    def describe(self, program):
        return {} if any(isinstance(module, Block) for _, module in program.modules()) else None

    def no_sync(self, model):
        return None


def test_a_strategy_is_one_class_and_one_line():
    strategies = (*STRATEGIES, Toy())
    assert parallelism_of(program_of(Model(), RANK, SIZE), strategies).strategies == ["toy"]
    assert parallelism_of(program_of(nn.Linear(2, 2), RANK, SIZE), strategies).strategies == []


def test_what_cannot_be_read_is_unknown_and_costs_only_itself():
    class Broken:
        name = "broken"

        def describe(self, program):
            raise AttributeError("no such name in this torch")

    found = parallelism_of(program_of(Model(), RANK, SIZE), [Broken(), Ddp()])
    assert found.unknown == {"broken": "AttributeError: no such name in this torch"}
    assert found.strategies == []


def test_more_rows_than_there_is_room_for_are_counted():
    class Many:
        name = "many"

        def describe(self, program):
            return {"mesh": [RecordedMesh(dims=["x"], shape=[size]) for size in range(1, 101)]}

    found = parallelism_of(program_of(Model(), RANK, SIZE), [Many()])
    assert (len(found.mesh), found.left_out) == (64, 36)


@pytest.mark.parametrize(
    "private",
    [
        {"_dim_group_names": ["7", "8"]},
        # torch 2.4 to 2.7 keep a tag and the ranks of each group beside its name.
        {"_dim_group_infos": [("tag", [0, 2], "7"), ("tag", [0, 1], "8")]},
    ],
)
def test_groups_of_a_mesh_by_the_names_that_each_torch_keeps_them_under(private):
    shape, members = (2, 2), torch.arange(4).reshape(2, 2)
    mesh = SimpleNamespace(mesh=members, mesh_dim_names=("dp", "tp"), shape=shape, device_type="cpu", **private)
    (row,) = recorded_meshes([mesh], 0)
    assert row.groups == {"0": ["7", "8"]}


def test_one_process_looks_for_no_meshes(monkeypatch):
    monkeypatch.setattr("tracer.recording.strategies.program.objects_of", lambda kinds: SimpleNamespace())
    program = program_of(Model(), 0, 1)
    assert (program.meshes, program.schedules, program.models) == ((), (), (program.model,))


@pytest.mark.parametrize(
    ("strategies", "size", "name"),
    [
        ([], 1, "single"),
        ([], 2, None),
        (["fsdp"], 1, "fsdp"),
        (["fsdp", "tensor", "pipeline"], 8, "fsdp+tensor+pipeline"),
    ],
)
def test_a_run_is_called_by_all_its_strategies(strategies, size, name):
    assert strategy_name(strategies, size) == name


def test_a_replicated_model_is_ddps_without_a_wrapper():
    plain, replicated = Model(), Model()
    # What `replicate` does to a model's class: torch 2.11 and later.
    mixin = type("DDP", (), {"__module__": "torch.distributed._composable.replicate"})
    replicated.__class__ = type("DDPModel", (mixin, Model), {})
    assert described(replicated).strategies == ["ddp"]
    assert described(plain).strategies == []
