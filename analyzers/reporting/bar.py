"""Bar of a step: parts of the step that people train."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.causes import replayed_parts
from analyzers.rank import Breakdown
from analyzers.reporting.analyses import Analyses
from analyzers.run import UNPROFILED
from analyzers.step_parts import COMPUTE, COPY, IDLE, IDLE_OR_WAIT, TRANSFER, UNRESOLVED, WAITING, Part, fields_of

# A replayed step that misses the control by more than this share of it says nothing of its parts.
MOST_OFF = 0.05
# Where hosts set the pace, and the two windows' waiting differs by this share of the step, nothing tells the split.
APART, HALF = 0.1, 0.5
# Windows that cover less of the steps' marks are not called the step: one profiled step, or one of little work.
COVERED = 0.9
_DEVICE = (COMPUTE, TRANSFER, UNRESOLVED, COPY)


class Bar(msgspec.Struct, frozen=True):
    """Parts of the mean typical step over ranks, which add up exactly: docs/measuring.md, The headline.

    `of`: `unprofiled`, by replay, or `profiled`. `idle_or_wait_ns`: both, where nothing tells them apart.
    """

    of: str
    step_ns: int
    compute_ns: int
    exposed_transfer_ns: int
    exposed_unresolved_ns: int
    exposed_copy_ns: int
    exposed_wait_ns: int | None
    idle_ns: int | None
    idle_or_wait_ns: int | None

    @property
    def parts(self) -> list[tuple[Part, int]]:
        """Return the parts that are known, in the order in which they are drawn."""
        order = (COMPUTE, WAITING, TRANSFER, UNRESOLVED, COPY, IDLE, IDLE_OR_WAIT)
        values = [(part, getattr(self, part.field)) for part in order]
        return [(part, ns) for part, ns in values if ns is not None]

    def share(self, part: Part) -> float:
        """Return a part's share of the step."""
        return (getattr(self, part.field) or 0) / self.step_ns if self.step_ns else 0.0

    @property
    def idle_share(self) -> float:
        """Return the share of the step in which devices idle or wait for one another."""
        return sum(self.share(part) for part in (WAITING, IDLE, IDLE_OR_WAIT))

    def idle_of_mark(self, mark_ns: float | None) -> float:
        """Return the same share of steps that are marked so long, where the bar is but the device's part of them."""
        return self.idle_share if mark_ns is None else 1 - self.step_ns * (1 - self.idle_share) / mark_ns


def mark_length(rows: Breakdown) -> float | None:
    """Return how long steps are marked, ns, where windows cover so little of it that they are the device's part."""
    mark_ns = float(np.median(rows.mark_ns))
    return mark_ns if np.median(rows.span_ns - COVERED * rows.mark_ns) < 0 else None


def bar_of(analyses: Analyses) -> Bar:
    """Return the bar of the unprofiled step, or where that is not known of the profiled one."""
    control_ns = analyses.controls.step_ns(UNPROFILED)
    measured = _measured(analyses)
    if control_ns is None:
        return _of_profiled(measured, analyses.typical_rows)
    replayed = replayed_parts(analyses.causes) if analyses.causes is not None else None
    if replayed is not None and not _is_split_unknown(analyses, measured, control_ns):
        fitted = _fitted(replayed, control_ns)
        if fitted is not None:
            return fitted
    device = {part.field: round(measured[part.field]) for part in _DEVICE}
    left_ns = control_ns - sum(device.values())
    if left_ns < 0:
        return _of_profiled(measured, analyses.typical_rows)
    return Bar("unprofiled", control_ns, **device, exposed_wait_ns=None, idle_ns=None, idle_or_wait_ns=left_ns)


def _measured(analyses: Analyses) -> dict[str, float]:
    """Return the mean parts of the typical windows, ns."""
    rows, exposed, typical = analyses.typical_rows, analyses.exposed, analyses.typical.windows
    means = {part.field: float(np.mean(getattr(rows, part.field))) for part in (COMPUTE, COPY, IDLE)}
    return means | {
        part.field: float(np.mean(getattr(exposed, part.field)[typical])) for part in (WAITING, TRANSFER, UNRESOLVED)
    }


def _of_profiled(measured: dict[str, float], rows: Breakdown) -> Bar:
    step_ns = round(float(np.mean(rows.span_ns)))
    parts = {name: round(measured[name]) for name in fields_of((*_DEVICE, WAITING))}
    return Bar("profiled", step_ns, **parts, idle_ns=step_ns - sum(parts.values()), idle_or_wait_ns=None)


def _fitted(replayed: dict[str, float], control_ns: int) -> Bar | None:
    """Return the replayed step's parts, with what it lacks of the control, or exceeds it by, put into idle time.

    None where that is more than a twentieth, or than idle time holds.
    """
    parts = {name: round(replayed[name]) for name in fields_of((*_DEVICE, WAITING))}
    idle_ns = control_ns - sum(parts.values())
    if idle_ns < 0 or abs(sum(replayed.values()) - control_ns) > MOST_OFF * control_ns:
        return None
    return Bar("unprofiled", control_ns, **parts, idle_ns=idle_ns, idle_or_wait_ns=None)


def _is_split_unknown(analyses: Analyses, measured: dict[str, float], control_ns: int) -> bool:
    """Whether hosts set the pace, and waiting and idle time are divided otherwise in the other profiled window."""
    works_ns = measured[COMPUTE.field] + measured[TRANSFER.field]
    if not analyses.run.is_light or works_ns >= HALF * control_ns:
        return False
    full = Breakdown.joined([one.windows for one in analyses.run.in_full])
    waits_ns = float(np.mean(analyses.in_full.in_windows(full).exposed_wait_ns))
    apart = waits_ns / float(np.mean(full.span_ns)) - measured[WAITING.field] / analyses.median_step_ns
    return abs(apart) >= APART
