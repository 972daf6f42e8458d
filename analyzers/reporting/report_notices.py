"""Notices of a report: what every analysis has to say."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from analyzers.collectives import exchange_warnings
from analyzers.layers import bucket_warnings, layer_warnings, pipeline_notices
from analyzers.layers.strategies import expert_notices
from analyzers.notices import Code, Notice
from analyzers.rank import Breakdown, RunSummary
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.measures import compute_notices, cost_warnings, distortion_warnings
from analyzers.units import ms


def notices_of(analyses: Analyses) -> Iterator[Notice]:
    """Yield warnings and notes on steps, communication, buckets, layers, strategies, costs and FLOP/s."""
    run, exchanged = analyses.run, analyses.exchanged
    yield from _unmarked_warnings(run, analyses.rows)
    yield from _outside_warnings(analyses.rows)
    yield from exchange_warnings(exchanged)
    yield from bucket_warnings(analyses.buckets)
    yield from layer_warnings(run, analyses.buckets)
    yield from pipeline_notices(analyses.pipelines)
    yield from cost_warnings(run)
    yield from expert_notices(exchanged, analyses.experts)
    yield from distortion_warnings(analyses.cost)
    yield from compute_notices(analyses.computed)


def _unmarked_warnings(run: RunSummary, rows: Breakdown) -> list[Notice]:
    """Warn where a trace marks no steps: its window may hold many of them, or one."""
    ranks = sorted(set(rows.rank[rows.unmarked].tolist()))
    if not ranks:
        return []
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    text = f"no ProfilerStep holds the launches of rank {listed}: each device's whole trace counts as one step, step 0"
    candidates = [name for rank in run.ranks if rank.rank in ranks for name in rank.step_candidates]
    if not candidates:
        return [Notice(Code.STEPS_ARE_NOT_MARKED, text)]
    ((name, _),) = Counter(candidates).most_common(1)
    remedy = f"annotations called {name!r} repeat, and may be the steps: --steps {shlex.quote(name)}"
    return [Notice(Code.STEPS_ARE_NOT_MARKED, text, remedy)]


def _outside_warnings(rows: Breakdown) -> list[Notice]:
    outside = rows.take(rows.outside_ns > 0)
    if not len(outside):
        return []
    longest = int(outside.outside_ns.max())
    text = f"device activity outside of the profiled steps is left out: at most {ms(longest)} per device"
    return [Notice(Code.ACTIVITY_OUTSIDE_STEPS, text)]
