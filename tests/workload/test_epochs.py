"""Whole epochs, in this process: what is counted, on what data, from which weights."""

import hashlib
import math
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as replaced
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.utils.data import DataLoader

from analyzers.lazy_fields import replaced as replace
from analyzers.run.manifest import Epoch, Manifest
from tests.support.small_training import CONFIG, CPU, batch, training
from tracer.config import DATA_SETS, IMAGE_SIZE, DataSource, EpochPlan, LearningRate
from tracer.errors import TracerError
from tracer.workload import epochs, images
from tracer.workload import models_and_data as workloads

TRAINING, TEST = 20, 10


def silent(label: str, done: int, total: int) -> None:
    pass


# What is counted.


def test_an_epoch_counts_all_its_samples():
    config = replace(CONFIG, batch=4, epochs=EpochPlan(1, 10), learning_rate=LearningRate(0.0))
    batches = [batch(4, 1), batch(4, 2), batch(2, 3)]
    trained = training(config)
    trained.model.eval()
    inputs, targets = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    outputs = trained.model(inputs).detach()
    said = []
    found = epochs.train_epoch(trained, epochs.Data(lambda number: batches), 0, lambda *words: said.append(words))
    assert found.steps == 3
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, targets)))
    assert found.accuracy == int((outputs.argmax(1) == targets).sum()) / 10
    assert said == [("epoch 1 of 1", done, 3) for done in (1, 2, 3)]


def test_the_rate_rises_with_every_step():
    rate = LearningRate(0.1, "linear", 2)
    config = replace(CONFIG, batch=256, epochs=EpochPlan(3, 1024), learning_rate=rate)
    trained, seen = training(config), []
    trained.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
    data = epochs.Data(lambda number: [batch(2, seed) for seed in range(4)])
    found = [epochs.train_epoch(trained, data, number, silent) for number in range(3)]
    assert seen == pytest.approx([0.1 + 0.1 * step / 8 for step in range(8)] + [0.2] * 4)
    assert [epoch.learning_rate for epoch in found] == pytest.approx([seen[3], seen[7], seen[11]])


def test_training_that_diverges_has_no_loss():
    trained = training(replace(CONFIG, epochs=EpochPlan(1), learning_rate=LearningRate(1e30)))
    data = epochs.Data(lambda number: [batch(4, seed) for seed in range(4)])
    assert epochs.train_epoch(trained, data, 0, silent).loss is None


def test_epochs_begin_with_the_seeds_weights_whatever_was_before():
    config = replace(CONFIG, epochs=EpochPlan(1, 2))
    first = epochs.train_epochs(config, CPU, silent)
    torch.rand(3)
    second = epochs.train_epochs(config, CPU, silent)
    assert [epoch.loss for epoch in first] == [epoch.loss for epoch in second]
    assert epochs.train_epochs(CONFIG, CPU, silent) == []


SEEN = {0: epochs.Seen(10, 4, 8.0, 4, 1), 1: epochs.Seen(30, 2, 1.0, 0, 0)}


def test_ranks_are_one_by_the_slowest_and_by_samples(monkeypatch):
    assert epochs.of_all_ranks(SEEN[0], CPU) == SEEN[0]
    # Ranks that are threads of this process, each with its end of one gloo group: processes would import torch again.
    store, ends = dist.HashStore(), threading.local()

    def all_reduce(tensor: torch.Tensor, op: dist.ReduceOp = dist.ReduceOp.SUM) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = op
        ends.group.allreduce([tensor], options).wait()

    def as_rank(rank: int) -> epochs.Seen:
        ends.group = dist.ProcessGroupGloo(store, rank, 2, timedelta(minutes=1))
        return epochs.of_all_ranks(SEEN[rank], CPU)

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(as_rank, (0, 1))) == [epochs.Seen(30, 6, 9.0, 4, 1)] * 2


def test_what_epochs_do_not_know_is_said():
    known = Epoch(1, 10, 2, 2.0, 0.5, 0.1)
    later = [replace(known, epoch=2, loss=None), replace(known, epoch=3, accuracy=None)]
    diverged, without_test_set = Manifest(epochs=[known, *later]).why_null()
    assert str(diverged).startswith("training diverged in epoch 2")
    assert "no test set" in str(without_test_set)
    assert Manifest().why_null() == []


# Data.


@pytest.mark.parametrize(("samples", "sizes"), [(10, [4, 4, 2]), (8, [4, 4]), (3, [3]), (24, [4] * 6)])
def test_a_synthetic_epoch_ends_with_what_is_left(samples, sizes):
    batches = workloads.synthetic_batches("resnet18", 4, 8, False)
    assert [len(targets) for _, targets in workloads.synthetic_epoch(batches, samples)] == sizes


@pytest.mark.parametrize(("devices", "strategy", "accumulation"), [(1, "single", 1), (3, "ddp", 2), (4, "dp", 3)])
def test_an_epoch_has_as_many_steps_as_the_dataset_has_global_batches(devices, strategy, accumulation):
    config = replace(CONFIG, strategy=strategy, devices=devices, batch=7, grad_accumulation=accumulation)
    for samples in (1, 83, 84, 85, 1000):
        batches = epochs.epoch_data(replace(config, image_size=1, epochs=EpochPlan(1, samples))).batches(0)
        steps = math.ceil(len(list(batches)) / accumulation)
        assert steps == math.ceil(samples / (7 * devices * accumulation)), samples


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """CIFAR-10 in small, as torchvision takes it: the brightness of an image is ten times its label."""
    batches = tmp_path / "cifar-10-batches-py"
    batches.mkdir()
    of = torchvision.datasets.CIFAR10
    for name, count, attribute in (("data_batch_1", TRAINING, "train_list"), ("test_batch", TEST, "test_list")):
        labels = [(7 * index) % 10 for index in range(count)]
        rows = np.repeat(np.array(labels, dtype=np.uint8)[:, None] * 10, 3 * 32 * 32, axis=1)
        monkeypatch.setattr(of, attribute, [[name, written(batches / name, {"data": rows, "labels": labels})]])
    meta = written(batches / "batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(of, "meta", of.meta | {"md5": meta})
    return tmp_path


def written(file: Path, content: object) -> str:
    file.write_bytes(pickle.dumps(content))
    return hashlib.md5(file.read_bytes()).hexdigest()


class Brightness(nn.Module):
    """Reads the label out of an image that `folder` has made, undoing its normalization."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        level = (images[:, 0].mean((1, 2)) * 0.2023 + 0.4914) * 25.5
        return nn.functional.one_hot(level.round().long(), 10).float()


def loader_of(folder: Path, batch: int, whole: bool) -> DataLoader[Any]:
    source = DataSource("cifar10", str(folder), 0)
    return images.image_loader(images.open_images(source), source, batch, False, whole)


def labels_of(rank: int, size: int, monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> list[int]:
    monkeypatch.setattr(images, "rank_and_size", lambda: (rank, size))
    loader = loader_of(folder, 3, whole=True)
    return [int(label) for _, labels in images.image_epoch(loader, number) for label in labels]


def test_ranks_share_the_dataset_whole_in_an_order_of_each_epoch(folder, monkeypatch):
    shares = [labels_of(rank, 3, monkeypatch, folder, 0) for rank in range(3)]
    # Equally many on each rank: one sample is there twice.
    assert [len(share) for share in shares] == [7, 7, 7]
    assert set(np.bincount([label for share in shares for label in share])) == {2, 3}
    assert labels_of(0, 3, monkeypatch, folder, 0) == shares[0] != labels_of(0, 3, monkeypatch, folder, 1)


def test_a_recordings_batches_are_all_full(folder):
    loader = loader_of(folder, 6, whole=False)
    assert [len(labels) for _, labels in images.image_epoch(loader, 0)] == [6, 6, 6]


@pytest.mark.parametrize(("ranks", "said"), [(1, "its 20"), (2, "a rank's 10 of its 20")])
def test_a_batch_is_at_most_a_ranks_share(folder, ranks, said):
    source = DataSource("cifar10", str(folder), 0)
    opened = images.open_images(source)
    images.check_first_batch(opened, source, ranks, 20 // ranks)
    with pytest.raises(TracerError, match=f"--data cifar10: {said} images are fewer than a batch of"):
        images.check_first_batch(opened, source, ranks, 20 // ranks + 1)


def test_the_whole_test_set_is_asked_for(folder):
    whole = images.cifar10(str(folder))
    trained = training_of(Brightness())
    assert epochs.evaluate(trained, whole) == TEST
    inputs, labels = whole.test
    assert epochs.evaluate(trained, replaced(whole, test=(inputs, (labels + (labels < 4)) % 10))) == TEST - 4
    assert trained.model.training


def training_of(model: nn.Module) -> epochs.Training:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    return epochs.Training(replace(CONFIG, batch=3, epochs=EpochPlan(1)), CPU, model, optimizer)


def test_only_rank_0_says_what_the_test_set_came_to(folder, monkeypatch):
    data = epochs.Data(lambda number: [], images.cifar10(str(folder)))
    trained = training_of(Brightness())
    assert epochs.train_epoch(trained, data, 0, silent).accuracy == 1
    monkeypatch.setattr(epochs, "rank_and_size", lambda: (1, 2))
    assert epochs.train_epoch(trained, data, 0, silent).accuracy is None


def test_without_a_test_set_there_is_training_and_no_accuracy(folder):
    (folder / "cifar-10-batches-py" / "test_batch").unlink()
    config = replace(CONFIG, data=DataSource("cifar10", str(folder), 0), epochs=EpochPlan(1))
    data = epochs.epoch_data(config)
    assert data.images.test is None
    assert sum(len(labels) for _, labels in data.batches(0)) == TRAINING
    untrained = epochs.train_epoch(training_of(Brightness()), replaced(data, batches=lambda number: []), 0, silent)
    assert untrained.accuracy is None


def test_missing_training_images_are_refused(folder):
    (folder / "cifar-10-batches-py" / "data_batch_1").unlink()
    with pytest.raises(TracerError, match="CIFAR-10 is not there"):
        loader_of(folder, 3, whole=True)


def test_the_digits_that_scikit_learn_ships_are_split_once_and_are_as_many_as_is_said():
    datasets = pytest.importorskip("sklearn.datasets")
    shipped = images.digits()
    (inputs, labels), (tested, test_labels) = shipped.training, shipped.test
    assert inputs.shape == (DATA_SETS["digits"][1], 3, IMAGE_SIZE, IMAGE_SIZE)
    assert len(labels) + len(test_labels) == 1797
    assert set(labels.tolist()) == set(test_labels.tolist()) == set(range(10))
    # A pixel of theirs is four by four of ours, in each channel, from black to white.
    first = torch.from_numpy(datasets.load_digits().images[0])
    assert torch.equal(tested[0, 1, ::4, ::4], (first * 255 / 16).to(torch.uint8))
    assert torch.equal(tested[0, 0, 2::4, 3::4], tested[0, 2, ::4, ::4])
    normal = torch.cat([batch for batch, _ in images.evaluation_batches(replaced(shipped, test=shipped.training), 500)])
    assert abs(float(normal.mean())) < 0.01
    assert float(normal.std()) == pytest.approx(1, abs=0.01)


def test_without_scikit_learn_the_digits_are_refused_with_what_brings_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(TracerError, match=r"--data digits needs scikit-learn.*: pip install scikit-learn"):
        images.digits()
