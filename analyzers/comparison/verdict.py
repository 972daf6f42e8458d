"""Verdict of a comparison, account of the step, promises of A's advice.

A    advice: rank 1 late 3.67, buffers 0.95 of 12.13 ms       B    advice: neither; 8.16 ms
     promised together 4.20                                        came 3.98
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analyzers.comparison.change import Change
from analyzers.comparison.document import Comparison, PartChange, Promise, PromisedGain, StepAccount
from analyzers.reporting import Advice, Report, Window, mean_step
from analyzers.scenarios import ODD
from analyzers.statistics import LEAST_SHARE
from analyzers.step_parts import CAUSE_PARTS
from analyzers.units import MOST_SHARE, between_ms, duration, ms, percent, times

UNPROFILED = "unprofiled_step_ns"
# What two runs must have alike for the one to be the other with its advice followed.
ALIKE = ("world_size", "model", "strategy", "batch_per_gpu")
# How far bytes of gradients may be off a whole multiple of the other run's: no_sync and bf16 divide them.
MOST_OFF = 0.03
_WORDS = {part.field: part.words for part in CAUSE_PARTS}


def leading(comparison: Comparison) -> tuple[Change | None, bool]:
    """Return the step that the verdict is about, and whether it is without the profiler: where both runs have that.

    Where that has too few blocks to tell, and the profiled step changed, it is about the profiled step.
    """
    unprofiled, profiled = comparison.controls.get(UNPROFILED), comparison.step.get("span_ns")
    if unprofiled is None or unprofiled.difference is None:
        return profiled, False
    is_told = unprofiled.state != "too_few" or profiled is None or not profiled.is_marked
    return (unprofiled, True) if is_told else (profiled, False)


def account(
    a: Sequence[Window], b: Sequence[Window], leader: Change | None, judged: Mapping[str, Change]
) -> StepAccount | None:
    """Account for the difference of the mean profiled steps, part by part; None where a run has no windows."""
    of_a, of_b = mean_step(a), mean_step(b)
    if not of_a or not of_b:
        return None
    a_span_ns, b_span_ns = of_a.pop("span_ns"), of_b.pop("span_ns")
    parts = [_part(name, of_a[name], of_b[name], judged.get(name)) for name in of_a if of_a[name] or of_b[name]]
    difference_ns = b_span_ns - a_span_ns
    return StepAccount(a_span_ns, b_span_ns, difference_ns, parts, _is_opposed(leader, difference_ns, a_span_ns))


def _part(name: str, a_ns: float, b_ns: float, change: Change | None) -> PartChange:
    """Build a part's change; of ranks that differ, medians may hide it: then nothing is judged."""
    is_hidden = change is None or (change.state == "same" and a_ns != b_ns)
    return PartChange(name, a_ns, b_ns, b_ns - a_ns, None if change is None or is_hidden else change.state)


def _is_opposed(leader: Change | None, difference_ns: float, a_span_ns: float) -> bool:
    """Whether a step changed by LEAST_SHARE or more, and the mean profiled step did not do so in the same way."""
    if leader is None or not leader.relative or abs(leader.relative) < LEAST_SHARE:
        return False
    forward = difference_ns if leader.relative > 0 else -difference_ns
    return forward < LEAST_SHARE * a_span_ns


def verdict(comparison: Comparison) -> str:
    """Say how the step changed, by which part of it, and where the profiled steps say otherwise."""
    change, is_unprofiled = leading(comparison)
    if change is None:
        return "Neither run has a step."
    under = "without the profiler" if is_unprofiled else "while profiled"
    sentence = _step(change, under, "launches" if comparison.are_launches else "steps")
    untold = "" if is_unprofiled else _untold(comparison.controls.get(UNPROFILED))
    return " ".join(filter(None, [sentence, *_why(comparison.account, change), untold]))


def _untold(unprofiled: Change | None) -> str:
    """Say that the step without the profiler cannot be told to have changed, where both runs have it."""
    if unprofiled is None or unprofiled.a is None or unprofiled.b is None or unprofiled.relative is None:
        return ""
    return (
        "There are too few steps without the profiler to tell whether those changed: "
        f"{ms(unprofiled.b)} instead of {ms(unprofiled.a)} ({_share(unprofiled.relative)})."
    )


def _share(relative: float) -> str:
    """Write how much longer or shorter a step is; beyond 1,000 %, how many times as long."""
    if relative > MOST_SHARE:
        return f"{times(1 + relative)} as long"
    return f"{percent(abs(relative))} {'longer' if relative > 0 else 'shorter'}"


def _step(change: Change, under: str, samples: str) -> str:
    if change.a is None or change.b is None or change.difference is None or change.relative is None:
        known, value = ("A", change.a) if change.b is None else ("B", change.b)
        return f"Only {known}'s step is known: {ms(value or 0)} {under}."
    both = f"{ms(change.b)} instead of {ms(change.a)} {under}"
    share = _share(change.relative)
    than = f"{share} {'as' if change.relative > MOST_SHARE else 'than'} A's"
    between = f" The difference lies {between_ms(change.interval)}." if change.interval is not None else ""
    if change.state == "same":
        return f"B's step takes as long as A's: {ms(change.b)} {under}."
    if change.state == "small":
        return f"B's step takes as long as A's, within {percent(LEAST_SHARE)}: {both}."
    if change.state == "within":
        return f"B's step cannot be told apart from A's: {both} ({share}).{between}"
    if change.state == "too_few":
        apart = ""
        if change.apart:
            side = "below" if change.difference < 0 else "above"
            apart = f", all {change.b_steps} of B's {side} all {change.a_steps} of A's"
        return f"There are too few {samples} to tell whether B's step changed: {both} ({share}{apart})."
    if change.state == "correlated":
        return f"B's step is {than}: {both}. Launches may differ as much: record more launches of both."
    return f"B's step is {than}: {both}."


def _why(accounted: StepAccount | None, change: Change) -> Iterator[str]:
    """Yield what the parts of the step add, or that they do not explain it."""
    if accounted is None or change.difference is None:
        return
    if accounted.is_opposed:
        means = f"{ms(accounted.b_span_ns)} instead of {ms(accounted.a_span_ns)} on average"
        yield f"The profiled steps, which the parts below are from, do not show this: {means}."
    elif change.state in ("changed", "correlated"):
        largest = _largest(accounted, change.difference)
        if largest is not None:
            most = abs(largest.difference_ns) >= abs(accounted.difference_ns) / 2
            more = "more" if largest.difference_ns > 0 else "less"
            sure = "" if largest.state == "changed" else ", which is not certain"
            yield (
                f"{'Most of it is' if most else 'The largest part is'} {_WORDS[largest.part]}: "
                f"{duration(abs(largest.difference_ns))} {more} per profiled step{sure}."
            )


def _largest(accounted: StepAccount, difference: float) -> PartChange | None:
    """Return the part that changed most in the step's way, if by LEAST_SHARE of the step."""
    alike = [part for part in accounted.parts if part.difference_ns * difference > 0]
    largest = max(alike, key=lambda part: abs(part.difference_ns), default=None)
    is_told = largest is not None and abs(largest.difference_ns) >= LEAST_SHARE * accounted.longest_ns
    return largest if is_told else None


def promised(a: Report, b: Report, step: Change | None) -> Promise | None:
    """Return what A's findings at a place promised that B's do not name again, and by how much B's step is shorter.

    None where there is none, or where the runs are not the same training. `step` is the change of the unprofiled step.
    """
    if not _are_alike(a, b):
        return None
    asked = [piece for piece in a.summary.advice if piece.gain_ns is not None and piece.code != ODD]
    gone = _gone(asked, b)
    if not gone:
        return None
    came_ns = -step.difference if step is not None and step.difference is not None else None
    limits = step.interval if step is not None else None
    between = [-limits[1], -limits[0]] if limits is not None else None
    # What odd steps cost is of the mean step.
    odd_ns = sum(piece.figure_ns for piece in a.summary.advice if piece.code == ODD and piece.gain_ns is not None)
    return Promise([_gain(piece) for piece in gone], _together_ns(a, odd_ns, asked, gone), came_ns, between)


def odd_gone(a: Report, b: Report) -> PromisedGain | None:
    """Return what A's finding on odd steps promised of the mean step, where B names none; None else."""
    gone = _gone([piece for piece in a.summary.advice if piece.code == ODD], b)
    return _gain(gone[0]) if gone and _are_alike(a, b) else None


def _are_alike(a: Report, b: Report) -> bool:
    named = all(getattr(a.run, name) == getattr(b.run, name) for name in ALIKE)
    return named and _are_multiples(a.traffic.get("gradients"), b.traffic.get("gradients"))


def _are_multiples(a: float | None, b: float | None) -> bool:
    """Whether one number of bytes is so many times the other; of one that is not known nothing speaks against it."""
    times = max(a, b) / min(a, b) if a and b else 1.0
    return abs(times - round(times)) <= MOST_OFF * times


def _gone(asked: list[Advice], b: Report) -> list[Advice]:
    left = {(piece.code, piece.at) for piece in b.summary.advice}
    return [piece for piece in asked if (piece.code, piece.at) not in left]


def _together_ns(a: Report, odd_ns: int, asked: list[Advice], gone: list[Advice]) -> int:
    """Return what some advice brings: by the replay of all of it where all is followed, else no more than that."""
    total_ns = sum(piece.figure_ns for piece in gone)
    together_ns = a.summary.advice_together_ns
    if together_ns is None:
        return total_ns
    together_ns -= odd_ns
    return together_ns if len(gone) == len(asked) else min(total_ns, together_ns)


def _gain(piece: Advice) -> PromisedGain:
    low_ns, high_ns = piece.within_ns or (piece.figure_ns, piece.figure_ns)
    return PromisedGain(piece.code, piece.at, piece.problem, piece.figure_ns, [low_ns, high_ns])
