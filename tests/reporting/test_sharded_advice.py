"""Advice on sharded modules: each piece where there is reason for it, with its figure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from analyzers.layers import ShardedCollective
from analyzers.reporting.remedies.advised import Advice, Evidence
from analyzers.reporting.remedies.at_most import advice_at_most
from analyzers.reporting.remedies.strategy_advice import CONNECTIONS, advice_on_sharded

STEP = Evidence(1_000_000, 1, trained_ns=1_000_000)


def row(kind: str = "all_gather", **more) -> ShardedCollective:
    known = ShardedCollective(
        rank=0, device=0, step=0, module="a", kind=kind, direction="backward", collective=0, bytes=8, prefetched=True,
        launched_ns=0, start_ns=0, dur_ns=90_000, wait_ns=0, queued_ns=0, queued_behind=None, late_launch_ns=0,
        overlapped_ns=0, exposed_ns=0, exposed_wait_ns=0, exposed_queued_ns=0, exposed_late_ns=0, exposed_slow_ns=0,
        exposed_unknown_ns=0, hidden_by=[],
    )  # fmt: skip
    return msgspec.structs.replace(known, **more)


def advised(*rows: ShardedCollective, latency_ns: int | None = None, **environment: str) -> dict[str, Advice]:
    evidence = replace(STEP, sharded=rows, latency_ns=latency_ns, environment=environment)
    return {advice.code: advice for advice in advice_on_sharded(evidence) if advice.figure_ns}


def test_nothing_without_reason():
    assert not advised(row(), row("reduce_scatter", prefetched=None))


def test_all_gathers_behind_reduce_scatters_want_a_group_of_their_own():
    rows = [
        row(queued_behind="reduce_scatter", exposed_queued_ns=30_000),
        row("reduce_scatter", queued_behind="all_gather", exposed_queued_ns=10_000),
        row(queued_behind="all_gather", exposed_queued_ns=50_000),  # all-gathers would queue all the same
    ]
    found = advised(*rows)
    assert set(found) == {"reduce_scatter_group"}
    assert found["reduce_scatter_group"].figure_ns == 40_000
    assert CONNECTIONS not in found["reduce_scatter_group"].because


def test_the_connections_are_said_where_they_are_known():
    queued = row(queued_behind="reduce_scatter", exposed_queued_ns=30_000)
    assert f"{CONNECTIONS} is 8" in advised(queued, **{CONNECTIONS: "8"})["reduce_scatter_group"].because
    assert f"{CONNECTIONS} is not set" in advised(queued, **{CONNECTIONS: ""})["reduce_scatter_group"].because


def test_one_connection_is_named_where_it_is_one():
    slow = row(exposed_slow_ns=20_000)
    assert advised(slow, **{CONNECTIONS: "1"})["max_connections"].figure_ns == 20_000
    assert "max_connections" not in advised(slow, **{CONNECTIONS: "32"})
    assert "max_connections" not in advised(slow)
    assert advised(slow)["sharded_transfer"].figure_ns == 20_000


def test_units_whose_transfer_is_latency_are_too_small():
    small, large = (row(dur_ns=ns, exposed_slow_ns=ns) for ns in (12_000, 90_000))
    found = advised(small, small, large, latency_ns=8_000)["larger_units"]
    assert found.figure_ns == 24_000
    assert found.because.startswith("2 collectives per step")
    assert "larger_units" not in advised(small, large)


def test_where_links_are_the_limit_no_order_of_collectives_helps():
    """800 us of transfer are exposed, and 30 us of compute have nothing beside them: all but these must be sent."""
    queued = row(queued_behind="reduce_scatter", exposed_queued_ns=500_000)
    slow = row("reduce_scatter", exposed_slow_ns=300_000)
    first, second = advice_at_most(replace(STEP, sharded=[queued, slow], free_compute_ns=30_000))
    assert (first.code, first.figure_ns) == ("sharded_transfer", 770_000)
    assert "the links are too slow for FSDP's collectives: 77 % of the step" in first.problem
    assert (second.code, second.figure_ns) == ("reduce_scatter_group", 30_000)
    assert "only 30 us per step (3.0 %) of compute has no communication beside it yet" in second.because


def test_transfers_that_are_all_latency_do_not_make_links_slow():
    small = row(dur_ns=12_000, exposed_queued_ns=12_000)
    assert "sharded_transfer" not in advised(small, latency_ns=8_000)
