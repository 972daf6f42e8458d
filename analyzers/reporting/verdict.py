"""Verdict and headline: what a step takes, and where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzers.arrays import Float64
from analyzers.rank import Breakdown, device_label
from analyzers.reporting.document import Headline, RunFacts
from analyzers.reporting.evidence import Advice
from analyzers.run import HIGH_DISTORTION
from analyzers.statistics import LEAST_SHARE
from analyzers.units import ms, percent

_PARTS = {
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed communication",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle",
}
# From this difference of a part's share on, ranks are said to differ.
APART = 0.1


def verdict(run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None], transfer_is_bound: bool) -> str:
    """Say what a step takes, what it is made of, how much communication is hidden, and which ranks differ.

    `shares` are of all windows' time added up.
    """
    exposed = _exposed(run, shares, transfer_is_bound)
    parts = [
        f"{percent(shares[name])} {label}{exposed if name == 'exposed_comm_ns' else ''}"
        for name, label in _PARTS.items()
        if shares[name] or name in ("compute_ns", "idle_ns")
    ]
    sentences = [f"{_step(run, rows)}: {', '.join(parts)}{_hidden(run, rows, shares)}.", *_ranks_differ(rows)]
    return " ".join(sentences)


def _step(run: RunFacts, rows: Breakdown) -> str:
    profiled = ms(float(np.median(rows.span_ns)))
    if rows.unmarked.all():
        return f"The whole trace, in which no step is marked, takes {profiled} (median)"
    if run.controls.unprofiled_step_ns is None:
        return f"A step takes {profiled} (median)"
    return f"A step takes {ms(run.controls.unprofiled_step_ns)}, and {profiled} while it is profiled. Of the latter"


def _exposed(run: RunFacts, shares: Mapping[str, float | None], is_bound: bool) -> str:
    """Return what exposed communication is made of; what may be either is called neither."""
    waiting, transfer, unresolved = (shares[f"exposed_{part}_ns"] or 0.0 for part in ("wait", "transfer", "unresolved"))
    if not waiting + transfer + unresolved:
        return ""
    if not waiting + transfer:
        return f" (waiting or transfer: not known, since {_why_unresolved(run)})"
    told = [f"{percent(waiting)} waiting", f"{'at most ' if is_bound and transfer else ''}{percent(transfer)} transfer"]
    return f" ({', '.join([*told, *([f'{percent(unresolved)} unresolved'] if unresolved else [])])})"


def _why_unresolved(run: RunFacts) -> str:
    if len(run.ranks) < run.world_size:
        return f"{len(run.ranks)} of {run.world_size} ranks {'is' if len(run.ranks) == 1 else 'are'} here"
    return "it could not be matched between ranks"


def _hidden(run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None]) -> str:
    if shares["overlap"] is not None:
        return f"; {percent(shares['overlap'])} of communication is hidden behind compute"
    several = run.world_size > 1 or len(np.unique(rows.device)) > 1
    return "; no communication was found" if several else ""


def _ranks_differ(rows: Breakdown) -> Iterator[str]:
    """Name the two ranks that differ most in what their time is made of, where they do."""
    devices = list(rows.by_device())
    names = list(_PARTS)
    spans = np.array([max(int(rows.span_ns[windows].sum()), 1) for _, windows in devices], dtype=np.float64)
    shares: Float64 = np.array(
        [[getattr(rows, name)[windows].sum() for name in names] for _, windows in devices], dtype=np.float64
    )
    shares /= spans[:, None]
    part = int(np.argmax(np.ptp(shares, axis=0)))
    low, high = int(np.argmin(shares[:, part])), int(np.argmax(shares[:, part]))
    if shares[high, part] - shares[low, part] < APART:
        return
    several = len({device for (_, device), _ in devices}) > 1 and len({rank for (rank, _), _ in devices}) == 1
    least, most = (
        f"device {device_label(key[1])}" if several else f"rank {key[0]}" for key in (devices[low][0], devices[high][0])
    )
    lowest, highest = percent(shares[low, part]), percent(shares[high, part])
    yield f"Ranks differ: {_PARTS[names[part]]} takes {lowest} of {least}'s time and {highest} of {most}'s."


_PROBLEMS = {
    "idle_ns": "devices are idle",
    "exposed_wait_ns": "ranks wait for one another",
    "exposed_transfer_ns": "communication is not hidden behind compute",
    "exposed_unresolved_ns": "communication is not hidden behind compute, by waiting or by transfer: not known which",
    "exposed_copy_ns": "copies are not hidden behind compute",
}
# From this share of a step on, unresolved communication makes its parts untrustworthy.
MUCH_UNRESOLVED = 0.1


def headline(run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None], advised: Sequence[Advice]) -> Headline:
    """Return what takes most of the step besides compute, the strongest remedy, and how far to trust both."""
    largest = max(_PROBLEMS, key=lambda name: shares[name] or 0.0)
    is_problem = (shares[largest] or 0.0) >= LEAST_SHARE
    unprofiled = run.controls.unprofiled_step_ns
    trust, why = _trust(run, rows, shares)
    return Headline(
        step_ns=unprofiled,
        profiled_step_ns=float(np.median(rows.span_ns)),
        problem=_PROBLEMS[largest] if is_problem else None,
        share=shares[largest] if is_problem else None,
        remedy=advised[0].text if advised else None,
        trust=trust,
        why=why,
    )


def _trust(run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None]) -> tuple[str, str | None]:
    distortion = run.controls.distortion
    low = {
        "no step is marked": bool(rows.unmarked.any()),
        "the profiler stretches the step": distortion is not None and distortion > HIGH_DISTORTION,
        "much of the communication is unresolved": (shares["exposed_unresolved_ns"] or 0.0) > MUCH_UNRESOLVED,
        "ranks are missing": len(run.ranks) < run.world_size,
    }
    fair = {"what the profiler adds is not known": distortion is None, "there are warnings": bool(run.warnings)}
    for trust, reasons in (("low", low), ("fair", fair)):
        given = [reason for reason, applies in reasons.items() if applies]
        if given:
            return trust, "; ".join(given)
    return "high", None
