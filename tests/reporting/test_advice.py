"""Advice: findings with their gains, what is known at most, and the laws that hold for both on every run."""

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.prediction import Prediction
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.measures.synchronization import IdleFrom, SyncCost
from analyzers.reporting.remedies.advised import Advice, Evidence
from analyzers.reporting.remedies.at_most import CHEAPER_FORMS, advice_at_most
from analyzers.scenarios import CAPS, ODD
from analyzers.step_parts import SPLIT_PARTS
from analyzers.units import between_ms
from tests.support.causal import analyzed
from tests.support.samples import REPORTED, SAMPLES, reported, summary_of
from tests.support.whatifs import answered

STEP = 1_000_000
NOTHING = Evidence(STEP, 1, trained_ns=STEP)


def advised(**evidence: Any) -> dict[str, Advice]:
    return {piece.code: piece for piece in advice_at_most(replace(NOTHING, **evidence))}


def cost(**parts: Any) -> SyncCost:
    zeros = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns", "packing_ns", "packing_copies_ns")
    nulls = ("control_ns", "profiled_ns", "contention_ns", "contention_compared", "remainder_ns", "accounted")
    none = dict.fromkeys((*zeros, "idle_ns", "accounted_ns"), 0) | dict.fromkeys((*nulls, "accounted_of_profiled"))
    return SyncCost(**{**none, "contention_is_estimate": True, "idle_from": IdleFrom.BESIDE, **parts})


# What no replay can be made of.


def test_nothing_is_advised_without_reason():
    assert not advised()
    assert not advised(cost=cost(contention_ns=9_999), products_ns=49_999, layout_ns=49_999)


def test_bounds_come_by_size_and_cheaper_forms_of_compute_last():
    found = advised(cost=cost(contention_ns=20_000), driven_ns=400_000, products_ns=500_000, layout_ns=600_000)
    assert [*found] == ["data_parallel", "contention", "layout", "fp32"]
    assert [piece.at_most_ns for piece in found.values()] == [400_000, 20_000, 600_000, 500_000]
    assert found["contention"].because == "estimated from like kernels without communication beside them"


def test_no_bound_exceeds_the_step():
    (piece,) = advised(driven_ns=2 * STEP).values()
    assert (piece.at_most_ns, piece.share, piece.gain_ns) == (STEP, 1.0, None)


# Laws.


@pytest.mark.parametrize("path", REPORTED)
def test_advice_keeps_the_laws_of_gains(path):
    summary = reported(path).summary
    gains = [piece for piece in summary.advice if piece.gain_ns is not None]
    bounds = [piece for piece in summary.advice if piece.gain_ns is None]
    assert summary.advice == [*gains, *bounds]
    assert gains == sorted(gains, key=lambda piece: -piece.gain_ns)
    for piece in gains:
        low_ns, high_ns = piece.interval_ns
        within = piece.within_ns
        assert 0 < low_ns <= piece.gain_ns <= high_ns
        assert within[0] <= low_ns <= high_ns <= within[1]
        assert 0 < piece.share <= 1
        assert piece.at_most_ns is None
        assert piece.text
        assert piece.problem
        if piece.scenario != ODD:
            assert piece.share == pytest.approx(piece.gain_ns / summary.bar.step_ns, rel=1e-6)
    for piece in bounds:
        assert (piece.interval_ns, piece.scenario) == (None, None)
        assert 0 < piece.at_most_ns <= summary.bar.step_ns
    if gains:
        # Two that save the same time bring less than both; two that hold up the same wait bring more.
        odd_ns = sum(piece.gain_ns for piece in gains if piece.scenario == ODD)
        assert gains[0].gain_ns * 0.99 <= summary.advice_together_ns < summary.bar.step_ns + odd_ns
        for piece in summary.of_degree:
            assert summary.advice_together_ns + piece.gain_ns < summary.bar.step_ns + odd_ns
    assert len({(piece.code, piece.at) for piece in gains}) == len(gains)


@pytest.mark.parametrize("path", REPORTED)
def test_advice_is_graded_as_the_sentence_that_names_it(path):
    summary = reported(path).summary
    headline = summary.headline
    for piece in (*summary.advice, *summary.of_degree):
        assert (piece.trust == "high") == (piece.why is None)
        assert (piece.within_ns is None) == (piece.gain_ns is None)
        if piece.gain_ns and piece.within_ns[1] - piece.within_ns[0] > piece.gain_ns / 2:
            assert piece.trust == "low"
            assert f"the gain may be anything {between_ms(piece.within_ns)}" in piece.why
        if (piece.code, piece.text, piece.gain_ns) == (headline.code, headline.remedy, headline.gain_ns):
            assert piece.trust == headline.trust
            assert piece.why == (headline.why and headline.why.replace("the first gain", "the gain"))


@pytest.mark.parametrize(
    ("name", "headline", "advice"),
    [
        ("resnet18-ddp2-pageable", "low", [("copies", "low"), ("layout", "high")]),
        ("skew-nvlink", "fair", [("graph", "low")]),
    ],
)
def test_a_gain_is_known_better_or_worse_than_the_sentence(name: str, headline: str, advice: list[tuple[str, str]]):
    summary = reported(SAMPLES / name).summary
    assert summary.headline.trust == headline
    assert [(piece.code, piece.trust) for piece in summary.advice] == advice


@pytest.mark.parametrize("path", REPORTED)
def test_advice_says_what_whatif_says(path):
    gains = [piece for piece in reported(path).summary.advice if piece.gain_ns is not None]
    found = answered(path, frozenset(piece.scenario for piece in gains))
    if found is None or not gains:
        return
    for piece in gains:
        same: Prediction = next(each for each in found.scenarios if _is_same(each, piece))
        assert (piece.gain_ns, piece.interval_ns) == (same.gain_ns, same.interval_ns)
        assert same.is_finding
        assert same.within_ns == pytest.approx(piece.within_ns, abs=2)
        if not (piece.scenario == CAPS or piece.scenario == ODD):
            assert same.before_ns == pytest.approx(reported(path).summary.bar.step_ns, abs=2)
    assert len(gains) == sum(each.is_finding for each in found.scenarios)
    assert found.recommended.gain_ns == gains[0].gain_ns


def _is_same(prediction: Prediction, piece: Advice) -> bool:
    kind, at, value = prediction.kind, prediction.at, prediction.value
    return (kind, at) == (piece.scenario, piece.at) and (value == piece.value or kind not in ("straggler", CAPS))


@pytest.mark.parametrize("path", REPORTED)
def test_a_bar_is_its_step_exactly(path):
    bar = reported(path).summary.bar
    assert sum(ns for _, ns in bar.parts) == bar.step_ns
    assert all(ns >= 0 for _, ns in bar.parts)
    assert (bar.idle_or_wait_ns is None) == (bar.idle_ns is not None) == (bar.exposed_wait_ns is not None)
    unprofiled_ns = reported(path).run.controls.unprofiled_step_ns
    assert bar.of == "profiled" or bar.step_ns == unprofiled_ns


@pytest.mark.parametrize("path", REPORTED)
def test_compute_is_as_long_in_the_bar_as_in_the_windows_that_times_are_from(path):
    """It does not stretch: what the replay has of it is what the typical windows of its steps have."""
    found = reported(path)
    if found.summary.bar.of == "profiled":
        return
    typical = [window.compute_ns for window in found.windows if window.typical]
    assert found.summary.bar.compute_ns == pytest.approx(sum(typical) / len(typical), rel=0.02)


def test_parts_of_a_bar_are_named():
    bar = reported(SAMPLES / "resnet18-ddp2-pageable").summary.bar
    assert [part.field for part, _ in bar.parts][:1] == [SPLIT_PARTS[0].field]
    assert bar.of == "unprofiled"


# Findings.


def test_a_finding_is_worth_its_gain_on_top_of_those_before_it():
    """What a calls' synchronization waits for behind a copy goes with the copy: it is the same finding."""
    analyses = Analyses(summary_of(SAMPLES / "resnet18-ddp2-pageable"), None)
    listed = [gain.scenario.kind for gain in analyses.findings.listed]
    assert listed == ["copies"]
    assert {gain.scenario.kind for gain in analyses.gains} > {"copies", "buffers", "graph"}


def test_what_is_of_degree_stands_below_where_a_place_brings_a_twentieth():
    sick = reported(SAMPLES / "resnet18-ddp2-sick").summary
    assert [piece.code for piece in sick.advice if piece.gain_ns] == ["straggler", "buffers"]
    assert [piece.code for piece in sick.of_degree][:2] == ["graph", "host"]
    cured = reported(SAMPLES / "resnet18-ddp2-cured").summary
    assert [(piece.code, piece.of_degree) for piece in cured.advice if piece.gain_ns] == [("graph", True)]


def test_of_nothing_idle_more_is_gained_than_there_is():
    """Of the rank that computes least, idle time and waiting are what its step has besides compute."""
    for name in ("resnet50-ddp4-bf16", "resnet18-ddp2-pageable"):
        subject = analyzed(SAMPLES / name).subject
        summary = reported(SAMPLES / name).summary
        assert all(each.gain_ns <= subject.most_idle_ns for each in summary.of_degree if each.code in ("graph", "host"))


def test_cheaper_forms_of_compute_are_no_finding():
    for name in ("resnet18-ddp2-sick", "resnet50-ddp4-bf16"):
        headline = reported(SAMPLES / name).summary.headline
        assert headline.code not in CHEAPER_FORMS
