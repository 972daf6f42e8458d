"""Compiled regions and CUDA graphs: whose their kernels are, and what their collectives carry."""

from __future__ import annotations

import pytest

from tests.support.drawn_tensor import functional
from tests.support.training import ENGINE, NODE, host, kernel, ranged, step, told

BLOCKS = (("layers.0", 10), ("layers.1", 60))


def block(name: str, ts: float, number: int) -> list:
    """A block that was compiled: its range is around its region, and all blocks share one region's name."""
    return [
        ranged(f"nn.Module: {name} (Block)", ts, 30),
        ranged("Torch-Compiled Region: 0/0", ts + 1, 28),
        host("CompiledFunction", ts + 2, 20, **{"Sequence number": number}),
        host("## Call CompiledFxGraph fabc ##", ts + 3, 18, category="user_annotation"),
        host("triton_poi_fused_add_mul_0", ts + 4, 2),
        *kernel("triton_poi_fused_add_mul_0", ts + 5, ts + 8, 3),
    ]


def compiled_backward(ts: float, number: int) -> list:
    return [
        host(f"{NODE}CompiledFunctionBackward", ts, 20, tid=ENGINE, **{"Sequence number": number}),
        host("## Call CompiledFxGraph fdef ##", ts + 1, 18, tid=ENGINE, category="user_annotation"),
        *kernel("triton_red_fused_sum_1", ts + 2, ts + 6, 4, tid=ENGINE),
    ]


def compiled_step() -> list:
    rows = [step(0, 0, 300)]
    for number, (name, ts) in enumerate(BLOCKS, 1):
        rows += [*block(name, ts, number), *compiled_backward(260 - 2 * ts, number)]
    return rows


def test_a_region_is_of_the_module_around_it_forward_and_backward(tmp_path):
    report = told(tmp_path, compiled_step())
    found = {row.layer: (row.forward_ns, row.backward_ns) for row in report.layers if row.forward_ns or row.backward_ns}
    assert found == {"layers.0": (3000, 4000), "layers.1": (3000, 4000)}


def test_its_kernels_are_known_by_the_operators_fused_in_them(tmp_path):
    rows = told(tmp_path, compiled_step()).regions
    assert [(row.region, row.place, row.fused, row.calls, row.total_ns) for row in rows] == [
        (name, None, fused, 1, ns) for name, _ in BLOCKS for fused, ns in (("sum", 4000), ("add_mul", 3000))
    ]


@pytest.mark.parametrize(
    ("description", "kind", "purpose"),
    [
        *(("mesh_fsdp", "all_gather", "parameters"), ("mesh_dp_shard", "reduce_scatter", "gradients")),
        *(("mesh_tp", "all_gather", "activations"), ("default_pg", "all_reduce", "activations")),
    ],
)
def test_collectives_in_compiled_code_have_their_purpose_and_layer(tmp_path, description, kind, purpose):
    rows = [*compiled_step(), *functional(18, kind, 22, 3, description=description)]
    report = told(tmp_path, rows, rows)
    assert [row.purpose for row in report.collectives] == [purpose]
    lines = {row.layer: row.exposed_ns for row in report.layers if row.comm}
    assert set(lines) == ({"layers.0"} if purpose == "activations" else {f"({purpose})"})


def test_a_region_alone_calls_as_a_module_does(tmp_path):
    """Without ranges of modules a region is one, and what it calls is of it."""
    rows = [row for row in compiled_step() if not row["name"].startswith("nn.Module")]
    rows += functional(18, "all_reduce", 22, 3, description="mesh_tp")
    report = told(tmp_path, rows, rows)
    assert [row.purpose for row in report.collectives] == ["activations"]
    assert {row.layer for row in report.layers if row.comm} == {"Torch-Compiled Region: 0/0"}


def replays(description: str) -> list:
    """Two steps that replay one graph: two kernels and a collective in it."""
    said = {"Collective name": "allreduce", "In msg nelems": 9000, "Out msg nelems": 9000, "dtype": "Float"}
    said |= {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}
    said = said | {"Process Group Description": description} if description else {}
    rows = []
    for number in (0, 1):
        at = 100 * number
        launch, first = kernel("a", at + 10, at + 15, 6)
        _, second = kernel("a", at + 10, at + 21, 4)
        _, third = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 10, at + 26, 9, stream=20, **said)
        rows += [step(number, at, 100), launch | {"name": "cudaGraphLaunch"}, first, second, third]
    return rows


def test_a_graphs_kernels_are_known_by_their_place_in_it(tmp_path):
    rows = told(tmp_path, replays("")).regions
    assert [(row.region, row.place, row.name, row.calls, row.total_ns) for row in rows if row.kind == "compute"] == [
        ("CUDA graph 0", 0, "a", 2, 12_000),
        ("CUDA graph 0", 1, "a", 2, 8_000),
    ]


@pytest.mark.parametrize(
    ("description", "purpose"),
    [("", "other"), ("mesh_tp", "activations"), ("mesh_loss", "norms"), ("mesh_dp", "other")],
)
def test_what_a_replayed_collective_carries_only_its_group_tells(tmp_path, description, purpose):
    rows = replays(description)
    report = told(tmp_path, rows, rows)
    assert {row.purpose for row in report.collectives} == {purpose}
    said = {notice.code for notice in report.run.notices}
    assert ("purpose_of_replays" in said) == (purpose == "other")
