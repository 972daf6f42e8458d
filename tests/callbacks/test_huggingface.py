"""HuggingFaceCallback on a trainer with transformers' interface, and on transformers itself where it is installed."""

import sys
import types

import pytest
import torch
from torch import nn

import tracer
from tests.support.loops import ENOUGH, PLAN, new_training, train

MODULE = "tracer.callbacks.huggingface"


@pytest.fixture
def framework(monkeypatch):
    fake = types.ModuleType("transformers")
    fake.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", fake)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def new_callback(framework):
    from tracer.callbacks import HuggingFaceCallback

    return HuggingFaceCallback


def fit(callback, steps=ENOUGH, fails=False):
    """Call a callback's hooks as transformers' Trainer does, with the model that is not wrapped."""
    model, optimizer = new_training()
    state = types.SimpleNamespace(global_step=0, max_steps=steps)

    def after_step():
        state.global_step += 1
        callback.on_step_end(None, state, None, optimizer=optimizer, model=model)

    callback.on_train_begin(None, state, None, model=model, optimizer=optimizer)
    train(model, optimizer, after_step, steps)
    if not fails:
        callback.on_train_end(None, state, None, model=model)


def test_the_model_that_the_optimizer_trains_is_recorded(new_callback, tmp_path):
    teacher = nn.Linear(500, 500)
    reports = []
    fit(new_callback(tmp_path / "run", plan=PLAN, on_report=reports.append))
    assert teacher.weight.requires_grad
    assert reports[0].document.run.model == "Sequential"
    assert len(reports[0].windows()) == PLAN.active


def test_a_training_that_is_too_short_says_so(new_callback, tmp_path, caplog):
    fit(new_callback(tmp_path / "run", plan=PLAN), steps=3)
    assert "not recorded whole: training ended after 3 steps; this recording takes 10; nothing" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_training_after_one_that_failed_is_recorded(new_callback, tmp_path):
    callback = new_callback(tmp_path / "run", plan=PLAN)
    fit(callback, steps=6, fails=True)
    fit(callback)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert len(tracer.report(tmp_path / "run").windows()) == PLAN.active


def test_without_transformers_the_import_says_what_to_install(framework, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install transformers"):
        from tracer.callbacks import HuggingFaceCallback  # noqa: F401


@pytest.mark.filterwarnings("default")
def test_a_real_trainer_is_recorded(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    from tracer.callbacks import HuggingFaceCallback

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(16, 4)

        def forward(self, x):
            return {"loss": self.net(x).pow(2).mean()}

    settings = transformers.TrainingArguments(
        str(tmp_path / "checkpoints"),
        max_steps=ENOUGH,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"x": torch.randn(16)} for _ in range(64)]
    callback = HuggingFaceCallback(tmp_path / "run", plan=PLAN)
    transformers.Trainer(model=Small(), args=settings, train_dataset=data, callbacks=[callback]).train()
    report = tracer.report(tmp_path / "run")
    assert report.document.run.model == "Small"
    assert len(report.windows()) == PLAN.active
