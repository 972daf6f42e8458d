"""DDP as people use it, recorded for real on two CPU ranks: accumulation, hooks, unused parameters, static graphs."""

import subprocess
import sys
from pathlib import Path

import pytest

from analyzers.layers.bucket_table import BucketRow
from analyzers.rank.strategies import Purpose
from analyzers.reporting.document import Report
from analyzers.trace.collective_calls import Collective
from tests.support import laws
from tests.support.launching import environment_of_training
from tests.support.samples import reported, summarized
from tests.support.variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
# Elements: head and its bias, and the two layers before, pass the cap; so do the other two.
FIRST, SECOND = 8 * 65 + 2 * 64 * 65, 2 * 64 * 65
LAWS = (
    laws.lines_add_up_to_the_compute_of_their_window,
    laws.packing_is_compute,
    laws.buckets_add_up_to_the_exposed_reductions_of_gradients,
    laws.a_bucket_is_its_collective,
    laws.the_times_of_a_bucket_follow_one_another,
    laws.layers_communication_adds_up_to_all_exposed_communication,
)


@pytest.fixture(scope="module")
def recorded(second_tier, tmp_path_factory):
    """A folder with a run for each variant."""
    folder = tmp_path_factory.mktemp("variants")
    command = [sys.executable, "-m", "tests.support.variants", str(folder)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environment_of_training()}
    ranks = [subprocess.Popen([*command, rank], text=True, **pipes) for rank in "01"]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    return folder


def reduced(found: Report, rank: int = 0) -> list[tuple[int, int | None, int | None]]:
    """Pass, bucket and bytes of a rank's reductions of gradients in its first step, each step being alike."""
    steps: dict[int, list[BucketRow]] = {}
    for row in found.buckets:
        if row.rank == rank:
            steps.setdefault(row.step, []).append(row)
    told = [[(row.backward_pass, row.bucket, row.bytes) for row in rows] for rows in steps.values()]
    assert all(each == told[0] for each in told)
    return told[0]


def held(found: Report) -> list[list[str]]:
    return [bucket.parameters for bucket in found.summary.layout.buckets]


def layers(found: Report) -> dict[str, tuple[int, int | None]]:
    """Parameters and gradients' bytes of each layer that has any, in one window."""
    first = found.layers[0]
    return {
        row.layer: (row.parameters, row.gradient_bytes)
        for row in found.layers
        if row.parameters and (row.rank, row.step) == (first.rank, first.step)
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_the_laws_hold(recorded, name):
    for law in LAWS:
        law(recorded / name)


@pytest.mark.parametrize("name", ["plain", "modules", "accumulated", "between", "stacks", "views"])
def test_the_same_buckets_in_each_step_of_each_rank(recorded, name):
    for rank in (0, 1):
        assert reduced(reported(recorded / name), rank) == [(0, 0, 4 * FIRST), (0, 1, 4 * SECOND)]


def test_two_backwards_of_a_step_reduce_the_same_buckets_twice(recorded):
    once = [(0, 4 * FIRST), (1, 4 * SECOND)]
    assert reduced(reported(recorded / "twice")) == [(which, *each) for which in (0, 1) for each in once]


def test_layers_are_modules_where_the_trace_has_them(recorded):
    inner, head = (2, 4 * 64 * 65), (2, 4 * 8 * 65)
    names = {"modules": "layers.{}", "stacks": "Linear_{}", "plain": "linear_{}"}
    for name, label in names.items():
        last = "head" if name == "modules" else label.format(4)
        found = reported(recorded / name)
        assert layers(found) == {label.format(k): inner for k in range(4)} | {last: head}
        assert found.summary.layers_from == ("operators" if name == "plain" else "modules")
        assert held(found) == [
            [f"{layer}.0 {shape}" for layer, shape in bucket]
            for bucket in (
                [
                    *[(last, "[8]"), (last, "[8, 64]"), (label.format(3), "[64]"), (label.format(3), "[64, 64]")],
                    *[(label.format(2), "[64]"), (label.format(2), "[64, 64]")],
                ],
                [(label.format(k), shape) for k in (1, 0) for shape in ("[64]", "[64, 64]")],
            )
        ]


def test_accumulation_counts_gradients_once(recorded):
    for name in ("accumulated", "twice"):
        assert layers(reported(recorded / name)) == layers(reported(recorded / "plain"))
        assert held(reported(recorded / name)) == held(reported(recorded / "plain"))


def test_unused_parameters_leave_their_bucket_larger_than_its_gradients(recorded):
    found = reported(recorded / "unused")
    # Without a rebuild buckets go by the model's own order, backwards: head, spare, the last layer's bias.
    first = 8 * 65 + 64 * 65 + 64
    assert reduced(found)[0] == (0, 0, 4 * first)
    assert sum(nbytes for _, _, nbytes in reduced(found)) == 4 * (FIRST + SECOND + 64 * 65)
    assert held(found)[0] == ["linear_4.0 [8]", "linear_4.0 [8, 64]", "linear_3.0 [64]"]
    assert any("unused" in str(warning) for warning in found.run.notices)


def purposes(path: Path, elements: int) -> set[tuple[str, str]]:
    """Kind and purpose of all communication of so many elements."""
    return {
        (Collective(int(kind)).label, Purpose(int(purpose)).label)
        for measured in summarized(path).measured
        for comm in [measured.communication]
        for kind, purpose, call in zip(comm.kind, comm.purpose, comm.call, strict=True)
        if call >= 0 and comm.calls[call].elements == elements
    }


def test_the_map_of_unused_parameters_is_no_bucket(recorded):
    assert purposes(recorded / "unused", 12) == {("all_reduce", "other")}


def test_frozen_parameters_are_in_no_bucket(recorded):
    found = reported(recorded / "frozen")
    assert sum(nbytes for _, _, nbytes in reduced(found)) == 4 * (FIRST + SECOND - 64 * 65 - 64)
    assert sum(count for count, _ in layers(found).values()) == 7


def test_a_communication_hook_changes_bytes_but_neither_elements_nor_layers(recorded):
    found, plain = reported(recorded / "hook"), reported(recorded / "plain")
    assert reduced(found) == [(0, 0, 2 * FIRST), (0, 1, 2 * SECOND)]
    assert [bucket.elements for bucket in found.summary.layout.buckets] == [FIRST, SECOND]
    assert held(found) == held(plain)


def test_a_static_graph_reduces_its_first_backward_at_its_end(recorded):
    found = reported(recorded / "static")
    assert len(found.summary.layout.buckets) == 1
    (bucket,) = [row for row in found.buckets if row.rank == 0 and row.step == 1]
    assert (bucket.bucket, bucket.bytes) == (0, 4 * (FIRST + SECOND))


def test_what_a_user_reduces_in_the_backward_is_no_bucket(recorded):
    found = reported(recorded / "between")
    assert purposes(recorded / "between", 4 * 64) == {("all_reduce", "activations")}
    # The tensor's hook hides the number of the node that it stands before, and the layer is known all the same.
    assert layers(found) == layers(reported(recorded / "plain"))
    assert held(found) == held(reported(recorded / "plain"))
