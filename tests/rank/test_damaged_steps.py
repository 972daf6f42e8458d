"""Buckets and layers of steps that lost rows, have them at other times or on other threads, or say nonsense."""

from random import Random
from typing import Any

import pytest

from analyzers.reporting.document import from_json, to_json
from tests.support import laws
from tests.support.drawn_steps import ddp_step, fsdp_step, names_of, shifted
from tests.support.kineto_files import Event
from tests.support.samples import reported
from tests.support.saved import saved
from tests.support.tiers import quarters
from tests.support.training import ENGINE, MAIN, step, told

NONSENSE: dict[str, list[Any]] = {
    "Sequence number": [None, "7", -3, 2**70, 1.5, [1], {"a": 1}],
    "Fwd thread id": [None, "x", 2**70],
    "Input Dims": [None, "x", [], [[]], [["a"]], [[2**40, 2**40]], [[[1, 2], [3]]], {"a": 1}, [[-5]]],
    "grid": [None, [], "1", [1, 2, 3, 4], {}],
    "In msg nelems": [None, -4, "many", 2**61],
    "dtype": [None, 3, "Half", "Int", "Nothing"],
    "correlation": [0, 80_500, 2**40],
    "device": [0, 3],
}
NAMES = [
    "nn.Module: ",
    "nn.Module: x",
    "nn.Module: a (b) (c)",
    "FSDP::pre_forward",
    "FSDP::all_gather ()",
    "ProfilerStep#7",
]
LAWS = (
    laws.lines_add_up_to_the_compute_of_their_window,
    laws.packing_is_compute,
    laws.a_bucket_is_its_collective,
    laws.layers_communication_adds_up_to_all_exposed_communication,
)


def damaged(rows: list[Event], random: Random) -> list[Event]:
    found = []
    for row in rows:
        fate = random.random()
        if fate < 0.04:
            continue
        row = row | {"args": dict(row.get("args", {}))}
        if fate < 0.08:
            row["ts"] += random.choice([-30, -1, 0.5, 2, 40])
        elif fate < 0.11:
            row["dur"] = random.choice([0, 0.001, 3, 90])
        elif fate < 0.14:
            row["tid"] = random.choice([MAIN, ENGINE, 77, "strange"])
        elif fate < 0.24 and row["args"]:
            key = random.choice(list(row["args"]))
            row["args"][key] = random.choice(NONSENSE.get(key, [None]))
        elif fate < 0.26:
            row["name"] = random.choice(NAMES)
        found.append(row)
    random.shuffle(found)
    return found


def steps(random: Random) -> list[Event]:
    whole = random.choice([ddp_step, lambda: names_of(ddp_step()), fsdp_step])
    rows = [*whole()]
    if whole is not fsdp_step:
        rows += [shifted(row, 200, 1_000_000) for row in rows if "Step#" not in row["name"]] + [step(1, 200, 200)]
    return rows


@pytest.mark.parametrize("seed", quarters(range(60)))
def test_the_laws_hold_in_damaged_steps(seed, tmp_path):
    random = Random(seed)
    rows = steps(random)
    told(tmp_path / "run", damaged(rows, random), damaged(rows, random))
    found = reported(tmp_path / "run")
    assert from_json(to_json(found)) == saved(found)
    for law in LAWS:
        law(tmp_path / "run")
