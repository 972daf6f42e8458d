"""Training that ends before its recording: what is kept of it, and what would have fitted.

step    1        2       3 4        5 ...
        passes   warm    profiled   settling, then rounds
"""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracer
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.run.manifest import read_manifest
from tests.support.loops import new_training, train
from tests.support.tiers import cases
from tracer.atomic_files import OWNER
from tracer.config import EARLY_STEPS, LEAST_ACTIVE, Plan
from tracer.recording.collect import Finisher
from tracer.recording.rank_part import Facts, read_parts
from tracer.recording.recorder import Recorder, Subject
from tracer.recording.windows.outlook import Outlook, pace_s
from tracer.sessions import session

DEFAULT = Plan()


def ended_after(steps, folder, plan=DEFAULT, **more):
    """The part and the folder of a recording whose training ends after so many steps."""
    model, optimizer = new_training()
    recorder = Recorder(folder, Subject(model, Facts(), **more), plan)
    recorder.begin()
    train(model, optimizer, recorder.step, steps)
    recorder.close(trained=recorder.done)
    (part,) = read_parts(folder / "run")
    return part, sorted(str(file.relative_to(folder / "run")) for file in folder.rglob("*.json.gz"))


@pytest.mark.parametrize(("steps", "has_early"), [(3, False), (4, True), (8, True)])
def test_two_steps_from_the_third_on_are_profiled_early(tmp_path, steps, has_early):
    part, traces = ended_after(steps, tmp_path)
    assert (part.has_early, part.rounds, part.trained) == (has_early, 0, steps)
    assert traces == (["early/rank0.json.gz"] if has_early else [])


@pytest.mark.parametrize(("plan", "more"), [(Plan(wait=EARLY_STEPS - 1), {}), (DEFAULT, {"goes_on": True})])
def test_no_step_is_profiled_early_without_room_in_the_wait_or_where_training_is_ours(tmp_path, plan, more):
    part, traces = ended_after(8, tmp_path, plan, **more)
    assert (part.has_early, traces) == (False, [])


def test_an_early_window_is_a_run_of_two_steps_that_is_hardly_trusted(tmp_path):
    with pytest.warns(tracer.IncompleteRecording, match=r"8 steps; this recording takes 109; .*run has what there was"):
        short(tmp_path / "run", 8)
    manifest, _ = read_manifest(tmp_path / "run")
    assert manifest.profiler["early_steps"] == 2
    assert manifest.notes == [
        "the recording ended after 8 of 109 steps: it is a full window of 2 early steps, without controls"
    ]
    found = report(summarize(tmp_path / "run"))
    assert {window.step for window in found.windows} == {1, 2}
    assert found.run.controls.unprofiled_step_ns is None
    assert found.summary.headline.trust == "low"
    assert "first steps alone" in found.summary.headline.why
    assert "early_steps_alone" in {warning.code for warning in found.run.warnings}


def short(output, taken, **more):
    model, optimizer = new_training()
    with tracer.Session(output, model, **more) as recorded:
        train(model, optimizer, recorded.step, taken)


def test_a_strict_session_that_did_not_finish_raises_and_keeps_what_there_was(tmp_path):
    with pytest.raises(tracer.SessionIncomplete, match=r"8 steps; .*run has what there was"):
        short(tmp_path / "run", 8, strict=True)
    assert (tmp_path / "run" / "rank0.json.gz").is_file()


@pytest.mark.parametrize(("steps", "is_given"), [(13, True), (14, False), (20, True), (50, True), (50, False)])
def test_blocks_shrink_to_what_is_known_to_come(tmp_path, steps, is_given):
    """Without a model the session begins behind the first step."""
    model, optimizer = new_training()
    with tracer.Session(tmp_path / "run", model if is_given else None, steps=steps, strict=True) as recorded:
        train(model, optimizer, recorded.step, steps)
    manifest, _ = read_manifest(tmp_path / "run")
    assert manifest.notes == []
    assert len(manifest.controls.full.blocks) == (3 if steps == 50 else 1)


def test_a_loop_that_fails_keeps_its_early_window_and_its_rounds(tmp_path, caplog):
    plan = Plan(wait=4, warmup=1, active=2, rounds=2)
    for steps, rounds in ((6, 0), (17, 1)):
        model, optimizer = new_training()
        with (
            pytest.raises(ZeroDivisionError),
            tracer.Session(tmp_path / "run", model, plan=plan, force=True) as session,
        ):
            train(model, optimizer, session.step, steps)
            raise ZeroDivisionError
        manifest, _ = read_manifest(tmp_path / "run")
        assert (manifest.controls.full is not None) == bool(rounds)
        assert f"run: training ended after {steps} steps; this recording takes 22" in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_a_session_that_nobody_closes_ends_with_its_process(tmp_path):
    model, optimizer = new_training()
    kept = tracer.Session(tmp_path / "run", model)
    train(model, optimizer, kept.step, 8)
    assert not (tmp_path / "run").exists()
    session._end_all()
    assert (tmp_path / "run" / "rank0.json.gz").is_file()
    assert kept.step() is False


def test_a_cell_that_was_stopped_and_run_again_leaves_its_second_recording(tmp_path):
    """Whatever still holds on to the first session, whose profiler may be at work."""
    plan = Plan(wait=4, warmup=1, active=2, rounds=1)
    sessions = []
    for steps in (3, 20):
        model, optimizer = new_training()
        sessions.append(tracer.Session(tmp_path / "run", model, plan=plan, force=True))
        train(model, optimizer, sessions[-1].step, steps)
    session._end_all()
    manifest, _ = read_manifest(tmp_path / "run")
    assert (manifest.notes, manifest.controls.full is not None) == ([], True)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), tracer.TracerError("it is in the way")])
def test_what_goes_wrong_while_a_failed_loop_ends_hides_no_error_of_its_own(tmp_path, monkeypatch, caplog, broken):
    def fail(self):
        raise broken

    monkeypatch.setattr(Finisher, "take_rest", fail)
    model, optimizer = new_training()
    with pytest.raises(ZeroDivisionError), tracer.Session(tmp_path / "run", model) as failing:
        train(model, optimizer, failing.step, 8)
        raise ZeroDivisionError
    assert "what there was could not be kept" in caplog.text
    (left,) = tmp_path.iterdir()
    assert (left / "run" / "early" / "rank0.json.gz").is_file()


def test_a_fork_of_the_process_ends_nothing(tmp_path, monkeypatch):
    model, optimizer = new_training()
    forked = tracer.Session(tmp_path / "run", model)
    train(model, optimizer, forked.step, 8)
    with monkeypatch.context() as child:
        child.setattr(session.os, "getpid", lambda: -1)
        forked.close()
        session._end_all()
    assert not (tmp_path / "run").exists()
    with pytest.warns(tracer.IncompleteRecording):
        forked.close()
    assert (tmp_path / "run" / "rank0.json.gz").is_file()


def test_the_rest_of_what_another_rank_has_taken_is_no_recording(tmp_path):
    """A rank that was still writing makes the folder anew, in which nobody is its owner."""
    model, optimizer = new_training()
    late = tracer.Session(tmp_path / "run", model)
    train(model, optimizer, late.step, 8)
    (hidden,) = tmp_path.iterdir()
    (hidden / OWNER).unlink()
    late._fail("rank 1 has left")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("steps", [0, -5])
def test_a_training_without_steps_is_none(tmp_path, steps):
    with pytest.raises(tracer.UsageError, match="1 or more"):
        tracer.Session(tmp_path / "run", steps=steps)


PLANS = st.builds(Plan, st.integers(0, 12), st.integers(1, 4), st.integers(1, 9), st.integers(1, 4))


@given(PLANS, st.integers(1, 200), st.sampled_from(["cpu", "cuda"]))
@settings(max_examples=cases(200))
def test_a_plan_that_fits_is_no_longer_and_there_is_one_where_any_would_do(plan, steps, device):
    fitting = plan.fitting(steps, device)
    least = Plan(min(plan.wait, EARLY_STEPS), 1, min(plan.active, LEAST_ACTIVE), 1)
    assert (fitting is None) == (least.total(device) > steps)
    if fitting is not None:
        assert fitting.total(device) <= steps
        assert least.active <= fitting.active <= plan.active
        assert 1 <= fitting.warmup <= plan.warmup
        assert least.wait <= fitting.wait <= plan.wait
        one_more = msgspec.structs.replace(least, rounds=fitting.rounds + 1)
        assert fitting.rounds == plan.rounds or one_more.total(device) > steps
        assert (fitting == plan) == (plan.total(device) <= steps)


def test_a_script_that_was_too_short_is_told_the_options_that_fit_it():
    assert DEFAULT.advice(20, "cpu") == "with --wait 5 --warmup 1 --active 4 --rounds 1 it takes 20"
    assert DEFAULT.advice(50, "cuda") == "with --wait 10 --warmup 1 --active 2 --rounds 3 it takes 46"
    assert DEFAULT.advice(100, "cuda") == "with --wait 4 --warmup 2 --active 6 --rounds 3 it takes 100"
    assert DEFAULT.advice(12, "cpu") == "the shortest with steps that are timed without the profiler takes 13"


def test_what_a_recording_takes_is_told_from_its_early_steps():
    """Of 3 rounds of 44 steps 33 are profiled in full, at 0.5 s; a window of 8 steps takes 4 times as long to leave."""
    said = Outlook(profiled_s=0.5, left_s=1.0, nbytes=1_000_000).in_words(DEFAULT, "cuda", ranks=2, step_s=0.1)
    assert said == "132 more steps are to be recorded: about 38 s, and 8 MB of traces"
    assert pace_s([0.0, 9.0, 10.0, 12.0]) == 2.0
    assert pace_s([0.0, 1.0]) is None


def test_what_was_said_before_was_right(tmp_path):
    """Steps that take 20 ms, under the profiler as well, so that they set the time."""
    model, optimizer = new_training()
    said, instants = [], []
    plan = Plan(wait=8, warmup=1, active=2, rounds=2)

    def after_step():
        time.sleep(0.02)
        instants.append(time.perf_counter())
        recorder.step()

    recorder = Recorder(tmp_path, Subject(model, Facts()), plan, tell=said.append)
    recorder.begin()
    train(model, optimizer, after_step, plan.total("cpu"))
    (words,) = said
    assert words.startswith("18 more steps are to be recorded: about 1 s, and ")
    assert len(instants) == 26
    (part,) = read_parts(tmp_path / "run")
    assert msgspec.structs.asdict(part)["kept_rounds"] is not None
    kept = tmp_path / "run" / f"round{part.kept_rounds['full']}" / "full" / "rank0.json.gz"
    number, unit = words.removesuffix(" of traces").split()[-2:]
    assert unit == "kB"
    assert float(number) * 1000 == pytest.approx(kept.stat().st_size, rel=0.25)
