"""FLOP/s and samples per second of runs, and how the report says them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.lazy_fields import replaced
from analyzers.notices import Code
from analyzers.rank.kernels import FlopCount, Precision, Usage
from analyzers.rank.summary import RunSummary, summary_of
from analyzers.reporting.build import report
from analyzers.reporting.measures.kernel_use import Compute, compute
from analyzers.run.loading import Run
from analyzers.run.manifest import Manifest
from analyzers.trace.header import Header
from tests.support.drawing import draw
from tests.support.samples import REPORTED, reported
from tracer.views.document import Paragraph
from tracer.views.sections.compute import compute_section, rate, short


def run_of(counted_ns: int, *counts: FlopCount, device: str = "NVIDIA H200", manifest: Manifest | None = None):
    """A run of one rank with a window of 100 ns and 10 ns of compute; of this so many ns have a count."""
    trace = draw(step="1" * 100, compute="a" * 10 + "." * 89 + "b", header=Header(device_names=(device, device)))
    summary = summary_of(Run("drawn", manifest, (trace,)))
    usage = Usage((), (), 10, counted_ns, counts)
    rank = summary.ranks[0]
    return replace(summary, ranks=(replace(rank, timed=replace(rank.timed, usage=usage)),))


def of(run: RunSummary) -> Compute:
    return compute(run, None)


HALF = FlopCount(0, Precision.BFLOAT16, 49_470_000)  # what an H200 does in 50 ns


def test_utilization_is_the_time_at_the_peak_over_the_span():
    found = of(run_of(9, HALF))
    assert (found.flops, found.coverage) == (49_470_000, 0.9)
    assert found.flops_per_s == pytest.approx(494.7e12)
    assert found.peak_flops_per_s == pytest.approx(989.4e12)
    assert found.utilization == pytest.approx(0.5)
    assert found.precisions == {"bfloat16": 1.0}


def test_precisions_are_weighed_by_their_time_at_the_peak():
    quarter = FlopCount(0, Precision.TFLOAT32, 49_470_000 // 4)  # 25 ns at half the rate
    found = of(run_of(9, HALF, quarter))
    assert found.utilization == pytest.approx(0.75)
    assert found.peak_flops_per_s == pytest.approx((49.47e6 + 49.47e6 / 4) / 75e-9)
    assert list(found.precisions) == ["bfloat16", "tfloat32"]


def test_under_four_fifths_of_coverage_nothing_is_said_of_the_step():
    found = of(run_of(7, HALF))
    assert (found.flops, found.flops_per_s, found.peak_flops_per_s, found.utilization) == (None,) * 4
    assert (found.coverage, found.counted_flops) == (0.7, 49_470_000)
    assert found.counted_flops_per_s == pytest.approx(49.47e6 / 7e-9)


def test_an_unknown_device_has_rates_and_no_utilization():
    found = of(run_of(9, HALF, device="Some Card"))
    assert found.flops_per_s == pytest.approx(494.7e12)
    assert (found.peak_flops_per_s, found.utilization, found.counted_utilization) == (None, None, None)


def test_one_precision_without_a_peak_leaves_utilization_unknown():
    assert of(run_of(9, HALF, FlopCount(0, Precision.OTHER, 5))).utilization is None


def test_without_shapes_all_is_null_but_the_coverage():
    found = of(run_of(0))
    assert found == Compute(coverage=0.0)


def test_samples_are_those_of_all_devices_and_microbatches():
    manifest = Manifest(batch_per_gpu=8, world_size=4, settings={"grad_accumulation": 2})
    run = run_of(9, manifest=manifest)
    assert compute(run, 1e6).samples_per_s == pytest.approx(8 * 2 * 4 / 1e-3)
    assert compute(run, None).samples_per_s is None
    assert report(run).compute.samples_per_s == pytest.approx(8 * 2 * 4 / 100e-9)
    assert report(run_of(9)).compute.samples_per_s is None


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            run_of(9, HALF),
            "Each device computes 494.7 TFLOP/s over the step, 50.0 % of its peak (989.4 TFLOP/s, dense)",
        ),
        (run_of(9, HALF, device="Some Card"), "its peak is not known"),
        (run_of(7, HALF), "While matrix products, convolutions and attention run (70.0 % of compute time; those"),
    ],
)
def test_the_section_says_how_fast(run, words):
    document = report(summary_of(Run("drawn", None, (draw(step="11", compute="aa"),))))
    section = compute_section(replaced(document, compute=of(run)))
    said = " ".join(block.words for block in section if isinstance(block, Paragraph))
    assert words in said
    assert ("hardware utilization" in said) == ("Each device" in said)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(9, HALF), ""),
        (run_of(9, HALF, device="Some Card"), "the device's peak at these precisions is not known"),
        (run_of(7, HALF), "only 70.0 % of compute time has known FLOPs, and 80 % are needed"),
        (run_of(0), "record_shapes=True"),
    ],
)
def test_a_note_says_why_flops_are_null(run, words):
    notices = [notice for notice in report(run).run.notes if notice.code == Code.FLOPS_ARE_NULL]
    assert words in " ".join(map(str, notices))
    assert len(notices) == bool(words)


def test_names_and_rates_are_short():
    assert short("void at::native::(anonymous namespace)::copy<4>(int)") == "copy<4>(int)"
    assert len(short("x" * 200)) == 64
    assert [rate(value) for value in (5e6, 2.5e9, 168.66e12, 1.5e15)] == [
        *("5 MFLOP/s", "2.5 GFLOP/s", "168.7 TFLOP/s", "1.5 PFLOP/s"),
    ]


@pytest.mark.parametrize("path", REPORTED)
def test_laws_of_kernels_and_compute(path):
    document = reported(path)
    for rows in (document.kernels, document.operators):
        for rank in document.run.ranks:
            own = [row for row in rows if row.rank == rank]
            assert len(own) <= 50
            assert [row.total_ns for row in own] == sorted((row.total_ns for row in own), reverse=True)
            assert sum(row.share or 0 for row in own) <= 1 + 1e-9
            assert all(row.calls * row.median_ns <= 2 * row.total_ns for row in own)
    found = document.compute
    assert found.coverage is None or 0 <= found.coverage <= 1
    assert (found.flops is None) == (found.flops_per_s is None)
    assert found.flops is None or found.coverage >= 0.8
    assert found.counted_utilization is None or 0 <= found.counted_utilization < 1
