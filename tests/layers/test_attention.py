"""Attention of a spread sequence against its transfers, as drawn; and exchanges of experts' own kernels, by order."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from tests.support.kineto_files import Event, write
from tests.support.training import ENGINE, MAIN, NODE, document, host, kernel, ranged, step

SDPA, GATHER = "aten::_scaled_dot_product_flash_attention", "ncclDevKernel_AllGather_RING_LL(x)"


def gathered(ts: float, start: float, end: float, rank: int, *, tid: int = MAIN) -> list[Event]:
    said = {"Collective name": "_allgather_base", "In msg nelems": 500, "Out msg nelems": 1000, "dtype": "Float"}
    said |= {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": round(ts)}
    return [
        host("c10d::_allgather_base_", ts, 1, tid=tid),
        *kernel(GATHER, ts + 0.1, start, end - start, tid=tid, stream=20, device=rank, **said),
    ]


def attends(rank: int, forward_us: float, backward_us: float) -> list[Event]:
    """
    forward    |attention: gather, kernels|  |mm|
    backward   |its node: gather, kernels|           what is no attention's is not counted: the gate, the product
    """
    late = 3 * rank
    rows = [step(0, 0, 400), ranged("nn.Module: layers.0.attention (Attention)", 10, 60)]
    rows += [host(SDPA, 20, 40, **{"Sequence number": 1}), *gathered(21, 22 + late, 30, rank)]
    rows += kernel("flash_fwd", 40, 41, forward_us, device=rank)
    rows += kernel("gate", 65, 66, 7, device=rank)
    rows += [host(f"{NODE}ScaledDotProductFlashAttentionBackward0", 100, 50, tid=ENGINE, **{"Sequence number": 1})]
    rows += [*gathered(101, 102, 110 + late, rank, tid=ENGINE)]
    rows += kernel("flash_bwd", 120, 121, backward_us, tid=ENGINE, device=rank)
    return rows + kernel("mm", 160, 161, 5, tid=ENGINE, device=rank)


def told(folder: Path, *ranks: list[Event], world_size: int | None = None) -> Report:
    for rank, events in enumerate(ranks):
        write(folder / f"rank{rank}.json", document(events, rank, world_size or len(ranks)) | {"host_name": "one"})
    return report(summarize(folder))


def test_attention_is_compared_with_its_transfers(tmp_path):
    found = told(tmp_path, attends(0, 6, 30), attends(1, 10, 10))
    forward, backward = found.attention
    assert (forward.direction, forward.layer) == ("forward", "layers.0.attention")
    assert (forward.attention_ns, backward.attention_ns) == ([6000, 10_000], [30_000, 10_000])
    assert (forward.imbalance, backward.imbalance) == (10 / 8, 1.5)
    # Rank 0 waits three microseconds, and both transfer for five.
    assert (forward.wait_ns, forward.transfer_ns, forward.longer) == (3000, 5000, "attention")
    assert (forward.exposed_ns, forward.exposed_transfer_ns) == (8000 + 5000, 5000 + 5000)
    assert [(sent.kind, sent.count, sent.bytes) for sent in forward.transfers] == [("all_gather", 1, 4000)]
    assert (backward.transfer_ns, backward.longer) == (11_000, "attention")


def test_transfers_that_take_longer_than_attention_are_said_to(tmp_path):
    found = told(tmp_path, attends(0, 1, 1), attends(1, 1, 1))
    assert [row.longer for row in found.attention] == ["transfer", "transfer"]


def test_of_one_rank_alone_nothing_is_compared(tmp_path):
    found = told(tmp_path, attends(0, 6, 30), world_size=2)
    for row in found.attention:
        assert row.attention_ns[1] is None
        unknown = (row.imbalance, row.transfer_ns, row.longer, row.wait_ns, row.exposed_transfer_ns)
        assert unknown == (None,) * 5
    assert len(found.attention) == 2


def test_attention_without_communication_of_its_own_is_not_measured(tmp_path):
    rows = [row for row in attends(0, 6, 30) if "llgather" not in str(row) and "AllGather" not in row["name"]]
    assert told(tmp_path, rows).attention == []


def deep_ep(order: str, rank: int) -> list[Event]:
    """D and C are dispatches and combines, ever further apart; `.` is one that the profiler lost."""
    rows = [step(0, 0, 1000)]
    for place, letter in enumerate(order):
        name = {"D": "dispatch", "C": "combine"}.get(letter)
        if name:
            ts = 10 + 20 * place + 9 * place**2
            called = f"void deep_ep::internode_ll::{name}<false>(void*)"
            rows += kernel(called, ts, ts + 1 + rank * (letter == "C"), 6 - rank * (letter == "C"), device=rank)
    return rows


@pytest.mark.parametrize("orders", [("DCDCDCDC", "DCDCDCDC"), ("DCDCDCDC", "DCDCD.DC")])
def test_kernels_written_for_experts_go_by_order(tmp_path, orders):
    found = told(tmp_path, *(deep_ep(order, rank) for rank, order in enumerate(orders)))
    rows = {row.layer: row for row in found.experts}
    assert all(row.by_order and row.tokens_to is None and row.imbalance is None for row in found.experts)
    assert {Code.EXPERTS_GO_BY_ORDER, Code.TOKENS_ARE_NULL} <= {notice.code for notice in found.run.notices}
    if orders[0] == orders[1]:
        assert list(rows) == [f"dispatch {place}" for place in range(4)]
        assert {(row.combine_wait_ns, row.combine_transfer_ns) for row in rows.values()} == {(1000, 5000)}
    for name, row in rows.items():
        # Of a layer that lacks a kernel nothing is added up.
        assert (row.dispatch_wait_ns is None) == (row.exchanges != 2), name
