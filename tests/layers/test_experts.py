"""Experts: tokens by sender and receiver, imbalance, and who is waited for, against routings that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from tests.support.tiers import cases
from tests.support.token_runs import EXCHANGE_US, TokenRun, write_tokens

UNEVEN = TokenRun(routing=[[[3, 1], [4, 0]], [[1, 2], [5, 6]]])


def told(folder: Path, run: TokenRun) -> Report:
    return report(summarize(write_tokens(folder, run)))


def codes(found: Report) -> set[Code]:
    return {notice.code for notice in found.run.notices}


def test_each_layer_says_who_sends_how_many_tokens_to_whom(tmp_path):
    found = told(tmp_path, UNEVEN)
    rows = [(row.direction, row.layer, row.tokens_to, row.tokens_received) for row in found.experts]
    first, second = [[3, 1], [4, 0]], [[1, 2], [5, 6]]
    assert sorted(rows) == [
        ("backward", "layers.0.moe", first, [7, 1]),
        ("backward", "layers.1.moe", second, [6, 8]),
        ("forward", "layers.0.moe", first, [7, 1]),
        ("forward", "layers.1.moe", second, [6, 8]),
    ]
    assert [row.imbalance for row in found.experts if row.layer == "layers.0.moe"] == [7 / 4] * 2
    assert [row.busiest_rank for row in found.experts if row.layer == "layers.1.moe"] == [1, 1]
    assert {row.exchanges for row in found.experts} == {2}  # without the exchange of counts
    assert not codes(found) & {Code.TOKENS_ARE_NULL, Code.TOKENS_OF_OTHER_STEPS, Code.EXPERTS_GO_BY_ORDER}


def test_the_combine_waits_for_the_rank_whose_experts_compute_longest(tmp_path):
    """
    rank 0   dispatch  gggggggggggg.cccc
    rank 1   dispatch  gggg.wwwwwwwwcccc      waits forty microseconds at the combine
    """
    found = told(tmp_path, replace(UNEVEN, late_us=(40, 0)))
    for row in found.experts:
        if row.direction == "forward":
            assert (row.combine_wait_ns, row.combine_transfer_ns) == (40_000, 1000 * EXCHANGE_US)
            busiest = row.busiest_rank == 0
            assert row.combine_wait_for_busiest_ns == (40_000 if busiest else 0)
            assert row.dispatch_wait_ns == 0
    assert sum(row.combine_wait_ns for row in found.experts) == 80_000
    assert [row.wait_for_compute_ns for row in found.experts if row.direction == "forward"] == [40_000, 40_000]


def test_the_forward_that_the_backward_runs_again_is_a_pass_of_its_own(tmp_path):
    found = told(tmp_path, replace(UNEVEN, recomputed=True))
    rows = {(row.direction, row.layer): row for row in found.experts}
    assert len(rows) == len(found.experts) == 6
    for (_, layer), row in rows.items():
        assert row.tokens_to == rows["forward", layer].tokens_to
    assert {direction for direction, _ in rows} == {"forward", "recomputed", "backward"}


def test_lists_that_are_cut_short_leave_loads_and_no_matrix(tmp_path):
    found = told(tmp_path, replace(UNEVEN, cut=True, routing=[[[3, 1], [4, 0]]]))
    for row in found.experts:
        assert row.tokens_to is None
        assert row.tokens_received == [None, None]
        assert row.received_bytes == [7 * 16 * 2, 1 * 16 * 2]
        assert row.imbalance == 7 / 4
    assert Code.TOKENS_ARE_NULL in codes(found)


def test_rows_of_one_element_are_not_said_to_be_tokens(tmp_path):
    found = told(tmp_path, replace(UNEVEN, hidden=1))
    assert all(row.tokens_to is None and row.imbalance is not None for row in found.experts)


@pytest.mark.parametrize("missing", [(0,), (1,)])
def test_of_a_rank_that_is_missing_nothing_is_said(tmp_path, missing):
    found = told(tmp_path, replace(UNEVEN, missing=missing))
    (absent,) = missing
    assert found.experts
    for row in found.experts:
        assert row.is_partial
        assert row.tokens_to[absent] is None and row.tokens_to[1 - absent] is not None
        assert row.tokens_received[absent] is None
        unknown = (row.imbalance, row.busiest_rank, row.dispatch_wait_ns, row.combine_wait_ns, row.wait_for_compute_ns)
        assert unknown == (None,) * 5
    assert Code.TOKENS_ARE_NULL in codes(found)


def test_without_modules_layers_go_by_order(tmp_path):
    described = {"Process Group Description": "mesh_ep"}
    run = replace(UNEVEN, modules=False, counts=False, described=described)
    found = told(tmp_path, run)
    backward = [row for row in found.experts if row.direction == "backward"]
    assert all(row.by_order and row.layer.startswith("dispatch ") for row in found.experts)
    # What runs again cannot be told from the backward itself, and so not which of the two is which.
    assert {row.dispatch_wait_ns for row in backward} == {None}
    assert Code.EXPERTS_GO_BY_ORDER in codes(found)
    forward = [(row.layer, row.tokens_to) for row in found.experts if row.direction == "forward"]
    assert forward == [("dispatch 0", [[3, 1], [4, 0]]), ("dispatch 1", [[1, 2], [5, 6]])]


def test_ranks_that_contradict_one_another_have_no_matrix(tmp_path):
    write_tokens(tmp_path, replace(UNEVEN, missing=(1,)))
    other = replace(UNEVEN, routing=[[[3, 1], [4, 1]], [[1, 2], [5, 7]]], missing=(0,))
    # Rank 0 received 4 and 5 tokens, of which rank 1 says that it sent as many; of its own to itself no other knows.
    write_tokens(tmp_path, other)
    agreeing = report(summarize(tmp_path))
    assert [row.tokens_to for row in agreeing.experts][:1] == [[[3, 1], [4, 1]]]
    write_tokens(tmp_path, replace(other, routing=[[[3, 2], [4, 1]], [[1, 2], [6, 7]]]))
    contradicting = report(summarize(tmp_path))
    assert all(row.tokens_to is None and row.imbalance is None for row in contradicting.experts)
    assert contradicting.experts or Code.UNMATCHED_COMMUNICATION in codes(contradicting)


counts = st.integers(0, 50)


@st.composite
def runs(draw: st.DrawFn) -> TokenRun:
    ranks = draw(st.integers(2, 4))
    row = st.lists(counts, min_size=ranks, max_size=ranks)
    matrix = st.lists(row, min_size=ranks, max_size=ranks)
    routing = draw(st.lists(matrix, min_size=1, max_size=3))
    late = draw(st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks))
    return TokenRun(routing, hidden=draw(st.integers(2, 9)), late_us=late, recomputed=draw(st.booleans()))


@settings(max_examples=cases(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run=runs())
def test_random_routings_are_found_again(tmp_path_factory, run):
    found = told(tmp_path_factory.mktemp("run"), run)
    for row in found.experts:
        matrix = np.array(run.routing[int(row.layer.split(".")[1])])
        # A matrix without any token has no length of a row.
        if row.tokens_to is not None:
            assert row.tokens_to == matrix.tolist()
        received = matrix.sum(axis=0)
        if received.sum() and row.received_bytes[0] is not None:
            assert row.received_bytes == (received * run.hidden * 2).tolist()
            assert row.imbalance == pytest.approx(received.max() / received.mean())
        if received.sum() and row.tokens_to is None:
            assert None in row.tokens_received
    passes = {"forward", "backward"} | ({"recomputed"} if run.recomputed else set())
    if all(np.array(matrix).sum() for matrix in run.routing):
        assert {(row.direction, row.layer) for row in found.experts} == {
            (one, f"layers.{layer}.moe") for one in passes for layer in range(len(run.routing))
        }
        assert all(row.tokens_to is not None for row in found.experts if row.dispatch_wait_ns is not None)
