"""Settings of a training, as objects of its process say them."""

import msgspec
import torch
from torch import nn
from torch.utils.data import DataLoader

from analyzers.run import LoaderSettings, OptimizerSettings, TrainingSettings
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


def test_what_objects_do_not_say_costs_nothing_else(monkeypatch):
    class Odd(torch.optim.SGD):
        is_made = False

        @property
        def defaults(self):
            if self.is_made:
                raise RuntimeError("no defaults")
            return self.__dict__["defaults"]

        @defaults.setter
        def defaults(self, value):
            self.__dict__["defaults"] = value

    class OddLoader(DataLoader):
        def __getattribute__(self, name):
            if name == "__dict__":
                raise RuntimeError("no dictionary")
            return super().__getattribute__(name)

    def fail():
        raise RuntimeError("PyTorch is checking the matmul precision")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", fail)
    wrong = DataLoader([1])
    wrong.num_workers = True
    odd = Odd(nn.Linear(2, 2).parameters(), lr=1)
    odd.is_made = True
    told = found(monkeypatch, odd, OddLoader([1]), wrong)
    assert told.optimizers == [OptimizerSettings("Odd")]
    assert told.loaders == [LoaderSettings(), LoaderSettings(1, None, False, None, False)]
    assert told.matmul_precision is None
    assert msgspec.json.decode(msgspec.json.encode(told), type=TrainingSettings) == told


def test_a_step_over_several_devices_is_one_forward():
    model, forwards = nn.DataParallel(nn.Linear(2, 2)), Forwards()
    with forwards.watched(model, steps=1):
        model(torch.ones(1, 2))
    assert forwards.count == 1


def test_memory_format_is_of_convolutions(monkeypatch):
    convolution = nn.Conv2d(3, 4, 3)
    assert found(monkeypatch, model=convolution).memory_format == "contiguous"
    assert found(monkeypatch, model=convolution.to(memory_format=torch.channels_last)).memory_format == "channels_last"
    both = nn.Sequential(convolution, nn.Conv2d(4, 4, 3))
    assert found(monkeypatch, model=both).memory_format == "mixed"
    assert found(monkeypatch).memory_format is None


def test_the_allocators_configuration_is_the_environments(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert found(monkeypatch).allocator == "expandable_segments:True"
