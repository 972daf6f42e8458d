"""Images to train on: CIFAR-10 as torchvision stores it, and scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.transforms import v2

from tracer.config import IMAGE_SIZE, DataSource
from tracer.errors import TracerError
from tracer.recording import rank_and_size

Batch = tuple[Tensor, Tensor]
PADDING = 4
# Of the digits every fifth is for the test.
TESTED = 5


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as bytes, [n, 3, IMAGE_SIZE, IMAGE_SIZE], with their labels; `test` is None where there is no test set.

    `mean` and `std` are the training images', per channel, of images whose values are from 0 to 1.
    """

    training: Batch
    test: Batch | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flips: bool  # whether an image seen in a mirror is still of its class

    def normalization(self) -> list[nn.Module]:
        """From bytes to what the model is given."""
        return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(self.mean, self.std)]

    def augmented(self) -> Dataset[tuple[Tensor, int]]:
        """The training images with random crop, horizontal flip where it is allowed, and normalization."""
        flip = [v2.RandomHorizontalFlip(0.5)] if self.flips else []
        changes = [v2.RandomCrop(IMAGE_SIZE, padding=PADDING), *flip, *self.normalization()]
        return _Augmented(*self.training, v2.Compose(changes))


class _Augmented(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Tensor, labels: Tensor, transform: nn.Module) -> None:
        self._images, self._labels, self._transform = images, labels.tolist(), transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._transform(self._images[index]), self._labels[index]


def open_images(source: DataSource) -> ImageSet:
    """The images that are named. Raises TracerError where they are not there."""
    return cifar10(source.folder) if source.name == "cifar10" else digits()


def cifar10(folder: str) -> ImageSet:
    """CIFAR-10's 50,000 training images and 10,000 for the test, each checked by its MD5. Raises TracerError."""
    try:
        training = _batch(_TrainingImages(folder, train=True))
    except RuntimeError as error:
        raise TracerError(
            f"{folder}: CIFAR-10 is not there ({error}); unpack cifar-10-python.tar.gz in it, or leave out --data"
        ) from error
    try:
        test = _batch(_TestImages(folder, train=False))
    except RuntimeError:
        test = None
    # The training images', as its tutorials use them.
    return ImageSet(training, test, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), flips=True)


def _batch(images: Any) -> Batch:
    return torch.from_numpy(images.data).permute(0, 3, 1, 2), torch.tensor(images.targets)


class _TrainingImages(torchvision.datasets.CIFAR10):  # type: ignore[misc]
    """Does not ask for the test set, which it does not read."""

    test_list: ClassVar[list[list[str]]] = []


class _TestImages(torchvision.datasets.CIFAR10):  # type: ignore[misc]
    """Does not ask for the training images."""

    train_list: ClassVar[list[list[str]]] = []


def digits() -> ImageSet:
    """1,797 handwritten digits of 8 x 8 pixels, each pixel four times in both directions. Raises TracerError."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise TracerError("--data digits needs scikit-learn, which ships them: pip install scikit-learn") from error
    shipped = load_digits()
    # From 0 to 16 there.
    pixels = torch.from_numpy(shipped.images * (255 / 16)).to(torch.uint8)
    scale = IMAGE_SIZE // pixels.shape[-1]
    images = pixels.repeat_interleave(scale, 1).repeat_interleave(scale, 2)[:, None].expand(-1, 3, -1, -1)
    labels, tested = torch.from_numpy(shipped.target), torch.arange(len(images)) % TESTED == 0
    training = images[~tested]
    mean, std = (float(value) / 255 for value in (training.double().mean(), training.double().std()))
    return ImageSet((training, labels[~tested]), (images[tested], labels[tested]), (mean,) * 3, (std,) * 3, flips=False)


def image_loader(images: ImageSet, source: DataSource, batch: int, pinned: bool, whole: bool) -> DataLoader[Any]:
    """This rank's part of the training images, in batches.

    A `whole` epoch ends with what is left; else every batch is full. Raises TracerError where not one batch is full.
    """
    dataset = images.augmented()
    rank, size = rank_and_size()
    if not whole:
        check_first_batch(images, source, size, batch)
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, size, rank, drop_last=not whole)
    return DataLoader(
        dataset,
        batch,
        sampler=sampler,
        num_workers=source.workers,
        pin_memory=pinned,
        drop_last=not whole,
        persistent_workers=source.workers > 0,
    )


def check_first_batch(images: ImageSet, source: DataSource, ranks: int, batch: int) -> None:
    """Raise TracerError where a rank's share of the training images is less than one of its batches."""
    every = len(images.training[1])
    if every // ranks < batch:
        share = f"a rank's {every // ranks:,} of its {every:,} images are" if ranks > 1 else f"its {every:,} images are"
        raise TracerError(f"--data {source.name}: {share} fewer than a batch of {batch:,}: lower --batch")


def image_epoch(loader: DataLoader[Any], number: int) -> Iterator[Batch]:
    """One pass over the data, in an order that this epoch's number decides."""
    assert isinstance(loader.sampler, DistributedSampler)
    loader.sampler.set_epoch(number)
    yield from loader


def evaluation_batches(images: ImageSet, batch: int) -> Iterator[Batch]:
    """The test set in batches, normalized as the training images are; none where there is no test set."""
    if images.test is None:
        return
    normalize = v2.Compose(images.normalization())
    for inputs, labels in zip(*(torch.split(tensor, batch) for tensor in images.test), strict=True):
        yield normalize(inputs), labels
