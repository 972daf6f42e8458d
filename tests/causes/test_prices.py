"""Gains of simulated faults against what these truly cost, and what they would be without each rule of the model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from analyzers.causes.model import Model
from tests.support import causal, left_out
from tests.support.priced import UNDONE, gain_ms, is_within, price_ms
from tests.support.simulation import (
    PIPELINE,
    Fault,
    World,
    allocations,
    late_host,
    pageable_input,
    pageable_output,
    random_healthy,
    simulate,
    slow_gpu,
    slow_host,
    slow_input,
    small_reductions,
    write,
)
from tests.support.simulation.cases import AHEAD, CASES, DEVICES, HOSTS, Case

Written = Callable[[World], Path]

# What a gain may be off by: nearly all, and the few below.
NEARLY_ALL, ANY = 0.02, 0.07
SLOW = [
    "late host, hidden by the queue",
    "late host, half hidden",
    "late host behind a full queue",
    "slow host",
    "slow host of eight, 24 buckets",
    "slow gpu, host-bound",
    "slow gpu, batches on a copy stream",
    "slow input",
    "late host, balanced",
    "event waits",
    "pageable output",
    "slow link, hidden",
    "unequal stage",
    "stage with a slow gpu",
    "sharded, slow link",
    "sharded, late host",
    "shared layers, slow host",
    "two machines, late host",
    "rows that cost, late host",
    "allocations, device-bound",
    "synchronized batches",
    "slow pair of links",
]
FAST = ["late host, host-bound", "slow gpu", "pageable input", "slow link"]
BETWEEN = [
    "one rank's slow input",
    "blocking items, balanced",
    "broadcast buffers",
    "many launches",
    "unused parameters",
]
# What no case of the table has.
MORE = {
    "slow input, then a pageable copy": Case(replace(HOSTS, input_mb=40.0), (slow_input(6), pageable_input())),
    "slow gpu behind a full queue": Case(replace(AHEAD, stretch=1.1, steps=8), (slow_gpu(1, 2.0),)),
    "late host, others blocked by copies": Case(replace(HOSTS, output_mb=4.0), (late_host(1, 3), pageable_output())),
    "late host, others blocked by numbers": Case(HOSTS, (late_host(1, 3), small_reductions(8))),
    "slow host, others blocked by copies": Case(replace(HOSTS, output_mb=4.0), (slow_host(1, 1.4), pageable_output())),
    "late host, others free memory": Case(HOSTS, (late_host(1, 3), allocations(10))),
}
WAITING = "a host's control, with the device at rest, holds its waits for what it launches and for other ranks"
# What is still priced wrongly, and why.
WRONG = {
    "starved input": "the profiled host is slower than the loader, and waits for nothing",
    "blocking items, host-bound": "the calls themselves stay",
    "blocking items, device-bound": WAITING,
    "slow link, compute strained": "compute beside a transfer is not faster where that is shorter",
    "late host, others blocked by copies": WAITING,
    "late host, others blocked by numbers": WAITING,
    "slow host, others blocked by copies": WAITING,
    "late host, others free memory": "cudaFree waits for the device, by no edge",
    "allocations, host-bound": "cudaFree waits for the device, by no edge",
    "small reductions": "the price is of all of them, and the cure keeps one",
    "moved layers": "kernels move between stages, and what their hosts take and their messages do not",
    "uneven work": "four steps tell less than what chance does in thirty-six",
}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Where a world's recording lies, which is made once."""

    @cache
    def folder_of(world: World) -> Path:
        return write(simulate(world), tmp_path_factory.mktemp("simulated") / "run")

    return folder_of


@pytest.fixture(scope="session")
def modelled(written: Written) -> Callable[[World], Model]:
    """The causal model of a world's recording, made once."""
    return cache(lambda world: causal.read_anew(written(world)))


Modelled = Callable[[World], Model]


def slow(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.slow)


def test_nearly_all_cases_are_to_be_right() -> None:
    assert len(FAST + SLOW) >= 18
    assert len(BETWEEN) <= len(FAST + SLOW) / 5


def case_of(name: str) -> Case:
    return MORE.get(name) or CASES[name]


def prices_are_right(model: Model, case: Case, share: float) -> bool:
    """Whether the gain of each fault that a scenario undoes is its price to so much."""
    undone = [fault for fault in case.faults if fault.kind in UNDONE]
    assert undone
    return all(is_within(gain_ms(model, case.world, fault), price_ms(case, fault), share) for fault in undone)


@pytest.mark.parametrize("name", [FAST[0], *(slow(name) for name in FAST[1:] + SLOW)])
def test_a_gain_is_the_price(name: str, modelled: Modelled) -> None:
    assert prices_are_right(modelled(case_of(name).world), case_of(name), NEARLY_ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", BETWEEN)
def test_a_gain_is_about_the_price(name: str, modelled: Modelled) -> None:
    assert prices_are_right(modelled(case_of(name).world), case_of(name), ANY)


def failing(name: object, why: str) -> ParameterSet:
    return pytest.param(
        name, marks=[pytest.mark.slow, pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)]
    )


@pytest.mark.parametrize("name", [failing(name, why) for name, why in WRONG.items()])
def test_a_gain_is_to_be_the_price(name: str, modelled: Modelled) -> None:
    assert prices_are_right(modelled(case_of(name).world), case_of(name), ANY)


TWO = {
    "late host and gpu": Case(HOSTS, (late_host(0, 3), slow_gpu(1, 1.3))),
    "late host and slow host": Case(replace(HOSTS, ranks=4), (late_host(0, 3), slow_host(2, 1.3))),
}


@pytest.mark.parametrize("name", [*map(slow, ("slow gpu and link", "slow host and gpu", *TWO))])
def test_two_faults_at_once_are_priced_apart(name: str, modelled: Modelled) -> None:
    case = TWO.get(name) or CASES[name]
    assert len(case.faults) == 2
    assert prices_are_right(modelled(case.world), case, NEARLY_ALL)


PIPELINED = replace(DEVICES, strategy=PIPELINE, ranks=2, layers=4, buckets=1, batches=4)


@pytest.mark.slow
@pytest.mark.parametrize(("healthy", "offset_ms"), [(PIPELINED, 37.5), (HOSTS, -5000.0)], ids=["pipeline", "ddp"])
def test_a_machines_clock_changes_no_figure(healthy: World, offset_ms: float, modelled: Modelled) -> None:
    alike, apart = (
        modelled(replace(healthy, hosts=2, offsets_ms=(0.0, ms)).having(late_host(1, 3))) for ms in (0.0, offset_ms)
    )
    assert apart.walked.step_ns == pytest.approx(alike.walked.step_ns, rel=1e-3)
    assert gain_ms(apart, healthy, late_host(1, 3)) == pytest.approx(gain_ms(alike, healthy, late_host(1, 3)), abs=0.02)


@pytest.mark.slow
@pytest.mark.xfail(strict=True, raises=AssertionError, reason=WAITING)
@pytest.mark.parametrize("name", ["event waits", "blocking items, balanced", "blocking items, device-bound"])
def test_a_host_that_waits_is_stretched_as_much_as_one_that_does_not(name: str, modelled: Modelled) -> None:
    calibrated = modelled(CASES[name].world).calibrated
    left = calibrated.variants[0].hosts.share / calibrated.factor
    assert left == pytest.approx(1 / CASES[name].world.stretch, rel=0.05)
    assert calibrated.replay_error == pytest.approx(0, abs=0.01)


SIZES = [
    (HOSTS, late_host, (1.0, 2.0, 4.0)),
    (DEVICES, lambda rank, more: slow_gpu(rank, 1 + more), (0.1, 0.2, 0.4)),
    (HOSTS, lambda rank, more: slow_host(rank, 1 + more), (0.2, 0.4, 0.8)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("healthy", "fault_of", "sizes"), SIZES, ids=["late host", "slow gpu", "slow host"])
def test_a_fault_of_twice_the_size_costs_twice(
    healthy: World, fault_of: Callable[[int, float], Fault], sizes: tuple[float, ...], modelled: Modelled
) -> None:
    cases = [Case(healthy, (fault_of(1, size),)) for size in sizes]
    prices = [price_ms(case, *case.faults) for case in cases]
    assert [price / prices[0] for price in prices] == pytest.approx([1, 2, 4], rel=0.05), "the true prices are not so"
    gains = [gain_ms(modelled(case.world), case.world, *case.faults) for case in cases]
    assert [gain / gains[0] for gain in gains] == pytest.approx([price / prices[0] for price in prices], rel=0.03)


HEALTHY = (1,)


@pytest.mark.parametrize(
    "seed",
    [
        *HEALTHY,
        *(slow(seed) for seed in range(100) if seed not in HEALTHY),
    ],
)
def test_a_healthy_world_has_no_straggler(seed: int, tmp_path: Path) -> None:
    model = causal.read_anew(write(simulate(random_healthy(seed)), tmp_path / "run"))
    assert causal.stragglers(model) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unequal stage", "stage with a slow gpu"])
def test_the_only_rank_of_a_stage_has_no_like(name: str, modelled: Modelled) -> None:
    places = [gain.scenario.at for gain in causal.of_places(causal.gains(modelled(CASES[name].world)))]
    assert [at for at in places if at.startswith("rank")] == []


# Without a rule

NEEDED = {
    "stream waits": "slow gpu",
    "recorded waits": "slow link",
    "launches of blocking calls": "slow input, then a pageable copy",
    "blocking edges": "event waits",
    "hand-over": "event waits",
    "scaled hosts": "slow host",
    "excess": "one rank's slow input",
    "common factor": "event waits",
    "meetings": "slow gpu",
    "seams": "late host, host-bound",
}


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "name"), NEEDED.items())
def test_without_a_rule_a_case_misses_its_price(
    rule: str, name: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of(name)
    folder = written(case.world)
    assert prices_are_right(causal.read_anew(folder), case, ANY)
    left_out.RULES[rule](monkeypatch)
    assert not prices_are_right(causal.read_anew(folder), case, ANY)


@pytest.mark.slow
def test_without_room_in_the_queue_hosts_seem_to_set_the_pace(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a control of the host tells what it takes, that makes good for the rule."""
    case = case_of("slow gpu behind a full queue")
    folder = tmp_path / "without-controls"
    shutil.copytree(written(case.world), folder)
    (folder / "run.json").unlink()
    assert prices_are_right(causal.read_anew(folder), case, NEARLY_ALL)
    left_out.RULES["full queue"](monkeypatch)
    assert not prices_are_right(causal.read_anew(folder), case, ANY)
