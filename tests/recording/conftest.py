"""A GPU for the recorder, on machines that have none; and few objects for its searches."""

import gc

import pytest
import torch

from tracer.recording import recorder as recording


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """Hides all that was there before from searches for models, which would look through millions of objects."""
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        # Else what is frozen would be walked through.
        patch.setattr(gc, "get_freeze_count", lambda: 0)
        yield
    gc.unfreeze()


@pytest.fixture
def made_gpu(monkeypatch):
    """Makes windows that write nothing, and says what a recording does with them, in order.

    `failures` are what CUPTI has against each of its windows, in turn; `unusable` what it has against all of them.
    """

    def make(failures=(), unusable=None):
        done, coming = [], iter(failures)

        class MadeWindow:
            def __init__(self, kind):
                self.kind = kind

            def __enter__(self):
                done.append(f"{self.kind}:")
                return self

            def __exit__(self, *error):
                pass

            def step(self):
                done.append("step")

            def write(self, folder, rank, host_rows=()):
                done.append("write")

        class MadeCuptiWindow(MadeWindow):
            def __init__(self, warmup):
                super().__init__("cupti")
                self.failure = next(coming, None)

        class MadeTimes:
            def __init__(self, gpu):
                self.marks = 0

            def mark(self, number):
                self.marks += 1
                self.first = getattr(self, "first", number)

            def steps_ns(self):
                return [1000] * (self.marks - 1)

            def numbers(self):
                return [*range(self.first + 1, self.first + self.marks)]

        monkeypatch.setattr(recording, "gpus_of", lambda model: [0])
        monkeypatch.setattr(recording, "open_gpus", lambda gpus: [])
        monkeypatch.setattr(recording, "KinetoWindow", lambda kind, warmup, active: MadeWindow(kind))
        monkeypatch.setattr(recording, "CuptiWindow", MadeCuptiWindow)
        monkeypatch.setattr(recording, "StepTimes", MadeTimes)
        monkeypatch.setattr(recording, "why_unusable", lambda: unusable)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda gpu: done.append("wait"))
        return done

    return make
