"""`LightningCallback`: records a Trainer of Lightning or pytorch_lightning."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.callbacks.recording_steps import RecordingSteps
from tracer.config import Plan
from tracer.results import RunReport
from tracer.sessions import OnReport

# The same framework under two names; whichever the script has imported is the one that it uses.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _callback_class() -> Any:
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        try:
            return import_module(name).Callback
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ImportError("tracer.callbacks.LightningCallback needs Lightning: pip install lightning")


if TYPE_CHECKING:
    Callback = object
else:
    Callback = _callback_class()


class LightningCallback(Callback):
    """Record a Trainer's steps into the folder `output`; see `tracer.Session` for `plan`, `force` and `on_report`.

        trainer = lightning.Trainer(..., callbacks=[LightningCallback("traces/mine")])

    A step is one of `trainer.global_step`. With `log` the trainer's loggers get the report's main figures, too.
    Whatever goes wrong with the recording is logged as a warning, and training goes on.
    """

    def __init__(
        self,
        output: str | Path,
        *,
        plan: Plan | None = None,
        force: bool = False,
        on_report: OnReport | None = None,
        log: bool = False,
    ) -> None:
        """Raises UsageError where the plan cannot be followed."""
        super().__init__()
        self._on_report = on_report
        self._log = log
        self._trainer: Any = None
        self._steps = RecordingSteps(output, plan, force, self._reported if log or on_report else None)
        self._last_step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Prepare a session for the model as DDP or FSDP has wrapped it."""
        self._trainer = trainer
        self._last_step = trainer.global_step
        self._steps.begin(trainer.strategy.model, trainer.estimated_stepping_batches - trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a step where an optimizer has stepped: not each batch, when gradients are accumulated."""
        if trainer.global_step > self._last_step:
            self._last_step = trainer.global_step
            self._steps.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the recording; complete rounds are kept."""
        self._steps.end()
        self._trainer = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the recording; what all ranks have is kept."""
        self._steps.fail(exception)
        self._trainer = None

    def _reported(self, report: RunReport) -> None:
        if self._log:
            for logger in self._trainer.loggers:
                logger.log_metrics(report.figures(), step=self._trainer.global_step)
        if self._on_report is not None:
            self._on_report(report)
