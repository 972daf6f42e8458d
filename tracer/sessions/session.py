"""`tracer.Session`: records any training loop that reports its steps.

It works wherever steps are taken: in a script, a notebook, or a framework's callback. A process group, if there is one,
must exist when the session begins.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from weakref import WeakValueDictionary

from torch import nn

from analyzers.paths import local_path
from analyzers.run import MANIFEST
from tracer.atomic_files import OWNER, hidden_name, own, refuse_folder, remove_abandoned
from tracer.config import Plan, hooked
from tracer.errors import IncompleteRecording, SessionIncomplete, TracerError, UsageError
from tracer.recording import (
    Finisher,
    Meeting,
    NotAllCame,
    Progress,
    Recorder,
    Subject,
    facts_of,
    find_model,
    gpus_of,
    note_session,
    rank_and_size,
    seldom_progress_of,
    silent,
)
from tracer.results import RunReport, report

OnReport = Callable[[RunReport], object]
# In the folder that ranks fill: a rank takes what is there.
TAKING = "taking"
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
    Where training is known to take `steps` steps, blocks shrink to what fits.
    The folder appears when all ranks have written all; it holds what `tracer record` leaves, but for steps without
    gradient synchronization, which would change the training. Of a training that ends or fails before, the rounds are
    kept that all ranks have, else two steps that were profiled early; that is an `IncompleteRecording` warning, with
    `strict` an error.

    Rank 0 then reads each recording and calls `on_report` with what `tracer.report` returns. An exception in it is
    logged, and never ends the training.
    """

    def __init__(
        self,
        output: str | Path,
        model: nn.Module | None = None,
        *,
        plan: Plan | None = None,
        steps: int | None = None,
        force: bool = False,
        strict: bool = False,
        on_report: OnReport | None = None,
    ) -> None:
        """Raises TracerError where plan or steps cannot be followed, or `output` is no path of this machine."""
        self._output = local_path(output).absolute()
        self._model = model
        self._plan = plan or Plan()
        self._plan.check()
        if steps is not None and steps < 1:
            raise UsageError(f"steps {steps}: a training has 1 or more")
        self._steps = steps
        self._force = force
        self._strict = strict
        self._on_report = on_report
        self._recorder: Recorder | None = None
        self._finisher: Finisher | None = None
        self._is_first = False
        self._is_taken = False
        self._ended = False
        self._pid = os.getpid()
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
            self._fail(f"its training failed: {kind.__name__}")

    def step(self) -> bool:
        """Say that a training step has ended. Returns False once the recording is complete, and ever after.

        Raises TracerError where the recording cannot go on: ranks that do not come, a disk that is full.
        """
        if self._ended:
            return False
        try:
            if self._recorder is None:
                self._begin(self._model or _found_model(), uncounted=1)
            else:
                self._ended = not self._recorder.step()
        except TracerError as error:
            self._fail(str(error))
            raise
        return not self._ended

    def close(self) -> None:
        """End the session, and keep what all ranks have; warn where that is not all of a recording.

        Raises SessionIncomplete instead if the session is `strict`.
        """
        if self._ended or self._is_a_fork():
            return
        self._ended = True
        recorder = self._recorder
        if recorder is None:
            self._complain("the session was closed before a step was taken: nothing was recorded")
            return
        recorder.close(trained=recorder.done if self._finisher else None)
        if self._finisher is not None:
            # One that has failed has said so, and what it had is on disk.
            with suppress(NotAllCame):
                recorder.meeting.all_left()
            self._tell(self._take_rest() if self._is_first else [])
        if not recorder.recorded and (self._is_first or self._strict):
            self._complain(f"{recorder.how_far()}; {self._what_is_kept()}")

    def _begin(self, model: nn.Module, uncounted: int = 0) -> None:
        # One that nobody closes, as in a notebook, ends with its process, unless another takes its place.
        older = _NEWEST.pop(self._output, None)
        if older is not None:
            older._give_way()
        _NEWEST[self._output] = self
        hook = hooked()
        folder = Path(hook.folder) if hook else None  # where `tracer record` launched this process
        progress: Progress = silent
        if folder is None:
            folder = self._agree_on_a_folder()
            self._finisher = Finisher(folder, self._output, self._force, self._plan.keep)
        else:
            progress = seldom_progress_of(rank_and_size()[0], folder)
        subject, plan = Subject(model, facts_of(model, sys.orig_argv), uncounted=uncounted), self._plan
        if self._steps is not None and plan.every is None:
            plan = plan.fitting(self._steps - uncounted, "cuda" if gpus_of(model) else "cpu") or plan
        tell = partial(_LOG.info, "%s: %s", self._output)
        self._recorder = Recorder(folder, subject, plan, progress, on_recorded=self._put_in_place, tell=tell)
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

    def _fail(self, why: str) -> None:
        """Keep what all ranks had when this one failed; whichever of them fails first does. Nothing is raised here."""
        if self._ended or self._is_a_fork():
            return
        self._ended = True
        recorder = self._recorder
        if recorder is None:
            return
        try:
            recorder.close(why)
            recorder.meeting.fail(why)
            self._take_rest()
            _LOG.warning("%s: %s; %s", self._output, recorder.how_far(), self._what_is_kept())
        except (TracerError, OSError) as error:
            _LOG.warning("%s: %s; what there was could not be kept: %s", self._output, why, error)

    def _take_rest(self) -> list[Path]:
        """Put in its place what all ranks have, unless another rank does; of the rest nothing is left.

        Raises TracerError, OSError, and leaves what there is where it was.
        """
        finisher = self._finisher
        if finisher is None:
            return []
        folder = finisher.folder
        has_owner = (folder / OWNER).is_file()
        if has_owner and not _is_first_to(folder / TAKING):
            self._is_taken = True
            return []
        # Without an owner it was made anew by what this rank wrote last, when another had taken all.
        self._is_taken = not has_owner
        taken = finisher.take_rest() if has_owner else []
        shutil.rmtree(folder, ignore_errors=True)
        return taken

    def _give_way(self) -> None:
        """Leave the output to another session."""
        if self._ended or self._recorder is None:
            return
        self._ended = True
        self._recorder.close("another session has taken its place")
        if self._finisher is not None:
            shutil.rmtree(self._finisher.folder, ignore_errors=True)

    def _what_is_kept(self) -> str:
        if self._finisher is None:
            return "tracer record keeps what all ranks have"
        if self._finisher.placed:
            return f"{self._finisher.placed[-1]} has what there was"
        if self._is_taken or not self._is_first:
            return "another rank keeps what all have"
        return "nothing was recorded"

    def _complain(self, text: str) -> None:
        """Say that training ended before its recording."""
        if self._strict:
            raise SessionIncomplete(text)
        warnings.warn(text, IncompleteRecording, stacklevel=3)

    def _is_a_fork(self) -> bool:
        """Whether this is a copy in another process, which ends nothing."""
        return os.getpid() != self._pid

    def _end_with_process(self) -> None:
        self._fail("its process ended")


# The session that has begun last of each output, as long as anybody has it.
_NEWEST: WeakValueDictionary[Path, Session] = WeakValueDictionary()


@atexit.register
def _end_all() -> None:
    for session in list(_NEWEST.values()):
        session._end_with_process()


def _is_first_to(file: Path) -> bool:
    """Make a file, and return whether it is new: False, too, where its folder is gone."""
    try:
        file.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _found_model() -> nn.Module:
    model = find_model()
    if model is None:
        raise TracerError("no module with parameters that require gradients was found: give the session a model")
    return model
