"""Rules of advice: what to change, with the figure behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

import msgspec

from analyzers.collectives import WaitingRow
from analyzers.layers import BucketRow, LayerRow
from analyzers.rank import OWN_LINES, OtherLine, Purpose
from analyzers.reporting.data_loading import Input
from analyzers.reporting.sync_cost import SyncCost
from analyzers.statistics import LEAST_SHARE
from analyzers.trace import ROOT
from analyzers.units import duration, percent


class Advice(msgspec.Struct, frozen=True):
    """What to change, the figure it rests on (ns a step), and what was measured."""

    text: str
    figure_ns: int
    because: str


# A kernel that starts so soon behind another of its stream stood in a queue.
BEHIND_NS = 20_000
# From this share of the overlap on, what hides only packing is worth a word.
LARGE_PART = 0.2
_PACKING, _BUFFERS = OWN_LINES[OtherLine.PACKING].name, f"({Purpose.BUFFERS.label})"


@dataclass(frozen=True)
class Evidence:
    """What advice is drawn from: rows of the report, the median step, and means over windows."""

    step_ns: float
    windows: int
    buckets: Sequence[BucketRow]
    layers: Sequence[LayerRow]
    waiting: Sequence[WaitingRow]
    cost: SyncCost | None
    buffer_copies: float  # memcpys a window
    buffer_copies_ns: float  # what they take, gaps included
    gradient_copies: float
    gradient_copies_ns: float
    input: Input | None
    is_data_parallel: bool
    caution: str
    input_caution: str  # of the full window, whose times those of the input are

    def typical(self, parts: Iterable[tuple[BucketRow | LayerRow, int]]) -> int:
        """Return the median, over all windows, of what each window's rows add up to, ns: one odd step is no reason."""
        total: Counter[tuple[int, int | str, int]] = Counter()
        for row, ns in parts:
            total[row.rank, row.device, row.step] += ns
        sums = sorted([*total.values(), *[0] * (self.windows - len(total))])
        return round(median(sums)) if sums else 0


def advice(evidence: Evidence) -> list[Advice]:
    """Return all that is worth doing, what brings most first; nothing where half of the windows are empty."""
    if evidence.step_ns <= 0:
        return []
    worthwhile = [
        Advice(proposed.text, proposed.figure_ns, proposed.because + _beyond(proposed.figure_ns, control_ns) + caution)
        for rules, caution, control_ns in (
            (_RULES, evidence.caution, evidence.cost.control_ns if evidence.cost is not None else None),
            ((_waits_for_input,), evidence.input_caution, None),
        )
        for rule in rules
        for proposed in rule(evidence)
        if proposed.figure_ns >= LEAST_SHARE * evidence.step_ns
    ]
    return sorted(worthwhile, key=lambda proposed: -proposed.figure_ns)


def is_cheap(cost: SyncCost, step_ns: float) -> bool:
    """Whether no part of what communication costs is worth a line."""
    parts = (cost.exposed_wait_ns, cost.exposed_transfer_ns, cost.packing_ns, cost.packing_copies_ns, cost.idle_ns)
    return max(*parts, cost.contention_ns or 0) < LEAST_SHARE * step_ns


def _beyond(figure_ns: int, control_ns: int | None) -> str:
    """Say where a figure from profiled steps is more than synchronization costs without the profiler."""
    if control_ns is None or control_ns <= 0 or figure_ns <= control_ns:
        return ""
    return f"; without the profiler synchronization costs {duration(control_ns)} a step in all"


def _share(evidence: Evidence, ns: float) -> str:
    return f"{duration(ns)} a step ({percent(ns / evidence.step_ns)})"


def _last_bucket(evidence: Evidence) -> Iterator[Advice]:
    numbers = [row.bucket for row in evidence.buckets if row.bucket is not None]
    rows = [row for row in evidence.buckets if numbers and row.bucket == max(numbers)]
    hidden = sum(row.overlapped_ns for row in rows)
    if not rows or hidden > 0.5 * sum(row.dur_ns for row in rows) or _is_queue(evidence):
        return  # where links are the limit, its bytes take as long in another bucket
    figure = evidence.typical((row, _exposed_transfer(row)) for row in rows)
    yield Advice(
        f"make the last bucket (bucket {max(numbers)}{_size(rows[0].bytes)}) smaller: a smaller bucket_cap_mb",
        figure,
        f"it is reduced when the backward is over, and nothing is left to hide it: {_share(evidence, figure)} of its "
        "transfer is exposed",
    )


def _exposed_transfer(row: BucketRow) -> int:
    return min(row.exposed_ns, row.dur_ns if row.transfer_ns is None else row.transfer_ns)


def _size(nbytes: int | None) -> str:
    return f", {nbytes / 1e6:.2f} MB" if nbytes is not None else ""


def _queued(evidence: Evidence) -> Iterator[Advice]:
    if not _is_queue(evidence):
        return
    figure = evidence.typical((row, _exposed_transfer(row)) for row in evidence.buckets)
    if evidence.cost is not None:
        # Reductions may overlap one another.
        figure = min(figure, evidence.cost.exposed_transfer_ns)
    yield Advice(
        "send fewer bytes (DDP's bf16_compress_hook, gradient accumulation under no_sync) or use faster links: buckets "
        "of another size are as many bytes",
        figure,
        f"buckets queue behind one another, so that the links are the limit: {_share(evidence, figure)} of their "
        f"transfer is exposed, and they stood {duration(_stood(evidence))} behind others' transfers, added up",
    )


def _is_queue(evidence: Evidence) -> bool:
    return _stood(evidence) >= LEAST_SHARE * evidence.step_ns


def _stood(evidence: Evidence) -> int:
    """Return how long buckets stood behind others' transfers, added up, in ns per step."""
    # Behind a bucket that only waited a queue is waiting, not the links' limit.
    return evidence.typical(
        (row, min(row.queued_ns or 0, before.transfer_ns or 0))
        for before, row in _neighbours(evidence.buckets)
        if _is_behind(before, row)
    )


def _neighbours(rows: Sequence[BucketRow]) -> Iterator[tuple[BucketRow, BucketRow]]:
    """Pair each reduction with the one before it on its rank in the step."""
    for _, reductions in groupby(rows, key=lambda row: (row.rank, row.step)):
        yield from pairwise(sorted(reductions, key=lambda row: row.start_ns))


def _is_behind(before: BucketRow, row: BucketRow) -> bool:
    return row.start_ns - (before.start_ns + before.dur_ns) <= BEHIND_NS


def _launched_late(evidence: Evidence) -> Iterator[Advice]:
    figure = evidence.typical((row, row.late_launch_ns or 0) for row in evidence.buckets)
    yield Advice(
        "give the devices more work per launch: a larger batch, fewer and larger buckets, torch.compile or CUDA graphs",
        figure,
        f"the host is the limit: buckets are launched {_share(evidence, figure)} after they are ready, added up",
    )


_WHY = {
    "launch": "its host launched late",
    "compute": "its compute ran longer",
    "collective": "its collective before ended late",
    "input": "it waited for input",
    "unknown": "the trace does not show why",
}
_REMEDY = {
    "launch": "look at what rank {rank}'s host does between steps and launches: other processes, its NUMA node, Python",
    "compute": "give rank {rank} less work, or look for what slows its device",
    "collective": "look at the collectives before on rank {rank}",
    "input": "give rank {rank} more loader workers, or prefetch its input",
    "unknown": "look at rank {rank}",
}


_EVEN = "have ranks come together: even batches, and hosts with nothing else to do"
# A rank is named that causes so many times as much waiting as its even share.
STANDS_OUT = 1.5


def _waiting(evidence: Evidence) -> Iterator[Advice]:
    cost = evidence.cost
    caused = [row for row in evidence.waiting if row.step is not None and row.caused_ns]
    if cost is None or not caused or cost.exposed_wait_ns <= cost.exposed_transfer_ns:
        return
    by_rank: dict[int, int] = {}
    for row in caused:
        by_rank[row.rank] = by_rank.get(row.rank, 0) + row.caused_ns
    worst = max(by_rank, key=lambda rank: by_rank[rank])
    share = by_rank[worst] / sum(by_rank.values())
    figure = cost.exposed_wait_ns
    dominates = f"waiting dominates: {_share(evidence, figure)} of exposed communication is waiting, and "
    if share * len({row.rank for row in evidence.waiting}) < STANDS_OUT:
        yield Advice(_EVEN, figure, f"{dominates}no rank causes much more of it than the others")
        return
    reasons: dict[str, int] = {}
    for row in caused:
        for reason, ns in row.caused_by.items() if row.rank == worst else ():
            reasons[reason] = reasons.get(reason, 0) + ns
    reason = max(reasons, key=lambda name: reasons[name])
    yield Advice(
        _REMEDY[reason].format(rank=worst),
        figure,
        f"{dominates}{percent(share)} of all waiting is for rank {worst}: {_WHY[reason]}",
    )


def _buffers(evidence: Evidence) -> Iterator[Advice]:
    buffers = [row for row in evidence.layers if row.layer == _BUFFERS]
    if not buffers or evidence.is_data_parallel:
        return
    # Waiting would be there without them, at the next collective.
    moved = evidence.typical(
        (row, max(0, broadcast.exposed_ns - (broadcast.wait_ns or 0))) for row in buffers for broadcast in row.comm
    )
    figure = round(evidence.buffer_copies_ns) + moved
    copied, gaps = "", ""
    if evidence.buffer_copies:
        copied, gaps = f" with {evidence.buffer_copies:.0f} copies", ", the copies and the gaps before them"
    yield Advice(
        "switch off DDP's broadcast of buffers in every forward (broadcast_buffers=False; in torch 2.15 "
        "forward_sync_buffers=False), if replicas may keep running statistics of their own",
        figure,
        f"buffers are broadcast{copied}: {_share(evidence, figure)} in the broadcasts' exposed transfer{gaps}",
    )


def _packing(evidence: Evidence) -> Iterator[Advice]:
    if evidence.cost is None or not evidence.buckets:
        return
    figure = evidence.cost.packing_ns
    yield Advice(
        "copy gradients into buckets in fewer kernels (batched_grad_copy in torch 2.15)",
        figure,
        f"copies of gradients into buckets take {_share(evidence, figure)} in which nothing else computes",
    )


def _copied_out(evidence: Evidence) -> Iterator[Advice]:
    if not evidence.buckets:
        return
    figure = round(evidence.gradient_copies_ns)
    yield Advice(
        "let gradients be views of their buckets (gradient_as_bucket_view=True)",
        figure,
        f"reduced gradients are copied out of buckets by {evidence.gradient_copies:.0f} copies: "
        f"{_share(evidence, figure)}, gaps included",
    )


def _hides_packing(evidence: Evidence) -> Iterator[Advice]:
    figure = evidence.typical(
        (row, part.ns) for row in evidence.buckets for part in row.hidden_by if part.layer == _PACKING
    )
    hidden = evidence.typical((row, row.overlapped_ns) for row in evidence.buckets)
    if figure >= LARGE_PART * hidden > 0:
        yield Advice(
            "expect less of overlap than it shows: a large part hides behind copies into buckets alone",
            figure,
            f"of {duration(hidden)} hidden a step, {duration(figure)} ({percent(figure / hidden)}) are "
            "hidden behind packing alone",
        )


def _no_prefetch(evidence: Evidence) -> Iterator[Advice]:
    gathers = [
        (row, max(0, gathered.exposed_ns - (gathered.wait_ns or 0)), gathered.direction)
        for row in evidence.layers
        for gathered in row.comm
        # Nothing runs yet that could hide the model's own, which comes first.
        if gathered.kind == "all_gather" and gathered.prefetched is False and row.layer != ROOT
    ]
    figure = evidence.typical((row, exposed) for row, exposed, _ in gathers)
    late = [(row.layer, direction) for row, exposed, direction in gathers if exposed]
    modules, passes = {layer for layer, _ in late}, sorted({direction for _, direction in late})
    yield Advice(
        "prefetch parameters (set_modules_to_forward_prefetch, set_modules_to_backward_prefetch)",
        figure,
        f"all-gathers of {len(modules)} modules are asked for only in their module's own turn ({', '.join(passes)}): "
        f"{_share(evidence, figure)} of their transfer is exposed",
    )


def _data_parallel(evidence: Evidence) -> Iterator[Advice]:
    if not evidence.is_data_parallel:
        return
    figure = evidence.typical((row, row.exposed_ns) for row in evidence.layers)
    yield Advice(
        "use DistributedDataParallel instead of nn.DataParallel",
        figure,
        f"parameters and gradients cross the links in every step with nothing to hide them: {_share(evidence, figure)} "
        "exposed on a device",
    )


def _waits_for_input(evidence: Evidence) -> Iterator[Advice]:
    if evidence.input is None:
        return
    longest = evidence.input.longest
    idle_ns, fetch_ns, span_ns = (spread.median or 0 for spread in (longest.idle_ns, longest.fetch_ns, longest.span_ns))
    if not span_ns or idle_ns < LEAST_SHARE * span_ns:
        return
    where = f" on rank {longest.rank}, most of all" if len(evidence.input.by_device) > 1 else ""
    yield Advice(
        "give the loader more workers (num_workers), pinned memory (pin_memory=True) and batches ahead of need "
        "(prefetch_factor)",
        round(idle_ns),
        f"the host is in the DataLoader for {duration(fetch_ns)} a step{where}, and the device idles for "
        f"{duration(idle_ns)} of it ({percent(idle_ns / span_ns)} of a step of the {evidence.input.window} window)",
    )


def _contention(evidence: Evidence) -> Iterator[Advice]:
    cost = evidence.cost
    if cost is None or cost.contention_ns is None:
        return
    how = "an estimate from like kernels" if cost.contention_is_estimate else "against steps without synchronization"
    yield Advice(
        "let NCCL take fewer SMs (NCCL_MAX_CTAS), if its bandwidth allows, and measure again",
        cost.contention_ns,
        f"kernels beside communication take {_share(evidence, cost.contention_ns)} longer than without it ({how})",
    )


_RULES: Iterable[Callable[[Evidence], Iterator[Advice]]] = (
    *(_last_bucket, _queued, _launched_late, _waiting, _buffers, _packing, _copied_out),
    *(_hides_packing, _no_prefetch, _data_parallel, _contention),
)
