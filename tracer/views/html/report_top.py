"""Top of the report's page: the step, its parts, the trust, advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from analyzers.collectives import CollectiveRow
from analyzers.rank import Purpose
from analyzers.reporting import Report
from analyzers.trace import Collective
from analyzers.units import ms, percent
from tracer.views import SPLIT_PARTS, TRANSFER, Place
from tracer.views.sections import ListedAdvice, gains_remark, listed_advice, profiled_words


@dataclass(frozen=True)
class _Sight:
    """Collectives that show a problem, by purpose or kind (all where neither is given), and what is longest there."""

    most: Callable[[CollectiveRow], int]
    purposes: tuple[Purpose, ...] = ()
    kinds: tuple[Collective, ...] = ()

    def shows(self, row: CollectiveRow) -> bool:
        labels = {*(one.label for one in self.purposes), *(one.label for one in self.kinds)}
        return not labels or row.purpose in labels or row.kind in labels


_WAITING = _Sight(lambda row: row.exposed_wait_ns)
_TRANSFER = _Sight(lambda row: row.exposed_transfer_ns)
_GRADIENTS = replace(_TRANSFER, purposes=(Purpose.GRADIENTS,))
_SHARDED = replace(_TRANSFER, kinds=(Collective.ALL_GATHER, Collective.REDUCE_SCATTER))
# Where a problem is seen, by the advice's code; other advice is seen in a whole step.
_SIGHTS = {
    **dict.fromkeys(("exposed_wait", "straggler", "ranks_apart", "attention_imbalance"), _WAITING),
    "expert_imbalance": replace(_WAITING, purposes=(Purpose.TOKENS,)),
    "exposed_transfer": _TRANSFER,
    "exposed_unresolved": _Sight(lambda row: row.exposed_ns if row.partial else 0),
    "buffers": _Sight(lambda row: row.exposed_ns, (Purpose.BUFFERS,)),
    **dict.fromkeys(("fewer_bytes", "last_bucket"), _GRADIENTS),
    "late_launch": replace(_TRANSFER, purposes=(Purpose.GRADIENTS, Purpose.PARAMETERS)),
    **dict.fromkeys(
        ("reduce_scatter_group", "prefetch", "sharded_transfer", "max_connections", "larger_units"), _SHARDED
    ),
    "async_tp": replace(_TRANSFER, purposes=(Purpose.ACTIVATIONS,)),
    "attention_transfer": replace(_TRANSFER, purposes=(Purpose.ATTENTION,)),
}
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
    profiled_ns = headline.profiled_step_ns if headline.mark_ns is None else headline.mark_ns
    figure, _, unit = ms(profiled_ns if headline.step_ns is None else headline.step_ns).partition(" ")
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
        part = f" the device's part is {ms(headline.profiled_step_ns)};" if headline.mark_ns is not None else ""
        return f"under the profiler;{part} without it not known"
    if headline.mark_ns is None and ms(headline.profiled_step_ns) == ms(headline.step_ns):
        return "with and without the profiler"
    return profiled_words(headline)


def _parts(report: Report) -> Iterable[TopPart]:
    for part in SPLIT_PARTS:
        share = report.summary.shares[part.field] or 0.0
        most = "at most " if part is TRANSFER and report.summary.transfer_is_bound else ""
        if share:
            yield TopPart(part.field, part.label, share, f"{most}{percent(share)}")


def _moment(report: Report, code: str | None) -> Place:
    """Return the moment that shows a problem, in the step of median length."""
    chosen, sight = report.summary.representative, _SIGHTS.get(code or "")
    whole = Place(chosen.step, chosen.rank, chosen.device)
    if sight is None:
        return whole
    rows = [row for row in report.collectives if row.step == chosen.step and sight.shows(row)]
    longest = max(rows, key=sight.most, default=None)
    if longest is None or not sight.most(longest):
        return whole
    members = {member.rank for member in longest.members}
    late = next((one.rank for one in report.summary.headline.marked if one.rank in members), None)
    return Place(chosen.step, late if sight is _WAITING else None, collective=longest.index)
