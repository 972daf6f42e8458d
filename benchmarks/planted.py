"""Faults planted in a plain program on two GPUs: what the report advises, and what following it brings.

    python benchmarks/planted.py record FOLDER [--faults loader,optimizer,...] [--gpus N]
    python benchmarks/planted.py judge FOLDER

`record` runs `tracer record` on this file's own program, a plain DDP script, with each fault in it; and, in launches of
their own, the same program with the fault and with its cure, in turn, without tracer: FOLDER/truth.jsonl has the steps
of both. `judge` prints for each fault what the first advice is, its gain beside the true one, and whether that lies
within its interval, or at most where a bound is all that is known.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

TRUTH, CURED = "truth.jsonl", "cured.jsonl"
BLOCKS, STEPS, SETTLING = 4, 15, 5
RECORD = ("--wait", "10", "--warmup", "2", "--active", "4", "--rounds", "3")
# A fifth of the true gain off is still its size.
FIFTH = 0.2


@dataclass(frozen=True)
class Fault:
    """A fault: the code of the advice that cures it, the model it is in, batch and image, what NCCL is told.

    `at_most`: of the cure a bound alone is known. `is_environment`: what NCCL is told is the fault.
    """

    code: str
    model: str
    batch: int
    pixels: int = 224
    environment: str = ""
    at_most: bool = False
    is_environment: bool = False


OVER_MEMORY = "NCCL_P2P_DISABLE=1"
FAULTS = {
    "loader": Fault("input", "resnet50", 64),
    "optimizer": Fault("optimizer", "gpt", 8),
    "pageable": Fault("copies", "resnet18", 256),
    "offload": Fault("copies", "resnet18", 128),
    "gc": Fault("odd", "resnet18", 64, 64),
    "savestep": Fault("odd", "resnet50", 64),
    "evaluate": Fault("odd", "resnet50", 64),
    "buffers": Fault("buffers", "resnet50", 32, 64),
    "accum": Fault("accumulation", "vgg16", 16, environment=OVER_MEMORY),
    "transport": Fault("nvlink_not_used", "vgg16", 64, environment=OVER_MEMORY, is_environment=True),
    "latehost": Fault("straggler", "resnet18", 64),
    "slowrank": Fault("straggler", "resnet50", 64),
    "sharedgpu": Fault("straggler", "resnet50", 64),
    "item": Fault("synchronize", "gpt", 8),
    "emptycache": Fault("allocator", "resnet50", 32),
    "small": Fault("coalesce", "resnet50", 64),
    "unused": Fault("unused", "resnet50", 16, 64),
    "fp32": Fault("fp32", "gpt32", 16, at_most=True),
    "layout": Fault("layout", "resnet50", 128, at_most=True),
    "two": Fault("copies", "resnet18", 256),
    "healthy": Fault("compute", "vgg16", 128),
}


def record(folder: Path, faults: list[str], gpus: int) -> None:
    """Record each fault, and measure the truth of all."""
    folder.mkdir(parents=True, exist_ok=True)
    script = str(Path(__file__).resolve())
    known = {row["fault"] for row in truths(folder)}
    for environment in sorted({FAULTS[name].environment for name in faults}):
        asked = [name for name in faults if FAULTS[name].environment == environment and name not in known]
        _time(folder / TRUTH, asked, environment, gpus)
    _time(folder / CURED, [name for name in faults if FAULTS[name].is_environment and name not in known], "", gpus)
    for name in faults:
        if (folder / name).exists():
            continue
        environment = FAULTS[name].environment
        changed = os.environ | dict([environment.split("=")] if environment else [])
        command = [sys.executable, "-m", "tracer", "record", "--gpus", str(gpus), *RECORD, "-o", str(folder / name)]
        subprocess.run([*command, "--", script, "program", name], env=changed, check=False)


def _time(path: Path, faults: list[str], environment: str, gpus: int) -> None:
    """Time faults and their cures in one launch."""
    changed = os.environ | dict([environment.split("=")] if environment else [])
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}", __file__]
    if faults:
        subprocess.run([*launch, "truth", str(path), *faults], env=changed, check=False)


# The program.


def program(fault: str) -> None:
    """Train with a fault until whoever records has enough."""
    with _group() as device:
        trained = Program(fault, device, cured=False)
        with trained.neighbour():
            for number in range(200):
                trained.step(number)


def truth(path: Path, faults: list[str]) -> None:
    """Time steps with each fault and with its cure, in turn."""
    import torch
    import torch.distributed as dist

    with _group() as device:
        for name in faults:
            programs = {"sick": Program(name, device, cured=False), "cured": Program(name, device, cured=True)}
            times: dict[str, list[float]] = {way: [] for way in programs}
            for _ in range(BLOCKS):
                for way, each in programs.items():
                    with each.neighbour():
                        times[way].append(_timed(each.step, device))
            means = torch.tensor([sum(ns) / len(ns) for ns in times.values()], device=device)
            dist.all_reduce(means)
            if dist.get_rank() == 0:
                sick_ns, cured_ns = (means / dist.get_world_size()).tolist()
                with path.open("a") as file:
                    print(json.dumps({"fault": name, "sick_ns": sick_ns, "cured_ns": cured_ns, **times}), file=file)
            programs.clear()
            gc.collect()
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _group() -> Iterator[Any]:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    yield torch.device("cuda", rank)
    dist.destroy_process_group()


def _timed(step: Callable[[int], None], device: Any) -> float:
    """Return the mean step of a block, ns, by events on the device."""
    import torch

    for number in range(SETTLING):
        step(number)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for number in range(STEPS):
        step(number)
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / STEPS * 1e6


class Program:
    """A plain DDP training with a fault, or with its cure."""

    def __init__(self, fault: str, device: Any, *, cured: bool) -> None:
        """Build model, optimizer and input."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        self.fault, self.device, self.cured, self.about = fault, device, cured, FAULTS[fault]
        self.sick = not cured
        self.rank = torch.distributed.get_rank()
        torch.manual_seed(0)
        self.is_gpt = self.about.model.startswith("gpt")
        model = _gpt() if self.is_gpt else getattr(__import__("torchvision").models, self.about.model)()
        model = model.to(device)
        if fault == "layout" and cured:
            model = model.to(memory_format=torch.channels_last)
        self.model = DistributedDataParallel(
            model,
            device_ids=[device.index],
            broadcast_buffers=fault == "buffers" and self.sick,
            find_unused_parameters=fault == "unused" and self.sick,
        )
        self.optimizer = self._optimizer()
        self.batches = self._loader() if fault == "loader" else None
        self.host_batch = self._batch("cpu", pinned=cured and fault in ("pageable", "two"))
        self.batch = self._batch(device, pinned=False)
        self.small = [torch.ones(1000, device=device) for _ in range(200)]
        self.other = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    @contextlib.contextmanager
    def neighbour(self) -> Iterator[None]:
        """Have another process multiply matrices on rank 1's GPU, where that is the fault."""
        if self.fault != "sharedgpu" or self.cured or self.rank != 1:
            yield
            return
        beside = subprocess.Popen([sys.executable, "-c", MULTIPLIES, str(self.device.index)], stdout=subprocess.PIPE)
        assert beside.stdout is not None
        beside.stdout.readline()
        yield
        beside.kill()
        beside.wait()

    def _optimizer(self) -> Any:
        import torch

        parameters = self.model.parameters()
        if self.fault == "optimizer":
            return torch.optim.AdamW(parameters, lr=1e-4, **({"foreach": False} if self.sick else {"fused": True}))
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True) if self.is_gpt else torch.optim.SGD(parameters, 0.01)

    def _batch(self, device: Any, *, pinned: bool) -> tuple[Any, Any]:
        import torch

        if self.is_gpt:
            tokens = torch.randint(0, 8000, (self.about.batch, 512), device=device)
            return tokens, tokens
        images = torch.randn(self.about.batch, 3, self.about.pixels, self.about.pixels, device=device)
        labels = torch.randint(0, 1000, (self.about.batch,), device=device)
        return (images.pin_memory(), labels.pin_memory()) if pinned else (images, labels)

    def _loader(self) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        workers = 0 if self.sick else 8
        loader = DataLoader(Samples(self.about.pixels), self.about.batch, num_workers=workers, pin_memory=True)
        while True:
            yield from loader

    def step(self, number: int) -> None:
        """Train one step."""
        import torch
        import torch.distributed as dist

        fault, sick = self.fault, self.sick
        inputs, labels = self._input()
        accumulated = 4 if fault == "accum" else 1
        for part in range(accumulated):
            is_last = part == accumulated - 1
            synchronizes = contextlib.nullcontext() if sick or is_last else self.model.no_sync()
            with synchronizes:
                loss = self._loss(inputs, labels)
                loss.backward()
        if fault in ("latehost", "two") and sick and self.rank == 1:
            _spin(0.010)
        if fault == "slowrank" and sick and self.rank == 1:
            for _ in range(100):
                torch.mm(self.other, self.other)
        if fault == "small":
            if sick:
                for tensor in self.small:
                    dist.all_reduce(tensor)
            else:
                dist.all_reduce(torch.cat(self.small))
        if fault == "item" and sick:
            for parameter in self.model.parameters():
                parameter.grad.norm().item()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if sick:
            self._after(number, loss, inputs)

    def _input(self) -> tuple[Any, Any]:
        if self.batches is not None:
            return tuple(each.to(self.device, non_blocking=True) for each in next(self.batches))
        if self.fault in ("pageable", "two"):
            return tuple(each.to(self.device, non_blocking=self.cured) for each in self.host_batch)
        return self.batch

    def _loss(self, inputs: Any, labels: Any) -> Any:
        import torch
        from torch.nn.functional import cross_entropy

        is_bf16 = self.about.model != "gpt32" or self.cured
        if self.fault == "layout" and self.cured:
            inputs = inputs.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
            output = self.model(inputs)
            if self.fault == "offload" and self.sick:
                inputs.cpu(), output.detach().cpu()
            return cross_entropy(output.flatten(0, -2).float(), labels.flatten())

    def _after(self, number: int, loss: Any, inputs: Any) -> None:
        """Do behind a step what a fault does there."""
        import torch

        if self.fault == "gc" and number % 3 == 2:
            gc.collect()
        if self.fault == "savestep" and number % 6 == 5 and self.rank == 0:
            torch.save(self.model.state_dict(), f"/tmp/planted{self.rank}.pt")
        if self.fault == "evaluate" and number % 5 == 4:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                for _ in range(3):
                    self.model.module(inputs)
        if self.fault == "emptycache":
            torch.cuda.empty_cache()


MULTIPLIES = """
import sys, torch
matrix = torch.randn(4096, 4096, device=f"cuda:{sys.argv[1]}", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    for _ in range(50):
        matrix @ matrix
    torch.cuda.synchronize()
"""


class Samples:
    """Samples that take 0.6 ms each to make."""

    def __init__(self, pixels: int) -> None:
        """Keep the size of an image."""
        self.pixels = pixels

    def __len__(self) -> int:
        """Return how many there are: enough for a recording."""
        return 100_000

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Make one."""
        import torch

        until = time.perf_counter() + 0.0006
        image = torch.zeros(3, self.pixels, self.pixels)
        while time.perf_counter() < until:
            pass
        return image, index % 1000


def _gpt() -> Any:
    """A GPT of 12 layers of 768."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(768), nn.LayerNorm(768)
            self.attention, self.out = nn.Linear(768, 3 * 768), nn.Linear(768, 768)
            self.up, self.down = nn.Linear(768, 4 * 768), nn.Linear(4 * 768, 768)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.attention(self.first(x)).chunk(3, -1)
            heads = [part.view(*part.shape[:2], 12, 64).transpose(1, 2) for part in parts]
            attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    blocks = [Block() for _ in range(12)]
    return nn.Sequential(nn.Embedding(8000, 768), *blocks, nn.LayerNorm(768), nn.Linear(768, 8000))


def _spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


# What is judged.


def truths(folder: Path) -> list[dict[str, Any]]:
    """Return the faults whose truth is known."""
    found, cured = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        for path in (folder / TRUTH, folder / CURED)
    )
    without = {row["fault"]: {"cured_ns": row["cured_ns"]} for row in cured}
    return [row | without.get(row["fault"], {}) for row in found]


def judge(folder: Path) -> None:
    """Print a line for each fault: what it costs, the first advice, its gain, whether that holds."""
    import analyzers

    named = held = counted = 0
    heads = ("fault", "with it, ms", "cured, ms", "true gain", "recorded, ms", "first advice", "its gain, ms", "holds")
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for row in truths(folder):
        about, path = FAULTS[row["fault"]], folder / row["fault"]
        if not path.exists():
            continue
        found = analyzers.report(analyzers.load(path))
        summary = found.summary
        codes = [piece.code for piece in summary.advice]
        first = next((piece for piece in summary.advice if piece.code == about.code), None)
        is_named = summary.headline.code == about.code or (about.at_most and about.code in codes[:1])
        is_warned = about.code in [warning.code for warning in found.run.warnings]
        is_held, figure = _held(first, row, at_most=about.at_most)
        said = summary.headline.code if summary.headline.code != "compute" else f"compute ({', '.join(codes[:1])})"
        said += " (in a warning)" * is_warned
        holds = "within" if is_held else "outside"
        if about.code == "compute" or is_warned:
            holds = "-"
        else:
            named, held, counted = named + is_named, held + is_held, counted + 1
        times = (row["sick_ns"], row["cured_ns"], row["sick_ns"] - row["cured_ns"], summary.headline.step_ns or 0)
        print(f"| {row['fault']} | {' | '.join(f'{ns / 1e6:.1f}' for ns in times)} | {said} | {figure} | {holds} |")
    print(f"\n{named} of {counted} named by the first sentence, {held} gains that hold")


def _held(first: Any, row: dict[str, Any], *, at_most: bool) -> tuple[bool, str]:
    """Whether a gain holds: within its interval, or a fifth; or the step with it is, since launches differ."""
    gain_ns = row["sick_ns"] - row["cured_ns"]
    if first is None:
        return False, "-"
    if at_most or first.gain_ns is None:
        return gain_ns <= first.figure_ns, f"< {first.figure_ns / 1e6:.1f}"
    low_ns, high_ns = first.within_ns
    step_ns = first.gain_ns / first.share
    is_gain = low_ns <= gain_ns <= high_ns or abs(first.gain_ns - gain_ns) <= FIFTH * abs(gain_ns)
    is_step = step_ns - high_ns <= row["cured_ns"] <= step_ns - low_ns
    figure = f"{first.gain_ns / 1e6:.1f} ({low_ns / 1e6:.1f} to {high_ns / 1e6:.1f})"
    return is_gain or is_step, f"{figure}, step {(step_ns - first.gain_ns) / 1e6:.1f}"


def main() -> None:
    """Record, judge, or be the program that is recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record faults")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--faults", default=",".join(FAULTS), help="which, separated by commas")
    recording.add_argument("--gpus", type=int, default=2, help="a fault of the input, copies or host needs only one")
    judging = commands.add_parser("judge", help="judge what was recorded")
    judging.add_argument("folder", type=Path)
    running = commands.add_parser("program", help="train with a fault")
    running.add_argument("fault", choices=FAULTS)
    timing = commands.add_parser("truth", help="time faults and their cures in turn")
    timing.add_argument("path", type=Path)
    timing.add_argument("faults", nargs="+", choices=FAULTS)
    asked = parser.parse_args()
    if asked.command == "record":
        record(asked.folder, asked.faults.split(","), asked.gpus)
    elif asked.command == "judge":
        judge(asked.folder)
    elif asked.command == "program":
        program(asked.fault)
    else:
        truth(asked.path, asked.faults)


if __name__ == "__main__":
    main()
