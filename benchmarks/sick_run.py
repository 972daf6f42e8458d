"""A training script with known faults, and the same without them, to see what the report makes of it.

    tracer record --gpus 2 -o sick benchmarks/sick_run.py
    tracer record --gpus 2 -o cured benchmarks/sick_run.py --cured
    tracer compare sick cured

ResNet-18 under DDP. Faults: rank 1 spends 3 ms of each step in Python before it goes on to its batch, DDP broadcasts
buffers before each forward, and reduced gradients are copied out of their buckets. `--model transformer` is a small
one whose GPU waits for its host, without these faults.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

LATE_S = 0.003
CLASSES, VOCABULARY, SEQUENCE = 10, 512, 64


class Transformer(nn.Module):
    def __init__(self, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.tokens(tokens)))
        return logits.transpose(1, 2)


def batch_of(model: str, device: torch.device) -> tuple[Tensor, Tensor]:
    if model == "transformer":
        tokens = torch.randint(VOCABULARY, (8, SEQUENCE + 1), device=device)
        return tokens[:, :-1], tokens[:, 1:]
    return torch.randn(128, 3, 32, 32, device=device), torch.randint(CLASSES, (128,), device=device)


def prepare_in_python() -> None:
    """What a rank does that others do not: time goes by in Python."""
    until = time.perf_counter() + LATE_S
    while time.perf_counter() < until:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("resnet18", "transformer"), default="resnet18")
    parser.add_argument("--cured", action="store_true")
    parser.add_argument("--steps", type=int, default=160)
    options = parser.parse_args()
    torch.distributed.init_process_group("nccl")
    rank, device = torch.distributed.get_rank(), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = Transformer() if options.model == "transformer" else torchvision.models.resnet18(num_classes=CLASSES)
    sick = options.model == "resnet18" and not options.cured
    wrapped = DistributedDataParallel(
        model.to(device), device_ids=[device.index], broadcast_buffers=sick, gradient_as_bucket_view=not sick
    )
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
    inputs, targets = batch_of(options.model, device)
    for _ in range(options.steps):
        if sick and rank == 1:
            prepare_in_python()
        loss = nn.functional.cross_entropy(wrapped(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
