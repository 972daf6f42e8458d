"""Headline: the main problem in a sentence, its remedy, and the trust."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.collectives import BandwidthRow
from analyzers.notices import Code, Weight
from analyzers.rank import CPU_DEVICE, Breakdown
from analyzers.ranks import RankNumber
from analyzers.reporting.document import Headline, MarkedRank, RunFacts
from analyzers.reporting.measures import OverDevices
from analyzers.reporting.remedies import Advice, Evidence, Late, is_found, late_ranks, why_not_launched
from analyzers.run import UNPROFILED
from analyzers.statistics import FEWEST_BLOCKS, LEAST_SHARE
from analyzers.units import count, percent, rounded_percent, size

# From this share (10 %, a tenth) of a step on, a loss is the main problem; smaller ones are named, but are not large.
LARGE = 0.1
# A part of the step is the problem, rather than what the first advice is about, if it is so many times as large.
LARGER = 1.5
# From this share (10 %, a tenth) of a step on, unresolved communication makes its parts untrustworthy.
MUCH_UNRESOLVED = 0.1
# A profiler that makes steps so many times as long makes their parts untrustworthy.
MUCH_STRETCHED = 1.25
# Messages of fewer bytes take as long as they do for latency.
SMALL_BYTES = 64_000
# A step whose interval is wider than this share of it is not known well.
WIDE = 0.25
# Windows that cover less of the steps' marks are not called the step: one profiled step, or one of little work.
COVERED = 0.9
# Of fewer profiled steps one odd step is most of the figures.
FEW_STEPS = 2


@dataclass(frozen=True)
class Findings:
    """What a headline is drawn from; `shares` are parts of typical windows' time, `over` compares devices."""

    run: RunFacts
    rows: Breakdown
    shares: Mapping[str, float | None]
    is_bound: bool
    advised: Sequence[Advice]
    bandwidths: Sequence[BandwidthRow]
    evidence: Evidence
    over: OverDevices | None
    profiled_steps: int

    def share(self, part: str) -> float:
        """Return a part's share of typical windows' time."""
        return self.shares[part] or 0.0


@dataclass(frozen=True)
class Problem:
    """A loss: its code, the sentence, its share of the step, and what to do about it, None where nothing is known.

    `brief` is what it is called where it is small.
    """

    code: str
    words: str
    share: float
    remedy: str | None
    brief: str


def headline(findings: Findings) -> Headline:
    """Return the main problem, the strongest remedy, and how far to trust both."""
    problem, (trust, why) = _main_problem(findings), _trust(findings)
    return Headline(
        step_ns=findings.run.controls.unprofiled_step_ns,
        profiled_step_ns=float(np.median(findings.rows.span_ns)),
        mark_ns=mark_length(findings.rows),
        problem=problem.words if problem is not None else None,
        share=problem.share if problem is not None else None,
        remedy=problem.remedy if problem is not None else None,
        trust=trust,
        why=why,
        sentence=_sentence(findings, problem),
        code=problem.code if problem is not None else None,
        communication=_communication(findings),
        marked=_marked(findings),
        step_word=findings.evidence.step_word,
    )


def mark_length(rows: Breakdown) -> float | None:
    """Return how long steps are marked, ns, where windows cover so little of it that they are the device's part."""
    mark_ns = float(np.median(rows.mark_ns))
    return mark_ns if np.median(rows.span_ns - COVERED * rows.mark_ns) < 0 else None


def _sentence(findings: Findings, problem: Problem | None) -> str:
    """Return the problem; where it is small, how much of the step is compute comes first."""
    compute = f"{rounded_percent(findings.share('compute_ns'))} of the {findings.evidence.step_word} is compute"
    if problem is None:
        return f"none: {compute}, and no loss takes 1 %"
    return problem.words if problem.share >= LARGE else f"none is large: {compute}; the largest loss: {problem.brief}"


def _main_problem(findings: Findings) -> Problem | None:
    """Return what the first advice is about, or a part of the step that is far larger than what it brings at most."""
    part = max((make(findings) for make in _PARTS), key=lambda problem: problem.share)
    first = next(iter(findings.advised), None)
    if first is None:
        return part if part.share >= LEAST_SHARE else None
    advised = Problem(first.code, first.problem, first.share, first.text, first.problem)
    return part if not is_found(first) and part.share >= LARGER * advised.share else advised


def _of_step(findings: Findings, part: str) -> str:
    return f"{rounded_percent(findings.share(part))} of the {findings.evidence.step_word}"


@dataclass(frozen=True)
class _IdleReason:
    """Causes of idle time that are said together: the clause that says why, and the advice that helps."""

    causes: tuple[str, ...]
    clause: str
    remedies: tuple[str, ...] = ()


_HOST = _IdleReason(("operator", "python", "launch_latency"), "", ("launch_bound", "host_busy", "data_parallel"))
_REASONS = (
    _HOST,
    _IdleReason(("input",), "because the CPU waits for the DataLoader", ("input",)),
    _IdleReason(
        ("synchronize",), "because the CPU waits for the device before it launches more", ("synchronizing_calls",)
    ),
    _IdleReason(("profiler",), "because the profiler itself is at work: without it, this is not there"),
    _IdleReason(("kernel_gap",), "in short pauses between kernels", ("kernel_gaps",)),
    _IdleReason(("dependency",), "because queued work waits for another stream, device or host function"),
    _IdleReason(("unknown",), "for a reason that is not known: no launch is recorded there, or kernels are lost"),
)


def _idle(findings: Findings) -> Problem:
    reason = max(_REASONS, key=lambda one: _share_of(findings, one))
    noun = "CPUs" if (findings.rows.device == CPU_DEVICE).any() else "GPUs"
    clause = f"because {why_not_launched(findings.evidence)}" if reason is _HOST else reason.clause
    part, mostly = _of_step(findings, "idle_ns"), rounded_percent(_share_of(findings, reason))
    words = f"{noun} are idle {part}, mostly ({mostly}) {clause}"
    return Problem("idle", words, findings.share("idle_ns"), _first(findings, reason.remedies), f"idle {noun}, {part}")


def _share_of(findings: Findings, reason: _IdleReason) -> float:
    return sum(findings.share(f"idle_{cause}_ns") for cause in reason.causes)


def _first(findings: Findings, codes: Collection[str]) -> str | None:
    """Return the strongest advice with one of these codes."""
    return next((advice.text for advice in findings.advised if advice.code in codes), None)


_ON_WAITING = ("straggler", "ranks_apart", "pipeline", "expert_imbalance", "attention_imbalance")


def _waiting(findings: Findings) -> Problem:
    share = findings.share("exposed_wait_ns")
    most = "".join(f"; rank {late.rank} causes {rounded_percent(late.share)} of that" for late in _late(findings)[:1])
    words = f"ranks wait for one another for {_at_least(findings)}{_of_step(findings, 'exposed_wait_ns')}{most}"
    return Problem("exposed_wait", words, share, _first(findings, _ON_WAITING), words)


# Advice on idle devices, on ranks that wait, and on what communication costs besides its transfer.
_NOT_ON_TRANSFER = {
    *(code for reason in _REASONS for code in reason.remedies),
    *(*_ON_WAITING, "packing", "copies_out", "contention", "late_stages", "even_stages", "more_microbatches"),
    "interleaved_stages",
}


def _transfer(findings: Findings) -> Problem:
    share, most = findings.share("exposed_transfer_ns"), "at most " if findings.is_bound else ""
    words = f"communication is not hidden: {most}{_of_step(findings, 'exposed_transfer_ns')} is exposed transfer"
    codes = {advice.code for advice in findings.advised} - _NOT_ON_TRANSFER
    return Problem("exposed_transfer", words, share, _first(findings, codes), words)


_READ_ALL = "read the traces of all ranks together: only they show which rank waits for which"


def _unresolved(findings: Findings) -> Problem:
    share, run = findings.share("exposed_unresolved_ns"), findings.run
    words = (
        f"{_of_step(findings, 'exposed_unresolved_ns')} is exposed communication; how much is waiting and how much "
        f"transfer is not known, since {why_unresolved(run)}"
    )
    remedy = _READ_ALL if len(run.ranks) < run.world_size else None
    return Problem("exposed_unresolved", words, share, remedy, words)


def _copies(findings: Findings) -> Problem:
    share = findings.share("exposed_copy_ns")
    words = f"copies are not hidden: nothing runs beside them for {_of_step(findings, 'exposed_copy_ns')}"
    return Problem("exposed_copy", words, share, _first(findings, ("copies_out", "buffers")), words)


# What a step is made of besides compute.
_PARTS = (_idle, _waiting, _transfer, _unresolved, _copies)


def _at_least(findings: Findings) -> str:
    return "at least " if len(findings.run.ranks) < findings.run.world_size else ""


def why_unresolved(run: RunFacts) -> str:
    """Say why waiting and transfer cannot be told apart."""
    if len(run.ranks) < run.world_size:
        return f"{len(run.ranks)} of {run.world_size} ranks {'is' if len(run.ranks) == 1 else 'are'} here"
    return "it could not be matched between ranks"


def _communication(findings: Findings) -> str | None:
    """Say how much communication is hidden, and what the links gave for most of it; None for a device alone."""
    hidden = findings.shares["overlap"]
    if hidden is None:
        several = findings.run.world_size > 1 or len(np.unique(findings.rows.device)) > 1
        return "none was found" if several else None
    words = f"{rounded_percent(hidden)} is hidden behind compute"
    if any(notice.code == Code.TRANSFER_NOT_SHOWN for notice in findings.run.warnings):
        words = "how much is hidden behind compute is not known"
    known = [row for row in findings.bandwidths if row.busbw_gbps is not None and row.bytes]
    if not known:
        return f"{words}; what the links gave is not known{_why_no_bandwidth(findings.run)}"
    return f"{words}; {_bandwidth(max(known, key=lambda row: (row.bytes or 0) * row.count))}"


def _why_no_bandwidth(run: RunFacts) -> str:
    return f", since {why_unresolved(run)}" if len(run.ranks) < run.world_size else ""


def _bandwidth(row: BandwidthRow) -> str:
    purpose = f" of {row.purpose}" if row.purpose != "other" else ""
    if (row.bytes or 0) < SMALL_BYTES:
        return f"messages are small ({row.kind}{purpose}, {size(row.bytes)}), so that latency counts, not bandwidth"
    rate = f"{'at least ' if row.bound else ''}{row.busbw_gbps:,.3g} GB/s busbw"
    reached = "not calibrated (tracer calibrate)"
    if row.utilization_at_size is not None:
        reached = f"{rounded_percent(row.utilization_at_size)} of the calibrated {row.calibrated_gbps:,.3g} GB/s"
    return f"{row.kind}{purpose} ({size(row.bytes)} each): {rate}, {reached}"


def _marked(findings: Findings) -> list[MarkedRank]:
    """Return ranks that others wait for, and those whose compute takes far longer than others'."""
    late = _late(findings)
    marks = {one.rank: MarkedRank(one.rank, "slow" if one.is_slow else "late", one.why) for one in late}
    outliers = findings.over.outliers if findings.over is not None and findings.evidence.names_ranks else []
    for outlier in outliers:
        if outlier.measure == "compute_ns" and outlier.value_ns > outlier.median_ns:
            more = percent(outlier.value_ns / outlier.median_ns - 1)
            marks.setdefault(
                RankNumber(outlier.rank), MarkedRank(outlier.rank, "slow", f"its compute takes {more} longer")
            )
    for rank, words in findings.evidence.slowed.items():
        marks.setdefault(rank, MarkedRank(rank, "slow", words))
    return list(marks.values())


def _late(findings: Findings) -> list[Late]:
    least_ns = LEAST_SHARE * findings.evidence.step_ns
    return [late for late in late_ranks(findings.evidence) if late.wait_ns >= least_ns]


def _is_open(run: RunFacts) -> bool:
    """Whether the profiler may slow the step by a lot or not at all, as far as steps tell."""
    limits = run.controls.interval("distortion")
    return limits is not None and limits[0] <= 1 <= limits[1] and limits[1] - limits[0] > WIDE


def _relative_interval(run: RunFacts) -> float:
    """Return how wide the unprofiled step's interval is, as a share of the step."""
    limits = run.controls.interval("unprofiled_step_ns")
    return (limits[1] - limits[0]) / (run.controls.unprofiled_step_ns or 1) if limits is not None else 0.0


def _trust(findings: Findings) -> tuple[str, str | None]:
    """Grade the figures, and say what lowers the grade."""
    run, distortion = findings.run, findings.run.controls.distortion
    missing = run.world_size - len(run.ranks)
    is_much = distortion is not None and distortion > MUCH_STRETCHED
    longer = f"the profiler makes the step {'much ' if is_much else ''}longer"
    lowering = {
        "no step is marked in the trace": bool(findings.rows.unmarked.any()),
        longer: run.controls.is_stretched and is_much,
        f"{missing:,} of {run.world_size:,} ranks {'is' if missing == 1 else 'are'} missing": missing > 0,
        "much of the communication is unresolved": findings.share("exposed_unresolved_ns") > MUCH_UNRESOLVED,
    }
    steps, relative = findings.profiled_steps, _relative_interval(run)
    blocks = len(run.controls.blocks_ns.get(UNPROFILED, ()))
    weights = {warning.code.facts.weight for warning in run.warnings}
    lowering["the traces are damaged, or lack kernels"] = Weight.DAMAGE in weights or bool(findings.rows.doubted.any())
    lowering["steps without the profiler differ widely among themselves"] = relative > 1
    doubtful = {
        "steps without the profiler differ among themselves": relative > WIDE,
        f"few blocks of steps ({blocks}) were timed without the profiler": 0 < blocks < FEWEST_BLOCKS,
        f"only {count(steps, 'step')} {'is' if steps == 1 else 'are'} profiled": steps < FEW_STEPS,
        longer: run.controls.is_stretched,
        "how much the profiler slows the step is not known": distortion is None or _is_open(run),
        "see the warnings": bool(weights - {Weight.GRADED}),
    }
    for trust, reasons in (("low", lowering), ("fair", doubtful)):
        given = [reason for reason, applies in reasons.items() if applies]
        if given:
            return trust, "; ".join(given)
    return "high", None
