"""Rules of advice on single strategies: attention, tensor parallelism, pipelines, FSDP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from analyzers.layers import PipelineSummary, ShardedCollective, TensorWindow
from analyzers.layers.strategies import AttentionRow
from analyzers.reporting.remedies.advised import Advice, Evidence, StepTime, advised
from analyzers.units import duration, rounded_percent


def advice_on_attention(evidence: Evidence) -> Iterator[Advice]:
    """Yield what uneven attention and its exposed transfers give reason for."""
    yield from _uneven_attention(evidence)
    yield from _attention_transfer(evidence)


def _uneven_attention(evidence: Evidence) -> Iterator[Advice]:
    rows = [row for row in evidence.attention if row.imbalance is not None]
    if not rows or evidence.cost is None:
        return
    longer = _in_median_step(rows, lambda row: _most_over_mean([ns for ns in row.attention_ns if ns is not None]))
    figure = min(longer, evidence.cost.exposed_wait_ns)
    worst = max(row.imbalance or 0 for row in rows)
    yield advised(
        "attention_imbalance",
        "give each rank an early and a late part of the sequence (the load balancing of torch's context_parallel, "
        "zigzag)",
        figure,
        f"attention is unevenly spread: on the slowest rank it takes {evidence.part(figure)} longer than on average",
        f"in one layer up to {worst:.2f} times as long; behind a causal mask later tokens attend to more",
    )


def _attention_transfer(evidence: Evidence) -> Iterator[Advice]:
    rows = [row for row in evidence.attention if row.exposed_transfer_ns is not None]
    if not rows:
        return
    gathered = [row for row in rows if {sent.kind for sent in row.transfers} == {"all_gather"}]
    longer = sum(row.longer == "transfer" for row in rows)
    if 2 * longer > len(rows):
        text = "spread sequences over fewer ranks, or make them longer: no ring hides transfers behind less attention"
    elif gathered:
        # Gradients of keys and values go round in a ring whatever is set; of passes that hold both, none is counted.
        text, rows = (
            'pass keys and values on in a ring beside attention (in torch set_rotate_method("alltoall"))',
            gathered,
        )
    else:
        text = "launch each transfer of the ring before the attention that can hide it"
    figure = _in_median_step(rows, lambda row: (row.exposed_transfer_ns or 0) / len(row.ranks))
    sent_along = "all-gathers of keys and values are" if rows is gathered else "transfers of attention are"
    yield advised(
        "attention_transfer",
        text,
        figure,
        f"{sent_along} exposed for {evidence.part(figure)}",
        _where_longer(longer, len(evidence.attention)),
    )


def _where_longer(longer: int, of: int) -> str:
    return (
        f"the transfer takes longer than attention itself in {longer} of {of} cases (layer, pass, step)"
        if longer
        else ""
    )


def _in_median_step(rows: Sequence[AttentionRow], value: Callable[[AttentionRow], float]) -> int:
    """Return the median over steps of what each step's rows add up to, ns."""
    total: Counter[int] = Counter()
    for row in rows:
        total[row.step] += round(value(row))
    return round(median(total.values()))


def _most_over_mean(values: Sequence[int]) -> float:
    return max(values) - sum(values) / len(values)


_SWITCH_ON = (
    "run tensor parallelism's collectives beside the matrix products that they feed (asynchronous TP: symmetric "
    "memory, and torch._inductor.config._micro_pipeline_tp under torch.compile)"
)
_WHY_NOT = "find out why torch.compile fuses no collective with its matrix product, although asynchronous TP is on"


def advice_on_tensor(step: StepTime, rows: Sequence[TensorWindow], is_asked_for: bool = False) -> Iterator[Advice]:
    """Yield what asynchronous TP could hide at most; nothing where the trace has it already.

    `is_asked_for`: the program switched it on.
    """
    if any(row.async_tp for row in rows):
        return
    figure = step.typical((row, row.async_tp_bound_ns) for row in rows)
    exposed = step.typical((row, row.exposed_transfer_ns) for row in rows)
    yield advised(
        "async_tp",
        _WHY_NOT if is_asked_for else _SWITCH_ON,
        figure,
        f"tensor parallelism's transfers are exposed for {step.part(exposed)}, while matrix products that could hide "
        "them wait",
        f"{duration(exposed)} per step of activations' transfer is exposed, and the products next to it take "
        f"{duration(figure)}",
    )


def advice_on_pipelines(evidence: Evidence) -> Iterator[Advice]:
    """Yield what the parts of each pipeline's bubble give reason for."""
    for pipeline in evidence.pipelines:
        if pipeline.span_ns is not None:
            yield from _of_pipeline(evidence, pipeline)


def _of_pipeline(evidence: Evidence, pipeline: PipelineSummary) -> Iterator[Advice]:
    stages, microbatches = len(pipeline.stages), pipeline.microbatches
    empty = rounded_percent((stages - 1) / (microbatches + stages - 1))
    bubble = (
        f"the pipeline's schedule leaves GPUs empty: {pipeline.schedule} over {stages} stages with {microbatches} "
        f"microbatches, {empty} even if stages were equal and messages free"
    )
    # Both launch as much work in more and smaller pieces: no remedy where hosts already come too late by more.
    late_ns = min((one.rest_ns for one in pipeline.stages if one.rest_ns is not None), default=0)
    if pipeline.more_microbatches_ns is not None and pipeline.more_microbatches_ns >= late_ns:
        yield advised(
            "more_microbatches",
            f"train with {2 * microbatches} microbatches instead of {microbatches}",
            pipeline.more_microbatches_ns,
            bubble,
            f"(p - 1) / (m + p - 1); replayed with twice as many microbatches of half the length, the step is "
            f"{evidence.share(pipeline.more_microbatches_ns)} shorter",
        )
    if pipeline.interleaved_ns is not None and pipeline.interleaved_ns >= late_ns:
        yield advised(
            "interleaved_stages",
            "cut stages in two and give each rank two of them (ScheduleInterleaved1F1B)",
            pipeline.interleaved_ns,
            bubble,
            f"replayed with two stages per rank, the step is {evidence.share(pipeline.interleaved_ns)} shorter, with "
            "twice as many messages",
        )


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
