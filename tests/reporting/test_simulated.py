"""Simulated runs with one fault each: the first advice names it, and its gain is what the fault costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.scenarios import TWENTIETH
from tests.support.priced import price_ms, scenario_of
from tests.support.simulation import World, simulate, write
from tests.support.simulation.cases import AHEAD, BOTH, CASES, DEVICES, HOSTS, SHARDS, STAGES, Case

# What each simulated fault without a scenario in the graph is named as.
ODD = ("collections", "saved steps")
UNIFORM = "links that are as slow everywhere are no fault of a place"
# Those that are not named, or not with their size, and why.
MISSED = {
    "slow link": UNIFORM,
    "slow link, compute strained": UNIFORM,
    "sharded, slow link": UNIFORM,
    "starved input": "the profiled host is slower than the loader, and waits for nothing",
    "uneven work": "four steps tell less than what chance does in thirty-six",
    "allocations, host-bound": "cudaFree waits for the device, by no edge",
    "moved layers": "the stage is named, and its layers cost others less than they cost it",
}
FIFTH = 0.2
FIRST = "late host, host-bound"


def _of_one_fault() -> list[str]:
    return [name for name, case in CASES.items() if len(case.faults) == 1]


def reported(world: World, folder: Path) -> Report:
    return report(summarize(write(simulate(world), folder / "run"), causes=True))


def marked(name: str) -> ParameterSet:
    marks = [] if name == FIRST else [pytest.mark.slow]
    if name in MISSED:
        marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=MISSED[name]))
    return pytest.param(name, marks=marks)


def is_worth_naming(case: Case, step_ns: float) -> bool:
    return price_ms(case, *case.faults) * 1e6 >= TWENTIETH * step_ns


@pytest.mark.parametrize("name", [marked(name) for name in _of_one_fault()])
def test_the_first_advice_names_the_fault_and_its_size(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (fault,) = case.faults
    found = reported(case.world, tmp_path)
    if not is_worth_naming(case, found.summary.headline.step_ns or 1):
        assert fault.rank is None or fault.rank not in [rank.rank for rank in found.summary.headline.marked]
        return
    assert found.summary.advice, "nothing is advised"
    first = found.summary.advice[0]
    kind, at = ("odd", "odd steps") if fault.kind in ODD else scenario_of(case.world, fault)
    assert (first.scenario, first.at) == (kind, at.partition(":")[0])
    assert (first.gain_ns or 0) / 1e6 == pytest.approx(price_ms(case, fault), rel=FIFTH)
    assert found.summary.headline.gain_ns == first.gain_ns


def test_four_of_five_are_named() -> None:
    assert len(MISSED) <= len(_of_one_fault()) / 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "healthy",
    [HOSTS, DEVICES, BOTH, AHEAD, SHARDS, STAGES],
    ids=["hosts", "devices", "both", "ahead", "shards", "stages"],
)
def test_no_rank_or_place_of_a_healthy_run_is_accused(healthy: World, tmp_path: Path) -> None:
    found = reported(healthy, tmp_path).summary
    accused = [piece for piece in found.advice if piece.gain_ns and piece.share >= TWENTIETH and not piece.of_degree]
    assert accused == []
    assert found.headline.marked == []


@pytest.mark.slow
def test_what_was_measured_is_of_every_step(tmp_path: Path) -> None:
    """A batch is fetched where windows are cut: the first step's belongs to the window before, which is not there."""
    first = reported(CASES["slow input"].world, tmp_path).summary.advice[0]
    assert float(first.because.split()[0]) == pytest.approx(14.2, rel=0.03)
