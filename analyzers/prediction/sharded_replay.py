"""Replay of all ranks' steps under FSDP2 with other settings.

    compute         oo fffff   oo fffff   ..   oo bbbbbb ii   oo bbbbbb ii    oooo
    all_gather   aa         aa                     aaa                        ^ all that was reduced is there
    reduce_scatter                                          rrr            rrr

An all-gather waits for its launch, for those before it, and for what its memory held to be copied out: in the forward
that of two modules before, in the backward that of the module before it. Gradients are copied in once the
reduce-scatter before is done. One communicator does one thing after another, in the order of the host.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import Float64, Int64, Mask
from analyzers.prediction.replay import Played, begins_of
from analyzers.rank import Op, ShardedSchedule

# What is beside what depends on when it is, and that on what is beside it.
PASSES = 4
NEVER = -np.inf


@dataclass(frozen=True, eq=False)
class ShardedSteps:
    """The same steps of all ranks, in ns: arrays of ranks x steps, and of ranks x steps x ops.

    `op`, `module`, `backward` and `nbytes` (of collectives, else 0) are the same in all. `work_ns` is compute's work
    since the op before, `limit_ns` the earliest that compute comes to the op for what was launched late, `launched_ns`
    when the op was, both from the step's begin; `own_ns` as in `analyzers.rank`. `slower` is how much longer compute
    takes beside communication, which is taken out of all work. `spent` is what an op takes the host, as a share of the
    host's step. `follows`, `own_host_ns` and `input_ns` are as in
    `analyzers.prediction.replay`.
    """

    op: Int64
    module: Int64
    backward: Mask
    nbytes: Float64
    begin_ns: Float64
    span_ns: Float64
    work_ns: Float64
    limit_ns: Float64
    launched_ns: Float64
    own_ns: Float64
    spent: Float64
    tail_ns: Float64
    tail_limit_ns: Float64
    slower: float
    step: Int64
    follows: Mask
    own_host_ns: Float64
    input_ns: Float64

    @property
    def alone_ns(self) -> Float64:
        """Return how long the steps' compute takes with nothing to wait for but launches."""
        parts_ns = np.concatenate([self.work_ns, self.tail_ns[..., np.newaxis]], axis=-1)
        limits_ns = np.concatenate([self.limit_ns, self.tail_limit_ns[..., np.newaxis]], axis=-1)
        # What is left to do when compute comes to each op, and at the end.
        left_ns = np.cumsum(parts_ns[..., ::-1], axis=-1)[..., ::-1] - parts_ns
        alone_ns: Float64 = np.maximum(parts_ns.sum(axis=-1), (limits_ns + left_ns).max(axis=-1))
        return alone_ns

    def hurried(self, left: float) -> ShardedSteps:
        """Return the same with hosts that take so much of the time that they took to come to each launch.

        Waits for input, the last of a step's, stay as they are.
        """

        def sooner(come_ns: Float64) -> Float64:
            return np.where(come_ns > 0, left * np.maximum(come_ns, 0), come_ns)

        return replace(
            self,
            limit_ns=sooner(self.limit_ns),
            launched_ns=sooner(self.launched_ns),
            tail_limit_ns=sooner(self.tail_limit_ns - self.input_ns) + self.input_ns,
            own_host_ns=left * self.own_host_ns + (1 - left) * np.minimum(self.input_ns, self.own_host_ns),
        )

    def with_timed_hosts(self, step_ns: Float64) -> ShardedSteps:
        """Return the same with hosts that take so long for a step, and are ahead of their devices within it."""
        return replace(
            self,
            limit_ns=np.full_like(self.limit_ns, NEVER),
            launched_ns=np.full_like(self.launched_ns, NEVER),
            tail_limit_ns=np.full_like(self.tail_limit_ns, NEVER),
            own_host_ns=np.broadcast_to(step_ns[:, np.newaxis], self.own_host_ns.shape).astype(np.float64),
        )

    def of(self, *ops: Op) -> Mask:
        """Whether each op is one of these."""
        return np.isin(self.op, ops)

    def arranged(self, forward: bool | None, backward: bool | None) -> ShardedSteps:
        """Return the same with all-gathers of each pass asked for one module ahead, or in their own turn.

        None: as recorded.
        """
        ahead = {False: forward, True: backward}
        moved: dict[int, int] = {}  # what stands behind which op, or before it
        passes = np.cumsum(np.diff(self.backward, prepend=False)).tolist()  # each microbatch has its own
        for is_backward, wanted in ahead.items():
            if wanted is None:
                continue
            outs, gathers, done = (
                np.flatnonzero(self.of(op) & (self.backward == is_backward)).tolist()
                for op in (Op.COPY_OUT, Op.GATHER, Op.COPIED_OUT)
            )
            for place, (out, gather) in enumerate(zip(outs, self._in_order(outs, gathers), strict=True)):
                follows = place > 0 and passes[out] == passes[outs[place - 1]]
                moved[gather] = done[place - 1] if wanted and follows else out - 1
        order: list[int] = []
        behind: dict[int, list[int]] = {}
        for gather, place in moved.items():
            behind.setdefault(place, []).append(gather)
        order = behind.pop(-1, [])
        for place in range(len(self.op)):
            if place not in moved:
                order.append(place)
            order += behind.get(place, [])
        return self._reordered(order, moved)

    def _in_order(self, outs: Sequence[int], gathers: Sequence[int]) -> list[int]:
        """Return the all-gather of each copy out."""
        waiting = {
            module: [g for g in gathers if self.module[g] == module] for module in set(self.module[outs].tolist())
        }
        return [waiting[module].pop(0) for module in self.module[outs].tolist()]

    def _reordered(self, order: Sequence[int], moved: dict[int, int]) -> ShardedSteps:
        """Return the ops in another order. What is moved leaves the work before it where it was."""
        work_ns, limit_ns, launched_ns = self.work_ns.copy(), self.limit_ns.copy(), self.launched_ns.copy()
        for gather, place in moved.items():
            following = next(op for op in range(gather + 1, len(self.op)) if op not in moved)
            work_ns[..., following] += work_ns[..., gather]
            limit_ns[..., following] = np.maximum(limit_ns[..., following], limit_ns[..., gather])
            work_ns[..., gather], limit_ns[..., gather] = 0, NEVER
            launched_ns[..., gather] = self.launched_ns[..., max(place, 0)]
        changed = replace(self, work_ns=work_ns, limit_ns=limit_ns, launched_ns=launched_ns)
        return changed._chosen(order)

    def _chosen(self, order: Sequence[int]) -> ShardedSteps:
        shared = {name: getattr(self, name)[list(order)] for name in ("op", "module", "backward", "nbytes")}
        per_op = ("work_ns", "limit_ns", "launched_ns", "own_ns", "spent")
        return replace(self, **shared, **{name: getattr(self, name)[..., list(order)] for name in per_op})

    def with_sizes(self, gathered: float, reduced: float, casts_ns: float) -> ShardedSteps:
        """Return the same with parameters and gradients of so many times the bytes, and without these casts of a step.

        Copies take as long as their bytes: into an all-gather from shards that stay as they are; into a reduce-scatter
        from gradients of what was gathered. Weights are cast after they were gathered, their gradients before they are
        reduced, each module's by its bytes.
        """
        work_ns = self.work_ns.copy()
        work_ns[..., self.of(Op.COPIED_OUT)] *= gathered
        work_ns[..., self.of(Op.REDUCE)] *= (gathered + reduced) / 2
        gathers = self.of(Op.GATHER)
        first = np.flatnonzero(gathers & ~self.backward)
        share_of = dict(zip(self.module[first].tolist(), self.nbytes[first] / self.nbytes[first].sum(), strict=True))
        share = np.array([share_of.get(module, 0.0) for module in self.module.tolist()])
        cast = np.roll(self.of(Op.COPIED_OUT) & ~self.backward, 1) * np.roll(share, 1) + self.of(Op.COPY_IN) * share
        own_ns = np.where(gathers, self.own_ns * (1 + gathered) / 2, self.own_ns)
        return replace(self, work_ns=np.maximum(work_ns - casts_ns / 2 * cast, 0), own_ns=own_ns)

    @property
    def copy_gbps(self) -> float:
        """Return how fast gathered parameters are copied, bytes read and written; infinite where nothing tells."""
        copied_ns = float(np.median(self.work_ns[..., self.of(Op.COPIED_OUT)].sum(axis=-1)))
        return 2 * float(self.nbytes[self.of(Op.GATHER)].sum()) / copied_ns if copied_ns > 0 else float("inf")

    def staying_gathered(self) -> ShardedSteps:
        """Return the same with modules that stay gathered after their forward: none is gathered again.

        Nor does the host call for that, and comes sooner to all that follows.
        """
        again = self.backward & self.of(Op.GATHER, Op.COPY_OUT, Op.COPIED_OUT)
        forward = set(self.module[self.of(Op.GATHER) & ~self.backward].tolist())
        again &= np.array([module in forward for module in self.module.tolist()])
        work_ns, limit_ns = self.work_ns.copy(), self.limit_ns.copy()
        for op in np.flatnonzero(again & ~self.of(Op.COPIED_OUT)).tolist():
            following = next(after for after in range(op + 1, len(self.op)) if self.op[after] != Op.COPIED_OUT)
            work_ns[..., following] += work_ns[..., op]
            limit_ns[..., following] = np.maximum(limit_ns[..., following], limit_ns[..., op])
        share = np.cumsum(np.where(again, self.spent, 0), axis=-1)
        sooner_ns = share * np.minimum(self.own_host_ns, self.span_ns)[..., np.newaxis]
        changed = replace(
            self,
            work_ns=work_ns,
            limit_ns=limit_ns - sooner_ns,
            launched_ns=self.launched_ns - sooner_ns,
            tail_limit_ns=self.tail_limit_ns - sooner_ns[..., -1],
            own_host_ns=self.own_host_ns * (1 - share[..., -1]),
        )
        return changed._chosen(np.flatnonzero(~again).tolist())


@dataclass(frozen=True, eq=False)
class ShardedPlan:
    """How long each op's transfer takes alone (0 for what is none), and whether reductions have their own communicator.

    Beside a transfer of the other communicator one goes on at `shared` of its rate.
    """

    transfer_ns: Float64
    own_group: bool = False
    shared: float = 0.5


@dataclass(frozen=True, eq=False)
class _Spells:
    """Times in which something goes on more slowly: arrays that end in spells, in order, apart from one another."""

    start_ns: Float64
    end_ns: Float64
    lost: float

    def after(self, now_ns: Float64, work_ns: Float64) -> Float64:
        """Return when so much work is done that begins now."""
        length_ns = self.end_ns - self.start_ns
        before_ns = np.cumsum(length_ns, axis=-1) - length_ns
        target = now_ns - self.lost * self.within(now_ns) + work_ns
        begins = self.start_ns - self.lost * before_ns
        row = (begins <= target[..., np.newaxis]).sum(axis=-1) - 1
        at = np.maximum(row, 0)[..., np.newaxis]
        start, length, begin = (
            np.take_along_axis(each, at, axis=-1)[..., 0] for each in (self.start_ns, length_ns, begins)
        )
        inside = np.minimum((target - begin) / (1 - self.lost), length)
        past = target - begin - inside * (1 - self.lost)
        return np.where(row < 0, target, start + inside + np.maximum(past, 0))

    def within(self, now_ns: Float64) -> Float64:
        """Return how much of the time until now is in them."""
        until = np.minimum(self.end_ns, now_ns[..., np.newaxis]) - self.start_ns
        return np.asarray(np.maximum(until, 0).sum(axis=-1), np.float64)


def _union(start_ns: Float64, end_ns: Float64, lost: float) -> _Spells:
    """Return spells in order and apart: what begins before another has ended begins there."""
    order = np.argsort(start_ns, axis=-1, kind="stable")
    start_ns, end_ns = (np.take_along_axis(each, order, axis=-1) for each in (start_ns, end_ns))
    end_ns = np.maximum.accumulate(end_ns, axis=-1)
    start_ns = np.maximum(start_ns, np.concatenate([start_ns[..., :1], end_ns[..., :-1]], axis=-1))
    return _Spells(start_ns, end_ns, lost)


@dataclass(frozen=True, eq=False)
class _Course:
    """One way in which steps may go: of each collective when it begins on each rank, on all, and when it ends."""

    span_ns: Float64
    stalled_ns: Float64
    hidden_ns: Float64
    begins_ns: Float64
    everywhere_ns: Float64
    ends_ns: Float64


def play_sharded(steps: ShardedSteps, plan: ShardedPlan) -> Played:
    """Play the steps under a plan."""
    course = _course(steps, plan, None)
    for _ in range(PASSES):
        course = _course(steps, plan, course)
    comm = _union(course.begins_ns, course.ends_ns, 0.0)
    exposed_ns = (comm.end_ns - comm.start_ns).clip(0).sum(axis=-1) - course.hidden_ns
    return Played(course.span_ns, course.stalled_ns, exposed_ns)


def _course(steps: ShardedSteps, plan: ShardedPlan, before: _Course | None) -> _Course:
    """Play the steps beside what communicates when it did in the course before."""
    calls = np.flatnonzero(steps.of(Op.GATHER, Op.REDUCE))
    queue_of = np.where(plan.own_group & (steps.op[calls] == Op.REDUCE), 1, 0)
    lost = steps.slower / (1 + steps.slower)
    beside = _union(before.begins_ns, before.ends_ns, lost) if before is not None else None
    sharing = [_sharing(before, queue_of != queue, 1 - plan.shared) for queue in (0, 1)]
    now = steps.begin_ns.copy()
    stalled, hidden = np.zeros_like(now), np.zeros_like(now)
    free = [np.full_like(now, NEVER), np.full_like(now, NEVER)]
    copied_in = np.full_like(now, NEVER)
    out_of: list[Float64] = [now, now]
    gathered: dict[int, list[Float64]] = {}
    reduced = np.full_like(now, NEVER)
    following_ns = np.zeros_like(now)
    begins, everywheres, ends = [], [], []

    def work(now: Float64, work_ns: Float64) -> Float64:
        nonlocal hidden
        if beside is None:
            return np.asarray(now + work_ns, np.float64)
        end = beside.after(now, work_ns)
        hidden = hidden + beside.within(end) - beside.within(now)
        return end

    def transfer(ready: Float64, place: int) -> Float64:
        queue = int(plan.own_group and steps.op[place] == Op.REDUCE)
        begin = np.maximum(ready, free[queue])
        everywhere, alone_ns = begin.max(axis=0), np.full(begin.shape[1:], plan.transfer_ns[place])
        spells = sharing[queue]
        end = everywhere + alone_ns if spells is None else spells.after(everywhere, alone_ns)
        free[queue] = np.broadcast_to(end, begin.shape)
        begins.append(begin)
        everywheres.append(everywhere)
        ends.append(free[queue])
        return free[queue]

    for place, op in enumerate(steps.op.tolist()):
        now = np.maximum(work(now, steps.work_ns[..., place]), steps.begin_ns + steps.limit_ns[..., place])
        launched = steps.begin_ns + steps.launched_ns[..., place]
        module = int(steps.module[place])
        if op == Op.GATHER:
            held = out_of[-1] if steps.backward[place] else out_of[-2]
            copied_in = np.maximum(np.maximum(launched, held), copied_in) + steps.own_ns[..., place]
            gathered.setdefault(module, []).append(transfer(copied_in, place))
        elif op == Op.COPY_OUT:
            came = gathered[module].pop(0)
            stalled += np.maximum(came - now, 0)
            now = np.maximum(now, came)
        elif op == Op.COPIED_OUT:
            out_of.append(now)
        elif op == Op.REDUCE:
            reduced = transfer(np.maximum(now, launched), place)
            following_ns = steps.own_ns[..., place]
        else:
            came = reduced + following_ns * (op == Op.END)
            stalled += np.maximum(came - now, 0)
            now = np.maximum(now, came)
    now = np.maximum(work(now, steps.tail_ns), steps.begin_ns + steps.tail_limit_ns)
    return _Course(
        now - steps.begin_ns, stalled, hidden, *(np.stack(each, axis=-1) for each in (begins, everywheres, ends))
    )


def _sharing(before: _Course | None, others: Mask, lost: float) -> _Spells | None:
    """Return when the other communicator transferred; None where it did not."""
    if before is None or not others.any():
        return None
    return _union(before.everywhere_ns[..., others], before.ends_ns[0][..., others], lost)


def sharded_steps(
    schedules: Sequence[ShardedSchedule],
    nbytes: Sequence[Int64],
    shift_ns: Sequence[int],
    slower: float,
    typical: Container[int],
    with_long_gaps: bool = True,
) -> ShardedSteps | None:
    """Return the steps that all ranks have with the ops that most have; None where there are none.

    They are the typical ones, where any is. `nbytes` is of each rank's communication, a row each; `shift_ns` what each
    rank's clock is ahead. Without long gaps, these are hosts' that nothing else tells of.
    """
    shared = _shared(schedules, typical)
    if shared is None:
        return None
    rows = [[schedule.first[row] for row in of_rank] for schedule, of_rank in zip(schedules, shared, strict=True)]
    first = int(rows[0][0])
    count = int(schedules[0].first[shared[0][0] + 1]) - first
    if not count:
        return None
    lost = slower / (1 + slower)  # of the time beside communication

    def per_step(name: str) -> Float64:
        return np.array([getattr(each, name)[own] for each, own in zip(schedules, shared, strict=True)], np.float64)

    def per_op(name: str) -> Float64:
        chosen = [np.add.outer(np.array(own), np.arange(count)) for own in rows]
        return np.array([getattr(each, name)[own] for each, own in zip(schedules, chosen, strict=True)], np.float64)

    recorded_ns, total_ns = per_op("work_ns"), per_step("total_ns")
    done_ns = recorded_ns - lost * per_op("beside_ns")
    tail_ns = total_ns - lost * per_step("total_beside_ns") - done_ns[..., -1]
    if not with_long_gaps:
        long_ns = per_op("long_gaps_ns")
        done_ns, tail_ns = done_ns - long_ns, tail_ns - (per_step("total_long_gaps_ns") - long_ns[..., -1])
    begin_ns, follows = begins_of(schedules, shared, shift_ns)
    row = schedules[0].row[first : first + count]
    limit_ns = per_op("host_ns") + recorded_ns
    return ShardedSteps(
        op=schedules[0].op[first : first + count],
        module=schedules[0].module[first : first + count],
        backward=schedules[0].backward[first : first + count] > 0,
        nbytes=np.where(row >= 0, np.r_[nbytes[0], 0][row], 0).astype(np.float64),
        begin_ns=begin_ns,
        span_ns=per_step("span_ns"),
        work_ns=np.diff(done_ns, axis=-1, prepend=0),
        limit_ns=limit_ns,
        launched_ns=per_op("launched_ns"),
        own_ns=per_op("own_ns"),
        spent=per_op("spent_ns"),
        tail_ns=tail_ns,
        tail_limit_ns=per_step("tail_host_ns") + total_ns,
        slower=slower,
        step=schedules[0].step[shared[0]],
        follows=follows,
        own_host_ns=np.zeros(begin_ns.shape),
        input_ns=np.zeros(begin_ns.shape),
    )


def _shared(schedules: Sequence[ShardedSchedule], typical: Container[int]) -> list[list[int]] | None:
    """Return each rank's rows for the (typical) steps that all have with the ops that most have."""

    def key(schedule: ShardedSchedule, row: int) -> bytes:
        own = slice(int(schedule.first[row]), int(schedule.first[row + 1]))
        names = [schedule.modules[module] if module >= 0 else "" for module in schedule.module[own].tolist()]
        return repr((schedule.op[own].tolist(), names)).encode()

    by_step = [{int(each.step[row]): (key(each, row), row) for row in range(len(each))} for each in schedules]
    counts: dict[bytes, int] = {}
    for known in by_step:
        for name, _ in known.values():
            counts[name] = counts.get(name, 0) + 1
    if not counts:
        return None
    usual = max(counts, key=lambda name: counts[name])
    steps = [step for step in by_step[0] if all(known.get(step, (b"",))[0] == usual for known in by_step)]
    steps = [step for step in steps if step in typical] or steps
    return [[known[step][1] for step in sorted(steps)] for known in by_step] if steps else None
