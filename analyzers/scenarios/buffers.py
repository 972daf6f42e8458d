"""Buffers are not broadcast: DDP's forward begins with the model."""

from __future__ import annotations

from analyzers.causes import Lags
from analyzers.rank import Section
from analyzers.scenarios.removal import launched_in, relieved, running, share_in, without_activities, without_host_time
from analyzers.scenarios.scenario import everywhere
from analyzers.trace import Kind as Work


def without_buffers(lags: Lags) -> Lags:
    """Return the lags without what DDP does for buffers: host calls, copies in and out, broadcasts, on all ranks."""
    gone = launched_in(lags.facts, Section.BUFFERS)
    relieving = relieved(lags, running(lags.facts, gone & (lags.facts.of_activities("kind") == Work.COMM)))
    return without_host_time(without_activities(relieving, gone), share_in(lags.facts, Section.BUFFERS))


BUFFERS = everywhere(
    "buffers",
    "broadcast_buffers=False",
    "DistributedDataParallel.forward",
    without_buffers,
    lambda subject: bool(launched_in(subject.lags.facts, Section.BUFFERS).any()),
)
