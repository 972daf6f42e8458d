"""Gains of simulated faults against what these truly cost, and what they would be without each rule of the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from analyzers.causes.model import Model
from tests.support import causal, left_out
from tests.support.priced import gain_ms, is_within, price_ms
from tests.support.simulation import (
    Fault,
    World,
    late_host,
    random_healthy,
    simulate,
    slow_gpu,
    slow_host,
    write,
)
from tests.support.simulation.cases import CASES, DEVICES, HOSTS, Case

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
    "sharded, slow link",
    "sharded, late host",
    "shared layers, slow host",
    "two machines, late host",
    "rows that cost, late host",
]
FAST = ["late host, host-bound", "slow gpu", "pageable input", "slow link", "stage with a slow gpu"]
BETWEEN = ["one rank's slow input", "blocking items, balanced"]
# What is still priced wrongly, and why.
WRONG = {
    "starved input": "the profiled host is slower than the loader, and waits for nothing",
    "blocking items, host-bound": "the calls themselves stay",
    "blocking items, device-bound": "the step is 1.7 % too long",
    "slow link, compute strained": "compute beside a transfer is not faster where that is shorter",
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


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


def test_nearly_all_cases_are_to_be_right() -> None:
    assert len(FAST + SLOW) >= 18
    assert len(BETWEEN) <= 2


@pytest.mark.parametrize("name", [*FAST, *(slow(name) for name in SLOW)])
def test_a_gain_is_the_price(name: str, modelled: Modelled) -> None:
    (fault,) = CASES[name].faults
    assert is_within(gain_ms(modelled(CASES[name].world), fault), price_ms(CASES[name], fault), NEARLY_ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", BETWEEN)
def test_a_gain_is_about_the_price(name: str, modelled: Modelled) -> None:
    (fault,) = CASES[name].faults
    assert is_within(gain_ms(modelled(CASES[name].world), fault), price_ms(CASES[name], fault), ANY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=why)) for name, why in WRONG.items()]
)
def test_a_gain_is_to_be_the_price(name: str, modelled: Modelled) -> None:
    (fault,) = CASES[name].faults
    assert is_within(gain_ms(modelled(CASES[name].world), fault), price_ms(CASES[name], fault), ANY)


@pytest.mark.parametrize("name", [slow("slow gpu and link"), slow("slow host and gpu"), "late host and gpu"])
def test_two_faults_at_once_are_priced_apart(name: str, modelled: Modelled) -> None:
    case = CASES.get(name) or Case(HOSTS, (late_host(0, 3), slow_gpu(1, 6.0)))
    for fault in case.faults:
        assert is_within(gain_ms(modelled(case.world), fault), price_ms(case, fault), NEARLY_ALL)


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
    gains = [gain_ms(modelled(case.world), *case.faults) for case in cases]
    assert [gain / gains[0] for gain in gains] == pytest.approx([price / prices[0] for price in prices], rel=0.03)


@pytest.mark.parametrize("seed", [1, 2, 4, *(slow(seed) for seed in range(100) if seed not in (1, 2, 4))])
def test_a_healthy_world_has_no_straggler(seed: int, tmp_path: Path) -> None:
    model = causal.read_anew(write(simulate(random_healthy(seed)), tmp_path / "run"))
    step_ns = model.walked.step_ns
    named = [gain for gain in causal.of_places(model.gains) if causal.least_ns(gain) > 0]
    assert not [gain.scenario.at for gain in named if gain.gain_ns > step_ns / 20]


# Without a rule

NEEDED = {
    "stream waits": "slow gpu",
    "recorded waits": "slow link",
    "soon after": "unequal stage",
}


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "name"), NEEDED.items())
def test_without_a_rule_a_case_misses_its_price(
    rule: str, name: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    folder, prices = written(case.world), [price_ms(case, fault) for fault in case.faults]
    left_out.RULES[rule](monkeypatch)
    model = causal.read_anew(folder)
    assert not all(
        is_within(gain_ms(model, fault), price, ANY) for fault, price in zip(case.faults, prices, strict=True)
    )
