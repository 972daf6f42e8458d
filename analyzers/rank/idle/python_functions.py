"""Python functions of a thread outside of operators, by its samples.

    thread       |op.|aaaaaaaabbbbbbbbbb|op|cccccc|op|
    asked for      1     2     3     4     5
    noted             1  2     3     4       5
    function          aaaaaaaabbbbbbbbbb    c              2 ends halfway to 3, 4 with the stretch, 1 and 5 where noted

One that was asked for before its stretch began waited for an operator: of what follows it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from analyzers.arrays import Int64, begins
from analyzers.rank.host import Labelled
from analyzers.trace import Samples, is_function

# A signal is handled sooner, but where Python is in a call of C; the function goes on from there, or is left.
SHORTEST_CALL_NS = 100_000


def functions_of(start_ns: Int64, end_ns: Int64, samples: Samples) -> Labelled:
    """Return parts of stretches [start, end) of one thread, in order, each with the name of the function it was in.

    Stretches are disjoint and in order, as samples are. What no sample tells of is in no part.
    """
    stretch = np.searchsorted(start_ns, samples.noted_ns, side="right") - 1
    inside = (stretch >= 0) & (samples.noted_ns < np.r_[end_ns, 0][stretch])
    stretch, samples = stretch[inside], samples.take(inside)
    is_first = begins(stretch)
    is_last = np.r_[is_first[1:], np.ones(min(len(stretch), 1), dtype=bool)]
    of_operator = samples.since_ns < start_ns[stretch]
    in_call = samples.noted_ns - samples.since_ns >= SHORTEST_CALL_NS
    # Halfway from one to the next; each is first or has one before it.
    halfway_ns = (samples.noted_ns[:-1] + np.maximum(samples.since_ns[1:], samples.noted_ns[:-1])) // 2
    until_ns = np.where(is_last, end_ns[stretch], np.r_[halfway_ns, 0][: len(stretch)])
    until_ns = np.where(of_operator | (in_call & ~is_last), samples.noted_ns, until_ns)
    begin_ns = np.where(is_first, start_ns[stretch], np.r_[0, until_ns[:-1]][: len(stretch)])
    parts = Labelled(begin_ns, until_ns, samples.name)
    return parts.take(begin_ns < until_ns)


def main_function(times: Iterable[tuple[str, int]]) -> str | None:
    """Return the function that has half or more of the time in Python, by where that was; None where none has."""
    total: Counter[str] = Counter()
    for name, ns in times:
        total[name] += ns
    name, ns = max(total.items(), key=lambda item: item[1], default=("", 0))
    return name if ns and 2 * ns >= total.total() and is_function(name) else None
