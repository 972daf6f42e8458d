"""Training that ends before its recording: what is kept of it, and what would have fitted.

step    1        2       3 4        5 ...
        passes   warm    profiled   settling, then rounds
"""

import itertools
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
from tracer.config import EARLY_STEPS, LEAST_ACTIVE, Plan
from tracer.recording.rank_part import Facts, read_parts
from tracer.recording.recorder import Recorder, Subject
from tracer.recording.windows.outlook import Outlook, pace_s

DEFAULT = Plan()


def ended_after(steps, folder, plan=DEFAULT, **more):
    """The part and the folder of a recording whose training ends after so many steps."""
    model, optimizer = new_training()
    recorder = Recorder(folder, Subject(model, Facts(), **more), plan)
    recorder.begin()
    train(model, optimizer, recorder.step, steps)
    recorder.close()
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
    with pytest.warns(tracer.IncompleteRecording, match=r"8 steps; this recording takes 109: .*run has what there was"):
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
    with tracer.Session(output, model, **more) as session:
        train(model, optimizer, session.step, taken)


def test_a_strict_session_that_did_not_finish_raises_and_keeps_what_there_was(tmp_path):
    with pytest.raises(tracer.SessionIncomplete, match=r"8 steps; .*: .*run has what there was"):
        short(tmp_path / "run", 8, strict=True)
    assert (tmp_path / "run" / "rank0.json.gz").is_file()


@pytest.mark.parametrize("steps", [13, 20, 50])
def test_blocks_shrink_to_what_is_known_to_come(tmp_path, steps):
    short(tmp_path / "run", steps, steps=steps, strict=True)
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
    session = tracer.Session(tmp_path / "run", model)
    train(model, optimizer, session.step, 8)
    assert not (tmp_path / "run").exists()
    session._end_with_process()
    assert (tmp_path / "run" / "rank0.json.gz").is_file()
    assert session.step() is False


PLANS = st.builds(Plan, st.integers(0, 12), st.integers(1, 4), st.integers(1, 9), st.integers(1, 4))


@given(PLANS, st.integers(1, 200), st.sampled_from(["cpu", "cuda"]))
@settings(max_examples=cases(200))
def test_a_plan_that_fits_is_no_longer_and_there_is_one_where_any_would_do(plan, steps, device):
    fitting = plan.fitting(steps, device)
    ranges = (
        {plan.wait, min(plan.wait, EARLY_STEPS)},
        range(1, plan.warmup + 1),
        range(min(plan.active, LEAST_ACTIVE), plan.active + 1),
        range(1, plan.rounds + 1),
    )
    all_that_fit = [found for shape in itertools.product(*ranges) if (found := Plan(*shape)).total(device) <= steps]
    assert (fitting is None) == (not all_that_fit)
    if fitting is not None:
        assert fitting in all_that_fit
        assert fitting.rounds == max(found.rounds for found in all_that_fit)
        assert (fitting == plan) == (plan.total(device) <= steps)


def test_a_script_that_was_too_short_is_told_the_options_that_fit_it():
    assert DEFAULT.advice(20, "cpu") == "one with --wait 4 --warmup 3 --active 2 --rounds 1 19"
    assert DEFAULT.advice(20, "cuda") == "one with --wait 4 --warmup 2 --active 2 --rounds 1 20"
    assert DEFAULT.advice(50, "cuda") == "one with --wait 10 --warmup 1 --active 2 --rounds 3 46"
    assert DEFAULT.advice(12, "cpu") == "the shortest that has controls 13"


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
