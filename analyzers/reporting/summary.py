"""Summary of a report: medians with their spread, shares, verdict, headline, advice."""

from __future__ import annotations

from collections import Counter
from typing import Any

from numpy.typing import NDArray

from analyzers.collectives import bandwidth_rows, copy_rows, group_summaries
from analyzers.layers import bucket_summaries, layer_summaries
from analyzers.rank import Breakdown, device_label
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import Representative, RunFacts, Summary
from analyzers.reporting.evidence import evidence_of
from analyzers.reporting.headline import Findings, headline
from analyzers.reporting.measures import IDLE_PARTS, DeviceSummary, idle_parts, over_devices
from analyzers.reporting.remedies import advice
from analyzers.reporting.verdict import verdict
from analyzers.sections import later
from analyzers.statistics import ratio, spreads, spreads_by

# What a window's span is made of; the four add up to it.
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
MEASURED = (*PARTS, "comm_ns", "copy_ns", "overlapped_comm_ns")
# What exposed communication is made of.
EXPOSED = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns")


def summary_of_report(analyses: Analyses, facts: RunFacts) -> Summary:
    """Return medians, shares, the verdict, the headline and advice."""
    evidence = evidence_of(analyses, facts)
    advised = advice(evidence)
    rows, exchanged = analyses.rows, analyses.exchanged
    measures = _measures(analyses)
    total_ns = int(rows.span_ns.sum())
    shares = {part: ratio(measures[part].sum(), total_ns) for part in (*PARTS, *EXPOSED, *IDLE_PARTS)}
    shares["overlap"] = ratio(rows.overlapped_comm_ns.sum(), int(rows.comm_ns.sum()))
    median, devices = analyses.median_window, _by_device(rows, measures)
    bandwidths, over = bandwidth_rows(exchanged), over_devices(devices)
    return Summary(
        windows=later(lambda: spreads(measures)),
        by_device=devices,
        shares=shares,
        representative=Representative(
            int(rows.rank[median]), device_label(int(rows.device[median])), int(rows.step[median])
        ),
        verdict=verdict(facts, rows, shares, exchanged.transfer_is_bound),
        headline=headline(
            Findings(facts, rows, shares, exchanged.transfer_is_bound, advised, bandwidths, evidence, over)
        ),
        transfer_is_bound=exchanged.transfer_is_bound,
        communication=bandwidths,
        copies=later(lambda: copy_rows(exchanged)),
        unmatched_share=exchanged.unmatched_share,
        advice=advised,
        buckets=later(lambda: bucket_summaries(analyses.bucket_rows, analyses.layout)),
        layers=later(lambda: layer_summaries(analyses.layer_rows)),
        layers_from=Counter(measured.work.source for measured in analyses.run.measured).most_common(1)[0][0],
        layout=later(lambda: analyses.layout),
        sync_cost=analyses.cost,
        input=analyses.input,
        over_devices=over,
        groups=later(lambda: group_summaries(exchanged, rows, analyses.groups)),
        pipelines=list(evidence.pipelines),
    )


def _measures(analyses: Analyses) -> dict[str, NDArray[Any]]:
    """Return the figures of every window that a summary has, by name."""
    rows = analyses.rows
    measures = {name: getattr(rows, name) for name in ("span_ns", *MEASURED, "overlap")}
    measures |= {name: getattr(analyses.exposed, name) for name in EXPOSED}
    measures["packing_ns"] = analyses.column(lambda measured: measured.work.packing_ns)
    measures |= dict(zip(IDLE_PARTS, analyses.column(idle_parts).T, strict=True))
    return measures


def _by_device(rows: Breakdown, measures: dict[str, NDArray[Any]]) -> list[DeviceSummary]:
    """Return for each rank and device the same measures as over all windows."""
    devices = [*rows.by_device()]
    own_spreads = spreads_by([selected for _, selected in devices], measures)
    return [
        DeviceSummary(rank, device_label(device), own)
        for ((rank, device), _), own in zip(devices, own_spreads, strict=True)
    ]
