"""No calls that wait for the device, such as `.item()`."""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.causes import Lags
from analyzers.rank import EdgeKind
from analyzers.scenarios.copies import behind_copies, pageable_copies
from analyzers.scenarios.scenario import Scenario, Subject, Told, everywhere
from analyzers.units import ms


def _waits(lags: Lags) -> Mask:
    """Whether edges are waits of stream and event synchronizations, or of pageable copies to the host.

    A synchronization of the whole device stays, as does one behind a copy to the device.
    """
    names = lags.facts.call_name
    call = lags.facts.call
    waits = np.array(["Stream" in name or "Event" in name for name in names], dtype=bool)
    to_host = pageable_copies(lags, "DtoH")
    after_copy = behind_copies(lags, pageable_copies(lags, "HtoD"))
    chosen = (waits & ~after_copy) | to_host
    blocks: Mask = (lags.graph.edges.kind == EdgeKind.BLOCK) & (call >= 0) & chosen[call]
    return blocks


def without_synchronizing(lags: Lags) -> Lags:
    """Return the lags without such waits."""
    return lags.without(_waits(lags))


def busiest_wait(subject: Subject) -> tuple[str, float]:
    """Return where such waits take longest, and how many a step has there."""
    place, times = subject.busiest(_waits(subject.lags), _call_ns(subject.lags))
    return place or "Python, outside of any operator", times


def waits_per_step(subject: Subject) -> float:
    """Return how many such waits a step has, wherever."""
    return subject.per_step(_waits(subject.lags))


def _call_ns(lags: Lags) -> Int64:
    """Return how long the call of each edge took; of edges without one it means nothing."""
    length_ns: Int64 = lags.facts.of_calls("end_ns") - lags.facts.of_calls("begin_ns")
    return length_ns[np.maximum(lags.facts.call, 0)]


def _tell(subject: Subject) -> Told:
    where, times = busiest_wait(subject)
    remedy = "let the CPU run ahead: no .item(), .cpu() or printing of tensors in the step, or only every so many steps"
    if "barrier" in where:
        remedy = "leave torch.distributed.barrier() out of the step: collectives wait for one another by themselves"
    return Told(
        f"the CPU waits for the device before it launches more, most in {where}",
        remedy,
        f"{times:.3g} waits per {subject.step_word} there; all take "
        f"{ms(subject.per_step(_waits(subject.lags), _call_ns(subject.lags)))} of a profiled {subject.step_word}",
    )


SYNCHRONIZE = everywhere(
    Scenario(
        "synchronize", "synchronizing calls", without_synchronizing, "no calls that wait for the device", of_idle=True
    ),
    lambda subject: bool(_waits(subject.lags).any()),
    _tell,
)
