"""DDP as people use it, recorded on gloo by torch.profiler alone: one of two ranks, all variants in turn.

python -m tests.support.variants FOLDER RANK
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WIDTH = 64
STEPS = 2
# Two layers of 64 x 64 with their biases pass the cap: 33,280 bytes.
CAP_MB = 0.02


class Model(nn.Module):
    """Five layers of one size; `spare` takes part only when asked to."""

    def __init__(self, spare: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.spare = nn.Linear(WIDTH, WIDTH) if spare else None
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer(inputs).relu()
        return self.head(inputs)


@dataclass
class Variant:
    """One way to train: what DDP is given, and what a step does with it."""

    ddp: dict[str, Any] = field(default_factory=dict)
    spare: bool = False
    frozen: tuple[str, ...] = ()
    warmup: int = 3
    microbatches: int = 1
    no_sync: bool = False
    hook: Callable[..., Any] | None = None
    profiler: dict[str, Any] = field(default_factory=dict)
    between: Callable[[nn.Module], None] | None = None  # prepares a communication of the user's own
    ranges: bool = False


def ask_in_backward(model: nn.Module) -> None:
    """Have every backward reduce an activation's gradient, as tensor parallelism does."""

    def reduce(gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return gradient

    def forward(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.register_hook(reduce)

    model.module.layers[2].register_forward_hook(forward)


def name_modules(model: nn.Module) -> None:
    """Ranges around forwards, as `tracer record` writes them."""
    for name, module in model.module.named_modules():
        if list(module.parameters(recurse=False)):
            inner = module.forward

            def forward(*args: Any, inner: Any = inner, label: str = f"{name} ({type(module).__name__})") -> Any:
                with record_function(f"nn.Module: {label}"):
                    return inner(*args)

            module.forward = forward


VARIANTS = {
    "plain": Variant(),
    "modules": Variant(ranges=True),
    "accumulated": Variant(microbatches=2, no_sync=True),
    "twice": Variant(microbatches=2),
    "unused": Variant(spare=True, ddp={"find_unused_parameters": True}),
    "frozen": Variant(frozen=("layers.1.weight", "layers.1.bias", "layers.0.bias")),
    "hook": Variant(hook=default_hooks.bf16_compress_hook),
    "static": Variant(ddp={"static_graph": True}, warmup=0),
    "between": Variant(between=ask_in_backward),
    "stacks": Variant(profiler={"with_stack": True, "with_modules": True}),
    "views": Variant(ddp={"gradient_as_bucket_view": True}),
}


def run(variant: Variant, file: Path) -> None:
    torch.manual_seed(0)
    model = Model(variant.spare)
    for name in variant.frozen:
        model.get_parameter(name).requires_grad_(False)
    model = DistributedDataParallel(model, bucket_cap_mb=CAP_MB, **variant.ddp)
    if variant.hook is not None:
        model.register_comm_hook(None, variant.hook)
    if variant.between is not None:
        variant.between(model)
    if variant.ranges:
        name_modules(model)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)
    for _ in range(variant.warmup):
        step(variant, model, optimizer)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=0, active=STEPS, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
        record_shapes=True,
        **variant.profiler,
    ) as profiler:
        for _ in range(STEPS):
            step(variant, model, optimizer)
            profiler.step()


def step(variant: Variant, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    for last in _lasts(variant.microbatches):
        with model.no_sync() if variant.no_sync and not last else nullcontext():
            outputs = model(torch.randn(4, WIDTH))
            nn.functional.cross_entropy(outputs, torch.zeros(4, dtype=torch.long)).backward()
    optimizer.step()


def _lasts(count: int) -> Iterator[bool]:
    return (place == count - 1 for place in range(count))


def main(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name, variant in VARIANTS.items():
        (folder / name).mkdir(exist_ok=True)
        run(variant, folder / name / f"rank{rank}.json")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
