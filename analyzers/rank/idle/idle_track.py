"""Track of a device's idle time: its pieces as stretches of time.

full window     gap  |python|op|python|launch|      each piece where it was
light window    gap  |op|python|launch......|       what lies before the launch in proportion, in order of cause
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, values_at
from analyzers.rank.idle.causes import Pieces
from analyzers.rank.idle.gaps import Gaps
from analyzers.trace import NODE, Events


@dataclass(frozen=True, eq=False)
class IdleTrack:
    """Idle time of one device's windows in disjoint stretches by start, on the epoch.

    `cause` and `phase` are Cause and Phase. `name` and `call` index `names`, UNKNOWN for none: the operator, function,
    module or range that the host was in or launched from, and the call that synchronizes. `by_proportion`: of what
    lies before a launch instants are not known, and its stretches follow one another in order of cause.
    """

    start_ns: Int64
    end_ns: Int64
    cause: Int64
    phase: Int64
    name: Int64
    call: Int64
    names: tuple[str, ...]
    by_proportion: bool

    def moved(self, by_ns: int) -> IdleTrack:
        """Return the same stretches later by so much."""
        return replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)


@dataclass(frozen=True, eq=False)
class Divided:
    """Gaps of a rank's windows, their pieces, and the rows with their names; see IdleTrack for `by_proportion`."""

    gaps: Gaps
    pieces: Pieces
    events: Events
    by_proportion: bool

    def track(self, device: int) -> IdleTrack:
        """Return one device's idle time; neighbors of one gap that say the same are one stretch."""
        pieces = self.pieces.take((self.gaps.device[self.pieces.gap] == device) & (self.pieces.ns > 0))
        pieces = pieces.take(np.argsort(pieces.start_ns, kind="stable"))
        name, call = pieces.name, values_at(self.events.name, pieces.call)
        says = np.stack([pieces.gap, pieces.cause, pieces.phase, name, call])
        first = np.flatnonzero(np.r_[True, (np.diff(says) != 0).any(axis=0)][: len(pieces.gap)])
        # Pieces of a gap tile it, so that a stretch ends where its last piece does.
        last = np.r_[first[1:], len(pieces.gap)] - 1 if len(first) else first
        codes, index = np.unique(np.r_[UNKNOWN, name[first], call[first]], return_inverse=True)
        # The first code is UNKNOWN, which stays what it is.
        index = index[1:] - 1
        return IdleTrack(
            start_ns=pieces.start_ns[first],
            end_ns=(pieces.start_ns + pieces.ns)[last],
            cause=pieces.cause[first],
            phase=pieces.phase[first],
            name=index[: len(first)],
            call=index[len(first) :],
            names=tuple(shown_names(self.events, codes[1:])),
            by_proportion=self.by_proportion,
        )


def shown_names(events: Events, codes: Int64) -> list[str]:
    """Return names as people know them: autograd's nodes without what they all begin with; empty for -1."""
    return [events.names[code].removeprefix(NODE) if code >= 0 else "" for code in codes.tolist()]
