"""Calibration of links: nccl-tests' measurement through torch.distributed.

`python -m tracer.workload calibrate CONFIG FOLDER` runs it as one rank.

`measure` runs over the default process group, in every rank at once, wherever there is one.
"""

from __future__ import annotations

import platform
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isqrt, log
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from analyzers.run import LINKS, CalibratedLinks, Calibration, CalibrationRow, calibration_row, to_json
from analyzers.units import binary_size
from tracer.config import CalibrateConfig, CalibrationPlan, Collective
from tracer.errors import TracerError
from tracer.recording import (
    WORK,
    LinkMember,
    Progress,
    leave_notes,
    link_of,
    nccl_logs,
    pick_device,
    progress_of,
    refusing,
)

# A row's timed iterations take about so long altogether, but are never fewer nor more than these.
BUDGET_NS = 50_000_000
FEWEST, MOST = 5, 1000
PROBES = 3
BLOCKS = 3
# Iterations that one launch of a CUDA graph runs.
GRAPHED = 10
# Before the first row: clocks rise, and a profiler that has just ended lets go.
SETTLING = 50
# The curve bends at a row this far from the line between its neighbours, as a share: NCCL changes its protocol or
# algorithm there, or a cache is too small. Sizes around it are measured too, the worst bends first, so many at most.
BEND, BETWEEN = 0.1, 6
# The values that are sent repeat after a prime number of elements: a shard in a wrong place shows.
PERIOD = 251
# Whole numbers up to this are exact in bfloat16, sums of all ranks' values too.
EXACT_UP_TO = 256


@dataclass(frozen=True)
class DefaultGroup:
    """The default process group, as one of its ranks sees it."""

    rank: int
    size: int
    device: torch.device

    def mark(self) -> None:
        """The least work there is on this rank's device."""
        torch.empty(1, device=self.device).zero_()


@dataclass(frozen=True)
class Buffers:
    """Memory for the largest message, once to send from and once to receive into."""

    send: Tensor
    receive: Tensor


@dataclass(frozen=True)
class ExpectedPart:
    """A stretch of the result, and the values that belong there: a period of them, from its `start` on."""

    values: Tensor
    period: Tensor
    start: int = 0


@dataclass(frozen=True)
class TimedCollective:
    """One collective at one size: how it runs, from what, and what must have come out of it on this rank."""

    nbytes: int
    group_size: int
    source: Tensor
    result: Tensor
    run: Callable[[], object]
    expected: tuple[ExpectedPart, ...]


@dataclass(frozen=True)
class Measurement:
    """Rows, and a line for each collective that this backend lacks."""

    rows: list[CalibrationRow]
    notes: list[str]


def measure(plan: CalibrationPlan, device: torch.device, progress: Progress) -> Measurement:
    """Time every collective of the plan at every size, over the default process group.

    Every rank calls this at the same time, gets the same rows, and raises the same TracerError: for too little memory,
    or for a collective that gave a wrong result.
    """
    group = DefaultGroup(dist.get_rank(), dist.get_world_size(), device)
    buffers = _buffers(plan, group)
    for _ in range(SETTLING):
        dist.all_reduce(buffers.send[:1])
    rows: list[CalibrationRow] = []
    notes: list[str] = []
    for index, collective in enumerate(plan.collectives):
        prepare = partial(OPERATIONS[collective], buffers=buffers, group=group)
        lacking = _lacking(prepare(plan.min_bytes), group)
        if lacking is not None:
            notes.append(f"{collective} is left out: {dist.get_backend()} of torch {torch.__version__} says {lacking}")
            continue
        # Sizes that a group cannot share evenly are rounded, and may then be the same.
        operations = {operation.nbytes: operation for operation in map(prepare, plan.sizes)}
        measured: list[CalibrationRow] = []
        for number, operation in enumerate(operations.values()):
            progress(collective, index * len(plan.sizes) + number, len(plan.collectives) * len(plan.sizes))
            measured.append(_row(collective, operation, group))
        between = {operation.nbytes: operation for operation in map(prepare, between_bends(measured))}
        measured += [_row(collective, between[nbytes], group) for nbytes in sorted(between.keys() - operations.keys())]
        rows += sorted(measured, key=lambda row: row.bytes)
    return Measurement(rows, notes)


def _row(collective: Collective, operation: TimedCollective, group: DefaultGroup) -> CalibrationRow:
    _check(collective, operation, group)
    dtype = str(operation.source.dtype).removeprefix("torch.")
    return calibration_row(collective, operation.group_size, dtype, operation.nbytes, _time_ns(operation, group))


def between_bends(rows: Sequence[CalibrationRow]) -> list[int]:
    """Return sizes to measure too, in bytes: the geometric means on both sides of rows at which the curve bends most.

    `rows` are of one collective, by size; time is a power of size between them, as in a TimingCurve. Sizes are
    multiples of the smallest: NCCL takes longer for odd ones.
    """
    bends: list[tuple[float, CalibrationRow, CalibrationRow, CalibrationRow]] = []
    for low, row, high in zip(rows, rows[1:], rows[2:], strict=False):
        power = log(high.time_ns / low.time_ns) / log(high.bytes / low.bytes)
        expected_ns = low.time_ns * (row.bytes / low.bytes) ** power
        bends.append((abs(log(row.time_ns / expected_ns)), low, row, high))
    most = sorted((bend for bend in bends if bend[0] > BEND), key=lambda bend: bend[0], reverse=True)
    means = (isqrt(side.bytes * row.bytes) for _, low, row, high in most for side in (low, high))
    sizes = dict.fromkeys(mean // rows[0].bytes * rows[0].bytes for mean in means)
    return sorted(islice((size for size in sizes if size not in {row.bytes for row in rows}), BETWEEN))


def write_links(measurement: Measurement, folder: Path, output: Path, device: torch.device) -> None:
    """Leave the calibration in a file, if there is one. Every rank calls this; rank 0 writes."""
    members: list[LinkMember | None] = [None] * dist.get_world_size()
    dist.all_gather_object(members, _member(device))
    if dist.get_rank() != 0 or not measurement.rows:
        return
    present = [member for member in members if member is not None]
    backend = dist.get_backend()
    link = link_of(backend, present, nccl_logs(folder / WORK))
    devices = [member.device for member in present]
    links = CalibratedLinks(devices, backend, link.transport, link.limit_gbps, link.source)
    output.write_text(to_json(Calibration(links=links, rows=measurement.rows)) + "\n", encoding="utf-8")


def _member(device: torch.device) -> LinkMember:
    if device.type == "cpu":
        return LinkMember(socket.gethostname(), platform.processor() or platform.machine(), None)
    properties = torch.cuda.get_device_properties(device)
    return LinkMember(socket.gethostname(), properties.name, str(properties.uuid))


def _buffers(plan: CalibrationPlan, group: DefaultGroup) -> Buffers:
    """Raises TracerError on every rank where one has too little memory."""
    dtype = getattr(torch, plan.dtype)
    elements = max(plan.sizes[-1] // dtype.itemsize, 1) + group.size
    send = receive = torch.empty(0)
    try:
        # The check of a result takes a byte an element beside these two.
        send, receive, _ = (
            *(torch.empty(elements, dtype=dtype, device=group.device) for _ in range(2)),
            torch.empty(elements, dtype=torch.bool, device=group.device),
        )
        failed = -1
    except RuntimeError:
        failed = group.rank
    failed = _greatest(failed, group)
    if failed >= 0:
        largest = binary_size(plan.sizes[-1])
        raise TracerError(
            f"rank {failed} has too little free memory for messages of {largest}; `tracer calibrate --max` takes less"
        )
    return Buffers(send, receive)


def _greatest(value: int, group: DefaultGroup) -> int:
    """The greatest of all ranks' values: how they come to agree."""
    tensor = torch.tensor([value], dtype=torch.int64, device=group.device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor.item())


def _period(rank: int, group: DefaultGroup, dtype: torch.dtype) -> Tensor:
    """What a rank sends, for one period: whole numbers so small that the sum over all ranks is exact in any dtype."""
    modulus = max(min(EXACT_UP_TO // group.size, 127), 2)
    values = (torch.arange(PERIOD, device=group.device) * 7 + rank) % modulus
    return values.to(dtype)


def _sum(group: DefaultGroup, dtype: torch.dtype) -> Tensor:
    return torch.stack([_period(rank, group, dtype) for rank in range(group.size)]).sum(dim=0).to(dtype)


def _all_reduce(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    data = buffers.send[: max(nbytes // buffers.send.itemsize, 1)]
    expected = (ExpectedPart(data, _sum(group, data.dtype)),)
    return TimedCollective(data.nbytes, group.size, data, data, partial(dist.all_reduce, data), expected)


def _broadcast(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    data = buffers.send[: max(nbytes // buffers.send.itemsize, 1)]
    expected = (ExpectedPart(data, _period(0, group, data.dtype)),)
    return TimedCollective(data.nbytes, group.size, data, data, partial(dist.broadcast, data, 0), expected)


def _all_gather(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    share = _share(nbytes, buffers, group)
    source, result = buffers.send[:share], buffers.receive[: share * group.size]
    expected = tuple(
        ExpectedPart(part, _period(rank, group, part.dtype)) for rank, part in enumerate(result.view(group.size, share))
    )
    run = partial(_named("all_gather_single", "all_gather_into_tensor"), result, source)
    return TimedCollective(result.nbytes, group.size, source, result, run, expected)


def _reduce_scatter(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    share = _share(nbytes, buffers, group)
    source, result = buffers.send[: share * group.size], buffers.receive[:share]
    expected = (ExpectedPart(result, _sum(group, result.dtype), share * group.rank),)
    run = partial(dist.reduce_scatter_tensor, result, source)
    return TimedCollective(source.nbytes, group.size, source, result, run, expected)


def _all_to_all(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    share = _share(nbytes, buffers, group)
    source, result = buffers.send[: share * group.size], buffers.receive[: share * group.size]
    expected = tuple(
        ExpectedPart(part, _period(rank, group, part.dtype), share * group.rank)
        for rank, part in enumerate(result.view(group.size, share))
    )
    run = partial(dist.all_to_all_single, result, source)
    return TimedCollective(source.nbytes, group.size, source, result, run, expected)


def _send_recv(nbytes: int, buffers: Buffers, group: DefaultGroup) -> TimedCollective:
    """One message after another from rank 0 to rank 1; the others look on.

    nccl-tests sends around a ring of all ranks, so that every link carries two messages at once; a pipeline's or a
    checkpoint's message has its link to itself.
    """
    elements = max(nbytes // buffers.send.itemsize, 1)
    source, result = buffers.send[:elements], buffers.receive[:elements]
    if group.rank == 0:
        return TimedCollective(source.nbytes, 2, source, result, partial(_batched, dist.isend, source, 1), ())
    expected = (ExpectedPart(result, _period(0, group, result.dtype)),)
    if group.rank == 1:
        return TimedCollective(source.nbytes, 2, source, result, partial(_batched, dist.irecv, result, 0), expected)
    return TimedCollective(source.nbytes, 2, source, result, lambda: None, ())


def _batched(how: Callable[..., dist.Work | None], data: Tensor, peer: int) -> None:
    # Unbatched, NCCL would make a communicator of the two ranks, with channels of its own.
    for work in dist.batch_isend_irecv([dist.P2POp(how, data, peer)]):
        work.wait()


OPERATIONS: dict[Collective, Callable[..., TimedCollective]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}


def _share(nbytes: int, buffers: Buffers, group: DefaultGroup) -> int:
    """Elements of each rank, where a message is shared out evenly."""
    return max(nbytes // (buffers.send.itemsize * group.size), 1)


def _named(new: str, old: str) -> Callable[..., object]:
    """Return torch's collective by its newer name where it has that, since the older one is deprecated there."""
    collective: Callable[..., object] = getattr(dist, new, None) or getattr(dist, old)
    return collective


def _lacking(operation: TimedCollective, group: DefaultGroup) -> str | None:
    """Why this backend cannot do it, in its words; null where it can. It refuses before anything is sent."""
    try:
        operation.run()
        why = None
    except (RuntimeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
    if _greatest(int(why is not None), group):
        return why or "on another rank that it cannot"
    return None


def _check(collective: str, operation: TimedCollective, group: DefaultGroup) -> None:
    """Run it once over values that are known, and raise TracerError, on every rank, where others come out."""
    operation.result.fill_(-1)
    _fill(operation.source, _period(group.rank, group, operation.source.dtype))
    operation.run()
    wrong = _greatest(-1 if all(map(_holds, operation.expected)) else group.rank, group)
    if wrong >= 0:
        size = binary_size(operation.nbytes)
        raise TracerError(f"{collective} of {size} gave a wrong result on rank {wrong}; these links cannot be trusted")


def _fill(data: Tensor, period: Tensor) -> None:
    whole = len(data) // PERIOD * PERIOD
    data[:whole].view(-1, PERIOD).copy_(period)
    data[whole:].copy_(period[: len(data) - whole])


def _holds(part: ExpectedPart) -> bool:
    period = part.period.roll(-(part.start % PERIOD))
    whole = len(part.values) // PERIOD * PERIOD
    head, tail = part.values[:whole].view(-1, PERIOD), part.values[whole:]
    return bool((head == period).all()) and bool((tail == period[: len(tail)]).all())


def _time_ns(operation: TimedCollective, group: DefaultGroup) -> int:
    """The mean time of an iteration, back to back, on the slowest rank: the median of some such blocks.

    A host that stalls for a moment spoils one block, and says nothing of the links.
    """
    probe_ns = _block_ns(operation.run, group, PROBES) / PROBES
    iterations = min(max(int(BUDGET_NS / BLOCKS / probe_ns), FEWEST), MOST)
    with _launched_at_once(operation, group) as (run, per_run):
        rounds = -(-iterations // per_run)
        blocks = [_block_ns(run, group, rounds) / (rounds * per_run) for _ in range(BLOCKS)]
    return max(round(statistics.median(blocks)), 1)


@contextmanager
def _launched_at_once(operation: TimedCollective, group: DefaultGroup) -> Iterator[tuple[Callable[[], object], int]]:
    """A call that runs many iterations, and how many: a CUDA graph of them, where all ranks can record one.

    One by one, messages below some MB take the host longer to launch than the links to carry (nccl-tests' -G).
    """
    if group.device.type != "cuda":
        yield operation.run, 1
        return
    graph = torch.cuda.CUDAGraph()
    try:
        # Only this thread is held to what may be captured: the process group's watchdog has one of its own.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(GRAPHED):
                operation.run()
            group.mark()  # a rank that only looks on captures something, too
        failed = 0
    except RuntimeError:
        failed = 1
    if _greatest(failed, group):
        yield operation.run, 1
        return
    graph.replay()
    yield graph.replay, GRAPHED
    _synchronize(group.device)
    graph.reset()  # NCCL keeps a communicator alive for as long as a graph has its kernels


def _block_ns(run: Callable[[], object], group: DefaultGroup, iterations: int) -> int:
    # The host's clock around a synchronized block, as nccl-tests: the one synchronization is shared by all iterations.
    # The slowest rank's time, since a collective is done when its last member is (nccl-tests' `-a 3`; its default is
    # the mean over ranks, which counts a sender that is done early).
    _greatest(0, group)  # ranks begin together
    _synchronize(group.device)
    start_ns = time.perf_counter_ns()
    for _ in range(iterations):
        run()
    _synchronize(group.device)
    return max(_greatest(time.perf_counter_ns() - start_ns, group), 1)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(config: CalibrateConfig, folder: Path) -> None:
    """One rank of `tracer calibrate`."""
    device = pick_device(config.device)
    dist.init_process_group(config.backend)
    rank = dist.get_rank()
    with refusing(rank, folder):
        measurement = measure(config.plan, device, progress_of(rank, folder))
    write_links(measurement, folder, folder / LINKS, device)
    if rank == 0:
        leave_notes(folder, measurement.notes)
    dist.destroy_process_group()
