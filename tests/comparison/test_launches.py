"""Several launches on each side: each is one sample, which tells what steps of one launch cannot."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.comparison.change import LEVEL
from analyzers.comparison.condition_names import RunFigures
from analyzers.comparison.conditions import Figure
from analyzers.comparison.document import Comparison
from analyzers.comparison.runs import compare
from analyzers.lazy_fields import replaced
from analyzers.notices import Code
from analyzers.reporting.document import Report
from tests.support.commands import fails
from tests.support.comparing import controlled, stepping
from tests.support.samples import SAMPLES, reported
from tracer.cli import main
from tracer.views.sections.results import comparison_text, promise_words

DDP2, DDP4 = str(SAMPLES / "resnet18-ddp2"), str(SAMPLES / "resnet18-ddp4")


def launch(step_ms: float, rng: np.random.Generator, steps: int = 8) -> Report:
    """A launch whose steps scatter by a thousandth about its own, and so do the blocks of its control."""
    about = [(step_ms * (1 + 0.001 * rng.normal(size=(steps, 1)))).tolist() for _ in range(2)]
    return began_at(
        int(rng.integers(1 << 40)), controlled(stepping(about[0]), {"unprofiled": [ms for (ms,) in about[1]]})
    )


def began_at(origin_ns: int, found: Report) -> Report:
    """The same of another recording."""
    return replaced(found, run=replace(found.run, origin_ns=str(origin_ns)))


def launches(steps_ms: list[float], seed: int = 1) -> list[Report]:
    rng = np.random.default_rng(seed)
    return [launch(step_ms, rng) for step_ms in steps_ms]


def states(found: Comparison) -> tuple[str, str]:
    return found.controls["unprofiled_step_ns"].state, found.step["span_ns"].state


def test_launches_that_differ_as_much_among_themselves_are_not_told_apart():
    """Steps of one launch each differ surely, since a launch's differ by far less than launches do."""
    a, b = launches([10.0, 11.0, 10.5, 11.5]), launches([10.8, 10.2, 11.3, 11.9], seed=2)
    assert states(compare(a[0], b[0])) == ("changed", "changed")
    found = compare(a, b)
    assert states(found) == ("within", "within")
    low_ns, high_ns = found.controls["unprofiled_step_ns"].interval or (1, 1)
    assert low_ns < 0 < high_ns


def test_launches_that_all_lie_beyond_the_others_are():
    found = compare(launches([10.0, 11.0, 10.5, 11.5]), launches([12.0, 12.5, 13.0, 12.2], seed=2))
    assert states(found) == ("changed", "changed")
    change = found.controls["unprofiled_step_ns"]
    assert (change.a_steps, change.b_steps, change.correlation) == (4, 4, None)
    assert change.a == pytest.approx(10.75e6, rel=0.001)
    assert change.p == pytest.approx(2 / 70)
    low_ns, high_ns = change.interval or (0, 0)
    assert 0 < low_ns <= change.difference <= high_ns
    assert found.verdict.startswith("B's step is 14")
    assert "launches" in found.test.method


def test_three_of_each_say_so_and_how_many_tell():
    found = compare(launches([10.0, 11.0, 10.5]), launches([12.0, 12.5, 13.0], seed=2))
    assert states(found) == ("too_few", "too_few")
    assert found.verdict.startswith("There are too few launches to tell")
    assert "all 3 of B's above all 3 of A's" in found.verdict
    (warning,) = [each for each in found.warnings if each.code == Code.STEPS_TOO_FEW]
    assert "four of each" in str(warning)


def test_one_launch_on_a_side_is_one_sample():
    found = compare(launches([10.0]), launches([12.0, 12.5, 13.0], seed=2))
    assert (found.step["span_ns"].a_steps, found.step["span_ns"].b_steps) == (1, 3)


@pytest.mark.slow
def test_launches_of_the_same_are_marked_as_seldom_as_is_said():
    rng, cases, found = np.random.default_rng(7), 200, 0
    for _ in range(cases):
        sides = [[launch(10 + rng.normal(), rng, 3) for _ in range(4)] for _ in range(2)]
        found += compare(*sides).step["span_ns"].is_marked
    assert found <= cases * LEVEL + 3 * (cases * LEVEL * (1 - LEVEL)) ** 0.5


def test_a_figure_of_several_launches_is_their_median():
    a, b = launches([10.0, 11.0, 10.5, 11.5]), launches([12.0, 12.5, 13.0, 12.2], seed=2)
    figures = RunFigures(b, a, compare(a, b))
    steps = sorted(report.run.controls.unprofiled_step_ns or 0 for report in b)
    assert figures(Figure("unprofiled_step_ns")) == (steps[1] + steps[2]) / 2
    assert figures(Figure("unprofiled_step_ns", of="change")) is True


def test_launches_of_a_side_that_are_not_the_same_are_named():
    one, other = launches([10.0, 11.0])
    unlike = replaced(other, run=replace(other.run, batch_per_gpu=64))
    (warning,) = [each for each in compare([one, unlike], [one]).warnings if each.code == Code.LAUNCHES_UNLIKE]
    assert str(warning).startswith("A's launches differ in batch_per_gpu")


def test_every_table_of_real_launches_has_them_as_samples():
    a, b = reported(SAMPLES / "resnet18-ddp2-sick"), reported(SAMPLES / "resnet18-ddp2-cured")
    of_a, of_b = ([began_at(number, side) for number in range(4)] for side in (a, b))
    found, of_steps = compare(of_a, of_b), compare(a, b)
    assert found.states["too_few"] == found.states["correlated"] == 0
    medians = {figure[:3]: (figure.change.a, figure.change.b) for figure in of_steps.figures()}
    assert len([*found.figures()]) > 0.9 * len(medians)  # of others most steps took nothing
    for figure in found.figures():
        assert (figure.change.a, figure.change.b) == medians[figure[:3]]
    shown = comparison_text(found, typed="a a a a --against b b b b")
    assert "the first of 4 launches" in shown.splitlines()[0]
    assert "tracer compare a a a a --against b b b b --full" in shown


@dataclass(frozen=True)
class Typed:
    words: tuple[str, ...]
    refused: str


@pytest.mark.parametrize(
    "typed",
    [
        Typed((DDP2,), "give two runs"),
        Typed((DDP2, DDP4, DDP4), "compare A1 A2 A3 --against B1 B2 B3"),
    ],
    ids=["one", "three"],
)
def test_two_runs_are_asked_for_where_none_are_against_others(typed, capsys):
    code, line = fails(capsys, "compare", *typed.words)
    assert (code, typed.refused in line) == (2, True)


def test_the_command_takes_launches_of_each(capsys):
    assert main(["compare", DDP2, str(SAMPLES / "resnet18-ddp2-cured"), "--against", DDP4, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a_launches"], document["b_launches"]) == (2, 1)


def test_a_recording_that_is_given_twice_is_one_sample():
    a, b = launches([10.0, 11.0, 10.5, 11.5]), launches([12.0, 12.5, 13.0, 12.2], seed=2)
    found = compare([*a, a[0], a[1]], b)
    assert (found.a_launches, found.step["span_ns"].a_steps) == (4, 4)
    assert "2 of the runs given are recordings that are there already" in str(found.warnings[0])


@pytest.mark.parametrize("words", ["--summary", "--by step"])
def test_a_reports_summary_and_its_tables_have_no_steps_to_compare(tmp_path, capsys, words):
    part = tmp_path / "part.json"
    assert main(["report", DDP2, "--json", *words.split(), "-o", str(part)]) == 0
    code, line = fails(capsys, "compare", str(part), DDP4)
    assert (code, "without the run's steps: save `tracer report RUN --json`" in line) == (1, True)


def test_what_came_of_launches_that_tell_is_given_with_its_interval():
    a, b = (reported(SAMPLES / f"resnet18-ddp2-{name}") for name in ("sick", "cured"))
    found = compare(*([began_at(number, side) for number in range(4)] for side in (a, b)))
    (words,) = promise_words(found)
    assert "too few" not in words
    assert words.startswith("The advice of A's first launch that B no longer needs promised 4.20 ms")


def test_launches_are_not_told_to_be_recorded_where_they_are():
    a, b = launches([10.0, 11.0, 10.5, 11.5]), launches([12.0, 12.5, 13.0, 12.2], seed=2)
    on_cpus = [replaced(each, run=replace(each.run, backend="gloo")) for each in a]
    assert Code.LAUNCHES_DIFFER in [each.code for each in compare(on_cpus[0], b[0]).warnings]
    assert Code.LAUNCHES_DIFFER not in [each.code for each in compare(on_cpus, b).warnings]
