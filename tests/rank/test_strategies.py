"""To add a strategy is to add a file and a line: here a toy that broadcasts inside of its own ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from analyzers.arrays import UNKNOWN, Mask
from analyzers.rank.host import Host, autograd
from analyzers.rank.strategies import STRATEGIES, Calls, Purpose, Strategy, assign, callers, dimension, owners, role_of
from analyzers.trace import Collective, Module
from tests.support.drawing import draw

NAMES = [strategy.name for strategy in STRATEGIES]


def _toy_purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    yield Purpose.PARAMETERS, calls.of(Collective.BROADCAST) & calls.over(TOY.dimension)


TOY = Strategy(name="toy", dimension=dimension("toy"), purposes=_toy_purposes, owners=callers)


def asked(kinds: list[Collective], described: list[int], module: list[int]) -> Calls:
    """Calls over groups `mesh_toy` (0) and `mesh_tp` (1), by the modules `a` and `b`, with nothing around them."""
    host, count = Host(draw(comm="#" * 4).events), len(kinds)
    none = np.full(count, UNKNOWN, dtype=np.int64)
    no = np.zeros(count, dtype=bool)
    return Calls(
        host=host,
        nodes=autograd(host),
        launches=none,
        called=none,
        kind=np.array(kinds, dtype=np.int8),
        elements=none,
        is_integral=no,
        is_message=no,
        is_library=no,
        module=np.array(module, dtype=np.int64),
        modules=(Module("a", "Linear"), Module("b", "MoE")),
        is_backward=no,
        description=np.array(described, dtype=np.int64),
        descriptions=("mesh_toy", "mesh_tp"),
        group=np.array(described, dtype=np.int64),
    )


def test_a_toy_strategy_has_its_calls_and_their_modules():
    calls = asked([Collective.BROADCAST, Collective.BROADCAST, Collective.ALL_REDUCE], [0, 1, 0], [1, 0, -1])
    listed = (*STRATEGIES, TOY)
    assigned = assign(calls, listed)
    assert [Purpose(code).label for code in assigned.purpose.tolist()] == ["parameters", "other", "other"]
    assert assigned.strategy.tolist()[0] == listed.index(TOY)
    said = owners(calls, assigned, listed)
    assert said.modules[said.module[0]] == "b"
    assert role_of("mesh_toy", listed) == "toy"


def test_who_is_asked_first_has_a_call():
    calls = asked([Collective.ALL_TO_ALL, Collective.ALL_REDUCE], [-1, 1], [1, 0])
    assigned = assign(calls)
    assert [Purpose(code).label for code in assigned.purpose.tolist()] == ["tokens", "activations"]
    assert [NAMES[code] for code in assigned.strategy.tolist()] == ["expert", "tensor"]


def test_nothing_is_claimed_where_nothing_is_known():
    calls = asked([Collective.ALL_REDUCE, Collective.SEND_RECV, Collective.ALL_TO_ALL], [-1, -1, -1], [-1, -1, -1])
    assigned = assign(calls)
    assert set(assigned.purpose.tolist()) == {Purpose.OTHER} and set(assigned.strategy.tolist()) == {UNKNOWN}
    assert len(owners(calls, assigned).modules) == 0 or (owners(calls, assigned).module < 0).all()


def test_names_are_distinct():
    assert len({*NAMES}) == len(NAMES)


@pytest.mark.parametrize(
    ("description", "role"),
    [
        *(("mesh_tp", "tensor"), ("mesh_pp", "pipeline"), ("mesh_cp", "context"), ("mesh_ep", "expert")),
        *(("mesh_dp_shard", "fsdp"), ("mesh_fsdp", "fsdp"), ("mesh_efsdp", "fsdp"), ("mesh_dp_shard_cp", "fsdp")),
        *(("mesh_dp_replicate", "ddp"), ("mesh_dp", "ddp"), ("DATA_PARALLEL_GROUP_WITH_CP", "ddp")),
        *(("TENSOR_MODEL_PARALLEL_GROUP", "tensor"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline")),
        *(("CONTEXT_PARALLEL_GROUP", "context"), ("EXPERT_MODEL_PARALLEL_GROUP", "expert"), ("tp:0", "tensor")),
        *(("EXPERT_DATA_PARALLEL_GROUP", "ddp"), ("mesh_loss_mesh", "metrics")),
        *(("mesh_row", None), ("default_pg", None), ("", None), ("stamp", None)),
    ],
)
def test_descriptions_name_strategies(description, role):
    assert role_of(description) == role


@pytest.mark.parametrize(
    ("recorded", "carried"),
    [
        ((), "activations"),
        (("ddp",), "activations"),
        (("fsdp", "tensor"), "activations"),
        (("fsdp",), "parameters"),
        (("fsdp", "context"), "other"),
    ],
)
def test_what_the_recording_found_decides_where_callers_look_alike(recorded, carried):
    """A module's all-gather may be tensor parallelism's, or that of FSDP without ranges."""
    calls = replace(asked([Collective.ALL_GATHER], [-1], [0]), recorded=frozenset(recorded))
    assert [Purpose(code).label for code in assign(calls).purpose.tolist()] == [carried]
