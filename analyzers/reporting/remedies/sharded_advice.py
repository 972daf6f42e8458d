"""Rules of advice on FSDP: queues, units, links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analyzers.layers import ShardedCollective
from analyzers.reporting.remedies.advised import Advice, StepTime, advised
from analyzers.reporting.remedies.observations import Evidence
from analyzers.units import duration

# The variable that bounds how many queues of work CUDA keeps for a device.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
# A transfer that is not so many times the latency takes as long when it is smaller.
ABOVE_LATENCY = 2
_GATHER, _REDUCE = "all_gather", "reduce_scatter"


def advice_on_sharded(evidence: Evidence) -> Iterator[Advice]:
    """Yield what sharded modules' collectives give reason for, whatever its share of the step."""
    rows, environment, latency_ns = evidence.sharded, evidence.environment, evidence.latency_ns
    yield from _one_communicator(evidence, rows, environment)
    yield from _one_connection(evidence, rows, environment)
    yield from _small_units(evidence, rows, latency_ns)
    yield from _slow_links(evidence, rows, latency_ns)


def _one_communicator(
    step: StepTime, rows: Sequence[ShardedCollective], environment: Mapping[str, str]
) -> Iterator[Advice]:
    crossed = [row for row in rows if (row.kind, row.queued_behind) in ((_GATHER, _REDUCE), (_REDUCE, _GATHER))]
    figure = step.typical((row, row.exposed_queued_ns) for row in crossed)
    gathers = step.typical((row, row.exposed_queued_ns) for row in crossed if row.kind == _GATHER)
    yield advised(
        "reduce_scatter_group",
        "give reduce-scatters a process group of their own (set_separate_reduce_scatter_group in torch 2.15)",
        figure,
        f"all-gathers and reduce-scatters queue behind one another in one communicator: {step.part(figure)} is "
        "transfer that is exposed because of it",
        f"{duration(gathers)} of {duration(figure)} per step are all-gathers'{_connections(environment)}",
    )


def _connections(environment: Mapping[str, str]) -> str:
    """Say what is known of the connections, which queue work of several streams where they are few."""
    value = environment.get(CONNECTIONS)
    if value is None:
        return ""
    return f"; {CONNECTIONS} is {value}" if value else f"; {CONNECTIONS} is not set"


def _one_connection(
    step: StepTime, rows: Sequence[ShardedCollective], environment: Mapping[str, str]
) -> Iterator[Advice]:
    if environment.get(CONNECTIONS) != "1":
        return
    figure = step.typical((row, row.exposed_queued_ns + row.exposed_slow_ns) for row in rows)
    yield advised(
        "max_connections",
        f"leave {CONNECTIONS} unset, unless Megatron's tensor parallelism needs it at 1",
        figure,
        f"{CONNECTIONS} is 1, so that collectives wait behind compute of other streams: {step.part(figure)} is "
        "exposed transfer",
        "these all-gathers and reduce-scatters were launched in time",
    )


def _small_units(step: StepTime, rows: Sequence[ShardedCollective], latency_ns: int | None) -> Iterator[Advice]:
    if latency_ns is None:
        return
    small = [row for row in rows if _is_small(row, latency_ns)]
    figure = step.typical((row, row.exposed_slow_ns) for row in small)
    count = step.typical((row, 1) for row in small)
    yield advised(
        "larger_units",
        "shard larger units: call fully_shard on groups of modules, so that fewer and larger collectives run",
        figure,
        f"sharded units are so small that latency is nearly all of their transfer: {step.part(figure)} is exposed",
        f"{count} collectives per step; the shortest all-reduce takes {duration(latency_ns)}",
    )


def _slow_links(evidence: Evidence, rows: Sequence[ShardedCollective], latency_ns: int | None) -> Iterator[Advice]:
    """Transfers that stood behind nothing, or that no order could hide; those that are all latency are none of them."""
    large = [row for row in rows if not _is_small(row, latency_ns)]
    figure = evidence.typical((row, row.exposed_slow_ns) for row in large)
    hideable = ""
    if evidence.free_compute_ns is not None:
        free_ns = max(evidence.free_compute_ns, 0)
        exposed = evidence.typical(
            (row, row.exposed_queued_ns + row.exposed_late_ns + row.exposed_slow_ns) for row in large
        )
        figure = max(figure, round(exposed - free_ns))
        hideable = f"in another order compute could hide {duration(free_ns)} more per step at most"
    yield advised(
        "sharded_transfer",
        "send less: gradient accumulation, bf16 parameters and gradients, reshard_after_forward=False or sharding "
        "within a host (HSDP) where memory allows; or use faster links",
        figure,
        f"the links are too slow for FSDP's collectives: {evidence.part(figure)} is transfer that no compute hides",
        hideable,
    )


def _is_small(row: ShardedCollective, latency_ns: int | None) -> bool:
    """Whether latency is most of a collective's transfer, so that fewer bytes take as long."""
    return latency_ns is not None and row.wait_ns is not None and row.dur_ns - row.wait_ns < ABOVE_LATENCY * latency_ns
