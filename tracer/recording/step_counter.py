"""Step counter: which of a script's optimizers ends its training steps."""

from __future__ import annotations

from collections import Counter

from tracer.errors import TracerError

# So many steps of others, one after the other, and the optimizer that steps are counted by steps no more.
SILENCE = 200


class Beat:
    """A training step ends with a step of the optimizer that steps least often during the wait.

    Of a GAN's two, of which one steps five times as often as the other, that is the other; of several that step as
    often, the one that came last. The first of all counts until the wait ends: the one that takes over then does not
    count the iteration that was counted already. During the wait another optimizer or thread may take over; afterwards
    none may: a profiler records the thread that it began in.
    """

    def __init__(self, wait: int) -> None:
        self.steps = 0  # of the training
        self._wait = wait
        self._seen: Counter[int] = Counter()
        self._clock: int | None = None
        self._thread = 0
        self._silent = 0
        self._is_counted = False  # the iteration in which another takes over, by the first one's step

    def heard(self, optimizer: int, thread: int, name: str) -> bool:
        """Whether this step of an optimizer, which `name` is the class of, ends a training step.

        Raises TracerError where those that do can no longer be told.
        """
        if self._clock is None:
            self._clock, self._thread = optimizer, thread
        if thread != self._thread:
            if optimizer != self._clock:
                return False
            if self.steps >= self._wait:
                raise TracerError("the optimizer that steps are counted by went on in another thread")
            self._thread = thread
        self._seen[optimizer] += 1
        if optimizer == self._clock:
            if self._is_counted:
                self._is_counted, self._silent = False, 0
                return False
            self._count()
            return True
        self._silent += 1
        if self._silent == SILENCE:
            if self.steps >= self._wait:
                raise TracerError(
                    f"the optimizer that steps were counted by has stopped, while another ({name}) goes on"
                )
            self._clock, self._silent = optimizer, 0
        return False

    @property
    def has_stopped(self) -> bool:
        """Whether others have stepped on since the last training step, more often than there were training steps."""
        return self._silent > self.steps

    def _count(self) -> None:
        self.steps += 1
        self._silent = 0
        if self.steps == self._wait:
            # The counter keeps the order in which optimizers came.
            last = min(reversed(self._seen), key=self._seen.__getitem__)
            # It steps as often, and has yet to step in this iteration.
            self._is_counted = self._seen[last] == self._seen[self._clock or 0] - 1
            self._clock = last
