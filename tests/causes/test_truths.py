"""Gains on recorded runs whose truth is known: a fault that was planted, and the step without it."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from analyzers.causes.model import Model
from analyzers.scenarios import Gain
from tests.support import causal, left_out
from tests.support.samples import RUNS, SAMPLES

SICK, CURED = SAMPLES / "resnet18-ddp2-sick", SAMPLES / "resnet18-ddp2-cured"
ADVICE = {path.name: path for path in RUNS if path.parent.name == "traces-advice"}
# In traces/ this one lies under another name.
PAGEABLE = SAMPLES / "resnet18-ddp2-pageable"
PLANTED = [pytest.mark.slow, pytest.mark.skipif(not ADVICE, reason="no shared/traces-advice beside the checkout")]
# A step with the fault and without it, ms, of one launch without a profiler; what cures it; how near T' comes to that.
REMEDIES = [
    pytest.param(PAGEABLE, 71.4, 50.1, "pageable copies", 0.1, id="pageable"),
    pytest.param("loader", 114.9, 44.8, "DataLoader", 0.2, marks=PLANTED, id="loader"),
    pytest.param("sharedgpu", 73.1, 38.4, "rank 1: compute", 0.1, marks=PLANTED, id="sharedgpu"),
    pytest.param("accum", 102.9, 57.9, "all but the last of accumulated batches", 0.1, marks=PLANTED, id="accum"),
    pytest.param("buffers", 35.9, 32.1, "DistributedDataParallel.forward", 0.1, marks=PLANTED, id="buffers"),
    pytest.param("optimizer", 48.9, 33.7, "Optimizer.step", 0.1, marks=PLANTED, id="optimizer"),
]


def largest(gains: list[Gain]) -> Gain:
    return max(gains, key=lambda gain: gain.gain_ns)


def test_a_late_host_costs_what_was_put_into_it() -> None:
    gain = largest(causal.of_places(causal.gains(causal.model_of(SICK))))
    assert gain.scenario.at == "rank 1: host"
    assert 2.6 < gain.gain_ns / 1e6 < 3.8
    assert causal.stragglers(causal.model_of(SICK)) == ["rank 1: host"]


def test_without_it_no_rank_is_named() -> None:
    assert causal.stragglers(causal.model_of(CURED)) == []


@pytest.mark.parametrize(("run", "sick_ms", "cured_ms", "at", "share"), REMEDIES)
def test_the_step_with_a_remedy_is_the_one_that_was_measured(
    run: Path | str, sick_ms: float, cured_ms: float, at: str, share: float
) -> None:
    model = causal.model_of(run if isinstance(run, Path) else ADVICE[run])
    gain = largest(causal.definite(model))
    assert gain.scenario.at == at
    # Launches of one program differ: the cured step is of another one than the recording.
    recorded_ns = model.calibrated.unprofiled_ns
    assert recorded_ns is not None
    assert gain.step_ns == pytest.approx(1e6 * cured_ms * (recorded_ns / 1e6) / sick_ms, rel=share)


def test_what_ended_just_before_explains_what_no_call_of_fsdp_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP2 lets streams wait by calls of which traces say nothing."""
    known, left = (_unknown_ns(SAMPLES / "resnet18-fsdp4", rule, monkeypatch) for rule in (None, "soon after"))
    assert known < left / 10


def _unknown_ns(run: Path, rule: str | None, monkeypatch: pytest.MonkeyPatch) -> int:
    if rule is not None:
        left_out.RULES[rule](monkeypatch)
    return int(causal.read_anew(run).graph.edges.unknown_ns.sum())


@pytest.mark.slow
@pytest.mark.skipif(not ADVICE, reason="no shared/traces-advice beside the checkout")
def test_a_healthy_run_gains_by_nothing_that_is_found() -> None:
    model = causal.model_of(ADVICE["healthy"])
    assert [gain.scenario for gain in causal.definite(model) if gain.gain_ns > model.walked.step_ns / 20] == []


@pytest.mark.slow
@pytest.mark.skipif(not ADVICE, reason="no shared/traces-advice beside the checkout")
def test_replays_by_the_controls_alone_are_nearly_the_unprofiled_step() -> None:
    errors = [causal.model_of(path).calibrated.replay_error for path in [*ADVICE.values(), PAGEABLE]]
    known = [abs(error) for error in errors if error is not None]
    assert len(known) == len(errors)
    assert median(known) < 0.04
    assert max(known) < 0.12


# Without a rule: the run, what its fault and its cure take (ms, as above), and where it is.
SHARED, OFFLOAD = ("sharedgpu", 73.1, 38.4, "rank 1: compute"), ("offload", 103.3, 27.2, "pageable copies")
NEEDED = {"light durations": SHARED, "odd light steps": OFFLOAD, "released": SHARED}


@pytest.mark.slow
@pytest.mark.skipif(not ADVICE, reason="no shared/traces-advice beside the checkout")
@pytest.mark.parametrize(("rule", "run"), NEEDED.items())
def test_without_a_rule_a_gain_is_off_by_more_than_a_tenth(
    rule: str, run: tuple[str, float, float, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, sick_ms, cured_ms, at = run
    model = causal.model_of(ADVICE[name])
    recorded_ns = model.calibrated.unprofiled_ns
    assert recorded_ns is not None
    true = pytest.approx(recorded_ns * (1 - cured_ms / sick_ms), rel=0.1)
    assert gain_at(model, at) == true
    left_out.RULES[rule](monkeypatch)
    assert gain_at(causal.read_anew(ADVICE[name]), at) != true


def gain_at(model: Model, at: str) -> float:
    (gain_ns,) = (gain.gain_ns for gain in causal.gains(model) if gain.scenario.at == at)
    return gain_ns
