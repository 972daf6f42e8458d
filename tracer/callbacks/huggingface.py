"""`HuggingFaceCallback`: records a Trainer of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.callbacks.recording_steps import RecordingSteps
from tracer.config import Plan
from tracer.recording import find_model
from tracer.sessions import OnReport

if TYPE_CHECKING:
    TrainerCallback = object
else:
    try:
        from transformers import TrainerCallback
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ImportError(
            "tracer.callbacks.HuggingFaceCallback needs transformers: pip install transformers"
        ) from error


class HuggingFaceCallback(TrainerCallback):
    """Record a Trainer's steps into the folder `output`; see `tracer.Session` for `plan`, `force` and `on_report`.

        trainer = transformers.Trainer(..., callbacks=[HuggingFaceCallback("traces/mine")])

    A step is one of `state.global_step`, whatever gradients are accumulated in it. Whatever goes wrong with the
    recording is logged as a warning, and training goes on.
    """

    def __init__(
        self, output: str | Path, *, plan: Plan | None = None, force: bool = False, on_report: OnReport | None = None
    ) -> None:
        """Raises UsageError where the plan cannot be followed."""
        super().__init__()
        self._steps = RecordingSteps(output, plan, force, on_report)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the recording of a training before, which has failed: a Trainer does not tell callbacks."""
        if self._steps.has_begun:
            self._steps.fail(RuntimeError("the training before did not end"))

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Count a step; at the first, find the model as DDP or FSDP has wrapped it, which the Trainer does not say."""
        if not self._steps.has_begun:
            left = state.max_steps - state.global_step + 1  # this step among them
            self._steps.begin(find_model(optimizer) or kwargs["model"], left)
        self._steps.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the recording; complete rounds are kept."""
        self._steps.end()
