"""A run with three known faults, and the same without them: what is advised, and what the comparison then finds.

benchmarks/sick_run.py has the faults: rank 1 is late, buffers are broadcast, gradients are copied out of their buckets.
"""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from analyzers.comparison.document import Comparison
from analyzers.comparison.runs import compare
from analyzers.lazy_fields import replaced
from analyzers.reporting.document import Report
from analyzers.run.controls import Control
from analyzers.scenarios import ODD
from analyzers.units import percent
from tests.support.samples import SAMPLES, reported, summarized
from tests.support.typical_steps import control_ns
from tracer.views.sections.results import comparison_text

# How late rank 1 is by its script, in every step.
LATE_NS = 3_000_000


def sick() -> Report:
    return reported(SAMPLES / "resnet18-ddp2-sick")


def cured() -> Report:
    return reported(SAMPLES / "resnet18-ddp2-cured")


def control_of(name: str) -> Control:
    timed = summarized(SAMPLES / f"resnet18-ddp2-{name}").manifest.controls.unprofiled
    assert timed is not None
    return timed


@cache
def compared() -> Comparison:
    return compare(sick(), cured())


def advised(found: Report) -> dict[str, int]:
    """What each advice with a gain would bring, ns a step, by its code."""
    return {each.code: each.gain_ns for each in found.summary.advice if each.gain_ns is not None}


def test_the_faults_are_what_is_advised_first():
    assert list(advised(sick())) == ["straggler", "buffers"]
    assert "find out what delays rank 1's CPU" in sick().summary.advice[0].text
    assert "its CPU is in Python" in sick().summary.advice[0].because


def test_what_was_cured_is_not_advised_again():
    assert not {"buffers", "straggler"} & set(advised(cured()))
    assert advised(sick())["straggler"] == pytest.approx(LATE_NS, rel=0.25)
    both = sick().summary.advice_together_ns
    assert both == pytest.approx(control_ns(control_of("sick")) - control_ns(control_of("cured")), rel=0.1)


def test_the_step_is_shorter_by_about_what_rank_1_was_late():
    step = compared().controls["unprofiled_step_ns"]
    assert step.state == "changed"
    assert step.interval is not None
    assert step.interval[0] < -LATE_NS < step.interval[1] < 0
    sick_ns, cured_ns = (control_ns(control_of(name)) for name in ("sick", "cured"))
    assert f"{percent(1 - cured_ns / sick_ns)} shorter" in compared().verdict


def test_rank_1_is_waited_for_less():
    waits = compared().parts["exposed_wait_ns"]
    assert waits.difference is not None
    assert waits.difference < -LATE_NS / 2
    # Within both windows it grows from step to step, by more than that: eight steps of one launch do not tell.
    assert waits.state == "correlated"
    by_rank = {row.rank: row.caused_ns for row in sick().waiting}
    assert by_rank[0] == 0 < by_rank[1]


def test_between_steps_rank_1_no_longer_is_in_python():
    was, now = (
        sum(row.idle.python_ns for row in found.idle.phases if (row.rank, row.phase) == (1, "between_steps"))
        for found in (sick(), cured())
    )
    assert now < was / 10


def test_copies_out_of_buckets_are_gone():
    copies = compared().parts["exposed_copy_ns"]
    assert copies.state == "changed"
    assert copies.relative is not None
    assert copies.relative < -0.9
    assert sum(row.count for row in cured().summary.copies) == 0 < sum(row.count for row in sick().summary.copies)


def test_broadcasts_of_buffers_are_gone():
    counts = {(each.kind, each.purpose): (each.a_count, each.b_count) for each in compared().collectives}
    assert counts == {("broadcast", "buffers"): (8, 0), ("all_reduce", "gradients"): (8, 8)}
    layers = {each.layer: {change.state for change in each.measures.values()} for each in compared().layers}
    assert layers["(buffers)"] == {"only_a"}


def test_what_was_promised_stands_beside_what_came():
    promise = compared().promise
    assert promise is not None
    assert [gain.code for gain in promise.gains] == ["straggler", "buffers"]
    assert promise.together_ns == sick().summary.advice_together_ns
    assert promise.came_ns == control_ns(control_of("sick")) - control_ns(control_of("cured"))
    low_ns, high_ns = promise.came_within_ns
    assert low_ns < promise.together_ns < high_ns
    shown = " ".join(comparison_text(compared()).split())
    assert "A's advice that B no longer needs promised 4.20 ms (rank 1's CPU launches late 3.67 ms;" in shown
    assert "); came 3.97 ms (0.680 to 6.85)." in shown


def test_nothing_is_promised_between_other_trainings_nor_backwards():
    assert compare(sick(), sick()).promise is None
    assert compare(sick(), reported(SAMPLES / "resnet50-ddp4-bf16")).promise is None


def test_odd_steps_that_are_gone_are_named_with_what_they_cost_the_mean_step():
    """A typical step is as long with odd ones as without: what came of their cure is in the mean alone."""
    advice = [replace(sick().summary.advice[0], code=ODD, at="odd steps", gain_ns=53_420_000, interval_ns=[1, 2])]
    with_odd = replaced(sick(), summary=replaced(sick().summary, advice=advice))
    found = compare(with_odd, cured())
    assert (found.promise, found.odd_gone.gain_ns) == (None, 53_420_000)
    shown = " ".join(comparison_text(found).split())
    assert "A's odd steps cost 53.42 ms of its mean step; B's report names none." in shown
    assert compare(with_odd, with_odd).odd_gone is None
