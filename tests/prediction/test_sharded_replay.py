"""FSDP2's steps replayed: drawn by hand, beside a simulation tick by tick, and as they were recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.errors import NotReplayable
from analyzers.notices import Code
from analyzers.prediction import Kind, Options, Prefetch, Sharding, whatif
from analyzers.prediction.levelling import Cause, Levelling, levelled_sharded
from analyzers.prediction.sharded_model import ShardedScene, sharded_model_of
from analyzers.prediction.sharded_replay import NEVER, ShardedPlan, ShardedSteps, play_sharded
from analyzers.rank import Op
from tests.support.samples import SAMPLES, summarized

GATHER, OUT, DONE, IN, REDUCE, END = Op.GATHER, Op.COPY_OUT, Op.COPIED_OUT, Op.COPY_IN, Op.REDUCE, Op.END
# Two modules a (0) and b (1): forward, then backward with a prefetch of a, both reduced; b is gathered twice.
FORWARD = [(GATHER, 0), (OUT, 0), (DONE, 0), (GATHER, 1), (OUT, 1), (DONE, 1)]
BACKWARD = [
    (GATHER, 1),
    (OUT, 1),
    (DONE, 1),
    (GATHER, 0),
    (IN, 1),
    (REDUCE, 1),
    (OUT, 0),
    (DONE, 0),
    (IN, 0),
    (REDUCE, 0),
    (END, -1),
]
# Work before each op, and after the last: 5 in a's forward and b's, 7 in each backward, 3 of the optimizer.
WORK = [0, 0, 0, 5, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0]


def steps_of(works, ranks: int = 1, tail: float = 3, slower: float = 0.0, launched: float = -1e9) -> ShardedSteps:
    """One step of so many ranks, whose work before each op is given rank by rank."""
    ops = FORWARD + BACKWARD
    work_ns = np.asarray(works, dtype=np.float64).reshape(ranks, 1, len(ops))
    one = np.zeros((ranks, 1))
    return ShardedSteps(
        op=np.array([op for op, _ in ops]),
        module=np.array([module for _, module in ops]),
        backward=np.arange(len(ops)) >= len(FORWARD),
        nbytes=np.where([op in (GATHER, REDUCE) for op, _ in ops], 1.0, 0.0),
        begin_ns=one,
        span_ns=one + 1,
        work_ns=work_ns,
        limit_ns=np.full_like(work_ns, NEVER),
        launched_ns=np.full_like(work_ns, launched),
        own_ns=np.zeros_like(work_ns),
        spent=np.zeros_like(work_ns),
        tail_ns=one + tail,
        tail_limit_ns=one + NEVER,
        slower=slower,
        step=np.zeros(1, dtype=np.int64),
        follows=np.zeros(1, dtype=bool),
        own_host_ns=one,
        input_ns=one,
    )


def plan(gather: float, reduce: float, steps: ShardedSteps, **options) -> ShardedPlan:
    """So long for every all-gather and every reduce-scatter."""
    return ShardedPlan(np.select([steps.op == GATHER, steps.op == REDUCE], [gather, reduce], 0.0), **options)


def span(steps: ShardedSteps, planned: ShardedPlan) -> float:
    return float(play_sharded(steps, planned).span_ns.max())


DRAWN = steps_of(WORK)


def test_a_step_drawn_by_hand():
    # Forward: a is gathered 0-4 and b 4-8, beside a's compute 4-9; b computes 9-14. Backward: b is gathered again 9-13,
    # once it was copied out, and computes 14-21; beside that a is gathered 14-18, and b reduced 21-27 beside a's
    # compute 21-28. a is reduced 28-34, and the optimizer ends at 37.
    assert span(DRAWN, plan(4, 6, DRAWN)) == 37


def test_communication_that_takes_no_time_leaves_the_work():
    played = play_sharded(DRAWN, plan(0, 0, DRAWN))
    assert (played.span_ns.item(), played.stalled_ns.item()) == (27, 0)
    assert float(DRAWN.alone_ns.item()) == 27


def test_without_prefetching_an_all_gather_stands_behind_the_reduction():
    alone = DRAWN.arranged(forward=None, backward=False)
    assert [int(op) for op in alone.op].count(int(GATHER)) == 4
    # Reduce b 21-27, then gather a 27-31, backward of a 31-38, reduce a 38-44.
    assert span(alone, plan(4, 6, alone)) == 47
    # With a communicator of its own the reduction is in nobody's way.
    assert span(alone, plan(4, 6, alone, own_group=True, shared=1.0)) == 37


def test_prefetching_is_brought_back_by_asking_for_it():
    again = DRAWN.arranged(forward=None, backward=False).arranged(forward=None, backward=True)
    assert span(again, plan(4, 6, again)) == span(DRAWN, plan(4, 6, DRAWN))
    assert again.work_ns.sum() == DRAWN.work_ns.sum()


def test_what_stays_gathered_is_gathered_once():
    once = DRAWN.staying_gathered()
    assert [int(op) for op in once.op].count(int(GATHER)) == 2
    assert once.work_ns.sum() == DRAWN.work_ns.sum()
    assert span(once, plan(4, 6, once)) == 37
    assert span(once, plan(8, 6, once)) < span(DRAWN, plan(8, 6, DRAWN))


def test_two_communicators_share_the_links():
    alone = DRAWN.arranged(forward=None, backward=False)
    full, half = (span(alone, plan(12, 12, alone, own_group=True, shared=share)) for share in (1.0, 0.5))
    assert full < half <= span(alone, plan(12, 12, alone))


def test_a_rank_that_comes_later_is_waited_for():
    late = [*WORK]
    late[3] += 10
    two = steps_of([WORK, late], ranks=2)
    played = play_sharded(two, plan(4, 6, two))
    assert played.span_ns.ravel().tolist() == [47, 47]
    assert played.stalled_ns[0, 0] > played.stalled_ns[1, 0]


def test_compute_beside_communication_is_slower():
    slow = replace(DRAWN, slower=0.5)
    assert span(slow, plan(0, 0, slow)) == 27
    # a's forward, 5, has an all-gather of 4 beside it, in which 8/3 are done.
    assert span(slow, plan(4, 6, slow)) > 37


def test_a_late_launch_is_as_late_as_it_was():
    limit_ns = DRAWN.limit_ns.copy()
    limit_ns[..., 10] = 40  # the copy of b's gradients
    assert span(replace(DRAWN, limit_ns=limit_ns), plan(4, 6, DRAWN)) == 40 + 7 + 6 + 3


TIMES = st.integers(0, 9)


@given(st.lists(TIMES, min_size=len(WORK), max_size=len(WORK)), TIMES, TIMES, st.booleans(), st.booleans())
def test_a_step_is_as_long_as_tick_by_tick(works, gather, reduce, prefetches, own_group):
    steps = steps_of(works).arranged(forward=None, backward=prefetches)
    planned = plan(gather, reduce, steps, own_group=own_group, shared=1.0)
    assert span(steps, planned) == ticked(steps, planned)


def ticked(steps: ShardedSteps, planned: ShardedPlan) -> int:
    """The same, one unit of time after another: compute, and a queue of collectives for each communicator."""
    ops = [(int(op), int(module)) for op, module in zip(steps.op, steps.module, strict=True)]
    works = [*steps.work_ns[0, 0].astype(int).tolist(), int(steps.tail_ns[0, 0])]
    queues = [[i for i, (op, _) in enumerate(ops) if op == GATHER or (op == REDUCE and not planned.own_group)]]
    queues.append([i for i, (op, _) in enumerate(ops) if op == REDUCE and planned.own_group])
    left = dict(enumerate(planned.transfer_ns.astype(int).tolist()))
    copies = [i for i, (op, _) in enumerate(ops) if op == DONE]
    partners: dict[int, int] = {}
    for module in (0, 1):
        gathers, outs = ([i for i, each in enumerate(ops) if each == (op, module)] for op in (GATHER, OUT))
        partners |= dict(zip(outs, gathers, strict=True))
    at, done, ended, now = 0, 0, set(), 0

    def may_begin(call: int) -> bool:
        if ops[call][0] == REDUCE:
            return at > call
        before = [copy for copy in copies if copy < call]
        needed = before[-1:] if steps.backward[call] else before[-2:-1]
        return all(at > copy for copy in needed)

    def may_pass(place: int) -> bool:
        op = ops[place][0]
        if op == OUT:
            return partners[place] in ended
        if op in (IN, END):
            return all(call in ended for call in range(place) if ops[call][0] == REDUCE)
        return True

    while True:
        moved = True
        while moved:
            moved = False
            while at < len(ops) and done >= works[at] and may_pass(at):
                at, done, moved = at + 1, 0, True
            for queue in queues:
                while queue and may_begin(queue[0]) and left[queue[0]] == 0:
                    ended.add(queue.pop(0))
                    moved = True
        if at == len(ops) and done >= works[at]:
            return now
        if done < works[at]:
            done += 1
        for queue in queues:
            if queue and may_begin(queue[0]):
                left[queue[0]] -= 1
        now += 1


@pytest.mark.parametrize("name", ["resnet18-fsdp4"])
def test_a_recorded_run_is_as_long_as_it_was(name):
    found = whatif(summarized(SAMPLES / name), Options())
    assert found.baseline.error == pytest.approx(0, abs=0.01)
    own, *others = found.scenarios
    assert own.sharding is None
    assert {each.sharding for each in others} >= {Sharding(reshard_after_forward=False), Sharding(reduce_itemsize=2)}
    assert all(each.kind == "fsdp" and each.interval_ns[0] <= each.predicted_step_ns for each in found.scenarios)
    assert all(not each.reliable for each in found.scenarios)  # its CPU is the limit


@pytest.mark.slow
def test_more_of_fsdp2_at_once():
    run = summarized(SAMPLES / "resnet18-fsdp4")
    asked = Sharding(prefetch=Prefetch.BOTH, reshard_after_forward=False, separate_reduce_scatter_group=True)
    found = whatif(run, Options(shardings=[asked], gpus=(4, 64)))
    assert [(each.gpus, each.sharding) for each in found.scenarios] == [(4, None), (4, asked), (64, None), (64, asked)]
    assert "extrapolated" in str(found.scenarios[2].why)


# One rank launches everything 20 later than the other, which waits for it in every collective.
LATE_HOST = replace(
    steps_of([WORK, WORK], ranks=2),
    limit_ns=np.stack([np.full((1, len(WORK)), NEVER), np.arange(len(WORK))[None] + 40.0]),
    launched_ns=np.stack([np.full((1, len(WORK)), -1e9), np.arange(len(WORK))[None] + 40.0]),
    own_host_ns=np.array([[10.0], [60.0]]),
)


def test_alone_a_rank_waits_for_its_own_launches_and_nothing_else():
    # The first module's forward begins at 42, and all the work comes after that.
    assert LATE_HOST.alone_ns.ravel().tolist() == [27, 42 + 27]


def test_with_hosts_in_half_the_time_launches_come_in_half_the_time():
    half = LATE_HOST.hurried(0.5)
    assert half.limit_ns[1, 0].tolist() == [20 + place / 2 for place in range(len(WORK))]
    assert half.own_host_ns.ravel().tolist() == [5, 30]
    assert half.launched_ns[0, 0].tolist() == LATE_HOST.launched_ns[0, 0].tolist()
    assert span(LATE_HOST.hurried(0), plan(4, 6, DRAWN)) < span(LATE_HOST, plan(4, 6, DRAWN))


def test_with_hosts_that_were_timed_no_launch_is_late():
    timed = LATE_HOST.with_timed_hosts(np.array([10.0, 60.0]))
    assert span(timed, plan(4, 6, DRAWN)) == span(DRAWN, plan(4, 6, DRAWN)) == 37
    assert timed.own_host_ns.ravel().tolist() == [10, 60]


def test_what_is_not_gathered_again_costs_the_host_nothing():
    again = np.isin(DRAWN.op, [GATHER, OUT]) & DRAWN.backward
    spending = replace(LATE_HOST, spent=np.where(again, 0.1, 0.0) + np.zeros((2, 1, 1)), span_ns=np.full((2, 1), 50.0))
    kept = spending.staying_gathered()
    # Each of so many calls is a tenth of the host's 60, of which 50 lie in the step.
    calls = int(again.sum())
    assert kept.own_host_ns[1, 0] == pytest.approx(60 * (1 - 0.1 * calls))
    last = spending.launched_ns[1, 0, -1] - kept.launched_ns[1, 0, -1]
    assert last == pytest.approx(50 * 0.1 * calls)
    assert kept.launched_ns[1, 0, 0] == spending.launched_ns[1, 0, 0]


def test_with_half_of_the_bytes_copies_take_half_and_casts_go():
    works = [10.0] * len(WORK)
    steps = replace(steps_of(works), own_ns=np.where(DRAWN.of(GATHER), 8.0, 0.0)[None, None] + 0.0)
    half = steps.with_sizes(0.5, 0.5, casts_ns=4.0)
    # Copies out and into reduce-scatters: 5. Each of two modules has a half of the casts: 1 in its forward, 1 before
    # its gradients are copied.
    forward = [place + 1 for place, op in enumerate(DRAWN.op.tolist()) if op == DONE and not DRAWN.backward[place]]
    expected = np.array(works)
    expected[DRAWN.of(DONE) | DRAWN.of(REDUCE)] = 5
    expected[[*forward, *np.flatnonzero(DRAWN.of(IN)).tolist()]] -= 1
    assert half.work_ns[0, 0].tolist() == expected.tolist()
    # Copies into all-gathers read the shards as they are, and write half.
    assert set(half.own_ns[0, 0][DRAWN.of(GATHER)].tolist()) == {6.0}
    # Into reduce-scatters of half the bytes from gradients as they are.
    assert set(steps.with_sizes(1.0, 0.5, 0.0).work_ns[0, 0][DRAWN.of(REDUCE)].tolist()) == {7.5}
    # Two bytes moved for each byte that is gathered, 4 of them in 40.
    assert steps.copy_gbps == 2 * 4 / 40


def test_hosts_wait_for_input_as_long_as_they_did():
    fed = replace(LATE_HOST, tail_limit_ns=np.array([[NEVER], [80.0]]), input_ns=np.array([[0.0], [30.0]]))
    assert fed.hurried(0.5).tail_limit_ns.ravel().tolist() == [NEVER, 55]


def test_the_late_rank_as_the_others_is_not_waited_for():
    even = levelled_sharded(LATE_HOST, Levelling(1, Cause.HOST))
    assert span(even, plan(4, 6, DRAWN)) == span(DRAWN, plan(4, 6, DRAWN)) == 37
    same = levelled_sharded(LATE_HOST, Levelling(1, Cause.COMPUTE))
    assert span(same, plan(4, 6, DRAWN)) == span(LATE_HOST, plan(4, 6, DRAWN))


def test_a_rank_whose_device_works_longer_is_levelled_by_compute_alone():
    late = [*WORK]
    late[3] += 10
    two = steps_of([WORK, late], ranks=2)
    found = {cause: span(levelled_sharded(two, Levelling(1, cause)), plan(4, 6, two)) for cause in Cause}
    assert found == {Cause.ALL: 37, Cause.COMPUTE: 37, Cause.HOST: 47, Cause.INPUT: 47}


def test_prefetching_begins_anew_with_each_microbatch():
    ops = [op for op, _ in [*FORWARD, *BACKWARD[:-1], *FORWARD, *BACKWARD]]
    once = len(FORWARD) + len(BACKWARD) - 1
    twice = steps_of(WORK)
    wide = {
        name: np.concatenate([getattr(twice, name)[..., :once], getattr(twice, name)], axis=-1)
        for name in ("op", "module", "backward", "nbytes", "work_ns", "limit_ns", "launched_ns", "own_ns", "spent")
    }
    ahead = replace(twice, **wide).arranged(forward=True, backward=True)
    assert len(ahead.op) == len(ops)
    # The first all-gather of the second forward stays behind the first backward's last reduction.
    second = np.flatnonzero(ahead.op == REDUCE)[1]
    assert (ahead.op[second + 1 :] == GATHER).sum() == 4


@pytest.mark.slow
def test_a_host_that_is_late_on_one_rank_is_the_limit_on_all():
    run = summarized(SAMPLES / "resnet18-fsdp4")
    found = whatif(run, Options(host_times=None))
    assert all(Code.HOST_IS_THE_LIMIT in [notice.code for notice in each.why] for each in found.scenarios)
    (half,) = found.others
    assert (half.kind, half.host_time, half.efficiency) == (Kind.HOST, 0.5, None)
    assert half.gain_ns > 0.3 * found.baseline.predicted_step_ns
    assert found.headline.startswith("with a CPU that takes 50.0 % of the time")


@pytest.mark.slow
def test_a_rank_of_fsdp_is_levelled_by_name():
    run = summarized(SAMPLES / "resnet18-fsdp4")
    found = whatif(run, Options(straggler=3, shardings=()))
    assert [(each.kind, each.rank, each.cause) for each in found.others] == [
        (Kind.STRAGGLER, 3, cause) for cause in Cause
    ]
    with pytest.raises(NotReplayable, match="rank 9 is not in the run"):
        whatif(run, Options(straggler=9, shardings=()))
    with pytest.raises(NotReplayable, match="one CUDA graph"):
        whatif(run, Options(host_times=(0.0,), shardings=()))


def test_what_stays_gathered_is_counted_in_its_dtype():
    model = sharded_model_of(summarized(SAMPLES / "resnet18-fsdp4"), None)
    itemsize = model.itemsizes[GATHER]
    whole = model.kept_bytes(ShardedScene(4))
    narrow = model.kept_bytes(ShardedScene(4, Sharding(param_itemsize=itemsize // 2)))
    assert narrow == pytest.approx(whole / 2, abs=1)
    # What is gathered is a copy, beside which each GPU keeps its shard, however small.
    assert model.kept_bytes(ShardedScene(8)) == whole


def test_settings_on_other_gpus_gain_over_the_runs_own_settings_there():
    run = summarized(SAMPLES / "resnet18-fsdp4")
    own, more = whatif(run, Options(gpus=(4, 64), shardings=())).scenarios
    assert (own.gain_ns, more.gain_ns) == (0, 0)
    assert more.predicted_step_ns >= own.predicted_step_ns


@pytest.mark.slow
def test_changes_that_cancel_are_no_better_known():
    run = summarized(SAMPLES / "resnet18-fsdp4")
    both = Sharding(prefetch=Prefetch.NONE, reshard_after_forward=False)
    (one, other, together) = (
        whatif(run, Options(shardings=[each])).scenarios[1]
        for each in (Sharding(prefetch=Prefetch.NONE), Sharding(reshard_after_forward=False), both)
    )
    own = whatif(run, Options(shardings=())).baseline.predicted_step_ns
    reach = [each.interval_ns[1] - each.predicted_step_ns for each in (one, other, together)]
    least = 0.2 * max(abs(each.predicted_step_ns - own) for each in (one, other))
    assert reach[2] >= least
