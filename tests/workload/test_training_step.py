"""One training step, in this process: alone, or as the only rank of a group."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from analyzers.lazy_fields import replaced as replace
from tests.support.small_training import CONFIG, CPU, batch, training
from tracer.config import DdpOptions, LearningRate
from tracer.recording import torch_compat as compat
from tracer.recording.strategies import is_compiled
from tracer.recording.windows.forward_ranges import module_ranges
from tracer.workload import models_and_data as workloads
from tracer.workload import training_step as step
from tracer.workload.train import _memory_ended

DDP = replace(CONFIG, strategy="ddp")


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def weights(trained: step.Training) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in trained.model.parameters()]


def test_microbatches_are_grouped_by_step():
    batches = [batch(1, seed) for seed in range(5)]
    assert list(step.microbatches(batches, 2)) == [batches[:2], batches[2:4], batches[4:]]


@pytest.mark.parametrize("config", [CONFIG, DDP, replace(CONFIG, strategy="fsdp")])
def test_accumulated_gradients_are_those_of_all_samples_together(config, group):
    parts = [batch(6, 1), batch(6, 2), batch(3, 3)]
    whole = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    apart, together = training(config), training(config)
    for one in (apart, together):
        # Statistics of a batch are not those of its parts.
        one.model.eval()
    step.train_step(apart, parts)
    step.train_step(together, [whole])
    for left, right in zip(weights(apart), weights(together), strict=True):
        torch.testing.assert_close(left, right)


def test_ddp_synchronizes_the_last_microbatch_alone(group):
    reduced = []

    def hook(state, bucket):
        reduced.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    trained = training(DDP)
    trained.model.register_comm_hook(None, hook)
    step.train_step(trained, [batch(4, 1), batch(4, 2), batch(4, 3)])
    assert reduced == [0]


def test_ddp_is_told_its_options_without_a_warning(group):
    options = DdpOptions(
        bucket_mb=5, find_unused=True, broadcast_buffers=False, gradient_as_bucket_view=True, comm_hook="bf16"
    )
    trained = training(replace(DDP, ddp=options))
    step.train_step(trained, [batch(4, 1)])
    said = compat.ddp_logging_data(trained.model)
    assert (said["find_unused_parameters"], said["gradient_as_bucket_view"]) == (1, 1)
    assert said["broadcast_buffers"] == 0
    assert said["bucket_cap_bytes"] == 5 * 2**20
    assert said["comm_hook"] == "bf16_compress_hook"
    assert training(replace(DDP, ddp=DdpOptions(static_graph=True))).model.static_graph


def test_ddp_is_its_own_by_default(group):
    said = compat.ddp_logging_data(training(DDP).model)
    assert (said["find_unused_parameters"], said["gradient_as_bucket_view"], said["broadcast_buffers"]) == (0, 0, 1)
    assert "comm_hook" not in said


def test_channels_last_is_of_weights_and_inputs():
    trained = step.begin(replace(CONFIG, channels_last=True), CPU)
    seen = []
    trained.model.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output))
    step.train_step(trained, [(torch.randn(2, 3, 32, 32), torch.tensor([1, 2]))])
    assert trained.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


# torch 2.11 warns of itself when its compiler is loaded.
compiler_warns = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


@compiler_warns
def test_compiled_modules_keep_their_names_and_have_no_ranges(group):
    trained = training(replace(DDP, compile=True))
    own = trained.model.module
    assert is_compiled(own)
    assert [name for name, _ in own.named_parameters()][:2] == ["0.weight", "0.bias"]
    with module_ranges(trained.model):
        assert not any(module._forward_hooks for module in own.modules())


@compiler_warns
def test_a_compiled_model_keeps_the_layout_that_was_asked_for(group, monkeypatch):
    # torch 2.11's inductor fails under DDP on GPUs where it chooses another.
    asked = {}
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: asked.update(options))
    training(replace(DDP, compile=True))
    assert asked["options"] == {"layout_optimization": False}


@compiler_warns
@pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
def test_so_many_shapes_are_compiled_by_whatever_name_torch_has_for_that(monkeypatch, name):
    import torch._dynamo.config

    # torch 2.6 refuses names that it does not know.
    settings = type("Settings", (), {"__slots__": (name,)})()
    monkeypatch.setattr(torch._dynamo, "config", settings)
    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: None)
    setattr(settings, name, 8)
    compat.compile_in_place(nn.Linear(1, 1))
    assert getattr(settings, name) == 64


@compiler_warns
def test_under_fsdp_each_unit_is_compiled(group):
    model = training(replace(CONFIG, strategy="fsdp", compile=True)).model
    assert [is_compiled(child) for child in (model, *model.children())] == [False, True, False, True, True]


# The learning rate.


@pytest.mark.parametrize(
    ("rate", "batch", "expected"),
    [
        (LearningRate(0.2), 1024, {0: 0.2, 3: 0.2}),
        (LearningRate(0.1, "linear"), 1024, {0: 0.8, 3: 0.8}),
        (LearningRate(0.1, "linear"), 64, {0: 0.05}),
        # A ramp of equal steps, from the reference batch's rate.
        (LearningRate(0.1, "linear", 4), 1024, {0: 0.1, 1: 0.275, 2: 0.45, 3.5: 0.7125, 4: 0.8, 9: 0.8}),
        (LearningRate(0.1, "linear", 4), 128, {0: 0.1, 2: 0.1, 9: 0.1}),
        (LearningRate(0.1, "linear", 4), 64, {0: 0.05, 2: 0.05}),
    ],
)
def test_the_rate_is_scaled_and_warmed_up(rate, batch, expected):
    config = replace(CONFIG, batch=batch, learning_rate=rate)
    assert {done: step.learning_rate(config, done) for done in expected} == pytest.approx(expected)


def test_accumulated_batches_scale_the_rate_too():
    config = replace(CONFIG, batch=64, devices=2, grad_accumulation=3, learning_rate=LearningRate(0.1, "linear"))
    assert step.learning_rate(config, 0) == pytest.approx(0.3)


def test_the_optimizer_begins_at_its_rate():
    begun = step.begin(replace(CONFIG, learning_rate=LearningRate(0.25)), CPU)
    assert [group["lr"] for group in begun.optimizer.param_groups] == [0.25]


@pytest.mark.parametrize(("model", "blocks"), [("resnet18", 8), ("resnet18-cifar", 8), ("resnet50", 16)])
def test_blocks_begin_as_identities_where_asked_for(model, blocks):
    with torch.device("meta"):
        names = [name for name, _ in workloads.build_model(model).named_modules()]
    last = [name for name in names if name.endswith("bn3" if model == "resnet50" else "bn2")]
    assert len(last) == blocks
    built = workloads.build_model(model, zero_init_residual=True)
    assert not any(built.get_submodule(name).weight.any() for name in last)
    assert built.bn1.weight.all()


def test_equal_seeds_begin_equal():
    first, second = step.begin(CONFIG, CPU), step.begin(CONFIG, CPU)
    assert all(torch.equal(left, right) for left, right in zip(weights(first), weights(second), strict=True))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB."), "CUDA out of memory"),
        (MemoryError(), "no memory on the host"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("DefaultCPUAllocator"), None),
    ],
)
def test_what_says_that_memory_ended(error, said):
    assert _memory_ended(error) == said


def test_a_cpu_says_so_too():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**46)
    assert _memory_ended(caught.value) == (
        f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {2**48} bytes"
    )
