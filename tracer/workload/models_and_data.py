"""Models and synthetic data of the built-in workload.

Every model classifies: images of CIFAR-10's shape into 10 classes, or, for the transformer, each position of a
sequence into the next token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import cast

import torch
import torchvision
from torch import Tensor, nn

from tracer.config import CLASSES, ModelName
from tracer.workload.images import Batch

VOCABULARY = 8192
SEQUENCE = 256
# Distinct synthetic batches held in pinned memory and copied to the device in turn.
SYNTHETIC_BATCHES = 4


class Transformer(nn.Module):
    """A decoder of 12 blocks of width 1024: 168 million parameters."""

    def __init__(self, width: int = 1024, heads: int = 16, layers: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.zeros(SEQUENCE, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [batch, SEQUENCE] -> logits [batch, VOCABULARY, SEQUENCE], the layout cross entropy takes."""
        hidden = self.tokens(tokens) + self.positions
        mask = nn.Transformer.generate_square_subsequent_mask(SEQUENCE, device=tokens.device)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return cast(Tensor, self.head(hidden)).transpose(1, 2)


def resnet18_cifar(zero_init_residual: bool) -> nn.Module:
    """ResNet-18 with the 3x3 stem and no max-pool that 32-pixel images ask for: 11,173,962 parameters."""
    model: nn.Module = torchvision.models.resnet18(num_classes=CLASSES, zero_init_residual=zero_init_residual)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def build_model(name: ModelName, zero_init_residual: bool = False) -> nn.Module:
    """The model on the CPU, initialized from torch's current seed.

    `zero_init_residual`: a ResNet's blocks begin as identities, which helps large batches (Goyal et al. 2017, 5.1).
    """
    if name == "transformer":
        return Transformer()
    if name == "vgg16":
        return cast(nn.Module, torchvision.models.vgg16(num_classes=CLASSES))
    if name == "resnet18-cifar":
        return resnet18_cifar(zero_init_residual)
    constructor = {"resnet18": torchvision.models.resnet18, "resnet50": torchvision.models.resnet50}[name]
    return cast(nn.Module, constructor(num_classes=CLASSES, zero_init_residual=zero_init_residual))


def shard_units(model: nn.Module) -> list[nn.Module]:
    """What `fully_shard` wraps: the transformer's blocks, a ResNet's stages, else each child with parameters."""
    if isinstance(model, Transformer):
        return list(model.blocks)
    stages = [child for name, child in model.named_children() if name.startswith("layer")]
    return stages or [child for child in model.children() if any(True for _ in child.parameters())]


def synthetic_batch(model: ModelName, batch: int, image_size: int) -> Batch:
    """Random inputs and targets of the workload's shape."""
    if model == "transformer":
        tokens = torch.randint(VOCABULARY, (batch, SEQUENCE + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return torch.randn(batch, 3, image_size, image_size), torch.randint(CLASSES, (batch,))


def synthetic_batches(model: ModelName, batch: int, image_size: int, pinned: bool) -> list[Batch]:
    """A few random batches to repeat, in pinned memory where a device will copy them."""
    batches = [synthetic_batch(model, batch, image_size) for _ in range(SYNTHETIC_BATCHES)]
    if pinned:
        batches = [(inputs.pin_memory(), targets.pin_memory()) for inputs, targets in batches]
    return batches


def synthetic_epoch(batches: Sequence[Batch], samples: int) -> Iterator[Batch]:
    """Batches in turn until there have been so many samples; the last is as large as is left."""
    for batch in cycle(batches):
        yield batch[0][:samples], batch[1][:samples]
        samples -= len(batch[1])
        if samples <= 0:
            return
