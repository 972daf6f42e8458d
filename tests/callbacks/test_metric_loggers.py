"""A report's figures are what metric loggers take, with the real packages where they are installed."""

import pytest

import tracer
from tests.support.samples import SAMPLES


@pytest.fixture(scope="module")
def report():
    return tracer.report(SAMPLES / "resnet18-ddp4")


@pytest.mark.filterwarnings("default")
def test_weights_and_biases(report, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="tracer") as run:
        run.log(report.figures())
        run.summary["tracer/trust"] = report.headline.trust
        kept = {name: run.summary[name] for name in report.figures()}
    assert kept == pytest.approx(report.figures())


@pytest.mark.filterwarnings("default")
def test_mlflow(report, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    with mlflow.start_run() as run:
        mlflow.log_metrics(report.figures())
        mlflow.set_tag("tracer/trust", report.headline.trust)
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.metrics == pytest.approx(report.figures())
    assert kept.tags["tracer/trust"] == report.headline.trust


def test_tensorboard(report, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in report.figures().items():
            writer.add_scalar(name, value, 7)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(report.figures())
