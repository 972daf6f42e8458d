"""Idle time of a drawn rank, in words: its causes, and its stretches.

causes(traced(folder, ...)) == us({"python": 10, "launch_latency": 5})
"""

from analyzers.rank import Cause
from analyzers.rank.summary import summary_of
from analyzers.run.loading import Run


def idle(trace):
    (rank,) = summary_of(Run("drawn", None, (trace,))).ranks
    return rank.timed.idle


def causes(trace):
    """What each window's idle time is, in microseconds for traces that were written so, without zeros."""
    total = idle(trace).ns.sum(axis=2)
    return [{cause.label: ns for cause, ns in zip(Cause, row, strict=True) if ns} for row in total.tolist()]


def drawn(trace):
    """The stretches of a device's idle time: start, end, cause, name, call."""
    (rank,) = summary_of(Run("drawn", None, (trace,)), lanes=True).ranks
    track = rank.timed.tracks[0].idle
    names = [*track.names, None]
    return [
        (start, end, Cause(cause).label, names[name], names[call])
        for start, end, cause, name, call in zip(
            *(each.tolist() for each in (track.start_ns, track.end_ns, track.cause, track.name, track.call)),
            strict=True,
        )
    ]


def us(*rows):
    return [{cause: 1000 * us for cause, us in row.items()} for row in rows]
