"""`tracer.Session`: records any training loop that reports its steps.

It works wherever steps are taken: in a script, a notebook, or a framework's callback. A process group, if there is one,
must exist when the session begins.
"""

from __future__ import annotations

import logging
import shutil
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from torch import nn

from analyzers.errors import UnknownPlace
from analyzers.paths import local_path
from analyzers.run import MANIFEST
from tracer.atomic_files import hidden_name, own, refuse_folder, remove_abandoned
from tracer.config import Plan, hooked
from tracer.errors import SessionIncomplete, TracerError
from tracer.recording import (
    Finisher,
    Meeting,
    Progress,
    Recorder,
    Subject,
    facts_of,
    find_model,
    note_session,
    rank_and_size,
    seldom_progress_of,
    silent,
)
from tracer.results import RunReport, report

OnReport = Callable[[RunReport], object]
_LOG = logging.getLogger("tracer")


class Session:
    """Record a training loop into the folder `output`: enter the session and call `step()` after each training step.

        with tracer.Session("traces/mine", model) as session:
            for batch in batches:
                ...
                optimizer.step()
                session.step()

    Every rank has a session, and all ranks take the same steps. Without `model` it is found, when the first step has
    been taken. `plan` says how many steps of what: `wait` untimed ones, then `rounds` rounds of four blocks of `warmup`
    untimed and `active` timed steps; with `every`, another recording each so many steps, the newest `keep` kept.
    The folder appears when all ranks have written all; it holds what `tracer record` leaves, but for steps without
    gradient synchronization, which would change the training.

    Rank 0 then reads each recording and calls `on_report` with what `tracer.report` returns. An exception in it is
    logged, and never ends the training.
    """

    def __init__(
        self,
        output: str | Path,
        model: nn.Module | None = None,
        *,
        plan: Plan | None = None,
        force: bool = False,
        on_report: OnReport | None = None,
    ) -> None:
        """Raises TracerError where the plan cannot be followed, or `output` is no path of this machine."""
        try:
            self._output = local_path(output).absolute()
        except UnknownPlace as error:
            raise TracerError(str(error)) from error
        self._model = model
        self._plan = plan or Plan()
        self._plan.check()
        self._force = force
        self._on_report = on_report
        self._recorder: Recorder | None = None
        self._finisher: Finisher | None = None
        self._is_first = False
        self._ended = False
        note_session()

    @property
    def recorded(self) -> tuple[Path, ...]:
        """Return the folders that have appeared so far; on the first rank of each host, which puts them there."""
        return tuple(self._finisher.placed) if self._finisher else ()

    def __enter__(self) -> Session:
        if self._model is not None:
            self._begin(self._model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon(f"its training failed: {kind.__name__}")

    def step(self) -> bool:
        """Say that a training step has ended. Returns False once the recording is complete, and ever after.

        Raises TracerError where the recording cannot go on: ranks that do not come, a disk that is full.
        """
        if self._ended:
            return False
        try:
            if self._recorder is None:
                self._begin(self._model or _found_model())
            else:
                self._ended = not self._recorder.step()
        except TracerError as error:
            self._abandon(str(error))
            raise
        return not self._ended

    def close(self) -> None:
        """End the session: from an incomplete recording the rounds are kept that all ranks have.

        Raises SessionIncomplete where there is none.
        """
        if self._ended:
            return
        self._ended = True
        recorder, finisher = self._recorder, self._finisher
        if recorder is None:
            raise SessionIncomplete("the session was closed before a step was taken")
        recorder.close()
        if finisher is None:
            return
        recorder.meeting.all_left()
        if self._is_first:
            taken = finisher.take_rest()
            shutil.rmtree(finisher.folder, ignore_errors=True)
            self._tell(taken)
            if not finisher.placed:
                raise SessionIncomplete(recorder.how_far())
        if recorder.part is not None and recorder.part.rounds == 0 and not recorder.recorded:
            raise SessionIncomplete(recorder.how_far())

    def _begin(self, model: nn.Module) -> None:
        hook = hooked()
        folder = Path(hook.folder) if hook else None  # where `tracer record` launched this process
        progress: Progress = silent
        if folder is None:
            folder = self._agree_on_a_folder()
            self._finisher = Finisher(folder, self._output, self._force, self._plan.keep)
        else:
            progress = seldom_progress_of(rank_and_size()[0], folder)
        subject = Subject(model, facts_of(model, sys.orig_argv))
        self._recorder = Recorder(folder, subject, self._plan, progress, on_recorded=self._put_in_place)
        self._recorder.begin()
        # All ranks have left their parts, and none has taken any away.
        self._is_first = self._recorder.is_first_here()

    def _agree_on_a_folder(self) -> Path:
        """The hidden folder that all ranks fill, if none has anything against `output`. Raises TracerError."""
        meeting = Meeting()
        try:
            refuse_folder(self._output, self._force, MANIFEST)
            refusal = ""
        except TracerError as error:
            refusal = str(error)
        refusals = [objection for objection in meeting.gather(refusal) if objection]
        refusal = meeting.broadcast(refusals[0] if refusals else "")
        if refusal:
            raise TracerError(refusal)
        remove_abandoned(self._output)
        folder = hidden_name(self._output, meeting.broadcast(uuid.uuid4().hex[:8]))
        own(folder)
        return folder

    def _put_in_place(self, recording: Path) -> None:
        """All ranks have left all: the first rank of each host makes a run of it."""
        recorder, finisher = self._recorder, self._finisher
        if finisher is None or recorder is None:
            return
        recorder.meeting.barrier()
        if not self._is_first:
            return
        taken = finisher.take_complete()
        if self._plan.every is None:
            shutil.rmtree(finisher.folder, ignore_errors=True)
        self._tell(taken)

    def _tell(self, taken: Sequence[Path]) -> None:
        """Report each recording to who wants to hear of it: on rank 0, by this process alone."""
        if self._on_report is None or rank_and_size()[0] != 0:
            return
        for recording in taken:
            try:
                self._on_report(report(recording, workers=1))
            except Exception as error:
                _LOG.warning("%s: on_report failed (%s: %s)", recording, type(error).__name__, error, exc_info=True)

    def _abandon(self, why: str) -> None:
        self._ended = True
        if self._recorder is not None:
            self._recorder.close(why)
        if self._finisher is not None:
            shutil.rmtree(self._finisher.folder, ignore_errors=True)


def _found_model() -> nn.Module:
    model = find_model()
    if model is None:
        raise TracerError("no module with parameters that require gradients was found: give the session a model")
    return model
