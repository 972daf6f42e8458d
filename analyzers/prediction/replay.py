"""Replay of all ranks' steps with other buckets and links.

    compute      fffff ggg1 ggg2 gg3 . 12 . 3 oo       12, 3: reduced gradients copied out of their buckets
    all_reduce             aaaa bbbbbbbbb              a: gradient 1, b: gradients 2 and 3
                          ^ ready, launched, the stream free, and so on every rank

Beside communication compute is slower. A kernel that its host launched late is as late as it was.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import Float64, Int64, Mask
from analyzers.rank import GradientSchedule, ShardedSchedule


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """The same steps of all ranks, in ns: arrays of ranks x steps, and of ranks x steps x gradients.

    `begin_ns` is when each step begins, from the first rank's on; the rest is as in `analyzers.rank`. `slower` is how
    much longer compute takes beside communication, which is taken out of `work_ns` and `total_ns`, and left in
    `recorded_ns` and `total_recorded_ns`, which host times go with; `gaps_ns` and `total_gaps_ns` of these are gaps
    between kernels. `packing_launch_ns` is what launching each of a gradient's copies takes a host that launched none
    in the recording, `covered` the share of work beside communication that is kernels that compute (the rest is gaps
    and copies).

    `follows` says which steps begin where the one before them in these arrays ended. `own_host_ns` is what a step takes
    its host, waits for the device left out, `input_ns` how long the device waits for input; 0 where nothing tells.
    `passes` is of how many microbatches a step accumulates gradients.
    """

    begin_ns: Float64
    span_ns: Float64
    buffers_ns: Float64
    packing_ns: Float64
    host_gap_ns: Float64
    norms: Float64
    work_ns: Float64
    recorded_ns: Float64
    gaps_ns: Float64
    host_ns: Float64
    copy_ns: Float64
    total_ns: Float64
    total_recorded_ns: Float64
    total_gaps_ns: Float64
    tail_host_ns: Float64
    slower: float
    covered: float
    start_delay_ns: float
    elements: Int64
    step: Int64
    follows: Mask
    own_host_ns: Float64
    input_ns: Float64
    passes: int = 1
    packing_launch_ns: float = 0.0

    @property
    def gradients(self) -> int:
        """Count the gradients that a step takes."""
        return len(self.elements)

    @property
    def alone_ns(self) -> Float64:
        """Return how long the steps would take without synchronization, and nothing else changed."""
        launches = np.r_[np.arange(1, self.gradients + 1), 2 * self.gradients]
        late_ns = np.concatenate([self.host_ns, self.tail_host_ns[..., np.newaxis]], axis=-1)
        host_ns = (late_ns - launches * self.packing_launch_ns).max(axis=-1) + self.total_recorded_ns
        alone_ns: Float64 = np.maximum(self.total_ns - self.packing_ns, host_ns)
        return alone_ns

    @property
    def microbatch_ns(self) -> Float64:
        """Return what forward and backward of one microbatch take, without synchronization: ranks x steps.

        Copies into buckets stay in it: gradients that are accumulated are added instead, as many and as large.
        """
        work_ns = self.work_ns[..., -1]
        # When the last gradient is ready, for what was launched late before each.
        late_ns = (self.host_ns + self.recorded_ns - self.work_ns).max(axis=-1) + work_ns
        each_ns: Float64 = np.maximum(work_ns, late_ns) / self.passes
        return each_ns

    def without_copies_out(self) -> RecordedSteps:
        """Return the same with gradients that are views of their buckets: hosts come to launches as they did.

        Launches that were added for copies out are not there.
        """
        copies_ns = self.copy_ns.sum(axis=-1)
        return replace(
            self,
            copy_ns=np.zeros_like(self.copy_ns),
            total_ns=self.total_ns - copies_ns,
            packing_ns=self.packing_ns - copies_ns,
            tail_host_ns=self.tail_host_ns - self.gradients * self.packing_launch_ns,
        )

    def hurried(self, left: float) -> RecordedSteps:
        """Return the same with hosts that take so much of the time that they took to come to each launch.

        Waits for input, the last of a step's, stay as they are.
        """

        def sooner(late_ns: Float64, done_ns: Float64) -> Float64:
            come_ns = late_ns + done_ns
            return np.asarray(np.where(come_ns > 0, left * np.maximum(come_ns, 0), come_ns) - done_ns, np.float64)

        return replace(
            self,
            host_ns=sooner(self.host_ns, self.done_ns),
            tail_host_ns=sooner(self.tail_host_ns, self.recorded_ns[..., -1] - self.input_ns),
            own_host_ns=left * self.own_host_ns + (1 - left) * np.minimum(self.input_ns, self.own_host_ns),
            packing_launch_ns=left * self.packing_launch_ns,
        )

    def without_gaps(self) -> RecordedSteps:
        """Return the same with kernels that follow one another at once, as those of a CUDA graph nearly do."""

        def parts(so_far: Float64, total: Float64) -> Float64:
            each: Float64 = np.diff(np.concatenate([so_far, total[..., np.newaxis]], axis=-1), prepend=0)
            return each

        work_ns, recorded_ns = parts(self.work_ns, self.total_ns), parts(self.recorded_ns, self.total_recorded_ns)
        gaps_ns = parts(self.gaps_ns, self.total_gaps_ns)
        # What lies beside communication is less long without it, gaps too.
        shorter = np.minimum(work_ns / np.maximum(recorded_ns, 1), 1)
        left_ns = np.cumsum(work_ns - gaps_ns * shorter, axis=-1)
        recorded_left_ns = np.cumsum(recorded_ns - gaps_ns, axis=-1)
        return replace(
            self,
            work_ns=left_ns[..., :-1],
            total_ns=left_ns[..., -1],
            recorded_ns=recorded_left_ns[..., :-1],
            total_recorded_ns=recorded_left_ns[..., -1],
            gaps_ns=np.zeros_like(self.gaps_ns),
            total_gaps_ns=np.zeros_like(self.total_gaps_ns),
        )

    def with_timed_hosts(self, step_ns: Float64) -> RecordedSteps:
        """Return the same with hosts that take so long for a step, and are ahead of their devices within it."""
        return replace(
            self,
            host_ns=np.full_like(self.host_ns, -np.inf),
            tail_host_ns=np.full_like(self.tail_host_ns, -np.inf),
            own_host_ns=np.broadcast_to(step_ns[:, np.newaxis], self.own_host_ns.shape).astype(np.float64),
        )

    @property
    def done_ns(self) -> Float64:
        """Return how much work was done at the gradient before each, as recorded."""
        before: Float64 = np.roll(self.recorded_ns, 1, axis=-1)
        before[..., 0] = 0
        return before

    @property
    def host_share(self) -> float:
        """Return how much of a step the device waits for launches, the median over ranks and steps."""
        return float(np.median(self.host_gap_ns / self.span_ns))

    def packed(self, in_ns: Float64, out_ns: Float64, launch_ns: float) -> RecordedSteps:
        """Return the same with copies of gradients into and out of buckets, so long each, where there were none.

        `launch_ns` is what each copy takes the host.
        """
        so_far = np.cumsum(in_ns)
        launches = np.arange(1, self.gradients + 1)
        added = float(so_far[-1] + out_ns.sum())
        return replace(
            self,
            work_ns=self.work_ns + so_far,
            host_ns=self.host_ns + launches * launch_ns,
            tail_host_ns=self.tail_host_ns + 2 * self.gradients * launch_ns,
            packing_launch_ns=launch_ns,
            own_host_ns=self.own_host_ns + 2 * self.gradients * launch_ns * (self.own_host_ns > 0),
            copy_ns=self.copy_ns + out_ns,
            total_ns=self.total_ns + added,
            packing_ns=self.packing_ns + added,
        )


@dataclass(frozen=True, eq=False)
class BucketPlan:
    """Buckets as they follow one another: the last gradient of each, and how long its reduction takes beside compute.

    `after_ns` is what it takes when compute has ended on all ranks. `call_ns` is how much later than recorded the host
    comes to each bucket's last gradient, and to what follows them all, for calls that it did not make then. `head_ns`
    is added before the first gradient, in arrays of ranks x steps; `next_delay_ns` lies between a reduction's transfer
    and the next one's that stood behind it.
    """

    last: Int64
    transfer_ns: Float64
    after_ns: Float64
    call_ns: Float64
    head_ns: Float64
    next_delay_ns: float = 0.0


@dataclass(frozen=True, eq=False)
class Played:
    """What came out, arrays of ranks x steps: how long each step takes, how long compute waits for communication.

    `exposed_ns` is reductions beside no kernel that computes, waiting for other ranks included.
    """

    span_ns: Float64
    stalled_ns: Float64
    exposed_ns: Float64


def recorded_steps(
    schedules: Sequence[GradientSchedule],
    shift_ns: Sequence[int],
    slower: float,
    typical: Container[int],
    with_long_gaps: bool = True,
) -> RecordedSteps | None:
    """Return the steps that all ranks have with as many gradients as most; None where there are none.

    They are the typical ones, where any is. `shift_ns` is what each rank's clock is ahead. Without long gaps, these are
    hosts' that nothing else tells of.
    """
    shared = _shared(schedules, typical)
    if shared is None:
        return None
    count, steps = shared
    gradients = [
        schedule.first[rows][:, np.newaxis] + np.arange(count) for schedule, rows in zip(schedules, steps, strict=True)
    ]

    def per_step(name: str) -> Float64:
        return _columns(name, schedules, steps)

    def per_gradient(name: str) -> Float64:
        return _columns(name, schedules, gradients)

    begin_ns, follows = begins_of(schedules, steps, shift_ns)
    lost = slower / (1 + slower)  # of the time beside communication
    long_ns = 0 if with_long_gaps else per_gradient("long_gaps_ns")
    total_long_ns = 0 if with_long_gaps else per_step("total_long_gaps_ns")
    first = schedules[0].first[steps[0][0]]
    return RecordedSteps(
        begin_ns=begin_ns,
        span_ns=per_step("span_ns"),
        buffers_ns=per_step("buffers_ns"),
        packing_ns=per_step("packing_ns"),
        host_gap_ns=per_step("host_gap_ns"),
        norms=per_step("norms"),
        work_ns=per_gradient("work_ns") - long_ns - lost * per_gradient("beside_ns"),
        recorded_ns=per_gradient("work_ns") - long_ns,
        gaps_ns=per_gradient("gaps_ns") - long_ns,
        host_ns=per_gradient("host_ns"),
        copy_ns=per_gradient("copy_ns"),
        total_ns=per_step("total_ns") - total_long_ns - lost * per_step("total_beside_ns"),
        total_recorded_ns=per_step("total_ns") - total_long_ns,
        total_gaps_ns=per_step("total_gaps_ns") - total_long_ns,
        tail_host_ns=per_step("tail_host_ns"),
        slower=slower,
        covered=_covered(schedules),
        start_delay_ns=float(np.median([schedule.delays.begin_ns for schedule in schedules])),
        elements=schedules[0].elements[first : first + count],
        step=schedules[0].step[steps[0]],
        follows=follows,
        own_host_ns=np.zeros(begin_ns.shape),
        input_ns=np.zeros(begin_ns.shape),
        passes=round(float(np.median(per_step("passes")))),
    )


def begins_of(
    schedules: Sequence[GradientSchedule | ShardedSchedule],
    rows: Sequence[Int64 | list[int]],
    shift_ns: Sequence[int],
) -> tuple[Float64, Mask]:
    """Return when each rank's steps begin, from the first rank's on; and which begin where the one before ended.

    `rows` are each rank's steps, `shift_ns` what its clock is ahead.
    """
    # Epoch times are too large for floats.
    start_ns = np.array([schedule.start_ns[own] for schedule, own in zip(schedules, rows, strict=True)])
    span_ns = np.array([schedule.span_ns[own] for schedule, own in zip(schedules, rows, strict=True)])
    begin_ns = start_ns - np.array(shift_ns)[:, np.newaxis]
    follows = np.r_[False, (start_ns[:, 1:] == (start_ns + span_ns)[:, :-1]).all(axis=0)]
    return (begin_ns - begin_ns.min(axis=0)).astype(np.float64), follows


def _columns(name: str, schedules: Sequence[GradientSchedule], rows: Sequence[Int64]) -> Float64:
    """Return a column of each rank's schedule at that rank's rows."""
    return np.array([getattr(schedule, name)[own] for schedule, own in zip(schedules, rows, strict=True)], np.float64)


def _shared(schedules: Sequence[GradientSchedule], typical: Container[int]) -> tuple[int, list[Int64]] | None:
    """Return how many gradients most steps take, and each rank's rows for such (typical) steps that all ranks have."""
    counts = np.concatenate([np.diff(schedule.first) for schedule in schedules])
    if not len(counts):
        return None
    count = int(np.bincount(counts).argmax())
    rows_by_step = [
        dict(zip(schedule.step[has_count].tolist(), np.flatnonzero(has_count).tolist(), strict=True))
        for schedule in schedules
        for has_count in [np.diff(schedule.first) == count]
    ]
    steps = sorted(set.intersection(*map(set, rows_by_step)))
    steps = [step for step in steps if step in typical] or steps
    return (count, [np.array([row_of[step] for step in steps]) for row_of in rows_by_step]) if steps else None


def _covered(schedules: Sequence[GradientSchedule]) -> float:
    beside_ns = sum(int(schedule.total_beside_ns.sum()) for schedule in schedules)
    return min(sum(int(schedule.overlapped_ns.sum()) for schedule in schedules) / beside_ns, 1.0) if beside_ns else 1.0


def play(steps: RecordedSteps, plan: BucketPlan) -> Played:
    """Play the steps under a plan."""
    now = steps.begin_ns + plan.head_ns
    free = np.full_like(now, -np.inf)  # when the communication stream is
    lost = steps.slower / (1 + steps.slower)
    done = np.zeros_like(now)
    hidden = np.zeros_like(now)
    gap = np.zeros_like(now)  # of the time until `free`, what lies before reductions begin
    ready: list[Float64] = []
    bounds = np.r_[-1, plan.last]
    for bucket, last in enumerate(plan.last.tolist()):
        work = steps.work_ns[..., last] - done
        # Beside the reductions so far, of which one follows another until `free`.
        beside = np.clip(free - now, 0, work * (1 + steps.slower))
        host = steps.host_ns[..., bounds[bucket] + 1 : last + 1].max(axis=-1) + plan.call_ns[bucket]
        now = np.maximum(now + work + lost * beside, steps.begin_ns + host + steps.recorded_ns[..., last])
        done = steps.work_ns[..., last]
        hidden += np.maximum(beside - gap, 0)
        gap = np.where(now < free, np.maximum(gap - beside, 0), 0)
        begin = np.maximum(now + steps.start_delay_ns, free + plan.next_delay_ns)
        gap += begin - np.maximum(now, free)
        free = np.broadcast_to(begin.max(axis=0) + plan.transfer_ns[bucket], now.shape)
        ready.append(now + steps.start_delay_ns)
    stalled = np.zeros_like(now)
    ended, reducing = _reduced(plan, ready, computed_ns=now.max(axis=0))
    copied = np.add.reduceat(steps.copy_ns, bounds[:-1] + 1, axis=-1)
    for bucket, end in enumerate(ended):
        stalled += np.clip(end - now, 0, None)
        now = np.maximum(now, end) + copied[..., bucket]
    rest = steps.total_ns - done - copied.sum(axis=-1)
    host = steps.begin_ns + steps.tail_host_ns + steps.total_recorded_ns + plan.call_ns[-1]
    now = np.maximum(now + rest, host)
    return Played(now - steps.begin_ns, stalled, reducing - steps.covered * hidden)


def _reduced(plan: BucketPlan, ready: Sequence[Float64], computed_ns: Float64) -> tuple[list[Float64], Float64]:
    """Return when each reduction ends, and how long they take together, for compute that ends on the last rank then.

    `ready` is when each rank could begin each reduction, were its stream free.
    """
    free = np.full_like(ready[0], -np.inf)
    reducing = np.zeros_like(free)
    ended = []
    for can_begin, transfer_ns, after_ns in zip(ready, plan.transfer_ns, plan.after_ns, strict=True):
        begin = np.maximum(can_begin, free + plan.next_delay_ns)
        everywhere = begin.max(axis=0)
        end = everywhere + transfer_ns
        left = np.maximum(end - np.maximum(everywhere, computed_ns), 0)
        saved = left * (1 - after_ns / transfer_ns) if transfer_ns else 0
        free = np.broadcast_to(end - saved, begin.shape)
        reducing += free - begin
        ended.append(free)
    return ended, reducing
