"""Advice at the gain that the graph of causes has for its change."""

import pytest

from analyzers.reporting.build import report
from analyzers.reporting.remedies.advised import Advice
from analyzers.reporting.remedies.graph_gains import at_gains, replayed
from analyzers.scenarios import Gain, Scenario
from tests.support.causal import gains, model_of
from tests.support.samples import SAMPLES, explained

SICK = SAMPLES / "resnet18-ddp2-sick"


def gain(kind: str, at: str, ms: float, least_ms: float | None = None, *, reliable: bool = True) -> Gain:
    """A gain of a step of 10 ms."""
    low, high = 0.9 * ms if least_ms is None else least_ms, 1.1 * ms
    return Gain(Scenario(kind, at, lambda lags: lags, ""), (10 - ms) * 1e6, ms * 1e6, (low * 1e6, high * 1e6), reliable)


def told(advice: list[Advice], found: list[Gain]) -> list[Advice]:
    return at_gains(advice, sorted(found, key=lambda each: -each.gain_ns), {each.scenario.kind for each in found})


BUFFERS, PAUSES = Advice("buffers", "", 300_000, ""), Advice("kernel_gaps", "", 5_000_000, "")
LATE = Advice("straggler", "", 7_000_000, "", at="rank 1")


def test_a_gain_takes_the_place_of_what_it_is_at_most():
    (found,) = told([BUFFERS], [gain("buffers", "forward", 2)])
    assert (found.figure_ns, found.share, found.scenario) == (2_000_000, pytest.approx(0.2), "buffers")
    assert found.interval_ns == (1_800_000, 2_200_000)


def test_what_has_no_scenario_stays_as_it_is():
    assert told([PAUSES, BUFFERS], []) == [PAUSES, BUFFERS]
    assert told([BUFFERS], [gain("buffers", "forward", 2, reliable=False)]) == [BUFFERS]


def test_gains_that_matter_come_before_what_is_known_at_most():
    for ms, order in ((2, ["buffers", "kernel_gaps"]), (0.5, ["kernel_gaps", "buffers"])):
        assert [each.code for each in told([PAUSES, BUFFERS], [gain("buffers", "forward", ms)])] == order


def test_what_would_bring_nothing_is_no_advice():
    for little in (gain("buffers", "forward", 0.05), gain("buffers", "forward", 2, least_ms=-1)):
        assert told([BUFFERS], [little]) == []


def test_a_rank_has_the_largest_of_its_own_scenarios():
    own = [gain("straggler", "rank 1: host", 3), gain("straggler", "rank 1: input", 1)]
    (found,) = told([LATE], [gain("straggler", "rank 0: host", 4), *own])
    assert found.figure_ns == 3_000_000
    assert told([LATE], [gain("straggler", "rank 0: host", 4)]) == []


def test_without_a_graph_advice_is_as_it_was():
    assert replayed([PAUSES, BUFFERS], None) == [PAUSES, BUFFERS]


def test_a_report_has_the_gains_of_its_graph():
    found = {(each.scenario.kind, each.scenario.at): each for each in gains(model_of(SICK))}
    advice = {each.code: each for each in report(explained(SICK)).summary.advice}
    assert advice["straggler"].figure_ns == round(found["straggler", "rank 1: host"].gain_ns)
    assert advice["buffers"].figure_ns == round(found["buffers", "DistributedDataParallel.forward"].gain_ns)
    assert advice["copies_out"].scenario is None
