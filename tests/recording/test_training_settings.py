"""Settings of a training, as objects of its process say them."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from analyzers.run import LoaderSettings, OptimizerSettings
from tracer.recording import training_settings as settings
from tracer.recording.training_settings import Forwards, training_settings


def found(monkeypatch, *objects, model=None):
    monkeypatch.setattr(settings, "all_objects", lambda: [*objects])
    return training_settings(model or nn.Linear(2, 2), Forwards())


def test_loaders_and_optimizers_are_told_once_each(monkeypatch):
    model = nn.Linear(2, 2)
    loaders = [DataLoader([1, 2], batch_size=4, num_workers=2, prefetch_factor=3) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), foreach=False), torch.optim.SGD(model.parameters(), lr=1)]
    told = found(monkeypatch, *loaders, *optimizers, "another object")
    assert told.loaders == [LoaderSettings(4, 2, False, 3, False)]
    assert told.optimizers == [OptimizerSettings("AdamW", False), OptimizerSettings("SGD")]


def test_an_iterator_tells_what_its_loader_was_where_nobody_kept_that(monkeypatch):
    (told,) = found(monkeypatch, iter(DataLoader([1, 2], num_workers=0))).loaders
    assert (told.workers, told.batch_size) == (0, None)


def test_forwards_are_counted_with_their_autocast(monkeypatch):
    model, forwards = nn.Linear(2, 2), Forwards()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with forwards.watched(model, steps=2), torch.autocast("cpu", torch.bfloat16):
        for _ in range(8):
            model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    monkeypatch.setattr(settings, "all_objects", list)
    told = training_settings(model, forwards)
    assert (told.forwards_per_step, told.autocast) == (4.0, "bfloat16")


def test_of_a_compiled_model_no_forward_is_seen():
    model, forwards = nn.Linear(2, 2), Forwards()
    model._compiled_call_impl = model._call_impl
    with forwards.watched(model, steps=2):
        assert not model._forward_pre_hooks
    assert forwards.steps == 0


def test_memory_format_is_of_convolutions(monkeypatch):
    convolution = nn.Conv2d(3, 4, 3)
    assert found(monkeypatch, model=convolution).memory_format == "contiguous"
    assert found(monkeypatch, model=convolution.to(memory_format=torch.channels_last)).memory_format == "channels_last"
    assert found(monkeypatch).memory_format is None


def test_the_allocators_configuration_is_the_environments(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert found(monkeypatch).allocator == "expandable_segments:True"
