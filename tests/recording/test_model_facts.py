import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from tests.support.launching import environment_of_training
from tracer.recording.model_facts import class_name, find_model


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)


def test_a_model_is_called_by_its_own_class():
    sharded = Toy()
    sharded.__class__ = type("FSDPToy", (FSDPModule, Toy), {})
    compiled = torch.compile(Toy(), backend="eager")
    assert [class_name(model) for model in (Toy(), nn.DataParallel(Toy()), sharded, compiled)] == ["Toy"] * 4


def test_the_model_is_the_wrapper_inside_of_what_trains():
    class Trainer(nn.Module):
        def __init__(self):
            super().__init__()
            self.wrapped, self.head = nn.DataParallel(Toy()), nn.Linear(100, 100)

    trainer = Trainer()
    optimizer = torch.optim.SGD(trainer.parameters(), lr=0.1)
    assert find_model(optimizer) is trainer.wrapped


def test_frozen_modules_are_no_model():
    frozen = nn.Linear(3, 3).requires_grad_(False)
    optimizer = torch.optim.SGD(frozen.parameters(), lr=0.1)
    assert find_model(optimizer) is not frozen


FROZEN = """
import gc, torch
from tracer.recording.model_facts import find_model

class Holder:
    model = torch.nn.Linear(3, 3)

optimizer = torch.optim.SGD(Holder.model.parameters(), lr=0.1)
gc.freeze()
assert find_model(optimizer) is Holder.model
"""


@pytest.mark.slow
def test_a_model_is_found_that_the_collector_has_frozen():
    # In a process of its own: here all that other tests have left would be looked through.
    subprocess.run([sys.executable, "-c", FROZEN], env=environment_of_training(), check=True)


def test_a_module_whose_constructor_failed_is_no_model():
    unfinished, model = nn.Linear.__new__(nn.Linear), Toy()
    assert find_model(torch.optim.SGD(model.parameters(), lr=0.1)) is model
    assert "_modules" not in vars(unfinished)
