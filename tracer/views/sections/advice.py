"""Sections on advice and on the cost of synchronization."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.reporting import Advice, IdleFrom, Report, SyncCost, is_cheap
from analyzers.scenarios import ODD
from analyzers.statistics import is_told_apart
from analyzers.units import between_ms, duration, ms, percent, rounded_percent
from tracer.views import (
    TRANSFER,
    UNRESOLVED,
    WAITING,
    Block,
    Heading,
    Paragraph,
    Section,
    Table,
    milliseconds,
    numbers,
    sentence,
    texts,
)

_IDLE = {
    IdleFrom.QUIET: "against a step without synchronization",
    IdleFrom.BESIDE: "gaps right before packing and communication",
}
_NOTHING = "Nothing to change: no part of communication costs 1 % of the step."
_NO_REMEDY = "No advice: no change that tracer knows of would save 1 % of the step."
# Of what would come on top of all advice so much is said.
MOST_OF_DEGREE, LEAST_OF_DEGREE = 2, 0.01


@dataclass(frozen=True)
class ListedAdvice:
    """A piece of advice as it is listed: its gain in words (empty where none is known), what to do, and why.

    Behind what to do stands how far its gain can be trusted, where that is not as far as the main problem's figures.

    `advice` is None for a remedy of the main problem whose gain is not known.
    """

    gain: str
    text: str
    because: str
    code: str | None
    advice: Advice | None = None


def listed_advice(report: Report) -> list[ListedAdvice]:
    """Return what to do, in the report's order: the first is the remedy of the main problem."""
    headline, advice = report.summary.headline, report.summary.advice
    ordered = sorted(advice, key=lambda piece: piece.text != headline.remedy)
    listed = [
        ListedAdvice(
            _gain_words(piece), f"{piece.text}{_own_trust(report, piece)}", _why(report, piece), piece.code, piece
        )
        for piece in ordered
    ]
    if headline.remedy is None or headline.remedy in {piece.text for piece in advice}:
        return listed
    return [ListedAdvice("", headline.remedy, "", headline.code), *listed]


def _why(report: Report, advice: Advice) -> str:
    """Return the reason; the main problem stands above already."""
    problem = "" if advice.code == report.summary.headline.code else advice.problem
    return "; ".join(filter(None, (problem, advice.because)))


def _own_trust(report: Report, advice: Advice) -> str:
    """Say how far a gain can be trusted, where that is not as far as the main problem's figures."""
    is_said = advice.gain_ns is not None and advice.trust not in (None, report.summary.headline.trust)
    return f" (trust: {advice.trust})" if is_said else ""


def _gain_words(advice: Advice) -> str:
    """Say what advice would bring, between what and what; with `<` in front at most."""
    if advice.within_ns is None:
        return f"< {duration(advice.figure_ns)} ({rounded_percent(advice.share)})"
    low_ns, high_ns = advice.within_ns
    between = f"{ms(low_ns).removesuffix(' ms') if low_ns else 0} to {ms(high_ns).removesuffix(' ms')}"
    return f"{ms(advice.figure_ns)} ({rounded_percent(advice.share)}; {between})"


def further_words(report: Report, shown: int | None = None) -> str:
    """Say what all advice with a gain brings together, then what would come on top; only so many pieces are shown."""
    return "; ".join(filter(None, (_together_words(report, shown), _degree_words(report))))


def _together_words(report: Report, shown: int | None) -> str:
    """Say what all advice with a gain brings together, where there are several pieces."""
    has_gain = [piece.advice is not None and piece.advice.gain_ns is not None for piece in listed_advice(report)]
    gains, together_ns = sum(has_gain), report.summary.advice_together_ns
    if gains < 2 or together_ns is None:
        return ""
    whole = " of the mean step" if any(piece.scenario == ODD for piece in report.summary.advice) else ""
    if hidden := sum(has_gain[shown:]) if shown is not None else 0:
        return f"with {hidden} more (--full) together {ms(together_ns)}{whole}"
    number = "two" if gains == 2 else f"{gains}"
    which = f"first {number}" if all(has_gain[:gains]) else f"{number} with a gain"
    return f"the {which} together {ms(together_ns)}{whole}"


def _degree_words(report: Report) -> str:
    """Say what would come on top of all advice; nothing where that is little."""
    step_ns = report.summary.bar.step_ns if report.summary.bar is not None else 0
    found = [piece for piece in report.summary.of_degree if piece.figure_ns >= LEAST_OF_DEGREE * max(step_ns, 1)]
    said = [f"with {piece.words} {ms(piece.figure_ns)}{_own_trust(report, piece)}" for piece in found[:MOST_OF_DEGREE]]
    if not said:
        return ""
    then, more = ("then ", "more saved") if report.summary.advice_together_ns else ("", "saved")
    return f"{then}{', or '.join(said)} {more}"


def gains_remark(report: Report, shown: Iterable[ListedAdvice]) -> str:
    """Say how to read the gains of advice that is shown."""
    at_most = "; < is an upper limit, no prediction" if any(piece.gain.startswith("<") for piece in shown) else ""
    headline = report.summary.headline
    of_part = " of the device's part" if headline.is_of_part else ""
    return f"saved per {headline.step_word} (its share{of_part}; from what to what){at_most}"


def advice_section(report: Report) -> Section:
    """List each piece of advice with its gain and its reason; nothing where none is known and nothing communicates."""
    advice = listed_advice(report)
    more = [Paragraph(sentence(words))] if (words := further_words(report)) else []
    if advice:
        per = report.summary.headline.step_word
        title = f"What to change, and what each change would save per {per} (< at most)"
        return [Heading(title), *(block for piece in advice for block in _advice(report, piece)), *more]
    cost, step_ns = report.summary.sync_cost, report.summary.windows["span_ns"].median or 0
    if cost is None:
        return more
    return [Heading(_NOTHING if is_cheap(cost, step_ns) else _NO_REMEDY), *more]


def _advice(report: Report, listed: ListedAdvice) -> list[Block]:
    advice, why = listed.advice, report.summary.headline.problem or ""
    if advice is not None:
        only = f" (tracer whatif --only {advice.scenario})" if advice.scenario is not None else ""
        why = f"{'; '.join(filter(None, (advice.problem, advice.because)))}{only}"
    gain = f"{listed.gain}: " if listed.gain else ""
    return [Paragraph(f"{gain}{listed.text}"), Paragraph(why, is_faint=True, is_indented=True)]


def true_cost(report: Report) -> Section:
    """Split the cost of synchronization into the parts that the traces account for, next to the controls."""
    cost = report.summary.sync_cost
    if cost is None or not _is_informative(cost):
        return []
    groups = [
        [[name, milliseconds(value), note] for name, value, note in lines] for lines in (_parts(cost), _sums(cost))
    ]
    title = "What communication costs per step: each part measured, means over typical windows"
    return [Heading(title), Table([*texts(""), *numbers("ms"), *texts("")], groups)]


def _is_informative(cost: SyncCost) -> bool:
    controls = (cost.control_ns, cost.profiled_ns, cost.contention_ns)
    return bool(cost.packing_ns or cost.packing_copies_ns) or any(value is not None for value in controls)


def _parts(cost: SyncCost) -> Iterator[tuple[str, int | None, str]]:
    yield WAITING.label, cost.exposed_wait_ns, ""
    yield TRANSFER.label, cost.exposed_transfer_ns, ""
    if cost.exposed_unresolved_ns:
        yield UNRESOLVED.label, cost.exposed_unresolved_ns, "waiting or transfer, not known which"
    yield "packing kernels", cost.packing_ns, "while nothing else runs"
    yield "packing copies", cost.packing_copies_ns, "while nothing else runs"
    yield "contention", cost.contention_ns, _contention(cost)
    yield "idle", cost.idle_ns, _IDLE[cost.idle_from]


def _contention(cost: SyncCost) -> str:
    if cost.contention_ns is None:
        return "too few kernels to compare with"
    if cost.contention_compared is None:
        return "no compute runs during communication"
    estimate = f"estimate from {percent(cost.contention_compared)} of the compute during communication"
    return estimate if cost.contention_is_estimate else "compute is slower during communication"


def _control(cost: SyncCost) -> str:
    limits = cost.control_limits_ns
    if limits is None:
        return "unprofiled step less one without synchronization"
    if not is_told_apart(limits):
        return f"cannot be told from nothing ({between_ms(limits)})"
    return f"unprofiled step less one without synchronization ({between_ms(limits)})"


def _sums(cost: SyncCost) -> Iterator[tuple[str, int | None, str]]:
    share = "" if cost.accounted is None else f"{percent(cost.accounted)} of the control"
    yield "sum", cost.accounted_ns, share
    if cost.control_ns is not None:
        yield "control", cost.control_ns, _control(cost)
        yield "remainder", cost.remainder_ns, "what no part explains"
    if cost.profiled_ns is not None:
        share = (
            "" if cost.accounted_of_profiled is None else f"; the parts explain {percent(cost.accounted_of_profiled)}"
        )
        yield "profiled", cost.profiled_ns, f"the same difference under the profiler{share}"
