"""Rules of advice on FSDP: queues, late launches, connections, small units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analyzers.layers import ShardedCollective
from analyzers.reporting.strategies.advised import Advice, StepTime
from analyzers.units import duration

# The variable that bounds how many queues of work CUDA keeps for a device.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
# A transfer that is not so many times the latency takes as long when it is smaller.
ABOVE_LATENCY = 2
_GATHER, _REDUCE = "all_gather", "reduce_scatter"


def advice_on_sharded(
    step: StepTime, rows: Sequence[ShardedCollective], latency_ns: int | None, environment: Mapping[str, str]
) -> Iterator[Advice]:
    """Yield what sharded modules' collectives give reason for, whatever its share of the step.

    `latency_ns` is what a transfer of no bytes takes, None where unknown; `environment` what run.json has of it.
    """
    yield from _one_communicator(step, rows, environment)
    yield from _launched_late(step, rows)
    yield from _one_connection(step, rows, environment)
    yield from _small_units(step, rows, latency_ns)


def _one_communicator(
    step: StepTime, rows: Sequence[ShardedCollective], environment: Mapping[str, str]
) -> Iterator[Advice]:
    crossed = [row for row in rows if (row.kind, row.queued_behind) in ((_GATHER, _REDUCE), (_REDUCE, _GATHER))]
    figure = step.typical((row, row.exposed_queued_ns) for row in crossed)
    gathers = step.typical((row, row.exposed_queued_ns) for row in crossed if row.kind == _GATHER)
    yield Advice(
        "reduce_scatter_group",
        "give reduce-scatters a process group of their own (set_separate_reduce_scatter_group in torch 2.15), so that "
        "all-gathers need not stand behind them",
        figure,
        f"all-gathers and reduce-scatters share a communicator, which runs one at a time: {step.share(figure)} of "
        f"transfer is exposed because one stood behind the other ({duration(gathers)} of all-gathers)"
        f"{_connections(environment)}",
    )


def _connections(environment: Mapping[str, str]) -> str:
    """Say what is known of the connections, which queue work of several streams where they are few."""
    value = environment.get(CONNECTIONS)
    if value is None:
        return ""
    return f"; {CONNECTIONS} is {value}" if value else f"; {CONNECTIONS} is not set"


def _launched_late(step: StepTime, rows: Sequence[ShardedCollective]) -> Iterator[Advice]:
    # An all-gather in its module's own turn is what advice on prefetching is about.
    late = [row for row in rows if row.prefetched is not False]
    figure = step.typical((row, row.exposed_late_ns) for row in late)
    yield Advice(
        "late_launch",
        "give the devices more work per launch: a larger batch, larger sharded units, torch.compile",
        figure,
        "the host is the limit: reduce-scatters and prefetched all-gathers are launched when the device has run out of "
        f"compute, and {step.share(figure)} of their transfer is exposed because of it",
    )


def _one_connection(
    step: StepTime, rows: Sequence[ShardedCollective], environment: Mapping[str, str]
) -> Iterator[Advice]:
    if environment.get(CONNECTIONS) != "1":
        return
    figure = step.typical((row, row.exposed_queued_ns + row.exposed_slow_ns) for row in rows)
    yield Advice(
        "max_connections",
        f"leave {CONNECTIONS} unset, unless Megatron's tensor parallelism needs it at 1",
        figure,
        f"{CONNECTIONS} is 1, so that work of all streams starts in the order in which it is launched: of all-gathers "
        f"and reduce-scatters that were launched in time, {step.share(figure)} of transfer is exposed",
    )


def _small_units(step: StepTime, rows: Sequence[ShardedCollective], latency_ns: int | None) -> Iterator[Advice]:
    if latency_ns is None:
        return
    small = [row for row in rows if row.wait_ns is not None and row.dur_ns - row.wait_ns < ABOVE_LATENCY * latency_ns]
    figure = step.typical((row, row.exposed_slow_ns) for row in small)
    count = step.typical((row, 1) for row in small)
    yield Advice(
        "larger_units",
        "shard larger units: call fully_shard on groups of modules, so that fewer and larger collectives run",
        figure,
        f"{count} collectives a step are so small that their transfer is nearly all latency (the shortest all-reduce "
        f"takes {duration(latency_ns)}): {step.share(figure)} of it is exposed",
    )
