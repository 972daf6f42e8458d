"""Replays of pipelines: pictures, an independent simulation by events, closed forms, torch's own simulator."""

from functools import cache
from random import Random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.layers.strategies.pipeline_replay import (
    SCHEDULES,
    dependencies,
    gpipe,
    one_f_one_b,
    replay,
    schedule_name,
)
from tests.support.pipelines import OF_INPUT, B, F, W, any_order, simulated
from tests.support.samples import RUNS, reported
from tests.support.tiers import cases

SHAPES = [(1, 3), (2, 2), (2, 8), (3, 4), (4, 8), (5, 5)]


def replayed(orders, dur):
    """When each action starts, by action; all durations as told."""
    actions = [action for order in orders for action in order]
    lengths = np.array([dur(action) for action in actions], dtype=np.int64)
    start = replay([len(order) for order in orders], dependencies(orders), lengths)
    return None if start is None else dict(zip(actions, start.tolist(), strict=True))


def picture(orders, start, dur):
    """A line for each rank, a character for each nanosecond: the microbatch of a forward, a letter for a backward's."""
    lines = []
    for order in orders:
        line = ["."] * max(start[action] + dur(action) for one in orders for action in one)
        for action in order:
            sign = str(action[2]) if action[0] == F else "abcdefgh"[action[2]]
            line[start[action] : start[action] + dur(action)] = [sign] * dur(action)
        lines.append("".join(line))
    return lines


@pytest.mark.parametrize(
    ("orders", "expected"),
    [
        (one_f_one_b(2, 3), ["01..aa2bb.cc", ".0aa1bb2cc.."]),
        (gpipe(2, 2), ["01...aabb", ".01aabb.."]),
    ],
)
def test_schedules_are_as_drawn(orders, expected):
    def dur(action):
        return 1 if action[0] == F else 2

    assert picture(orders, replayed(orders, dur), dur) == expected


@settings(max_examples=cases(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    ranks=st.integers(1, 4),
    per_rank=st.integers(1, 3),
    microbatches=st.integers(1, 5),
)
def test_a_replay_equals_a_simulation_by_events(seed, ranks, per_rank, microbatches):
    random = Random(seed)
    orders = any_order(random, ranks, per_rank, microbatches)
    length = {action: random.randrange(0, 9) for order in orders for action in order}
    assert replayed(orders, length.__getitem__) == simulated(orders, length.__getitem__)


def test_actions_that_wait_for_one_another_have_no_replay():
    orders = [[(B, 0, 0), (F, 0, 0)], [(F, 1, 0), (B, 1, 0)]]
    assert replayed(orders, lambda action: 1) is None


def test_weights_wait_for_their_own_inputs_or_where_these_launched_nothing_for_the_gradient():
    orders = [[(F, 0, 0), (W, 0, 0)], [(F, 1, 0), (OF_INPUT, 1, 0), (W, 1, 0)]]
    start = replayed(orders, lambda action: 1)
    assert (start[OF_INPUT, 1, 0], start[W, 1, 0], start[W, 0, 0]) == (2, 3, 3)


def test_a_second_pass_of_the_schedule_in_a_step_waits_for_its_own():
    orders = [one_f_one_b(2, 1)[0] * 2, one_f_one_b(2, 1)[1] * 2]
    actions = [action for order in orders for action in order]
    start = replay([4, 4], dependencies(orders), np.ones(len(actions), dtype=np.int64))
    assert start.tolist() == [0, 3, 4, 7, 1, 2, 5, 6]


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_bubble_is_that_of_the_papers(name, stages, microbatches):
    """(p - 1) / (m + p - 1) of the time, p - 1 microbatches on every rank: GPipe (arXiv:1811.06965), PipeDream."""
    orders = SCHEDULES[name](stages, microbatches)
    start = replayed(orders, lambda action: 10 if action[0] == F else 20)
    end = max(at + (10 if action[0] == F else 20) for action, at in start.items())
    if microbatches >= stages:
        assert end == 30 * (microbatches + stages - 1)
    assert schedule_name(orders) == name or stages == 1 or microbatches == 1


# --- torch's own ---


@cache
def schedules() -> ModuleType:
    pytest.importorskip("torch")
    from torch.distributed.pipelining import schedules as of_torch

    return of_torch


def lowered(orders):
    """Our orders with torch's own sends and receives put in, and where each stage is."""
    torch = schedules()
    where = {action[1]: rank for rank, order in enumerate(orders) for action in order}
    computed = {
        rank: [torch._Action(stage, torch._ComputationType(kind.label), number) for kind, stage, number in order]
        for rank, order in enumerate(orders)
    }
    return torch._add_send_recv(computed, where.__getitem__, len(where)), where


def interleaved(ranks, per_rank, microbatches):
    """Torch's interleaved schedule as a table, a row for each rank: actions and None; made without process groups."""
    torch = schedules()
    made = object.__new__(torch.ScheduleInterleaved1F1B)
    made.n_local_stages, made.pp_group_size, made._n_microbatches = per_rank, ranks, microbatches
    made.microbatches_per_round = microbatches // max(1, microbatches // ranks)
    return [made._calculate_single_rank_operations(rank) for rank in range(ranks)]


def ours(table):
    """The actions of a table of torch's that compute, in our terms."""
    kinds = {"F": F, "B": B}
    return [
        [
            (kinds[one.computation_type.value], one.stage_index, one.microbatch_index)
            for one in row
            if one is not None and one.computation_type.value in kinds
        ]
        for row in table
    ]


INTERLEAVED = [(2, 2, 4), (2, 3, 8), (4, 2, 8), (3, 2, 6)]


def replayed_slots(orders):
    """Return the slot of each action, messages too, in our replay and in torch's simulator, all of them a slot long.

    A receive may run in the slot of its send, that is once the send may.
    """
    torch = schedules()
    program, where = lowered(orders)
    table = torch._simulate_comms_compute(program, where.__getitem__, len(where))
    actions = [action for rank in sorted(program) for action in program[rank]]
    number = {action: at for at, action in enumerate(actions)}
    pairs = []
    for rank in sorted(program):
        for earlier, send in zip(program[rank], program[rank][1:], strict=False):
            opposite = {"SEND_F": ("RECV_F", 1), "SEND_B": ("RECV_B", -1)}.get(send.computation_type.value)
            if opposite:
                received = torch._ComputationType(opposite[0])
                pairs.append((earlier, torch._Action(send.stage_index + opposite[1], received, send.microbatch_index)))
    start = replay(
        [len(program[rank]) for rank in sorted(program)],
        [(number[before], number[after]) for before, after in pairs],
        np.ones(len(actions), dtype=np.int64),
    )
    slots = {action: at for row in table.values() for at, action in enumerate(row) if action is not None}
    return {action: int(start[at]) for action, at in number.items()}, slots


ORDERS = [
    *((f"1F1B {shape}", lambda shape=shape: one_f_one_b(*shape)) for shape in SHAPES),
    *((f"GPipe {shape}", lambda shape=shape: gpipe(*shape)) for shape in SHAPES),
    *((f"Interleaved1F1B {shape}", lambda shape=shape: ours(interleaved(*shape))) for shape in INTERLEAVED),
]


@pytest.mark.parametrize("orders", [make for _, make in ORDERS], ids=[name for name, _ in ORDERS])
def test_with_unit_durations_a_replay_is_the_table_of_torchs_simulator_slot_for_slot(orders):
    slots, table = replayed_slots(orders())
    assert slots == table


@pytest.mark.slow
@pytest.mark.skipif(not any(path.name == "llama-pp2" for path in RUNS), reason="that sample is not here")
def test_what_llama_pp2_ran_is_torchs_table_slot_for_slot():
    kinds = {kind.label: kind for kind in (F, B)}
    rows = reported(next(path for path in RUNS if path.name == "llama-pp2")).pipeline
    for step in {row.step for row in rows}:
        orders = [
            [(kinds[action.kind], row.stage, action.microbatch) for action in row.actions]
            for row in rows
            if row.step == step
        ]
        slots, table = replayed_slots(orders)
        assert slots == table
        assert len(table) == 2 * 2 * 8 + 4 * 8


@pytest.mark.parametrize(("stages", "microbatches"), [shape for shape in SHAPES if shape[1] >= shape[0]])
def test_schedules_are_torchs(stages, microbatches):
    """Of 1F1B kinds alone: torch 2.15 numbers the last rank's forwards from 1 (Schedule1F1B._get_pipeline_order)."""
    torch = schedules()
    for name, known in (("1F1B", torch.Schedule1F1B), ("GPipe", torch.ScheduleGPipe)):
        made = object.__new__(known)
        made._n_microbatches, made._num_stages = microbatches, stages
        for rank, order in enumerate(SCHEDULES[name](stages, microbatches)):
            told = [one.computation_type.value for one in made._get_pipeline_order()[rank] if one is not None]
            assert [kind.label for kind, _, _ in order] == [kind for kind in told if kind in "FB"]
