"""Light windows without launches, and light windows that hold other kernels, made from the samples'."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from analyzers.lazy_fields import evaluated
from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.rank.sync_overhead import Cost
from analyzers.reporting.build import report
from tests.support import laws
from tests.support.light_windows import as_recorded_bare, differing, rerecorded
from tests.support.samples import SAMPLES, reported, summarized
from tests.support.tiers import quarters

SAMPLE = SAMPLES / "resnet18-ddp2"
# How a light window differs from the full one, and the samples that show it.
CHANGES = {
    "bare": as_recorded_bare,
    "dropped": lambda document: differing(as_recorded_bare(document), "drop", 40),
    "renamed": lambda document: differing(document, "rename", 40),
    "inserted": lambda document: differing(as_recorded_bare(document), "insert", 60),
}
RUNS = {
    "bare": ("resnet18-ddp2", "resnet50-ddp4-bf16"),
    "dropped": ("resnet18-ddp2", "resnet18-dp4"),
    "renamed": ("resnet18-ddp2", "resnet50-ddp4-bf16"),
    "inserted": ("resnet18-ddp2", "resnet18-ddp1"),
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory):
    made: dict[tuple[str, str], Path] = {}

    def of(change: str, run: str) -> Path:
        if (change, run) not in made:
            made[change, run] = rerecorded(SAMPLES / run, tmp_path_factory.mktemp(change) / run, CHANGES[change])
        return made[change, run]

    return of


def codes(path: Path) -> set[Code]:
    return {notice.code for notice in summarized(path).warnings}


def rows(path: Path, name: str, *left_out: str) -> list[dict[str, Any]]:
    listed = to_builtins(evaluated(reported(path)), enc_hook=str)[name]
    return [{key: value for key, value in row.items() if key not in left_out} for row in listed]


@pytest.mark.parametrize("run", quarters(["resnet18-ddp2", "resnet18-dp4", "resnet50-ddp4-bf16", "resnet18-ddp1"]))
def test_without_launches_a_light_window_says_the_same_to_the_nanosecond(changed, run):
    path = changed("bare", run)
    assert codes(path) - codes(SAMPLES / run) == {Code.LAUNCHES_ARE_ESTIMATED}
    for name in ("windows", "collectives", "unmatched", "groups", "layers", "kernels", "operators"):
        assert rows(path, name, "idle") == rows(SAMPLES / run, name, "idle"), name
    for bare, recorded in zip(summarized(path).measured, summarized(SAMPLES / run).measured, strict=True):
        for field in fields(Cost):
            assert np.array_equal(getattr(bare.cost, field.name), getattr(recorded.cost, field.name)), field.name
    launches = ("launched_ns", "queued_ns", "late_launch_ns")
    assert rows(path, "buckets", *launches) == rows(SAMPLES / run, "buckets", *launches)


@pytest.mark.parametrize("run", quarters(["resnet18-ddp2", "resnet18-dp4", "resnet50-ddp4-bf16", "resnet18-ddp1"]))
def test_estimated_launches_say_nearly_the_same_of_idle_time(changed, run):
    """6 % of it at most are of another cause than by the launches that were recorded."""
    bare, recorded = (
        sum(rank.timed.idle.ns.sum(axis=(0, 2)) for rank in summarized(path).ranks)
        for path in (changed("bare", run), SAMPLES / run)
    )
    assert np.abs(bare - recorded).sum() / 2 < 0.06 * recorded.sum()


def test_estimated_launches_are_near_those_that_a_light_window_had(changed):
    """Of reductions: their launches differ from the recorded ones by less than a tenth of a step."""
    for bare, recorded in zip(summarized(changed("bare", SAMPLE.name)).ranks, summarized(SAMPLE).ranks, strict=True):
        estimated, known = bare.timed.reductions.launched_ns, recorded.timed.reductions.launched_ns
        step_ns = np.median(recorded.timed.windows.span_ns)
        assert np.median(np.abs(estimated - known)) < step_ns / 10


@pytest.mark.parametrize(
    ("change", "run"),
    [
        pytest.param(change, run, marks=pytest.mark.slow if run != runs[0] else ())
        for change, runs in RUNS.items()
        for run in runs
    ],
)
def test_laws_hold_where_windows_differ(changed, change, run):
    path = changed(change, run)
    found = reported(path)
    assert found.run.times_from == "light"
    assert (Code.LIGHT_WINDOW_JOINED_IN_PART in codes(path)) == (change != "bare")
    for window in found.windows:
        parts = window.compute_ns, window.exposed_comm_ns, window.exposed_copy_ns, window.idle_ns
        assert sum(parts) == window.span_ns
        assert min(parts) >= 0
    for law in laws.LAWS:
        try:
            law(path)
        except pytest.skip.Exception:
            continue


def test_the_full_window_is_the_same_beside_whatever_light_one(changed):
    for change in CHANGES:
        full = report(summarized(changed(change, SAMPLE.name)).of_full_windows())
        same = report(summarized(SAMPLE).of_full_windows())
        for name in ("windows", "collectives", "unmatched", "buckets", "layers", "kernels"):
            assert to_builtins(getattr(full, name), enc_hook=str) == to_builtins(getattr(same, name), enc_hook=str), (
                name
            )


def test_what_the_light_window_alone_holds_is_of_no_layer(changed):
    with_more, without = (reported(path) for path in (changed("renamed", SAMPLE.name), SAMPLE))
    assert [row.span_ns for row in with_more.windows] == [row.span_ns for row in without.windows]
    assert [row.idle_ns for row in with_more.windows] == [row.idle_ns for row in without.windows]
    assert any("sort_of_kernel" in row.name for row in with_more.kernels)
    others = [
        sum(row.forward_ns + row.backward_ns for row in found.layers if row.layer == "(other)")
        for found in (with_more, without)
    ]
    assert others[0] > others[1]


def test_a_light_window_of_other_kernels_is_left_aside(tmp_path):
    path = rerecorded(SAMPLE, tmp_path / "run", lambda document: differing(document, "drop", 5))
    found = reported(path)
    assert found.run.times_from == "full"
    assert Code.LIGHT_WINDOW_DOES_NOT_FIT in codes(path)


def test_a_light_window_by_itself_is_no_damaged_trace(changed):
    summary = summarize(changed("bare", SAMPLE.name) / "light" / "rank0.json.gz")
    assert {notice.code for notice in summary.warnings} <= {Code.RUN_JSON_MISSING, Code.RANKS_MISSING}
    (rank,) = summary.ranks
    assert rank.timed.windows.step.tolist() == [0, 0] or rank.timed.windows.step.tolist() == [0]
    assert rank.timed.windows.unmarked.all()
    assert (rank.timed.idle.ns.sum(axis=(1, 2)) == rank.timed.windows.idle_ns).all()
