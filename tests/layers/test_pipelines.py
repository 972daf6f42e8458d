"""Pipelines that are drawn: actions, bubbles in parts, missing ranks, and what the report says of them."""

import gzip
import json
import re
import shutil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.layers.strategies.pipeline_replay import gpipe, one_f_one_b
from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import from_json, to_json
from tests.support.kineto_files import write
from tests.support.pipelines import (
    OF_INPUT,
    RANGES,
    SEND_RECV,
    B,
    F,
    W,
    any_order,
    batch,
    idle_between,
    run_of,
    simulated,
)
from tests.support.samples import RUNS, reported, summarized
from tests.support.tiers import cases, quarters
from tests.support.training import ENGINE, MAIN, kernel, ranged
from tracer.views.html import report_html
from tracer.views.sections import report_text

US = 1000


def even(action):
    return 20 if action[0] == F else 40


def rows_of(path):
    return report(summarize(path)).pipeline


def expected_parts(orders, dur, rank, stage):
    """The bubbles of both replays, in ns: simulated by events, counted instant by instant."""
    actions = [action for order in orders for action in order]
    kinds = {action[0] for action in actions}
    mean = {
        kind: sum(dur(one) for one in actions if one[0] == kind) // sum(one[0] == kind for one in actions)
        for kind in kinds
    }
    bubbles = []
    for length in (lambda action: mean[action[0]], dur):
        start = simulated(orders, length)
        mine = [action for action in orders[rank] if action[1] == stage]
        low, high = min(start[one] for one in mine), max(start[one] + length(one) for one in mine)
        starts = [start[one] for one in orders[rank]]
        bubbles.append(idle_between(starts, [start[one] + length(one) for one in orders[rank]], low, high))
    return bubbles[0], bubbles[1] - bubbles[0]


def told(row):
    return [f"{action.kind}{action.microbatch}" for action in row.actions]


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("make", [one_f_one_b, gpipe], ids=["1F1B", "GPipe"])
@pytest.mark.parametrize(("stages", "microbatches"), quarters([(3, 3), (2, 4), (4, 5)]))
def test_every_action_is_found_whatever_tells_it(tmp_path, ranges, make, stages, microbatches):
    orders = make(stages, microbatches)
    drawn = run_of(tmp_path, orders, even, ranges=ranges)
    rows = rows_of(tmp_path)
    origin = min(one.rows[0]["ts"] for one in drawn)
    assert [(row.rank, row.stage, row.step) for row in rows] == [(rank, rank, 3) for rank in range(stages)]
    for row, one in zip(rows, drawn, strict=True):
        assert told(row) == [f"{kind.label}{number}" for kind, _, number in one.order]
        assert [action.start_ns for action in row.actions] == [(at - origin) * US for at in one.start_us]
        assert [action.dur_ns for action in row.actions] == [even(action) * US for action in one.order]
        # Of each a microsecond is a pause between its kernels.
        assert [action.busy_ns for action in row.actions] == [(even(action) - 1) * US for action in one.order]
        assert row.bubble_ns == one.bubble_us(row.stage) * US
        busy = {action: even(action) - 1 for order in orders for action in order}
        schedule, imbalance = expected_parts(orders, busy.__getitem__, row.rank, row.stage)
        assert (row.schedule_ns, row.imbalance_ns) == (schedule * US, imbalance * US) and imbalance == 0
        assert row.schedule_ns + row.imbalance_ns + row.rest_ns == row.bubble_ns


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_messages_without_metadata_are_matched_by_order_and_peer(tmp_path, stages, batched):
    """A stage in the middle has batches with the rank before and the rank behind in turn."""
    drawn = run_of(tmp_path, one_f_one_b(stages, 6), even, batched=batched)
    document = report(summarize(tmp_path))
    assert not document.unmatched
    assert {row.kind for row in document.collectives} == {"send_recv"}
    kernels = sum(event["name"] == SEND_RECV for one in drawn for event in one.rows)
    assert 2 * len(document.collectives) == kernels
    assert [row.stage for row in document.pipeline] == list(range(stages))
    assert all(row.rest_ns is not None for row in document.pipeline)
    # A message lasts 10 us here; all else of its kernels is waiting.
    for row in document.collectives:
        assert row.transfer_ns <= 10 * US
        assert all(member.wait_ns <= member.dur_ns - min(one.dur_ns for one in row.members) for member in row.members)


@settings(max_examples=cases(12), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_parts_add_up_and_equal_the_simulation_for_any_order_and_any_durations(tmp_path_factory, seed):
    random = Random(seed)
    ranks, per_rank = random.choice([(2, 1), (3, 1), (2, 2), (3, 2)])
    orders = any_order(random, ranks, per_rank, random.randint(1, 4))
    length = {action: random.randrange(6, 60) for order in orders for action in order}
    folder = tmp_path_factory.mktemp("drawn")
    drawn = run_of(folder, orders, length.__getitem__, ranges="runtime", message_us=random.randrange(1, 30))
    busy_ns = {action: (dur - 1) * US for action, dur in length.items()}
    assert rows_of(folder)
    for row in rows_of(folder):
        assert row.bubble_ns == drawn[row.rank].bubble_us(row.stage) * US
        assert row.schedule_ns + row.imbalance_ns + row.rest_ns == row.bubble_ns
        _, measured = simulated_bubbles(orders, busy_ns, row.rank, row.stage)
        assert row.schedule_ns + row.imbalance_ns == measured


def simulated_bubbles(orders, busy_ns, rank, stage):
    """The bubble of the equal and of the measured replay, ns, by lengths: actions on one rank do not overlap."""
    kinds = {action[0] for action in busy_ns}
    mean = {
        kind: sum(ns for one, ns in busy_ns.items() if one[0] == kind) // sum(one[0] == kind for one in busy_ns)
        for kind in kinds
    }
    bubbles = []
    for length in (lambda action: mean[action[0]], busy_ns.__getitem__):
        start = simulated(orders, length)
        mine = [one for one in orders[rank] if one[1] == stage]
        low, high = min(start[one] for one in mine), max(start[one] + length(one) for one in mine)
        inside = [(max(start[one], low), min(start[one] + length(one), high)) for one in orders[rank]]
        bubbles.append(high - low - sum(max(0, end - begin) for begin, end in inside))
    return bubbles[0], bubbles[1]


@pytest.mark.parametrize(("ranges", "batched"), [("modules", False), ("messages", False), ("messages", True)])
def test_unequal_stages_are_told_apart_from_the_schedule_and_the_rest(tmp_path, ranges, batched):
    """The first stage waits for the second, which takes longer; its own slowness shortens the second's bubble."""
    run_of(tmp_path, one_f_one_b(2, 4), lambda action: 20 + 20 * action[1], ranges=ranges, batched=batched)
    first, second = rows_of(tmp_path)
    assert first.imbalance_ns > 0 == second.imbalance_ns
    document = report(summarize(tmp_path))
    (one,) = document.summary.pipelines
    assert (one.slowest, one.slower_by_ns, one.schedule, one.microbatches) == (1, 40 * US, "1F1B", 4)
    assert from_json(to_json(document)) == document


def test_a_backward_in_two_parts_keeps_both(tmp_path):
    orders = [
        [(F, 0, 0), (F, 0, 1), (OF_INPUT, 0, 0), (W, 0, 0), (OF_INPUT, 0, 1), (W, 0, 1)],
        [(F, 1, 0), (OF_INPUT, 1, 0), (F, 1, 1), (OF_INPUT, 1, 1), (W, 1, 0), (W, 1, 1)],
    ]
    run_of(tmp_path, orders, even, ranges="runtime")
    first, second = rows_of(tmp_path)
    assert told(first) == ["F0", "F1", "I0", "W0", "I1", "W1"]
    assert told(second) == ["F0", "I0", "F1", "I1", "W0", "W1"]
    assert None not in (first.schedule_ns, second.rest_ns)


@pytest.mark.parametrize("left", [[0], [1], [0, 1], [1, 2], [0, 2]])
def test_where_ranks_are_missing_bubbles_are_measured_and_their_parts_null(tmp_path, left):
    drawn = run_of(tmp_path, one_f_one_b(3, 4), even)
    for rank in {0, 1, 2} - set(left):
        (tmp_path / f"rank{rank}.json").unlink()
    document = report(summarize(tmp_path))
    assert sorted(row.rank for row in document.pipeline) == left
    for row in document.pipeline:
        assert row.bubble_ns == drawn[row.rank].bubble_us(row.rank) * US
        assert (row.schedule_ns, row.imbalance_ns, row.rest_ns) == (None, None, None)
        # A stage is counted from the first, so that it is known where all before it are here.
        assert row.stage == (row.rank if set(range(row.rank)) <= set(left) else None)
    assert Code.PIPELINE_IS_NULL in {notice.code for notice in document.run.notes}
    assert not {"more_microbatches", "even_stages", "late_stages"} & {one.code for one in document.summary.advice}
    assert "pipeline" in report_text(document, "pipeline")


def test_a_step_that_a_rank_does_not_hold_in_full_has_no_parts_and_a_note_says_so(tmp_path):
    run_of(tmp_path, one_f_one_b(2, 4), even, ranges="runtime")
    run_of(tmp_path / "short", one_f_one_b(2, 3), even, ranges="runtime")
    shutil.copy(tmp_path / "short" / "rank1.json", tmp_path / "rank1.json")
    shutil.rmtree(tmp_path / "short")
    document = report(summarize(tmp_path))
    assert [row.schedule_ns for row in document.pipeline] == [None, None]
    (note,) = [notice for notice in document.run.notes if notice.code == Code.PIPELINE_IS_NULL]
    assert "do not hold the same microbatches in step 3" in note.text


def test_the_report_draws_the_step_and_says_what_would_help(tmp_path):
    run_of(tmp_path, one_f_one_b(2, 4), even)
    document = report(summarize(tmp_path))
    text = report_text(document, "pipeline")
    assert "The pipeline on ranks 0, 1: 1F1B, 4 microbatches" in text
    for stage, order in enumerate(one_f_one_b(2, 4)):
        (line,) = [line for line in text.splitlines() if line.startswith(f"stage {stage}  ")]
        assert re.sub(r"[^0-9]", "", line.removeprefix(f"stage {stage}")) == "".join(str(one[2]) for one in order)
        assert line.count("█") > line.count("░") > 0
    advised = {one.code: one for one in document.summary.advice}
    (one,) = document.summary.pipelines
    # p - 1 microbatches of 58 us less their pauses, of which half are left with twice as many.
    assert one.more_microbatches_ns == one.interleaved_ns == 29 * US
    # Kernels pause for longer within actions: hosts are the limit, and smaller pieces no remedy.
    assert not {"more_microbatches", "interleaved_stages"} & {*advised}


def test_a_run_without_messages_has_no_pipeline(tmp_path):
    run_of(tmp_path, [[(F, 0, 0), (B, 0, 0)]], even)
    document = report(summarize(tmp_path))
    assert document.pipeline == document.summary.pipelines == []
    assert "No pipeline in this run" in report_text(document, "pipeline")


def changed(folder, change):
    """Change all rows of a run's traces; a row for which there is None is left out."""
    for file in folder.rglob("rank*.json*"):
        data = file.read_bytes()
        document = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
        document["traceEvents"] = [row for row in map(change, document["traceEvents"]) if row is not None]
        write(file, document)


def on_one_thread(row):
    return row | {"tid": MAIN} if row.get("tid") == ENGINE else row


def without_backwards(row):
    return None if row["name"] == "cudaLaunchKernel" and row["tid"] == ENGINE else row


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize(
    ("orders", "change"),
    [(one_f_one_b(2, 3), on_one_thread), (one_f_one_b(2, 3), without_backwards)],
    ids=["one thread", "forwards alone"],
)
def test_messages_that_do_not_tell_actions_are_no_pipeline_unless_their_group_is_and_then_it_is_said(
    tmp_path, orders, change, described
):
    run_of(tmp_path, orders, even, ranges="messages")
    group = {"Process Group Description": "mesh_pp"} if described else {}
    changed(tmp_path, change)
    changed(tmp_path, lambda row: row | {"args": row["args"] | group} if row["name"] == "record_param_comms" else row)
    document = report(summarize(tmp_path))
    assert document.pipeline == []
    notes = [notice.text for notice in document.run.notes if notice.code == Code.PIPELINE_IS_NULL]
    assert len(notes) == described and all("rank 0, 1 does not tell one microbatch" in text for text in notes)


def interleaved(ranks, chunks, microbatches):
    """Megatron's order of several stages a rank: forwards in turns of as many microbatches as ranks, then in pairs."""
    turns = [range(begin, begin + ranks) for begin in range(0, microbatches, ranks)]
    orders = []
    for rank in range(ranks):
        stages = [rank + ranks * chunk for chunk in range(chunks)]
        forwards = [(F, stage, number) for turn in turns for stage in stages for number in turn]
        backwards = [(B, stage, number) for turn in turns for stage in stages[::-1] for number in turn]
        warmup = min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, len(forwards))
        both = [one for pair in zip(forwards[warmup:], backwards, strict=False) for one in pair]
        orders.append([*forwards[:warmup], *both, *backwards[len(forwards) - warmup :]])
    return orders


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("ranges", ["messages", "nothing"])
@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(2, 2, 2), (2, 2, 4), (2, 3, 4), (3, 2, 6), (4, 2, 8)])
def test_an_interleaved_schedule_without_ranges_is_said_and_no_action_is_told(
    tmp_path, ranks, chunks, microbatches, ranges, batched
):
    orders = interleaved(ranks, chunks, microbatches)
    run_of(tmp_path, orders, even, ranges=ranges, batched=batched)
    document = report(summarize(tmp_path))
    (text,) = [notice.text for notice in document.run.notes if notice.code == Code.PIPELINE_IS_NULL]
    assert f"ranks {', '.join(map(str, range(ranks)))} is interleaved" in text
    assert document.pipeline == []


def test_an_interleaved_schedule_whose_ranges_name_stages_is_told(tmp_path):
    orders = interleaved(2, 2, 4)
    run_of(tmp_path, orders, even, ranges="runtime")
    document = report(summarize(tmp_path))
    assert {(row.rank, row.stage) for row in document.pipeline} == {(0, 0), (0, 2), (1, 1), (1, 3)}
    assert all(row.rest_ns is not None for row in document.pipeline)
    assert Code.PIPELINE_IS_NULL not in {notice.code for notice in document.run.notes}


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_ring_of_messages_is_no_pipeline(tmp_path, ranks):
    """Each rank sends to the next and receives from the one before, in forwards and backwards alike."""
    for rank in range(ranks):
        rows = [ranged("ProfilerStep#3", 0, 2_000)]
        for turn in range(8):
            at = 10 + 100 * turn
            rows += kernel("attention", at, at + 2, 40, tid=MAIN if turn < 4 else ENGINE)
            rows += ring_messages(rank, ranks, at + 50)
        header = {"rank": rank, "world_size": ranks, "backend": "nccl"}
        document = {"schemaVersion": 1, "distributedInfo": header, "host_name": "one", "traceEvents": rows}
        write(tmp_path / f"rank{rank}.json", document)
    document = report(summarize(tmp_path))
    assert {row.kind for row in document.collectives} == {"send_recv"}
    assert document.pipeline == document.summary.pipelines == []
    assert Code.PIPELINE_IS_NULL not in {notice.code for notice in document.run.notes}


def ring_messages(rank, ranks, at):
    """A send to the next rank and a receive from the one before, which one begins with who sends."""
    both = [("send", "Dst Rank", (rank + 1) % ranks), ("recv", "Src Rank", (rank - 1) % ranks)]
    ordered = both if rank % 2 == 0 else both[::-1]
    return [row for place, one in enumerate(ordered) for row in batch([one], ranks, at + 4 * place, at + 4 * place + 3)]


@pytest.mark.slow
@pytest.mark.skipif(not any(path.name == "llama-pp2" for path in RUNS), reason="that sample is not here")
def test_llama_pp2_without_ranges_and_operators_is_the_same_pipeline(tmp_path):
    path = next(path for path in RUNS if path.name == "llama-pp2")
    shutil.copytree(path, tmp_path / "run", copy_function=shutil.copyfile)
    kept = ("ProfilerStep", "nccl:", "c10d::", "record_param_comms")
    host_rows = ("user_annotation", "cpu_op", "gpu_user_annotation")
    changed(tmp_path, lambda row: row if row.get("cat") not in host_rows or row["name"].startswith(kept) else None)
    assert report(summarize(tmp_path / "run")).pipeline == reported(path).pipeline


@pytest.mark.slow
@pytest.mark.skipif(not any(path.name == "llama-pp2" for path in RUNS), reason="that sample is not here")
def test_llama_pp2_is_1f1b_slot_for_slot_and_its_messages_are_short():
    path = next(path for path in RUNS if path.name == "llama-pp2")
    document = reported(path)
    orders = [[f"{kind.label}{number}" for kind, _, number in order] for order in one_f_one_b(2, 8)]
    assert len(document.pipeline) == 10
    for row in document.pipeline:
        assert told(row) == orders[row.stage]
        assert row.rank == row.stage
    assert all(window.exposed_transfer_ns < 1_500 * US for window in document.windows)
    assert not summarized(path).warnings


def test_the_page_has_the_same_table_and_drawing_and_none_without_a_pipeline(tmp_path):
    run_of(tmp_path / "two", one_f_one_b(2, 4), even)
    document = report(summarize(tmp_path / "two"))
    page = report_html(document)
    drawn = [line for line in report_text(document, "pipeline").splitlines() if line.startswith("stage 0  ")]
    assert 'id="pipeline"' in page
    assert drawn[0] in page
    run_of(tmp_path / "one", [[(F, 0, 0), (B, 0, 0)]], even)
    assert 'id="pipeline"' not in report_html(report(summarize(tmp_path / "one")))
