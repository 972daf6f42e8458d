"""LightningCallback on a trainer with Lightning's interface, and on Lightning itself where it is installed."""

import sys
import types

import pytest

import tracer
from tests.support.loops import ENOUGH, PLAN, new_training, train

MODULE = "tracer.callbacks.lightning"


class FakeLogger:
    def __init__(self):
        self.logged = []

    def log_metrics(self, metrics, step=None):
        self.logged.append((metrics, step))


class FakeTrainer:
    """Calls a callback's hooks in Lightning's order; `accumulate` batches make a step."""

    def __init__(self, callback, accumulate=1):
        self.callback = callback
        self.accumulate = accumulate
        self.global_step = 0
        self.loggers = [FakeLogger()]
        model, self.optimizer = new_training()
        self.strategy = types.SimpleNamespace(model=model)

    def fit(self, steps=ENOUGH, error=None):
        self.estimated_stepping_batches = steps
        self.callback.on_train_start(self, self.strategy.model)
        train(self.strategy.model, self.optimizer, self._batches, steps)
        if error is not None:
            self.callback.on_exception(self, self.strategy.model, error)
            raise error
        self.callback.on_train_end(self, self.strategy.model)

    def _batches(self):
        for batch in range(self.accumulate):
            if batch == self.accumulate - 1:
                self.global_step += 1
            self.callback.on_train_batch_end(self, self.strategy.model, None, None, batch)


@pytest.fixture
def framework(monkeypatch):
    """A Lightning that has nothing but its callback's class."""
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        fake = types.ModuleType(name)
        fake.Callback = type("Callback", (), {"__module__": name})
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def new_callback(framework):
    from tracer.callbacks import LightningCallback

    return LightningCallback


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_step_is_one_of_the_optimizer(new_callback, tmp_path, accumulate):
    FakeTrainer(new_callback(tmp_path / "run", plan=PLAN), accumulate).fit()
    report = tracer.report(tmp_path / "run")
    assert report.document.run.model == "Sequential"
    assert len(report.windows()) == PLAN.active


def test_reports_go_to_the_loggers_and_to_the_caller(new_callback, tmp_path):
    reports = []
    trainer = FakeTrainer(new_callback(tmp_path / "run", plan=PLAN, on_report=reports.append, log=True))
    trainer.fit()
    ((figures, step),) = trainer.loggers[0].logged
    assert figures == reports[0].figures()
    assert 0 < step < ENOUGH


def test_a_training_that_fails_leaves_no_recording(new_callback, tmp_path):
    with pytest.raises(ValueError, match="loss"):
        FakeTrainer(new_callback(tmp_path / "run", plan=PLAN)).fit(steps=3, error=ValueError("loss is nan"))
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_cannot_be_made_ends_no_training(new_callback, tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    trainer = FakeTrainer(new_callback(tmp_path / "run", plan=PLAN, force=True))
    trainer.fit()
    assert trainer.global_step == ENOUGH
    assert caplog.text.count("not recorded") == 1
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["mine"]


def test_a_training_that_is_too_short_says_so(new_callback, tmp_path, caplog):
    FakeTrainer(new_callback(tmp_path / "run", plan=PLAN)).fit(steps=3)
    assert "not recorded whole: training ended after 3 steps; this recording takes 10; nothing" in caplog.text


def test_a_plan_that_cannot_be_followed_is_refused_before_training(new_callback, tmp_path):
    with pytest.raises(tracer.UsageError):
        new_callback(tmp_path / "run", plan=tracer.Plan(active=0))


@pytest.mark.parametrize("imported", ["lightning.pytorch", "pytorch_lightning"])
def test_the_callback_is_of_the_package_that_the_script_has_imported(framework, monkeypatch, imported):
    for name in {"lightning.pytorch", "pytorch_lightning"} - {imported}:
        monkeypatch.delitem(sys.modules, name)
    from tracer.callbacks import LightningCallback

    assert LightningCallback.__mro__[1].__module__ == imported


def test_without_lightning_the_import_says_what_to_install(framework, monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install lightning"):
        from tracer.callbacks import LightningCallback  # noqa: F401


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_a_real_trainer_is_recorded_and_logs_the_figures(name, tmp_path, monkeypatch):
    lightning = pytest.importorskip(name)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    from tests.support.lightning_training import fit
    from tracer.callbacks import LightningCallback

    callback = LightningCallback(tmp_path / "run", plan=PLAN, log=True)
    metrics = fit(lightning, callback, ENOUGH)
    report = tracer.report(tmp_path / "run")
    assert metrics[-1] == report.figures()
    assert report.document.run.strategy == "single"
