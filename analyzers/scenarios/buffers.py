"""Buffers are not broadcast: DDP's forward begins with the model."""

from __future__ import annotations

import re

from analyzers.arrays import values_at
from analyzers.causes import Lags
from analyzers.rank import EdgeKind, Section
from analyzers.scenarios.removal import launched_in, relieved, running, share_in, without_activities, without_host_time
from analyzers.scenarios.scenario import Scenario, Subject, Told, everywhere
from analyzers.trace import Kind as Work


def without_buffers(lags: Lags) -> Lags:
    """Return the lags without what DDP does for buffers: host calls, copies in and out, broadcasts, on all ranks."""
    gone = launched_in(lags.facts, Section.BUFFERS)
    relieving = relieved(lags, running(lags.facts, gone & (lags.facts.of_activities("kind") == Work.COMM)))
    return without_host_time(without_activities(relieving, gone), share_in(lags.facts, Section.BUFFERS))


def _tell(subject: Subject) -> Told:
    facts = subject.lags.facts
    inside = launched_in(facts, Section.BUFFERS)
    runs = (subject.lags.graph.edges.kind == EdgeKind.RUN) & values_at(inside, facts.activity, 0).astype(bool)
    return Told(
        "DDP broadcasts buffers before every forward",
        f"switch off DDP's broadcast of buffers ({_argument(subject.manifest.versions.get('torch'))}), if each rank "
        "may have its own running statistics",
        f"{subject.per_step(runs):,.0f} copies and broadcasts per {subject.step_word}, with the CPU's calls for them",
    )


def _argument(version: str | None) -> str:
    """Return the argument of DDP's that switches the broadcast off, which torch 2.15 gave another name."""
    names = {False: "broadcast_buffers=False", True: "forward_sync_buffers=False"}
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers is None:
        return f"{names[False]}; in torch 2.15 {names[True]}"
    return names[(int(numbers[1]), int(numbers[2])) >= (2, 15)]


BUFFERS = everywhere(
    Scenario("buffers", "DistributedDataParallel.forward", without_buffers, "broadcast_buffers=False"),
    lambda subject: bool(launched_in(subject.lags.facts, Section.BUFFERS).any()),
    _tell,
)
