"""Typical and odd steps by brute force, in the words of docs/measuring.md, a step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from analyzers.reporting.document import Report, Window
from analyzers.run.controls import LONGEST_NS, Control
from tests.support.samples import reported, summarized


def odd(lengths: Sequence[int]) -> list[bool]:
    """Which of some steps are odd, in the order given."""
    if len(lengths) < 3:
        return [False] * len(lengths)
    exact = [Fraction(length) for length in lengths]
    odd_from = Fraction(max(lengths) + 1)
    for length in exact:
        shorter = [other for other in exact if other < length]
        if len(shorter) >= len(exact) - len(shorter) and length >= Fraction(3, 2) * median(shorter):
            odd_from = min(odd_from, length)
    left = [length for length in exact if length < odd_from]
    middle = median(left)
    scatter = median(abs(length - middle) for length in left)
    is_far = [length > middle * Fraction(11, 10) and length > middle + 5 * scatter for length in exact]
    return [length >= odd_from or (len(exact) >= 8 and far) for length, far in zip(exact, is_far, strict=True)]


def samples(control: Control) -> list[list[int]]:
    """The steps of each block: as long as on the rank where they are longest, of ranks that have a possible time."""
    ranks = [*control.by_rank().values()]
    blocks = []
    for block in range(max(map(len, ranks), default=0)):
        of_ranks = [blocks_of_rank[block] for blocks_of_rank in ranks if block < len(blocks_of_rank)]
        steps = []
        for step in range(max(map(len, of_ranks))):
            known = [rank[step] for rank in of_ranks if step < len(rank) and 0 < rank[step] < LONGEST_NS]
            steps += [max(known)] if known else []
        blocks.append(steps)
    return blocks


def typical_samples(control: Control) -> list[list[int]]:
    """The typical steps of each block."""
    blocks = samples(control)
    marks = iter(odd([step for block in blocks for step in block]))
    return [[step for step in block if not next(marks)] for block in blocks]


def control_ns(control: Control) -> float:
    """The median of the typical steps."""
    return float(median(step for block in typical_samples(control) for step in block))


def counted(windows: Iterable[Any]) -> list[Any]:
    """The windows that count: of each device all but the last, or its only one."""
    devices: dict[tuple, list[Any]] = {}
    for window in windows:
        devices.setdefault((window.rank, window.device), []).append(window)
    kept: list[Any] = []
    for of_device in devices.values():
        of_device.sort(key=lambda window: window.step)
        kept += of_device[:-1] or of_device
    return kept


def split(windows: Iterable[Any], control: Control | None = None) -> tuple[list[int], list[int], list[int]]:
    """The typical steps, the odd ones, and the profile's start where it is neither."""
    spans: dict[int, int] = {}
    for window in counted(windows):
        spans[window.step] = max(spans.get(window.step, 0), window.span_ns)
    first, *others = sorted(spans)
    timed = [step for block in samples(control) for step in block] if control is not None else []
    first_may_be_odd = not timed or any(odd(timed))
    starts = bool(others and not first_may_be_odd and 10 * spans[first] >= 11 * median(spans[step] for step in others))
    judged = others if starts else [first, *others]
    is_odd = dict(zip(judged, odd([spans[step] for step in judged]), strict=True))
    if not first_may_be_odd:
        is_odd[first] = False
    odd_steps = [step for step in judged if is_odd[step]]
    return [step for step in judged if not is_odd[step]], odd_steps, [first] if starts else []


def typical_of_sample(path: Path) -> list[Window]:
    """The windows of a recorded run that its figures are of."""
    manifest = summarized(path).manifest
    return typical_windows(reported(path), manifest.controls.unprofiled if manifest is not None else None)


def typical_windows(document: Report, control: Control | None = None) -> list[Window]:
    """The windows of a report that its figures are of, in its order."""
    typical, _, _ = split(document.windows, control)
    kept = {id(window) for window in counted(document.windows) if window.step in typical}
    return [window for window in document.windows if id(window) in kept]
