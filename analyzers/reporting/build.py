"""`report`: all analyses of a run in one Report."""

from __future__ import annotations

import numpy as np

from analyzers.collectives import traffic, unmatched_rows
from analyzers.rank import NOT_KNOWN, RunSummary, device_labels, summary_of
from analyzers.ranks import RankIndex
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import REPORT_SCHEMA, Report, Window
from analyzers.reporting.measures import kernel_rows, region_rows, window_causes
from analyzers.reporting.report_notices import notices_of
from analyzers.reporting.run_facts import run_facts
from analyzers.reporting.step_timeline import Timeline, timeline
from analyzers.reporting.summary import summary_of_report
from analyzers.rows import typed_rows
from analyzers.run import Calibration, Run
from analyzers.sections import later


def report(source: Run | RunSummary, links: Calibration | None = None) -> Report:
    """Return everything that can be said of a run; `links` takes the place of the calibration that lies beside it."""
    run = summary_of(source) if isinstance(source, Run) else source
    analyses = Analyses(run, links)
    exchanged = analyses.exchanged
    facts = run_facts(run, exchanged, list(notices_of(analyses)))
    return Report(
        schema=REPORT_SCHEMA,
        run=facts,
        windows=later(lambda: _windows(analyses)),
        collectives=later(lambda: analyses.collective_rows),
        unmatched=later(lambda: unmatched_rows(exchanged)),
        waiting=later(lambda: analyses.waiting_rows),
        buckets=later(lambda: analyses.bucket_rows),
        layers=later(lambda: analyses.layer_rows),
        kernels=later(lambda: kernel_rows(run, lambda usage: usage.kernels)),
        operators=later(lambda: kernel_rows(run, lambda usage: usage.operators)),
        compute=analyses.computed,
        timeline=later(lambda: _timeline(analyses)),
        traffic=later(lambda: traffic(exchanged.matching, exchanged.transfers, analyses.steps)),
        summary=summary_of_report(analyses, facts),
        idle=later(lambda: analyses.idle),
        groups=later(lambda: analyses.groups),
        experts=later(lambda: analyses.experts),
        attention=later(lambda: analyses.attention),
        pipeline=later(lambda: [row for pipeline in analyses.pipelines for row in pipeline.rows]),
        sharded=later(lambda: analyses.sharded),
        regions=later(lambda: region_rows(run)),
        tensor=later(lambda: analyses.tensor),
    )


def _timeline(analyses: Analyses) -> Timeline:
    """Return the timeline of the window with the median length."""
    counts = np.cumsum([0, *(len(measured.windows) for measured in analyses.run.measured)])
    index = RankIndex(int(np.searchsorted(counts, analyses.median_window, side="right")) - 1)
    bucket_of = {
        int(analyses.exchanged.first_row[index]) + kernel: bucket
        for kernel, bucket in zip(
            analyses.run.measured[index].reductions.kernel.tolist(),
            analyses.buckets.number[index].tolist(),
            strict=True,
        )
        if bucket >= 0
    }
    return timeline(analyses.exchanged, index, analyses.median_window - int(counts[index]), bucket_of)


def _windows(analyses: Analyses) -> list[Window]:
    rows, exchanged = analyses.rows, analyses.exchanged
    contention_ns = analyses.column(lambda measured: measured.cost.contention_ns)
    return typed_rows(
        Window,
        rows,
        device=device_labels(rows.device),
        start_ns=rows.start_ns - exchanged.clocks.shift_ns(rows.rank) - exchanged.origin_ns,
        overlap=rows.overlap,
        packing_ns=analyses.column(lambda measured: measured.work.packing_ns),
        idle=window_causes(analyses.run.measured),
        input_idle_ns=analyses.column(lambda measured: measured.fetching.input_idle_ns),
        contention_ns=[ns if ns != NOT_KNOWN else None for ns in contention_ns.tolist()],
        **analyses.exposed.columns(),
    )
