"""Weak and strong scaling, epochs, bandwidth and subtraction, against figures worked out by hand or again."""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.collectives.rows import CollectiveRow
from analyzers.comparison import SWEEP_TABLES
from analyzers.comparison.scaling import study
from analyzers.comparison.scaling_cell import control_time, epoch_time, measured
from analyzers.comparison.scaling_document import (
    CellRow,
    CellStep,
    Scaling,
    StrongRow,
    WeakRow,
    scaling_from_json,
    scaling_json,
)
from analyzers.errors import AnalysisError
from analyzers.lazy_fields import replaced as replace
from analyzers.notices import Code, Notice
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.per_step import gradient_bandwidth
from analyzers.run.controls import Control
from analyzers.run.manifest import Dataset, Epoch, Manifest
from analyzers.run.sweep import Cell
from analyzers.statistics import Spread
from analyzers.step_parts import PARTS
from tests.support.effort import effort
from tests.support.samples import SAMPLES, summarized
from tests.support.saved import saved
from tests.support.sweeping import MS, cell, entry, studied, timed, write_cell, write_sweep
from tests.support.tiers import cases
from tests.support.typical_steps import typical_windows


def weak(found: Scaling, name: str) -> WeakRow:
    return next(row for row in found.weak if row.cell == name)


def strong(found: Scaling, name: str) -> StrongRow:
    return next(row for row in found.strong if row.cell == name)


# Both scalings, by hand.

BY_HAND = studied(
    [
        cell("single", 1, 32, 10.0),
        cell("single", 1, 64, 16.0),
        cell("single", 1, 128, 30.0),
        cell("ddp", 2, 32, 12.0, exposed_ms=1.0),
        cell("ddp", 2, 64, 17.0, exposed_ms=1.0),
        cell("ddp", 4, 32, 12.5, exposed_ms=2.0),
        cell("dp", 4, 32, 40.0, exposed_ms=0.5),
        cell("ddp", 4, 64, 15.0, exposed_ms=2.0),
    ]
)


@pytest.mark.parametrize(
    ("name", "scaled", "efficiency"),
    [("ddp2-batch32", 2 * 10 / 12, 10 / 12), ("ddp4-batch32", 4 * 10 / 12.5, 0.8), ("dp4-batch32", 1.0, 0.25)],
)
def test_weak_scaling_fixes_the_batch_of_each_device(name, scaled, efficiency):
    row = weak(BY_HAND, name)
    assert row.baseline == "single1-batch32"
    assert row.scaled_speedup and row.efficiency
    assert row.scaled_speedup.value == pytest.approx(scaled)
    assert row.efficiency.value == pytest.approx(efficiency)


@pytest.mark.parametrize(
    ("name", "batch", "speedup"),
    [("ddp2-batch32", 64, 16 / 12), ("ddp2-batch64", 128, 30 / 17), ("ddp4-batch32", 128, 30 / 12.5)],
)
def test_strong_scaling_fixes_the_batch_of_all_devices(name, batch, speedup):
    row = strong(BY_HAND, name)
    assert (row.global_batch, row.baseline) == (batch, f"single1-batch{batch}")
    assert row.speedup and row.efficiency
    assert row.speedup.value == pytest.approx(speedup)
    assert row.efficiency.value == pytest.approx(speedup / row.gpus)


def test_one_device_against_itself_is_one():
    scattered = studied([cell("single", 1, 8, timed(3.3, scatter=0.7))])
    for ratio in (scattered.weak[0].scaled_speedup, scattered.weak[0].efficiency, scattered.strong[0].speedup):
        assert ratio and (ratio.value, ratio.low, ratio.high, ratio.uncertain) == (1.0, 1.0, 1.0, False)
    assert scattered.weak[0].subtraction is scattered.strong[0].subtraction is None


def test_subtraction_stands_beside_what_was_measured():
    by_weak, by_strong = weak(BY_HAND, "ddp2-batch32").subtraction, strong(BY_HAND, "ddp2-batch32").subtraction
    assert by_weak and by_strong
    assert (by_weak.estimate_ns, by_weak.measured_ns) == (2 * MS, 1 * MS)
    assert (by_weak.error_ns, by_weak.ratio) == (1 * MS, 2.0)
    assert (by_strong.estimate_ns, by_strong.error_ns) == (4 * MS, 3 * MS)
    # The ring moves 2 (2 - 1) / 2 = 1 of 1 kB: measured in 0.1 ms, by subtraction in 2 and 4 ms.
    assert (by_weak.busbw_gbps, by_strong.busbw_gbps) == (1000 / (2 * MS), 1000 / (4 * MS))
    assert by_weak.utilization == pytest.approx(0.5 * 0.1 / 2)


def test_a_subtraction_that_is_negative_is_shown_and_has_no_bandwidth():
    found = weak(BY_HAND, "ddp4-batch64").subtraction
    assert found
    assert (found.estimate_ns, found.ratio, found.busbw_gbps, found.utilization) == (-1 * MS, -0.5, None, None)
    assert found.why == "the subtracted time is not positive"


def test_without_exposed_communication_there_is_no_ratio():
    found = studied([cell("single", 1, 8, 1.0), cell("ddp", 2, 8, 2.0)]).weak[1].subtraction
    assert found
    assert (found.measured_ns, found.error_ns, found.ratio) == (0, 1 * MS, None)


def test_the_ideal_epoch_has_as_many_steps():
    times = epoch_time(Manifest(), 64, timed(12.0))
    found = studied([cell("single", 1, 32, 10.0), cell("ddp", 2, 32, 12.0, epoch=times)]).weak[1]
    assert found.epoch_ns == times.derived_ns == 782 * 12 * MS
    assert found.ideal_epoch_ns == 782 * 10 * MS


def test_a_cell_whose_run_json_cannot_be_read_is_warned_of():
    damaged = Notice(Code.RUN_JSON_UNREADABLE, "it cannot be read")
    found = studied([cell("single", 1, 32, 2.0, warnings=[damaged, Notice(Code.CLOCK_IS_UNKNOWN, "run.json: no")])])
    assert [each for each in found.warnings if each.code == damaged.code] == [damaged.within("single1-batch32: ")]
    assert not any(each.code == Code.CLOCK_IS_UNKNOWN for each in found.warnings)


@pytest.mark.parametrize(
    ("single", "ddp", "apart"),
    [
        ([["a"]] * 3, [["a"], ["a"], ["b"]], True),
        ([["a"], ["a"], ["b"]], [["a"], ["a"], ["b"]], False),
        ([["a"]], [["b", "a"]], False),
        ([["a"]] * 2, [["a"]] * 3, False),
        ([], [["a"]], False),
    ],
)
def test_cells_that_are_compared_over_hosts_are_warned_of(single, ddp, apart):
    """Launch by launch, since a round goes over the grid; where one does not say, nothing is claimed."""
    found = studied([cell("single", 1, 8, 1.0, hosts=single), cell("ddp", 2, 8, 1.0, hosts=ddp)])
    warned = [warning for warning in found.warnings if warning.code == Code.HOSTS_DIFFER]
    assert len(warned) == apart
    assert all(
        str(warning).endswith("hosts: ddp2-batch8; record all rounds on one host, in a new folder")
        for warning in warned
    )


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ({"hosts_of_launches": [["a"], ["b"]], "hosts": ["b"]}, [["a"], ["b"]]),
        ({"hosts": ["b"]}, []),
        ({"hosts": ["b"], "controls": {}}, [["b"]]),
        ({"controls": {}}, []),
    ],
)
def test_a_cell_keeps_each_launchs_hosts(tmp_path, said, hosts):
    """A file of several launches that an older version joined has the hosts of one alone."""
    found = study(write_sweep(tmp_path, [write_cell(tmp_path, "single", 1, 8, **said)]))
    assert found.cells[0].hosts == hosts


# What cannot be compared.


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([cell("ddp", 2, 32, 2.0)], "no 1-GPU cell of batch 32"),
        (
            [cell("ddp", 2, 32, 2.0), cell("dp", 1, 32, 2.0)],
            "no 1-GPU cell of batch 32 (of strategy single or ddp; dp1-batch32 is of another)",
        ),
        ([cell("ddp", 2, 32, 2.0), cell("single", 1, 64, 2.0)], "no 1-GPU cell of batch 32"),
        (
            [cell("ddp", 2, 32, 2.0), CellRow("one", "single", 1, 32, "out_of_memory", "full")],
            "the 1-GPU cell of batch 32 has no time: full",
        ),
        ([CellRow("two", "ddp", 2, 32, "failed", "it fell"), cell("single", 1, 32, 2.0)], "it fell"),
        ([cell("ddp", 2, 32, CellStep()), cell("single", 1, 32, 2.0)], "no step of it was timed"),
        (
            [cell("ddp", 2, 32, timed(2.0, source="profiled")), cell("single", 1, 32, 2.0)],
            "single1-batch32 is timed without the profiler, ddp2-batch32 only under it",
        ),
        (
            [cell("ddp", 2, 32, 2.0, workload={"model": "b"}), cell("single", 1, 32, 2.0, workload={"model": "a"})],
            "single1-batch32 is of another model (a, not b)",
        ),
        (
            [cell("ddp", 2, 32, 2.0, accumulation=4), cell("single", 1, 32, 2.0)],
            "single1-batch32 is of another accumulation (1, not 4)",
        ),
    ],
)
def test_a_cell_without_its_counterpart_says_why(cells, why):
    row = studied(cells).weak[0]
    assert row.why == why
    assert row.scaled_speedup is row.efficiency is row.subtraction is row.step_ns is None


def test_the_shared_baseline_comes_before_a_strategys_own():
    cells = [cell("ddp", 1, 32, 5.0), cell("single", 1, 32, 4.0), cell("ddp", 2, 32, 8.0)]
    assert weak(studied(cells), "ddp2-batch32").baseline == "single1-batch32"
    assert weak(studied([cells[0], cells[2]]), "ddp2-batch32").baseline == "ddp1-batch32"


def test_accumulated_batches_count_as_the_batch():
    cells = [cell("single", 1, 64, 9.0, accumulation=4), cell("ddp", 2, 32, 6.0, accumulation=4)]
    row = studied(cells).strong[1]
    assert row.global_batch == 32 * 2 * 4
    assert row.baseline == "single1-batch64"
    assert row.speedup and row.speedup.value == 1.5


def test_steps_that_scatter_make_what_follows_uncertain():
    found = studied([cell("single", 1, 8, timed(10.0, scatter=0.2)), cell("ddp", 2, 8, timed(10.0, scatter=0.1))])
    row = found.weak[1]
    assert row.efficiency and row.efficiency.uncertain and row.subtraction and row.subtraction.uncertain
    assert (row.efficiency.low, row.efficiency.high) == pytest.approx((9 / 10.5, 11 / 9.5))
    assert (row.subtraction.low_ns, row.subtraction.high_ns) == pytest.approx((-1.5 * MS, 1.5 * MS))
    assert any("is uncertain: single1-batch8, ddp2-batch8" in str(warning) for warning in found.warnings)


def test_times_under_the_profiler_are_compared_with_one_another_and_marked():
    cells = [cell("single", 1, 8, timed(4.0, source="profiled")), cell("ddp", 2, 8, timed(5.0, source="profiled"))]
    row = studied(cells).weak[1]
    assert row.efficiency and row.efficiency.profiled and row.efficiency.value == 0.8
    assert row.subtraction and row.subtraction.profiled


# Any grid, worked out again.


@dataclass(frozen=True)
class Timed:
    ms: float
    scatter: float


GRIDS = st.dictionaries(
    st.tuples(st.sampled_from(["ddp", "dp"]), st.sampled_from([1, 2, 4]), st.sampled_from([8, 16, 32, 64])),
    st.builds(Timed, st.floats(0.01, 1000), st.sampled_from([0.0, 0.04, 0.3])),
    max_size=12,
)


@settings(max_examples=cases(150))
@given(GRIDS)
def test_any_grid_is_what_its_definitions_say(grid):
    known = {("single" if gpus == 1 else name, gpus, batch): each for (name, gpus, batch), each in grid.items()}
    found = studied([cell(*place, timed(each.ms, each.scatter)) for place, each in known.items()])
    for row in found.weak:
        one = known.get(("single", 1, row.batch))
        many = known[row.strategy, row.gpus, row.batch]
        assert (row.efficiency is None) == (one is None)
        if one is not None and row.efficiency and row.scaled_speedup:
            assert row.efficiency.value == pytest.approx(one.ms / many.ms)
            assert row.scaled_speedup.value == pytest.approx(row.gpus * one.ms / many.ms)
            assert row.efficiency.uncertain == (row.gpus > 1 and max(one.scatter, many.scatter) > 0.05)
            assert (row.efficiency.low or 0) <= row.efficiency.value <= (row.efficiency.high or inf)
            if row.subtraction:
                assert row.subtraction.estimate_ns == pytest.approx((many.ms - one.ms) * MS, abs=1e-3)
    for row in found.strong:
        one = known.get(("single", 1, row.batch * row.gpus))
        many = known[row.strategy, row.gpus, row.batch]
        assert (row.speedup is None) == (one is None)
        if one is not None and row.speedup and row.efficiency:
            assert row.speedup.value == pytest.approx(one.ms / many.ms)
            assert row.efficiency.value == pytest.approx(one.ms / many.ms / row.gpus)
            if row.subtraction:
                assert row.subtraction.estimate_ns == pytest.approx((many.ms - one.ms / row.gpus) * MS, abs=1e-3)
    assert scaling_from_json(scaling_json(found)) == saved(found)


def test_twice_the_cells_are_twice_the_work():
    def grid(batches: int) -> list[CellRow]:
        return [cell(name, gpus, 1 + b, 9.0) for name, gpus in (("single", 1), ("ddp", 2)) for b in range(batches)]

    few, many = grid(100), grid(200)
    assert effort(lambda: studied(many)) < 2.2 * effort(lambda: studied(few))


# The time of a step, and of an epoch.


def samples(*milliseconds: float) -> Control:
    return Control({"0": [[round(each * MS)] for each in milliseconds]})


def test_a_control_that_scatters_is_kept_and_marked():
    steady, scattered = (control_time(samples(*each)) for each in ((10, 10.1, 10.1, 10.2), (8, 10, 10, 14)))
    assert (steady.median_ns, steady.uncertain) == (10.1 * MS, False)
    assert (scattered.median_ns, scattered.uncertain) == (10 * MS, True)
    assert (scattered.low_ns, scattered.high_ns) == (8 * MS, 14 * MS)
    assert scattered.spread == (scattered.high_ns - scattered.low_ns) / (10 * MS)


@pytest.mark.parametrize(("by_launch", "launches"), [(True, 3), (False, 1)])
def test_blocks_of_one_recording_are_one_launch(tmp_path, by_launch, launches):
    """A sweep of one round has eight blocks of each cell, and says of no speedup that it is told."""
    unprofiled = {"steps_ns": {"0": [[4 * MS], [4 * MS], [4 * MS]]}, "by_launch": by_launch}
    cells = [
        write_cell(tmp_path, name, gpus, 8, controls={"unprofiled": unprofiled})
        for name, gpus in (("single", 1), ("ddp", 2))
    ]
    found = study(write_sweep(tmp_path, cells))
    assert [row.launches for row in found.cells] == [launches] * 2
    ratio = weak(found, "ddp2-batch8").scaled_speedup
    assert ratio and ratio.is_told == by_launch


def test_a_single_sample_is_a_time_whose_interval_is_not_known():
    assert control_time(samples(10)) == CellStep(10 * MS, None, None, None, "unprofiled", True)


@pytest.mark.parametrize("control", [None, Control(), samples(0, -1), Control({"0": [[10**400]]})])
def test_a_control_without_samples_is_no_time(control):
    assert control_time(control) == CellStep()


def epoch(number: int, seconds: float) -> Epoch:
    return Epoch(number, round(seconds * 1e9), 10, 1.0, 0.5, 0.1)


@pytest.mark.parametrize(("batch", "steps"), [(1, 50_000), (128, 391), (500, 100), (512, 98), (10**6, 1)])
def test_an_epochs_last_partial_batch_counts(batch, steps):
    found = epoch_time(Manifest(), batch, timed(2.0))
    assert (found.steps, found.derived_ns) == (steps, steps * 2 * MS)
    assert (found.dataset, found.is_assumed, found.measured_ns) == ("CIFAR-10", True, None)
    assert steps == ceil(50_000 / batch)


@pytest.mark.parametrize(
    ("seconds", "median", "why"),
    [
        ([], None, "no epoch was timed"),
        ([9], None, "the only epoch was warm-up"),
        ([9, 4], 4, None),
        ([9, 4, 7, 5], 5, None),
    ],
)
def test_the_first_epoch_is_warm_up(seconds, median, why):
    epochs = [epoch(number, each) for number, each in enumerate(seconds)]
    manifest = Manifest(dataset=Dataset("words", 1000, True), epochs=epochs[::-1])
    found = epoch_time(manifest, 100, timed(1.0))
    assert found.measured_ns == (None if median is None else median * 1e9)
    assert (found.steps, found.why, found.is_assumed) == (10, why, False)


# Bandwidth.


def collective(step: int | None, nbytes: int, transfer_ns: int | None, **more) -> CollectiveRow:
    """An all_reduce of four ranks."""
    busbw = None if transfer_ns is None else 1.5 * nbytes / transfer_ns
    known = {"group": [0, 1, 2, 3], "group_name": "0", "group_size": 4, "dtype": "Float", "bucket": None}
    known |= {"index": 0, "kind": "all_reduce", "bound": False, "partial": False, "algbw_gbps": None, "members": []}
    known |= {"purpose": "gradients", "utilization_at_size": 0.5, "utilization_of_link": None, "why": None}
    return CollectiveRow(
        **known | {"step": step, "bytes": nbytes, "transfer_ns": transfer_ns, "busbw_gbps": busbw} | more
    )


def test_bandwidth_is_bytes_of_a_step_over_its_transfers():
    rows = [collective(0, 1000, 10), collective(0, 3000, 10, utilization_at_size=0.9), collective(1, 4000, 40)]
    found = gradient_bandwidth([*rows, collective(None, 9, 1), collective(0, 9, 1, purpose="buffers")], 4000)
    assert found.busbw_gbps.median == pytest.approx((1.5 * 4000 / 20 + 1.5 * 4000 / 40) / 2)
    assert found.transfer_ns.median == 30
    assert (found.bytes, found.bus_bytes) == (4000, pytest.approx(6000))
    # 5 and 9 ns of the first step's 20 ns would do, and 20 of the second's 40.
    assert found.utilization.median == pytest.approx((14 / 20 + 20 / 40) / 2)


def test_steps_that_are_not_all_known_are_left_out():
    whole = [collective(2, 1000, 10), collective(2, 3000, 30)]
    for odd in (
        [collective(3, 1000, 1)],
        [collective(3, 1000, 1), collective(3, 3000, None)],
        [collective(3, 1000, 1), collective(3, 3000, 1, partial=True)],
    ):
        assert gradient_bandwidth([*odd, *whole], 4000).busbw_gbps == Spread(1, 150, 150, 150, 150, 150)


def test_bandwidth_that_is_not_known_says_why():
    assert gradient_bandwidth([], 0).why == "no gradients are reduced"
    assert gradient_bandwidth([], 7).why == "none could be matched"
    assert gradient_bandwidth([collective(0, 5, None)], 5).why == "no step's transfers are all known"
    groups = [collective(0, 5, 1), collective(0, 5, 1, group=[0, 1])]
    assert gradient_bandwidth(groups, 5).why == "gradients are reduced in several groups at once"
    assert np.isnan(gradient_bandwidth([collective(0, 5, 1, utilization_at_size=None)], 5).utilization.median or np.nan)


# Real recordings.

RECORDED = {
    "resnet18-ddp1": Cell("a", "single", 1, 128, "done"),
    "resnet18-ddp2": Cell("b", "ddp", 2, 128, "done"),
    "resnet18-ddp4": Cell("c", "ddp", 4, 128, "done"),
    "resnet18-dp4": Cell("d", "dp", 4, 128, "done"),
}


def recorded() -> list[CellRow]:
    return [measured(each, summarized(SAMPLES / name)) for name, each in RECORDED.items()]


def test_parts_of_a_step_add_up_in_every_cell():
    for row in recorded():
        assert sum(row.representative[part.field] for part in PARTS) == row.representative["span_ns"]
        exposed = row.representative["exposed_wait_ns"] + row.representative["exposed_transfer_ns"]
        assert exposed == row.representative["exposed_comm_ns"]
        assert sum(share or 0 for share in row.shares.values()) == pytest.approx(1)


def test_a_study_of_real_recordings():
    found = studied(recorded())
    by_name = {row.name: row for row in found.cells}
    # All-reduces of 44.7 MB over NVLink, and nn.DataParallel's reduces: bandwidths that these links have.
    assert by_name["c"].gradients.bytes == 44_726_568
    assert by_name["c"].gradients.bus_bytes == pytest.approx(1.5 * 44_726_568)
    assert 200 < (by_name["c"].gradients.busbw_gbps.median or 0) < 300
    assert by_name["d"].gradients.bound
    # Almost all that nn.DataParallel loses is the host's; subtraction calls it communication.
    dp = weak(found, "d").subtraction
    assert dp and dp.ratio and dp.ratio > 10
    assert any("recorded under ddp on one device" in str(warning) for warning in found.warnings)
    assert any("CIFAR-10's 50,000 samples" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(("unprofiled", "full", "uncertain"), [(10, 10, False), (13, 10, True), (10, 13, True)])
def test_a_distortion_is_uncertain_where_either_step_scatters(tmp_path, unprofiled, full, uncertain):
    controls = {
        name: {"samples_ns": {"0": [10 * MS] * 4 + [last * MS] * 3}, "median_ns": None, "spread": None}
        for name, last in (("unprofiled", unprofiled), ("full", full))
    }
    write_cell(tmp_path, "single", 1, 8, controls=controls)
    row = measured(Cell("single1-batch8", "single", 1, 8, "done"), summarize(tmp_path / "single1-batch8"))
    assert (row.distortion, row.distortion_uncertain) == (1.0, uncertain)


def test_another_cells_recording_has_no_figures():
    run = summarized(SAMPLES / "resnet18-ddp4")
    for other, why in (
        (Cell("x", "ddp", 4, 64, "done"), "batch 128, not 64"),
        (Cell("x", "dp", 4, 128, "done"), "strategy ddp, not dp"),
        (Cell("x", "ddp", 2, 128, "done"), "4 devices, not 2"),
    ):
        row = measured(other, run)
        assert row.why and why in row.why
        assert row.step == CellStep()


# Folders.


def test_a_cell_that_cannot_be_read_is_a_row_with_the_reason(tmp_path):
    cells = [
        write_cell(tmp_path, "single", 1, 8, (4, 4, 4)),
        write_cell(tmp_path, "ddp", 2, 8, (5, 5, 5), memory={"source": "said", "peak_bytes": {"0": 7, "1": 9}}),
        entry("ddp", 4, 8),
        entry("dp", 2, 8, "out_of_memory"),
        entry("dp", 4, 8, "skipped", why="no such device"),
    ]
    (tmp_path / "ddp4-batch8").mkdir()
    (tmp_path / "ddp4-batch8" / "rank0.json").write_text("{")
    found = study(write_sweep(tmp_path, cells))
    whys = [row.why for row in found.cells]
    assert whys[:2] == [None, None]
    assert whys[2] and whys[2].startswith("cannot be read: ")
    assert whys[3:] == ["out of memory", "no such device"]
    assert any(str(warning).startswith("ddp4-batch8: cannot be read") for warning in found.warnings)
    assert found.cells[1].peak_memory_bytes == 9
    row = weak(found, "ddp2-batch8")
    assert row.efficiency and row.efficiency.value == 0.8
    assert found.cells[1].samples_per_s == pytest.approx(16 / 0.005)


def test_any_damage_to_run_json_costs_only_its_cell(tmp_path):
    cells = [write_cell(tmp_path, "ddp", 2, batch) for batch in (1, 2, 3)]
    (tmp_path / "ddp2-batch1" / "run.json").write_text("[1")
    (tmp_path / "ddp2-batch2" / "run.json").write_text('{"settings": {"grad_accumulation": "x"}, "devices": []}')
    found = study(write_sweep(tmp_path, cells))
    assert [row.why for row in found.cells] == [None, None, None]
    # Without a manifest or controls, windows are what is left.
    assert [row.step.source for row in found.cells] == ["profiled", "profiled", "unprofiled"]
    assert any("timed under the profiler alone" in str(warning) for warning in found.warnings)


def test_a_cell_that_lacks_a_rank_says_so(tmp_path):
    found = write_sweep(tmp_path, [write_cell(tmp_path, "ddp", 2, 8)])
    (tmp_path / "ddp2-batch8" / "rank1.json").unlink()
    assert "ddp2-batch8: 1 of its ranks cannot be read; its figures are from the others" in map(
        str, study(found).warnings
    )


def test_on_synthetic_data_accuracy_means_nothing(tmp_path):
    said = {"dataset": {"name": "noise", "samples": 100, "is_synthetic": True}}
    said["epochs"] = [
        {"epoch": n, "time_ns": 10**9 * (3 - n), "steps": 13, "loss": None, "accuracy": 0.1, "learning_rate": 0.1}
        for n in range(3)
    ]
    found = study(write_sweep(tmp_path, [write_cell(tmp_path, "single", 1, 8, **said)]))
    assert any("accuracy mean nothing" in str(warning) for warning in found.warnings)
    (row,) = found.cells
    assert row.epoch and (row.epoch.steps, row.epoch.measured_ns) == (13, 1.5e9)
    assert SWEEP_TABLES["epochs"].frame(found)["accuracy"].tolist() == [0.1] * 3


# As a document, and as tables.


def test_frames_hold_every_row():
    cells, by_weak, by_strong = (SWEEP_TABLES[name].frame(BY_HAND) for name in ("cells", "weak", "strong"))
    assert cells["name"].tolist() == [row.name for row in BY_HAND.cells]
    assert cells["step_median_ns"].tolist() == [row.step.median_ns for row in BY_HAND.cells]
    assert cells["exposed_comm_ns"].tolist()[3] == 1 * MS
    assert by_weak["scaled_speedup"].tolist() == [
        row.scaled_speedup and row.scaled_speedup.value for row in BY_HAND.weak
    ]
    assert by_strong["why"].dropna().tolist() == [row.why for row in BY_HAND.strong if row.why]
    assert by_strong["subtraction_estimate_ns"].tolist()[3] == 4 * MS
    assert list(SWEEP_TABLES["epochs"].frame(BY_HAND).columns)[:2] == ["cell", "epoch"]


NO_STUDY = [
    "",
    "{}",
    "[1]",
    b'{"schema": "\xff"}',
    "[" * 10_000,
    scaling_json(replace(BY_HAND, schema="tracer.scaling/9")),
]


@pytest.mark.parametrize("text", NO_STUDY, ids=range(len(NO_STUDY)))
def test_what_is_no_study_is_refused(text):
    with pytest.raises(AnalysisError, match="tracer sweep --report"):
        scaling_from_json(text)


def test_the_measured_exposed_communication_is_a_mean_over_windows(tmp_path):
    """In each step one of two ranks waits: the median over windows would be whichever rank is in the middle."""
    found = study(write_sweep(tmp_path, [write_cell(tmp_path, "ddp", 2, 8)]))
    report_of_cell = report(summarize(tmp_path / found.cells[0].name))
    exposed = [window.exposed_comm_ns for window in typical_windows(report_of_cell)]
    assert found.cells[0].exposed_mean_ns == sum(exposed) / len(exposed)
