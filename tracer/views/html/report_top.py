"""Top of the report's page: the step, its parts, the trust, advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analyzers.collectives import CollectiveRow
from analyzers.reporting import Report
from analyzers.units import ms, percent
from tracer.views import SPLIT_PARTS, Place
from tracer.views.sections import ListedAdvice, gains_remark, listed_advice

# Advice that is seen where ranks wait longest, and where most communication is exposed; other advice in a whole step.
_WAITING = ("exposed_wait", "straggler", "ranks_apart", "expert_imbalance", "attention_imbalance")
_EXPOSED = (
    *("exposed_transfer", "exposed_unresolved", "last_bucket", "fewer_bytes", "late_launch", "sharded_transfer"),
    *("reduce_scatter_group", "max_connections", "larger_units", "async_tp", "prefetch", "attention_transfer"),
    *("buffers", "packing", "copies_out", "contention"),
)
_GRADES = {"high": 3, "fair": 2, "low": 1}


@dataclass(frozen=True)
class TopPart:
    """A part of the step: its look, its name, and its share, also in words."""

    field: str
    label: str
    share: float
    words: str


@dataclass(frozen=True)
class ShownAdvice:
    """A piece of advice, and the moment that shows it."""

    listed: ListedAdvice
    place: Place


@dataclass(frozen=True)
class Top:
    """What stands first: the step, what else is known of its length, its parts, and how far to trust them."""

    figure: str
    unit: str
    counted: str
    remark: str
    parts: list[TopPart]
    grade: int
    advice: list[ShownAdvice]
    gains: str


def top(report: Report) -> Top:
    """Build the first screen from the headline."""
    headline = report.summary.headline
    figure, _, unit = ms(headline.profiled_step_ns if headline.step_ns is None else headline.step_ns).partition(" ")
    return Top(
        figure=figure,
        unit=unit,
        counted="per step" if headline.step_word == "step" else "for the whole trace, in which no step is marked",
        remark=_remark(report),
        parts=list(_parts(report)),
        grade=_GRADES[headline.trust],
        advice=[ShownAdvice(piece, _moment(report, piece.code)) for piece in listed_advice(report)],
        gains=gains_remark(report),
    )


def _remark(report: Report) -> str:
    """Say what the profiler makes of the step."""
    headline = report.summary.headline
    if headline.step_ns is None:
        return "under the profiler; without it not known"
    profiled = ms(headline.profiled_step_ns)
    return f"{profiled} while profiled" if profiled != ms(headline.step_ns) else "with and without the profiler"


def _parts(report: Report) -> Iterable[TopPart]:
    for part in SPLIT_PARTS:
        share = report.summary.shares[part.field] or 0.0
        if share:
            yield TopPart(part.field, part.label, share, percent(share))


def _moment(report: Report, code: str | None) -> Place:
    """Return the moment that shows a problem, in the step of median length."""
    chosen = report.summary.representative
    collectives = [row for row in report.collectives if row.step == chosen.step]
    longest = _longest(collectives, code)
    if longest is None:
        return Place(chosen.step, chosen.rank, chosen.device)
    late = next((marked.rank for marked in report.summary.headline.marked), None)
    return Place(chosen.step, late if code in _WAITING else None, collective=longest.index)


def _longest(collectives: Iterable[CollectiveRow], code: str | None) -> CollectiveRow | None:
    """Return the collective with the longest waiting, or with the most exposed time, of any member."""

    def waited(row: CollectiveRow) -> int:
        return max((member.wait_ns or 0 for member in row.members), default=0)

    def exposed(row: CollectiveRow) -> int:
        return max((member.exposed_ns for member in row.members), default=0)

    if code in _WAITING:
        return max(collectives, key=waited, default=None)
    return max(collectives, key=exposed, default=None) if code in _EXPOSED else None
