"""Gradients that a program reduces by itself: behind the backward, or in hooks of the nodes that take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.rank.strategies import STRATEGIES, Purpose
from analyzers.rank.summary import RankSummary, summarize
from tests.support.kineto_files import Event, write
from tests.support.training import ENGINE, MAIN, backward, document, forward, host, kernel, ranged, step

NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "reduce": "ncclDevKernel_Reduce_Sum_f32_RING_LL(x)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(x)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
}
# As many gradients as three layers have: the last has a bias of one element.
LAYERS = {1: [(80, 80), (80,)], 2: [(80, 80), (80,)], 3: [(1, 80), (1,)]}
TOTAL = 2 * (6400 + 80) + 81


def collective(call: str, ts: float, elements: int, *, tid: int = MAIN, group: str = "0") -> list[Event]:
    """The host's call, and the kernel that it launches."""
    said: dict[str, Any] = {"Collective name": call, "In msg nelems": elements, "Out msg nelems": elements}
    said |= {"dtype": "Float", "Group size": 2, "Process Group Name": group, "Process Group Ranks": "[0, 1]"}
    return [
        host(f"c10d::{call}_", ts, 1, tid=tid),
        *kernel(NAMES[call], ts + 0.2, ts + 1, 0.5, tid=tid, stream=20, **said),
    ]


def trained(*more: list[Event], shapes: bool = True) -> list[Event]:
    """A step of three layers: forward from 10, backward from 100, optimizer at 300."""
    rows = [step(0, 0, 400), ranged("Optimizer.step#Adam.step", 300, 40)]
    for number in LAYERS:
        rows += [*forward(10 * number, "linear", number), ranged(f"nn.Module: l{number} (Linear)", 10 * number - 1, 7)]
        rows += backward(100 + 30 * (3 - number), "linear", number, gradients=LAYERS[number])
    if not shapes:
        rows = [row | {"args": {k: v for k, v in row["args"].items() if k != "Input Dims"}} for row in rows]
    rows = [row for row in rows if "mul_out" not in row["name"] and "copy_into" not in row["name"]]
    return rows + [row for each in more for row in each]


@pytest.fixture
def said(tmp_path: Path):
    """The purpose of each collective of one rank, in order."""

    def read(*more: list[Event], shapes: bool = True) -> list[str]:
        write(tmp_path / "rank0.json", document(trained(*more, shapes=shapes)))
        return purposes(summary(tmp_path))

    return read


def summary(folder: Path) -> RankSummary:
    return summarize(folder).ranks[0]


def purposes(rank: RankSummary) -> list[str]:
    return [Purpose(code).label for code in rank.timed.communication.purpose.tolist()]


def test_flat_buffers_reduced_behind_the_backward_are_gradients(said):
    assert said(collective("allreduce", 200, 6000), collective("allreduce", 205, TOTAL - 6000)) == ["gradients"] * 2


def test_a_flat_buffer_smaller_than_figures_may_be_is_known_by_its_sum(tmp_path):
    rows = [row for row in trained() if not row["name"].startswith("nn.Module")]
    rows = [
        row | {"args": row["args"] | {"Input Dims": [[2, 4]]}} if row["args"].get("Input Dims") else row for row in rows
    ]
    write(tmp_path / "rank0.json", document(rows + collective("allreduce", 200, 48) + collective("allreduce", 210, 7)))
    assert purposes(summary(tmp_path)) == ["gradients", "norms"]


def test_a_distributed_optimizer_scatters_gradients_and_gathers_parameters(said):
    rows = [collective("_reduce_scatter_base", 200, TOTAL), collective("_allgather_base", 320, TOTAL)]
    assert said(*rows) == ["gradients", "parameters"]
    assert said(rows[0], collective("_allgather_base", 345, TOTAL)) == ["gradients", "parameters"]


def test_what_is_gathered_behind_an_update_among_others_is_no_parameters(said):
    scattered = collective("_reduce_scatter_base", 200, TOTAL)
    assert said(scattered, collective("_allgather_base", 345, 10_000, group="7")) == ["gradients", "other"]


@pytest.mark.parametrize("shapes", [True, False])
def test_gradients_reduced_one_by_one_are_gradients_however_small(said, shapes):
    sizes = [80, 1, 6400, 80, 6400, 80]
    rows = [collective("allreduce", 200 + 5 * place, size) for place, size in enumerate(sizes)]
    # Without shapes a single number may be anything.
    alone = "gradients" if shapes else "norms"
    assert said(*rows, shapes=shapes) == ["gradients", alone, *["gradients"] * 4]


def test_a_loss_beside_gradients_reduced_one_by_one_is_none(said):
    sizes = [80, 1, 6400, 80, 6400, 80, 1, 3]
    rows = [collective("allreduce", 200 + 5 * place, size) for place, size in enumerate(sizes)]
    assert said(*rows) == [*["gradients"] * 6, "norms", "norms"]


def test_a_vector_of_norms_and_a_loss_are_no_gradients(said):
    rows = [collective("allreduce", 200, 6), collective("allreduce", 210, 1), collective("allreduce", 350, 1)]
    assert said(*rows) == ["norms"] * 3
    assert said(*rows, shapes=False) == ["norms"] * 3


def test_one_figure_as_long_as_one_gradient_is_none(said):
    assert said(collective("allreduce", 200, 80)) == ["norms"]


@pytest.mark.parametrize("call", ["reduce", "allreduce", "_reduce_scatter_base"])
def test_what_hooks_reduce_is_gradients_and_no_bucket(tmp_path, call):
    """DeepSpeed's ZeRO-1 and ZeRO-2: in the node of a gradient, when a bucket is full."""
    rows = trained(collective(call, 165.5, 6480, tid=ENGINE), collective(call, 137.5, 6480, tid=ENGINE))
    write(tmp_path / "rank0.json", document(rows))
    rank = summary(tmp_path)
    assert purposes(rank) == ["gradients"] * 2
    assert {STRATEGIES[code].name for code in rank.timed.communication.strategy.tolist()} == {"zero"}
    assert not len(rank.timed.reductions)


def test_parameters_gathered_by_modules_are_none_of_their_activations(said):
    """ZeRO-3: over the group in which hooks scatter gradients; over another, they are tensor parallelism's."""
    scattered = collective("_reduce_scatter_base", 165.5, 6480, tid=ENGINE)
    gathered = collective("_allgather_base", 10.5, 6480), collective("_allgather_base", 20.5, 6480, group="1")
    again = collective("_allgather_base", 131, 6480, tid=ENGINE)
    assert said(*gathered, again, scattered) == ["parameters", "activations", "parameters", "gradients"]


def test_of_a_program_under_ddp_hooks_reduce_buckets(tmp_path):
    rows = trained(collective("allreduce", 165.5, 6480, tid=ENGINE), [ranged("DistributedDataParallel.forward", 8, 40)])
    write(tmp_path / "rank0.json", document(rows))
    rank = summary(tmp_path)
    assert [STRATEGIES[code].name for code in rank.timed.communication.strategy.tolist()] == ["ddp"]
    assert len(rank.timed.reductions) == 1
