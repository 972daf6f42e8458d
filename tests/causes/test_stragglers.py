"""Three production jobs with published answers: replays give them, from the jobs' own operations and from traces."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import analyzers
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.trace import Category
from tests.support import causal
from tests.support.straggler_replay import DEPENDENCIES, Replay, as_published, from_rows
from tests.support.stragglers import JOBS, PUBLIC, Job, Kind, convert, drawn, read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not JOBS, reason="no shared/public/stragglers beside the checkout"),
]
# What holds the last stage of a job up, and its rank 0: the shares of what ideal durations save that they alone save.
LAST_STAGE = {"ST": 1.2194, "SE": 0.6877}
RANK_0 = {"AR": 1.0017}
# Where the model's largest gain is.
CULPRITS = {"AR": "rank 0: compute", "ST": "stage 3: compute", "SE": "all ranks"}
# What the report says first, as published: a worker that was slowed, the last stage, sequences of different lengths.
SENTENCES = {
    "AR": "rank 0 computes longer than the others",
    "ST": "stage 3 computes longer than the other stages",
    "SE": "work is uneven among ranks and steps, and no rank alone is the cause",
}
# The job's clock is off by up to so much where streams say what came first.
CLOCK_NS = 150_000


@pytest.fixture(scope="module", params=JOBS or ["none"])
def job(request: pytest.FixtureRequest) -> Job:
    return read(request.param)


@pytest.fixture(scope="module")
def folder(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of the job."""
    folder = tmp_path_factory.mktemp(job.name)
    convert(job, folder)
    return folder


@pytest.fixture(scope="module")
def small() -> Job:
    return read("ST")


def published(job: Job) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((PUBLIC / f"result-{job.name}.json").read_text())
    return answers


def last_stage(job: Job) -> set[int]:
    return {job.rank_of(worker) for worker in job.workers if worker.stage == job.stages - 1}


def test_the_replay_of_a_job_gives_what_its_authors_published(job: Job) -> None:
    answers, replay = published(job), Replay(as_published(job))
    assert replay.slowdown == pytest.approx(answers["blocking_slowdown"], rel=1e-6)
    assert replay.ideal_ns / 1e9 == pytest.approx(sum(answers["step_t_noblk"].values()), rel=1e-6)
    assert replay.time_ns() / 1e9 == pytest.approx(sum(answers["step_t_nodelay"].values()), rel=1e-6)
    assert replay.recorded_ns / 1e9 == pytest.approx(sum(answers["step_t_base"].values()), rel=1e-6)


def test_ideal_durations_of_the_culprit_alone_save_what_was_published(job: Job) -> None:
    replay = Replay(as_published(job))
    if job.name in LAST_STAGE:
        assert replay.share_of(last_stage(job)) == pytest.approx(LAST_STAGE[job.name], abs=1e-4)
    if job.name in RANK_0:
        assert replay.share_of({0}) == pytest.approx(RANK_0[job.name], abs=1e-4)


def test_rows_alone_say_what_operations_wait_for(job: Job, folder: Path) -> None:
    replay = Replay(from_rows(folder))
    assert len(replay.steps) == len(job.steps)
    assert replay.slowdown == pytest.approx(published(job)["blocking_slowdown"], rel=0.005)
    if job.name in LAST_STAGE:
        assert replay.share_of(last_stage(job)) == pytest.approx(LAST_STAGE[job.name], rel=0.01)
    if job.name in RANK_0:
        assert replay.share_of({0}) == pytest.approx(RANK_0[job.name], rel=0.01)


def test_the_model_says_how_much_slower_a_job_is_and_names_the_culprit(job: Job, folder: Path) -> None:
    model = causal.model_of(folder)
    gains = {gain.scenario.kind: gain for gain in reversed(causal.gains(model))}
    before_ns = float(model.lags.paces(model.lags)[0, 0])
    assert before_ns / gains["alike"].step_ns == pytest.approx(published(job)["blocking_slowdown"], rel=0.01)
    assert causal.definite(model)[0].scenario.at == CULPRITS[job.name]


def test_the_report_says_first_what_was_published(job: Job, folder: Path) -> None:
    headline = report(summarize(folder, causes=True)).summary.headline
    assert headline.problem is not None and headline.problem.startswith(SENTENCES[job.name])


@pytest.mark.parametrize("without", DEPENDENCIES)
def test_a_dependency_left_out_changes_the_answer_or_is_implied_by_others(small: Job, without: str) -> None:
    implied = ("messages in order", "receives for compute", "first backward's messages")
    slowdown = Replay(as_published(small, [without])).slowdown
    least = 0.1 if without in ("compute in order", "sends for compute", "compute for receives") else 0.001
    change = abs(slowdown / published(small)["blocking_slowdown"] - 1)
    assert change < 1e-6 if without in implied else change > least


def test_without_the_rows_called_wait_the_answer_is_another(small: Job, tmp_path: Path) -> None:
    convert(small, tmp_path)
    for file in tmp_path.iterdir():
        document = msgspec.json.decode(file.read_bytes())
        rows = document["traceEvents"]
        waits = [at for at, row in enumerate(rows) if row["args"].get("Collective name") == "wait"]
        assert all(rows[at + 1]["name"] == "cudaStreamWaitEvent" for at in waits)
        gone = {at + more for at in waits for more in (0, 1)}
        document["traceEvents"] = [row for at, row in enumerate(rows) if at not in gone]
        file.write_bytes(msgspec.json.encode(document))
    assert Replay(from_rows(tmp_path)).slowdown > 1.3


def test_every_operation_is_a_kernel_at_its_time(job: Job, folder: Path) -> None:
    shown, run = drawn(job), analyzers.load(folder)
    assert [rank.rank for rank in run.ranks] == [job.rank_of(worker) for worker in job.workers]
    for worker, trace in zip(job.workers, run.ranks, strict=True):
        events = trace.events
        kernels = events.category == Category.KERNEL
        ran = sorted((events.end_ns - events.start_ns)[kernels].tolist())
        assert ran == sorted(one.end_ns - one.start_ns for step in shown.steps.values() for one in step[worker])
        assert (events.launched_ns[kernels] < events.start_ns[kernels]).all()


def test_drawing_moves_no_operation_by_more_than_the_clocks_error(job: Job) -> None:
    for step, workers in drawn(job).steps.items():
        for worker, operations in workers.items():
            recorded = {(one.kind, one.number): one for one in job.steps[step][worker]}
            kept = [one for one in operations if one.kind != Kind.UNRECORDED]
            assert {(one.kind, one.number) for one in kept} == recorded.keys() - {(Kind.COLLECTION, 0)}
            for one in kept:
                was = recorded[one.kind, one.number]
                assert 0 <= one.start_ns - was.start_ns < CLOCK_NS
                assert one.end_ns == max(was.end_ns, one.start_ns)


def test_all_communication_is_matched(job: Job, folder: Path) -> None:
    reported = report(summarize(folder))
    assert not reported.unmatched
    assert not any(one.partial for one in reported.collectives)
    assert {notice.code for notice in reported.run.warnings} <= {"ends_lie_apart"}
    kinds = Counter(one.kind for workers in drawn(job).steps.values() for each in workers.values() for one in each)
    found = Counter(one.kind for one in reported.collectives)
    assert found["send_recv"] == kinds[Kind.FORWARD_SEND] + kinds[Kind.BACKWARD_SEND]
    assert found["all_gather"] == found["reduce_scatter"] == job.stages * len(job.steps)


def test_messages_alone_tell_stages_and_microbatches(job: Job, folder: Path) -> None:
    rows = {(row.rank, row.step): row for row in report(summarize(folder, causes=False)).pipeline}
    assert len(rows) == len(job.workers) * len(job.steps)
    for step, workers in enumerate(drawn(job).steps.values(), start=min(job.steps)):
        for worker, operations in workers.items():
            row = rows[job.rank_of(worker), step]
            computed = [one for one in operations if one.kind.computes]
            told = [(one.kind == Kind.FORWARD, one.microbatch, one.end_ns - one.start_ns) for one in computed]
            assert row.stage == worker.stage
            assert [(one.kind == "F", one.microbatch, one.dur_ns) for one in row.actions] == told
            assert row.schedule_ns is not None and row.imbalance_ns is not None and row.rest_ns is not None
            assert row.schedule_ns + row.imbalance_ns + row.rest_ns == row.bubble_ns


def test_what_synchronized_workers_unrecorded_is_told_by_when_they_went_on(job: Job) -> None:
    step = next(iter(drawn(job).steps.values()))
    unrecorded = {(one.number, one.worker) for each in step.values() for one in each if one.kind == Kind.UNRECORDED}
    expected = {(0, worker) for worker in job.workers if worker.stage == job.stages - 1}
    if job.name != "ST":
        expected |= {(1, worker) for worker in job.workers if worker.line == 0}
    assert unrecorded == expected


def test_a_kernel_that_would_start_before_its_launch_is_refused(small: Job, tmp_path: Path) -> None:
    early = {
        step: {worker: [replace(one, start_ns=0, end_ns=0) for one in each] for worker, each in workers.items()}
        for step, workers in small.steps.items()
    }
    # Nothing is left to synchronize anybody, and a step's last launches come after all of its kernels.
    with pytest.raises(ValueError, match="late to launch"):
        convert(replace(small, steps=early), tmp_path)
