"""Steps of ranks kernel by kernel: drawn, simulated, and as a trace would tell them."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from analyzers.intervals import union_of
from analyzers.prediction.replay import BucketPlan, RecordedSteps
from analyzers.rank.device_work import NEVER, waits
from analyzers.rank.gradient_schedule import _DeviceReductions, _of_step, _StepGradients


@dataclass
class Kernel:
    dur_ns: int
    launched_ns: int = NEVER
    gradient: bool = False


@dataclass
class Rank:
    """What one rank runs in a step: kernels of which some make gradients, copies of these, the rest, the next step."""

    kernels: list[Kernel]
    rest: list[Kernel]
    copy_ns: int
    next_ns: int


@dataclass
class Ran:
    """When it ran: starts and ends of kernels, copies and the rest, when gradients were ready, when the step ended."""

    rows: list[tuple[int, int, int, bool]] = field(default_factory=list)
    ready_ns: list[int] = field(default_factory=list)
    now: int = 0

    def run(self, kernel: Kernel, packs: bool = False) -> None:
        start = max(self.now, kernel.launched_ns)
        self.now = start + kernel.dur_ns
        self.rows.append((start, self.now, kernel.launched_ns, packs))


def simulate(
    ranks: list[Rank], last: list[int], transfer_ns: list[int], after_ns: list[int] | None = None
) -> tuple[list[Ran], list[int]]:
    """Each rank's step, and the ends of reductions, which take `after_ns` when no rank computes any longer."""
    ran = [Ran() for _ in ranks]
    for rank, times in zip(ranks, ran, strict=True):
        for kernel in rank.kernels:
            times.run(kernel)
            if kernel.gradient:
                times.ready_ns.append(times.now)
    free = -(10**9)
    ends = []
    computed = max(times.now for times in ran)
    for gradient, took, after in zip(last, transfer_ns, after_ns or transfer_ns, strict=True):
        free = max(free, *(times.ready_ns[gradient] for times in ran))
        left = Fraction(1)
        while left > 0:
            left -= Fraction(1, took if free < computed else after)
            free += 1
        ends.append(free)
    for rank, times in zip(ranks, ran, strict=True):
        first = 0
        for gradient, end in zip(last, ends, strict=True):
            times.now = max(times.now, end)
            for _ in range(first, gradient + 1):
                times.run(Kernel(rank.copy_ns), packs=True)
            first = gradient + 1
        for kernel in rank.rest:
            times.run(kernel)
        times.now = max(times.now, rank.next_ns)
    return ran, ends


def recorded(ranks: list[Rank], ran: list[Ran], ends: list[int]) -> RecordedSteps:
    """The course of a step that was simulated, as a trace would tell it."""
    steps = [_step(rank, times, ends) for rank, times in zip(ranks, ran, strict=True)]
    begins = np.array([[times.rows[0][0]] for times in ran], dtype=np.float64)

    def per_step(name: str) -> np.ndarray:
        return np.array([step[name] for step in steps], dtype=np.float64)

    def per_gradient(name: str) -> np.ndarray:
        return np.array([[step[name]] for step in steps], dtype=np.float64)

    zero = np.zeros_like(begins)
    return RecordedSteps(
        begin_ns=begins - begins.min(),
        span_ns=np.array([[times.now] for times in ran]) - begins,
        buffers_ns=zero,
        packing_ns=zero,
        host_gap_ns=per_step("host_gap_ns"),
        norms=zero,
        work_ns=per_gradient("work_ns"),
        recorded_ns=per_gradient("work_ns"),
        gaps_ns=per_gradient("gaps_ns"),
        host_ns=per_gradient("host_ns"),
        copy_ns=per_gradient("copy_ns"),
        total_ns=per_step("total_ns"),
        total_recorded_ns=per_step("total_ns"),
        total_gaps_ns=per_step("total_gaps_ns"),
        tail_host_ns=per_step("tail_host_ns"),
        slower=0.0,
        covered=1.0,
        start_delay_ns=0.0,
        elements=np.ones(len(ran[0].ready_ns), dtype=np.int64),
        step=np.zeros(1, dtype=np.int64),
        follows=np.zeros(1, dtype=bool),
        own_host_ns=zero,
        input_ns=zero,
    )


def _step(rank: Rank, times: Ran, ends: list[int]) -> dict[str, np.ndarray]:
    start, end, launched, packs = (np.array(column) for column in zip(*times.rows, strict=True))
    start, end = np.r_[start, times.now], np.r_[end, times.now + 1]
    launched = np.r_[launched, rank.next_ns]
    busy = union_of(start, end)
    stalls, host_gaps = waits(busy, start, launched, np.array(ends))
    backward = union_of([times.ready_ns[0]], [times.ready_ns[-1]])
    device = _DeviceReductions(
        start, launched, busy, union_of([], []), stalls - backward, host_gaps, np.r_[packs, False]
    )
    count = len(times.ready_ns)
    taken = _StepGradients(np.array(times.ready_ns), np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64))
    return _of_step(device, (int(start[0]), times.now), taken)


def plan(last: list[int], transfer_ns: list[int], after_ns: list[int] | None = None) -> BucketPlan:
    times, after = (np.array(each, dtype=np.float64) for each in (transfer_ns, after_ns or transfer_ns))
    return BucketPlan(np.array(last), times, after, np.zeros(len(last) + 1), np.zeros((1, 1)))


@st.composite
def ranks_of(draw, gradients):
    """Ranks that run so many gradients each, with kernels between them, some launched late."""
    times = st.integers(1, 50)
    kernels, now = [], 0
    for _ in range(gradients):
        for made in [*draw(st.lists(st.just(False), max_size=2)), True]:
            now += draw(st.integers(0, 60)) if draw(st.booleans()) else 0
            late = now if draw(st.integers(0, 3)) == 0 else NEVER
            kernels.append(Kernel(draw(times), late, made))
    kernels[0].launched_ns = draw(st.integers(0, 20))
    rest = [Kernel(draw(times), draw(st.sampled_from([NEVER, 200, 500]))) for _ in range(draw(st.integers(1, 3)))]
    return Rank(kernels, rest, draw(st.integers(1, 9)), draw(st.sampled_from([0, 300, 900])))


def chain(steps: list[list[Rank]], last: list[int], transfer_ns: list[int]) -> tuple[RecordedSteps, np.ndarray]:
    """Steps as recorded, each begun on every rank where the one before it ended, and how long each took."""
    begins, parts, spans = [0] * len(steps[0]), [], []
    for ranks in steps:
        begun = [_later(rank, by) for rank, by in zip(ranks, begins, strict=True)]
        ran, ends = simulate(begun, last, transfer_ns)
        parts.append(recorded(begun, ran, ends))
        spans.append([times.now - times.rows[0][0] for times in ran])
        begins = [times.now - min(each.now for each in ran) for times in ran]
    columns = {
        name: np.concatenate([vars(part)[name] for part in parts], axis=1)
        for name, value in vars(parts[0]).items()
        if isinstance(value, np.ndarray) and value.ndim > 1
    }
    count = len(steps)
    follows = np.arange(count) > 0
    return replace(parts[0], **columns, follows=follows, step=np.arange(count)), np.array(spans).T


def _later(rank: Rank, by: int) -> Rank:
    """The same rank in a step that begins later, its launches with it."""

    def moved(kernel: Kernel) -> Kernel:
        return kernel if kernel.launched_ns == NEVER else replace(kernel, launched_ns=kernel.launched_ns + by)

    first, *others = map(moved, rank.kernels)
    kernels = [replace(first, launched_ns=max(first.launched_ns, by)), *others]
    return replace(rank, kernels=kernels, rest=list(map(moved, rank.rest)), next_ns=rank.next_ns and rank.next_ns + by)
