"""Headline: the main problem in a sentence, its remedy, and the trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.collectives import BandwidthRow
from analyzers.notices import Code
from analyzers.rank import CPU_DEVICE, Breakdown
from analyzers.reporting.bar import Bar, mark_length
from analyzers.reporting.document import Headline, MarkedRank, RunFacts
from analyzers.reporting.found import Found, is_odd
from analyzers.reporting.remedies import CHEAPER_FORMS, Advice
from analyzers.scenarios import TWENTIETH
from analyzers.statistics import LEAST_SHARE
from analyzers.step_parts import BY_CAUSE, COMPUTE, COPY, IDLE, IDLE_PARTS, TRANSFER, UNRESOLVED, WAITING
from analyzers.units import ms, percent, rounded_percent, size

# From this share (10 %, a tenth) of a step on, a loss is the main problem; smaller ones are named, but are not large.
LARGE = 0.1
# From this share of the step on compute is what it is.
MOST = 0.5
# A part of the step of a quarter at least, of which all that is known would bring less than half, is unexplained.
# One that is more than compute is named beside a first finding that would bring less than a quarter of it.
QUARTER, HALF = 0.25, 0.5
# A larger share would be printed as all.
NEARLY_ALL = 0.999
# Messages of fewer bytes take as long as they do for latency.
SMALL_BYTES = 64_000


@dataclass(frozen=True)
class DrawnFrom:
    """What a headline is drawn from; `shares` are parts of typical windows' time, `bounds` what is known at most.

    `step_ns` and `mean_ns` are the typical and the mean step that people train; `idle_places` have half or more of
    a part's idle time.
    """

    run: RunFacts
    rows: Breakdown
    shares: Mapping[str, float | None]
    bar: Bar
    is_bound: bool
    found: Found
    bounds: Sequence[Advice]
    bandwidths: Sequence[BandwidthRow]
    step_word: str
    step_ns: float
    mean_ns: float
    idle_places: Mapping[str, str | None]

    def share(self, part: str) -> float:
        """Return a part's share of typical windows' time."""
        return self.shares[part] or 0.0

    @property
    def mark_ns(self) -> float | None:
        """Return how long steps are marked where shares are of the device's part of that alone."""
        return mark_length(self.rows) if self.run.controls.unprofiled_step_ns is None else None

    @property
    def whole(self) -> str:
        """Return what shares are of: a step or a trace, or the device's part of a step."""
        return self.step_word if self.mark_ns is None else "device's part"


@dataclass(frozen=True)
class Problem:
    """What is wrong: its code, the sentence, and what it takes or a cure would bring: share and gain, None: not known.

    `brief` is what it is called where it is small.
    """

    code: str
    words: str
    share: float | None
    gain_ns: int | None
    remedy: str | None


def headline(drawn: DrawnFrom, trust: tuple[str, str | None]) -> Headline:
    """Return the main problem, its remedy, and how far to trust both."""
    problem, sentence = _main_problem(drawn)
    is_compute = problem is not None and problem.code == "compute"
    return Headline(
        step_ns=drawn.run.controls.unprofiled_step_ns,
        profiled_step_ns=float(np.median(drawn.rows.span_ns)),
        mark_ns=mark_length(drawn.rows),
        problem=None if problem is None else "compute" if is_compute else problem.words,
        share=problem.share if problem is not None else None,
        gain_ns=problem.gain_ns if problem is not None else None,
        remedy=problem.remedy if problem is not None else None,
        trust=trust[0],
        why=trust[1],
        sentence=sentence,
        code=problem.code if problem is not None else None,
        communication=_communication(drawn),
        marked=[*_marked(drawn.found.listed)],
        step_word=drawn.step_word,
    )


def advice_of_sentence(drawn: DrawnFrom) -> Advice | None:
    """Return what the sentence is about: the first finding; where none brings a twentieth, what may bring a tenth.

    None where nothing is known, or but little of what is lost.
    """
    if _unused(drawn) is not None:
        return None
    first = next(iter(drawn.found.listed), None)
    if first is not None and first.share >= TWENTIETH:
        return None if _is_unexplained(drawn, _largest(drawn)) else first
    bound = next((piece for piece in drawn.bounds if piece.code not in CHEAPER_FORMS and piece.share >= LARGE), None)
    if bound is not None:
        return bound
    return None if _is_unexplained(drawn, _largest(drawn)) else first


def _main_problem(drawn: DrawnFrom) -> tuple[Problem | None, str]:
    """Return what is wrong, and the first sentence."""
    unused = _unused(drawn)
    if unused is not None:
        return unused, unused.words
    first, compute = advice_of_sentence(drawn), drawn.bar.share(COMPUTE)
    largest, is_compute = _largest(drawn), f"{_of_step(drawn, compute)} is compute"
    if first is None and _is_unexplained(drawn, largest):
        return largest, largest.words
    if compute > MOST and (first is None or first.share < TWENTIETH):
        words = f"compute: {_of_step(drawn, compute)}"
        form = next((piece for piece in drawn.bounds if piece.code in CHEAPER_FORMS), None)
        return Problem("compute", words, compute, None, form.text if form is not None else None), words
    if first is not None:
        problem, largest_share = _of_advice(drawn, first), largest.share or 0
        if first.share >= max(LARGE, QUARTER * largest_share):
            return problem, problem.words
        if largest_share > compute:
            return problem, f"{problem.words}; besides, {largest.words}"
        is_large = first.share >= LARGE
        return problem, problem.words if is_large else f"none is large: {is_compute}; the largest loss: {problem.words}"
    if (largest.share or 0) >= LEAST_SHARE:
        words = largest.words
        return largest, words if (largest.share or 0) >= LARGE else f"none is large: {is_compute}; {words}"
    return None, f"none: {is_compute}, and no loss takes 1 %"


def _largest(drawn: DrawnFrom) -> Problem:
    return max((make(drawn) for make in _PARTS), key=lambda problem: problem.share or 0)


def _is_unexplained(drawn: DrawnFrom, largest: Problem) -> bool:
    """Whether all that is known would bring little of what is lost."""
    share = largest.share or 0.0
    if share < QUARTER:
        return False
    step_ns = drawn.bar.step_ns or 1
    degree = max((piece.figure_ns for piece in drawn.found.of_degree), default=0)
    return (drawn.found.together_ns + degree) / step_ns < HALF * share


def _of_advice(drawn: DrawnFrom, piece: Advice) -> Problem:
    """Return what advice is about, with its figure: `the CPU waits for the DataLoader: 52.3 ms of 90.5 per step`."""
    step_ns = drawn.mean_ns if is_odd(piece) else drawn.step_ns
    whole = f"of the {'mean ' if is_odd(piece) else ''}{drawn.whole}"
    at_most = "at most " if piece.gain_ns is None else ""
    figure = f"{at_most}{ms(piece.figure_ns)} of {ms(step_ns)} ({rounded_percent(piece.share)} {whole})"
    return Problem(piece.code, f"{piece.problem}: {figure}", piece.share, piece.gain_ns, piece.text)


# Parts of the step, where nothing that is known of brings most of them.


def _of_step(drawn: DrawnFrom, share: float) -> str:
    return f"{rounded_percent(share)} of the {drawn.whole}"


def _unused(drawn: DrawnFrom) -> Problem | None:
    """Name the idle time of steps of which the device's part is but the smaller one; None of any other."""
    if drawn.mark_ns is None or drawn.bar.step_ns > MOST * drawn.mark_ns:
        return None
    share = drawn.bar.idle_of_mark(drawn.mark_ns)
    idle = rounded_percent(share) if share < NEARLY_ALL else f"more than {percent(NEARLY_ALL)}"
    part = f"all that they do lies within {ms(drawn.bar.step_ns)} of {ms(drawn.mark_ns)}"
    return Problem("idle", f"GPUs are idle for {idle} of the step: {part}", share, None, None)


def _idle(drawn: DrawnFrom) -> Problem:
    share = drawn.bar.idle_share
    noun = "CPUs" if (drawn.rows.device == CPU_DEVICE).any() else "GPUs"
    waits = drawn.bar.share(WAITING) or drawn.share(WAITING.field)
    doing = "are idle or wait for others" if waits >= LEAST_SHARE else "are idle"
    longest = max(IDLE_PARTS, key=lambda part: drawn.share(part.field))
    is_idle = drawn.share(IDLE.field) >= waits
    place = drawn.idle_places.get(longest.field)
    where = f", most of it in {place}" if place else ""
    most = f", mostly {_REASONS[longest.field]}{where}" if is_idle else ", mostly waiting"
    words, suspected = f"{noun} {doing} for {_of_step(drawn, share)}{most}", drawn.found.suspected
    if is_idle:
        return Problem("idle", words, share, None, None)
    if suspected is None or suspected.within_ns is None:
        return Problem("exposed_wait", words, share, None, None)
    costs = f"what that costs is not known, {ms(max(0, suspected.within_ns[1]))} at most"
    words += f" for {suspected.at}: {suspected.because}; {costs}"
    return Problem("exposed_wait", words, share, None, suspected.text)


_WORDS = {
    "input": "because the CPU waits for the DataLoader",
    "synchronize": "because the CPU waits for the device before it launches more",
    "operator": "because the CPU is in PyTorch's operators",
    "python": "because the CPU is in Python",
    "launch_latency": "in launches under way",
    "kernel_gap": "in short pauses between kernels",
    "dependency": "because queued work waits for another stream, device or host function",
    "unknown": "for a reason that is not known: no launch is recorded there, kernels are lost, or windows differ",
    "profiler": "because the profiler itself is at work: without it, this is not there",
    "allocator": "because device memory is allocated or freed",
    "gc": "because Python collects garbage",
}
_REASONS = {BY_CAUSE[cause].field: words for cause, words in _WORDS.items()}


def _transfer(drawn: DrawnFrom) -> Problem:
    share, most = drawn.bar.share(TRANSFER), "at most " if drawn.is_bound else ""
    words = f"communication is not hidden: {most}{_of_step(drawn, share)} is exposed transfer"
    return Problem("exposed_transfer", words, share, None, None)


_READ_ALL = "read the traces of all ranks together: only they show which rank waits for which"


def _unresolved(drawn: DrawnFrom) -> Problem:
    share, run = drawn.bar.share(UNRESOLVED), drawn.run
    words = (
        f"{_of_step(drawn, share)} is exposed communication; how much is waiting and how much transfer is not known, "
        f"since {why_unresolved(run)}"
    )
    remedy = _READ_ALL if len(run.ranks) < run.world_size else None
    return Problem("exposed_unresolved", words, share, None, remedy)


def _copies(drawn: DrawnFrom) -> Problem:
    share = drawn.bar.share(COPY)
    words = f"copies are not hidden: nothing runs beside them for {_of_step(drawn, share)}"
    return Problem("exposed_copy", words, share, None, None)


# What a step is made of besides compute.
_PARTS: Sequence[Callable[[DrawnFrom], Problem]] = (_idle, _transfer, _unresolved, _copies)


def why_unresolved(run: RunFacts) -> str:
    """Say why waiting and transfer cannot be told apart."""
    if len(run.ranks) < run.world_size:
        return f"{len(run.ranks)} of {run.world_size} ranks {'is' if len(run.ranks) == 1 else 'are'} here"
    return "it could not be matched between ranks"


def _marked(listed: Sequence[Advice]) -> Iterator[MarkedRank]:
    """Yield the ranks that findings name: slow where their compute is longer, late where host or input is."""
    for piece in listed:
        if piece.rank is not None:
            why = piece.problem.replace(f"rank {piece.rank}'s", "its").removeprefix(f"rank {piece.rank} ")
            yield MarkedRank(piece.rank, "slow" if piece.value == "compute" else "late", why)


def _communication(drawn: DrawnFrom) -> str | None:
    """Say how much communication is hidden, and what the links gave for most of it; None for a device alone."""
    hidden = drawn.shares["overlap"]
    if hidden is None:
        several = drawn.run.world_size > 1 or len(np.unique(drawn.rows.device)) > 1
        return "none was found" if several else None
    words = f"{rounded_percent(hidden)} is hidden behind compute"
    if any(notice.code == Code.TRANSFER_NOT_SHOWN for notice in drawn.run.warnings):
        words = "how much is hidden behind compute is not known"
    known = [row for row in drawn.bandwidths if row.busbw_gbps is not None and row.bytes]
    if not known:
        why = f", since {why_unresolved(drawn.run)}" if len(drawn.run.ranks) < drawn.run.world_size else ""
        return f"{words}; what the links gave is not known{why}"
    return f"{words}; {_bandwidth(max(known, key=lambda row: (row.bytes or 0) * row.count))}"


def _bandwidth(row: BandwidthRow) -> str:
    purpose = f" of {row.purpose}" if row.purpose != "other" else ""
    if (row.bytes or 0) < SMALL_BYTES:
        return f"messages are small ({row.kind}{purpose}, {size(row.bytes)}), so that latency counts, not bandwidth"
    rate = f"{'at least ' if row.bound else ''}{row.busbw_gbps:,.3g} GB/s busbw"
    reached = "not calibrated (tracer calibrate)"
    if row.utilization_at_size is not None:
        reached = f"{rounded_percent(row.utilization_at_size)} of the calibrated {row.calibrated_gbps:,.3g} GB/s"
    return f"{row.kind}{purpose} ({size(row.bytes)} each): {rate}, {reached}"
