"""Waiting where one rank came late by a known time: recorded over NVLink and host memory on two GPUs, and simulated."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from analyzers.collectives.measured import Exchange, exchange
from analyzers.rank.summary import summarize
from tests.support import damage
from tests.support.members import together
from tests.support.pairs import judge, left
from tests.support.physics import SYNCHRONIZING, Collective, Compute
from tests.support.synthetic_runs import Made, World, build
from tests.support.tiers import quarters

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("skew-nvlink", "skew-memory")


@pytest.fixture(scope="module")
def skew():
    spec = importlib.util.spec_from_file_location("skew", ROOT / "benchmarks" / "skew.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["skew"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("run", RUNS)
def test_waiting_is_what_the_late_rank_slept(skew, run):
    judged = {row.kind: row for row in skew.judge(Namespace(folder=ROOT / "traces" / run))}
    assert set(judged) == {*skew.SYNCHRONIZING, *skew.ONE_WAY}
    for row in judged.values():
        assert row.found == row.of
        assert row.late_named
    for kind in skew.SYNCHRONIZING:
        assert judged[kind].allowed == 1.0
        assert max(map(abs, judged[kind].errors_ns)) < 5_000
    for kind in skew.ONE_WAY:
        told, true = judged[kind].window_ns
        # So few repeats tell what a kernel takes when nobody is late to a tenth of a millisecond a step.
        assert told == pytest.approx(true, abs=150_000)


ALIKE = 16  # collectives of one kind and size between two gates, each in a step of its own
GATE = Collective("all_reduce", 1, "Long", waited=True)
KINDS = sorted(SYNCHRONIZING - {"barrier"})
RECORDED = {"profiler": {"active": len(KINDS)}, "hosts": ["h"]}


def many_alike(late_us: int, elements: int, noise_us: float, **settings: object) -> Made:
    """A world whose rank 1 comes so much late to each of many equal collectives, whose ends say little of each."""
    programs = tuple(
        (GATE, *(op for _ in range(ALIKE) for op in (Compute(10), Collective(kind, elements, waited=True))), GATE)
        for kind in KINDS
    )
    more = {"skew_us": (0, late_us), "late_us": 5.0, "lead_us": 20_000, "noise_us": noise_us}
    return build(World(ranks=2, steps=len(KINDS), program=(GATE,), programs=programs, **more, **settings))


@pytest.mark.parametrize("manifest", [None, RECORDED], ids=["traces alone", "run.json"])
@pytest.mark.parametrize("late_us", [0, 50, 250, 1000])
@pytest.mark.parametrize(("elements", "noise_us"), quarters([(1, 90), (1 << 20, 90), (1, 5), (1 << 14, 30)]))
def test_equal_collectives_between_two_gates_are_found_with_their_waiting(
    tmp_path, elements, noise_us, late_us, manifest
):
    made = many_alike(late_us, elements, noise_us, hosts=("h", "h"))
    damage.write_run(tmp_path, made.documents)
    if manifest:
        (tmp_path / "run.json").write_text(json.dumps({"schema": "tracer.run/1", **manifest}))
    found = exchange(summarize(tmp_path))
    verdict = judge(together(found.matching), [one.members for one in made.truth], launched(made))
    assert not verdict.wrong
    assert verdict.share == 1
    assert max(abs(told - true) for told, true in waits(found, made)) <= 5_000


@pytest.mark.parametrize("late_us", [0, 1000])
def test_they_are_found_where_nothing_names_a_host(tmp_path, late_us):
    made = many_alike(late_us, 1 << 14, 90)
    damage.write_run(tmp_path, made.documents)
    verdict = judge(
        together(exchange(summarize(tmp_path)).matching), [one.members for one in made.truth], launched(made)
    )
    assert not verdict.wrong
    assert verdict.share == 1


def launched(made: Made) -> set[damage.Member]:
    """The kernels that were launched while the profiler was open."""
    inside = {member for one in made.truth if one.step >= made.world.first_step for member in one.members}
    return inside & left(made.documents)


def waits(found: Exchange, made: Made) -> list[tuple[int, int]]:
    """What each member of each instance is said to have waited, and did wait, by true starts."""
    table, instances = found.matching.table, found.matching.instances
    started = {(kernel.rank, kernel.correlation): kernel for kernel in made.kernels}
    pairs = []
    for number in range(len(instances)):
        entries = range(instances.first[number], instances.first[number + 1])
        rows = instances.members[entries.start : entries.stop].tolist()
        kernels = [started[int(table.rank[row]), int(table.correlation[row])] for row in rows]
        last = max(kernel.start_ns for kernel in kernels)
        true = [last - kernel.start_ns for kernel in kernels]
        pairs += zip(found.transfers.wait_ns[entries.start : entries.stop].tolist(), true, strict=True)
    return pairs
