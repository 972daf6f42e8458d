"""Rendezvous of ranks on the host, through the process group's store.

A collective would put a kernel of ours into the trace.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import count

from tracer.errors import TracerError
from tracer.recording import torch_compat as compat

# A rank that does not come within this time has failed, hangs, or takes no part.
PATIENCE = timedelta(minutes=10)
# How the word of a rank begins that comes no more.
LEFT = "\0"
# Every process makes its meetings in the same order, so that their numbers agree.
_numbers = count()


class NotAllCame(TracerError):
    """Other ranks did not come, or can no longer be reached."""


class Meeting:
    """The ranks of the default process group; one process alone meets itself."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self.rank, self.size = compat.rank_and_size()
        self._patience = patience
        self._name = f"tracer-{next(_numbers)}"
        self._calls = count()

    def barrier(self) -> None:
        """Wait until all ranks are here. Raises NotAllCame."""
        if self.size > 1:
            self._barrier(f"{self._name}-{next(self._calls)}")

    def broadcast(self, text: str) -> str:
        """Return what rank 0 says. Raises NotAllCame."""
        if self.size == 1:
            return text
        return self._broadcast(f"{self._name}-{next(self._calls)}", text)

    def gather(self, text: str) -> list[str]:
        """Return what each rank says, in order, on rank 0; the others hear nothing. Raises NotAllCame."""
        if self.size == 1:
            return [text]
        return self._gather(f"{self._name}-{next(self._calls)}", text)

    def leave(self, why: str) -> None:
        """Say that this rank will not come again: who waits for it next learns why, and waits no longer."""
        if self.size == 1:
            return
        try:
            # Rank 0 does not wait where it says something: who has heard it waits at the call after.
            for name in (f"{self._name}-{next(self._calls)}", f"{self._name}-{next(self._calls)}"):
                self._say_left(name, why)
        except (RuntimeError, NotAllCame):
            # The store went with the process that kept it; who waits there learns that as soon.
            return

    def fail(self, why: str) -> None:
        """Say that this rank, which has left, will not come to the end either."""
        if self.size > 1:
            with suppress(RuntimeError, NotAllCame):
                self._say_left(f"{self._name}-end", why)

    def _say_left(self, name: str, why: str) -> None:
        store = self._store(name)
        for key in ("open", "said", str(self.rank)):
            store.set(key, f"{LEFT}rank {self.rank} has left: {why}")

    def all_left(self) -> None:
        """Wait until all ranks have come here, where meetings end, however many each has had. Raises NotAllCame."""
        if self.size > 1:
            self._barrier(f"{self._name}-end")

    def _barrier(self, name: str) -> None:
        store = self._store(name)
        try:
            if store.add("arrived", 1) == self.size:
                store.set("open", "")
            self._read(store, "open")
        except RuntimeError as error:
            raise self._missing() from error

    def _broadcast(self, name: str, text: str) -> str:
        store = self._store(name)
        try:
            if self.rank == 0:
                store.set("said", text)
                return text
            return self._read(store, "said")
        except RuntimeError as error:
            raise self._missing() from error

    def _gather(self, name: str, text: str) -> list[str]:
        store = self._store(name)
        ranks = [str(rank) for rank in range(self.size)]
        try:
            store.set(str(self.rank), text)
            if self.rank != 0:
                return []
            return [self._read(store, rank) for rank in ranks]
        except RuntimeError as error:
            raise self._missing() from error

    def _read(self, store: compat.Store, key: str) -> str:
        store.wait([key], self._patience)
        text: str = store.get(key).decode()
        if text.startswith(LEFT):
            raise NotAllCame(text.removeprefix(LEFT))
        return text

    def _store(self, name: str) -> compat.Store:
        try:
            return compat.meeting_store(name)
        except (ValueError, RuntimeError) as error:
            raise NotAllCame(
                f"rank {self.rank} cannot meet the others: its process group has no store ({error})"
            ) from error

    def _missing(self) -> NotAllCame:
        seconds = self._patience.total_seconds()
        return NotAllCame(
            f"rank {self.rank} waited up to {seconds:.0f} s for the other {self.size - 1} ranks: "
            "not all train the same steps, or one has ended"
        )
