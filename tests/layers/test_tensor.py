"""Tensor parallelism: exposed time by layer, pass and collective; what asynchronous TP could hide at most."""

from __future__ import annotations

import pytest

from tests.support.drawn_tensor import functional, product
from tests.support.kineto_files import Event
from tests.support.samples import REPORTED, reported
from tests.support.training import ENGINE, NODE, host, kernel, ranged, step, told


def tensor_step(description: str = "mesh_tp") -> list[Event]:
    """One feed-forward module: gathered, multiplied twice, multiplied and reduced; one all-reduce of its backward.

    all_gather    20..26                       6 exposed, beside products of 3 + 3
    mm                   27..30 30..33  40..44
    reduce_scatter                            45..55        10 exposed, beside a product of 4
    """
    rows = [step(0, 0, 300), ranged("nn.Module: mlp (FeedForward)", 10, 60)]
    rows += functional(15, "all_gather", 20, 6, description=description)
    rows += [*product(20, 27, 3, 1), *product(24, 30, 3, 2), *product(30, 40, 4, 3)]
    rows += functional(40, "reduce_scatter", 45, 10, description=description)
    rows += [host(f"{NODE}MmBackward0", 100, 10, tid=ENGINE, **{"Sequence number": 3})]
    rows += [host("aten::mm", 101, 2, tid=ENGINE), *kernel("gemm_b", 101.5, 104, 5, tid=ENGINE)]
    rows += functional(106, "all_reduce", 110, 2, tid=ENGINE, description=description)
    return rows


@pytest.mark.parametrize("description", ["mesh_tp", "default_pg"])
def test_exposed_time_is_known_by_layer_pass_and_collective(tmp_path, description):
    """A dimension over the whole world runs on default_pg, and is known by its callers."""
    rows = tensor_step(description)
    report = told(tmp_path, rows, rows)
    assert {row.purpose for row in report.collectives} == {"activations"}
    (layer,) = (row for row in report.layers if row.rank == 0 and row.layer == "mlp")
    assert [(comm.kind, comm.direction, comm.exposed_ns) for comm in layer.comm] == [
        ("all_gather", "forward", 6000),
        ("reduce_scatter", "forward", 10000),
        ("all_reduce", "backward", 2000),
    ]


def test_asynchronous_tp_hides_no_more_than_the_products_beside_a_collective_take(tmp_path):
    rows = tensor_step()
    row = told(tmp_path, rows, rows).tensor[0]
    assert (row.collectives, row.exposed_ns, row.exposed_transfer_ns) == (3, 18_000, 18_000)
    # 6 of the all-gather beside 3 + 3, 10 of the reduce-scatter beside 4; an all-reduce is not decomposed.
    assert row.async_tp_bound_ns == 6000 + 4000
    assert not row.async_tp
    assert not row.symmetric_memory


def test_it_is_advised_where_it_is_off_and_not_where_it_is_on(tmp_path):
    rows = tensor_step()
    (found,) = (advice for advice in told(tmp_path, rows, rows).summary.advice if advice.code == "async_tp")
    assert found.figure_ns == 10_000
    on = [*rows, host("symm_mem::fused_all_gather_matmul", 60, 4)]
    report = told(tmp_path, on, on)
    assert all(row.async_tp for row in report.tensor)
    assert "async_tp" not in {advice.code for advice in report.summary.advice}


@pytest.mark.parametrize("path", REPORTED)
def test_the_bound_is_no_more_than_the_exposed_transfer(path):
    for row in reported(path).tensor:
        assert 0 <= row.async_tp_bound_ns <= row.exposed_transfer_ns <= row.exposed_ns
