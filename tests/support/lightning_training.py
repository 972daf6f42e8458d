"""A training by Lightning, whichever of its packages is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def fit(lightning: Any, callback: Any, steps: int) -> list[dict[str, float]]:
    """Train, and return what the logger was given while the callback recorded."""

    class Small(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(16, 4)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8 * steps, 16)), batch_size=4)

    class Kept(lightning.pytorch.loggers.Logger if hasattr(lightning, "pytorch") else lightning.loggers.Logger):
        name, version = "kept", 0

        def __init__(self) -> None:
            super().__init__()
            self.metrics: list[dict[str, float]] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.metrics.append(metrics)

        def log_hyperparams(self, *arguments: Any) -> None:
            pass

    logger = Kept()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        accumulate_grad_batches=2,
        callbacks=[callback],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Small())
    return [metrics for metrics in logger.metrics if "tracer/step_ms" in metrics]
