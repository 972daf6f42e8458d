"""Bar of the step that people train, as every view draws it."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.reporting import Bar, Report
from analyzers.units import percent
from tracer.views import BAR_PARTS, COMM, COMPUTE, COPY, EXPOSED_PARTS, IDLE, IDLE_OR_WAIT, StepPart

# Smaller shares would be printed as 0.0 %.
SHOWN = 0.0005


def bar_shares(report: Report) -> list[tuple[StepPart, float]]:
    """Return the parts of the step and their shares; of older documents, which have no bar, those of profiled steps."""
    bar = report.summary.bar
    if bar is None:
        return [(part, share) for part in BAR_PARTS if (share := report.summary.shares.get(part.field) or 0.0)]
    return shares_of_bar(bar)


def shares_of_bar(bar: Bar) -> list[tuple[StepPart, float]]:
    """Return the parts of a bar and their shares."""
    return [(part, ns / bar.step_ns) for part in BAR_PARTS if bar.step_ns and (ns := getattr(bar, part.field) or 0)]


def drawn_shares(shares: Sequence[tuple[StepPart, float]]) -> list[tuple[StepPart, float]]:
    """Return the same in as few parts as a line of text shows: exposed communication as one."""
    of = dict(shares)
    exposed = sum(of.get(part, 0.0) for part in EXPOSED_PARTS)
    idle = IDLE_OR_WAIT if IDLE_OR_WAIT in of else IDLE
    return [(COMPUTE, of.get(COMPUTE, 0.0)), (COMM, exposed), (COPY, of.get(COPY, 0.0)), (idle, of.get(idle, 0.0))]


def bar_is_of_profiled(report: Report) -> bool:
    """Whether the bar is of the profiled step, although a step was timed without the profiler."""
    bar = report.summary.bar
    return bar is None or bar.of == "profiled"


def exposed_words(report: Report) -> str:
    """Say what exposed communication is made of; nothing where none is exposed."""
    of = {part.field: share for part, share in bar_shares(report)}
    waiting, transfer, unresolved = (of.get(part.field, 0.0) for part in (_WAITING, _TRANSFER, _UNRESOLVED))
    if not waiting + transfer + unresolved:
        return ""
    least = "at least " if len(report.run.ranks) < report.run.world_size else ""
    most = "at most " if report.summary.transfer_is_bound else ""
    parts = [f"{least}{percent(waiting)} waiting"] if waiting else []
    parts += [f"{most}{percent(transfer)} transfer"] if transfer else []
    parts += [f"{percent(unresolved)} waiting or transfer, not known which"] if unresolved >= SHOWN else []
    return f"{COMM.label} (not hidden behind compute): {', '.join(parts)}"


_WAITING, _TRANSFER, _UNRESOLVED = EXPOSED_PARTS
