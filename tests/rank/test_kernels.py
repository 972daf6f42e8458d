"""Kernels, operators and FLOPs of a rank: drawn, against brute force, and on every sample trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.rank.columns.layer_time import kernel_times
from analyzers.rank.kernels import MOST_RANKED, Precision, Ranked, peak_flops_per_s, with_count
from analyzers.rank.summary import summarize_rank
from analyzers.run.layout import find
from analyzers.run.rank_trace import RankTrace, read_ranks
from analyzers.trace.collective_calls import Inputs
from analyzers.trace.kernel_names import Category, Kind
from tests.support.drawing import draw, events_of, row
from tests.support.kernel_use import Table, in_windows, kernel_table, operator_of, operator_table
from tests.support.samples import REPORTED, SAMPLES, load, summarized

MM = Inputs(([2, 3], [3, 4]), ("float", "float"))  # 48 FLOPs


def usage(trace: RankTrace):
    return summarize_rank(trace).timed.usage


def table(rows: tuple[Ranked, ...]) -> Table:
    return {(row.name, row.kind): (row.calls, row.total_ns, row.median_ns) for row in rows}


def test_kernels_are_added_up_by_name_and_clipped_to_windows():
    trace = draw(step=".11112222...", compute="aa.aaa.bb.bb", copy="....c.......")
    used = usage(trace)
    # The first was launched before the first step; the last starts after the last step's end, and is outside too.
    assert table(used.kernels) == {
        ("compute a", "compute"): (1, 3, 3.0),
        ("compute b", "compute"): (1, 2, 2.0),
        ("copy c", "copy"): (1, 1, 1.0),
    }
    assert [kernel.share for kernel in used.kernels] == [3 / 6, 2 / 6, 1 / 6]


def test_names_of_cards_have_peaks():
    tera = {name: (peak_flops_per_s(name, Precision.BFLOAT16) or 0) / 1e12 for name in (
        *("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA GH200 480GB"),
        *("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PG509-200", "NVIDIA A10", "NVIDIA B200", "NVIDIA GB200"),
        *("NVIDIA L40S", "NVIDIA L4", "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X", "AMD Instinct MI250X"),
    )}  # fmt: skip
    assert list(tera.values()) == [
        *(989.4, 756.5, 835.5, 989.4, 989.4, 312.0, 312.0, 125.0, 2250.0, 2500.0),
        *(362.05, 121.0, 165.2, 1307.4, 191.5),
    ]
    assert peak_flops_per_s("Tesla V100-DGXS-32GB", Precision.FLOAT16) == 125e12


@pytest.mark.parametrize(
    "name",
    ["", "AMD Radeon Graphics", "NVIDIA H20", "NVIDIA A10G", "NVIDIA L40", "Tesla V100-FHHL-16GB", "H100 lookalike",
     "NVIDIA GeForce RTX 4090 Laptop GPU", "AMD Instinct MI250X/MI250", "NVIDIA RTX A1000", "XA100"],
)  # fmt: skip
def test_a_device_in_no_data_sheet_has_no_peak(name):
    assert {peak_flops_per_s(name, precision) for precision in Precision} == {None}


def test_devices_without_units_for_a_precision_have_no_peak():
    assert peak_flops_per_s("Tesla T4", Precision.BFLOAT16) is None
    assert peak_flops_per_s("NVIDIA A100-SXM4-40GB", Precision.FLOAT8) is None
    assert peak_flops_per_s("NVIDIA H200", Precision.OTHER) is None


def world(
    operators: list[tuple[str, int, int, Inputs | None]],
    kernels: list[tuple[str, int, int, int]],
    step: tuple[int, int],
) -> RankTrace:
    """Operators (name, start, length, inputs) on one thread, and kernels (name, launched, start, length)."""
    rows = [row(Category.ANNOTATION, Kind.HOST, "ProfilerStep#1", *step)]
    rows += [row(Category.OPERATOR, Kind.HOST, name, start, length) for name, start, length, _ in operators]
    for number, (name, launched, start, length) in enumerate(kernels, 1):
        rows.append(row(Category.KERNEL, Kind.COMPUTE, name, start, length, device=0, correlation=number))
        rows.append(row(Category.LAUNCH, Kind.HOST, "cudaLaunchKernel", launched, 1, correlation=number))
    events = events_of(rows)
    shapes = tuple(inputs for *_, inputs in operators if inputs is not None)
    code = np.full(len(events), -1, dtype=np.int32)
    for place, (*_, inputs) in enumerate(operators, 1):
        code[place] = -1 if inputs is None else shapes.index(inputs)
    events = replace(events, shapes=shapes, inputs=code)
    drawn = draw(compute="a")
    return replace(drawn, events=events, timed=events)


def test_flops_are_counted_once_and_all_that_an_operator_launches_has_a_count():
    linear = Inputs(([2, 3], [4, 3]), ("float", "float"))
    operators = [("aten::linear", 0, 10, linear), ("aten::mm", 2, 5, MM), ("aten::relu", 12, 4, None)]
    kernels = [("gemm", 3, 20, 4), ("splitKreduce", 4, 24, 2), ("relu", 13, 26, 3)]
    used = usage(world(operators, kernels, (0, 20)))
    assert [(count.precision, count.flops) for count in used.counts] == [(Precision.FLOAT32, 48)]
    assert (used.compute_ns, used.counted_ns) == (9, 6)
    assert table(used.operators) == {("aten::mm", "compute"): (1, 6, 6), ("aten::relu", "compute"): (1, 3, 3)}


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", Precision.TFLOAT32),
        ("cutlass_80_tensorop_s1688gemm_128x128", Precision.TFLOAT32),
        ("nvjet_sm90_sss_128x128", Precision.TFLOAT32),
        ("ampere_sgemm_32x32_sliced1x4_tn", Precision.FLOAT32),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_simt", Precision.FLOAT32),
    ],
)
def test_a_kernels_name_says_whether_float32_runs_on_tensor_cores(kernel, precision):
    used = usage(world([("aten::mm", 0, 10, MM)], [(kernel, 3, 20, 4), ("other", 4, 24, 1)], (0, 20)))
    assert [count.precision for count in used.counts] == [precision]


def test_flops_of_what_runs_outside_of_windows_do_not_count():
    operators = [("aten::mm", 0, 5, MM), ("aten::mm", 10, 5, MM)]
    kernels = [("gemm", 1, 2, 3), ("gemm", 11, 12, 4)]
    used = usage(world(operators, kernels, (8, 20)))
    assert [count.flops for count in used.counts] == [48]
    assert used.kernels[0].calls == 1


SPANS = st.tuples(st.integers(0, 60), st.integers(0, 12))


@given(
    st.lists(st.tuples(st.sampled_from(["aten::a", "aten::b"]), st.integers(0, 5), st.integers(0, 4)), max_size=8),
    st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 70), st.integers(0, 9), st.integers(0, 9)), min_size=1,
             max_size=8),
    SPANS,
)  # fmt: skip
def test_random_cases_agree_with_brute_force(nested, drawn, step):
    # Operators nest: each pair lies inside an interval of twelve of its own.
    operators = [
        (name, 12 * place + shift + depth, 12 - 2 * (shift + depth), None)
        for place, (name, shift, _) in enumerate(nested)
        for depth in range(2)
        if 12 - 2 * (shift + depth) > 0
    ]
    kernels = [(name, at, at + delay, length) for name, at, delay, length in drawn]
    trace = world(operators, kernels, step)
    used = usage(trace)
    assert table(used.kernels) == kernel_table(trace)
    assert table(used.operators) == operator_table(trace)


@pytest.mark.parametrize("path", REPORTED)
def test_sample_traces_agree_with_brute_force(path):
    rank = summarized(path).ranks[0]
    (trace,) = read_ranks(next(file for file in find(path).files if file.path == rank.path))
    if trace.is_cpu_run:
        pytest.skip("no kernels")
    used, kernels = rank.timed.usage, kernel_table(trace)
    whole = sum(total for _, total, _ in kernels.values())
    longest = sorted(kernels.items(), key=lambda item: (-item[1][1], item[0]))[:MOST_RANKED]
    assert list(table(used.kernels).items()) == longest
    assert [kernel.share for kernel in used.kernels] == [
        total / whole if whole else None for _, (_, total, _) in longest
    ]
    assert used.compute_ns == sum(total for (_, kind), (_, total, _) in kernels.items() if kind == "compute")
    assert sum(operator.total_ns for operator in used.operators) <= whole
    assert used.counted_ns <= used.compute_ns


@pytest.mark.parametrize("of", ["kernels", "operators"])
def test_kernels_by_layer_add_up_to_kernels(of):
    trace = load(SAMPLES / "resnet18-ddp1").ranks[0]
    by_layer = kernel_times(trace, of)
    whole = kernel_table(trace) if of == "kernels" else operator_table(trace)
    for name, kind in whole:
        rows = [row for row in by_layer if (row.name, row.kind) == (name, kind)]
        assert sum(row.total_ns for row in rows) == whole[name, kind][1]
    assert {"conv2d_0", "(optimizer)", "(packing)"} <= {row.layer for row in by_layer}


def test_operators_and_coverage_of_a_sample_agree_with_brute_force():
    trace = load(SAMPLES / "resnet18-ddp1").ranks[0]
    used = usage(trace)
    operators = operator_table(trace)
    longest = sorted(operators.items(), key=lambda item: (-item[1][1], item[0]))[:MOST_RANKED]
    assert list(table(used.operators).items()) == longest
    counted = set(with_count(trace.events).row.tolist())
    around = operator_of(trace, counted.__contains__)
    assert used.counted_ns == sum(
        ns for row, ns in in_windows(trace) if trace.timed.kind[row] == Kind.COMPUTE and around(row) is not None
    )
