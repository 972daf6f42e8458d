"""What a recorder asks of a GPU's windows, block by block, and what it does where CUPTI alone cannot be used."""

from contextlib import nullcontext
from itertools import chain, repeat

import pytest

from tests.support.small_training import small_model
from tracer.config import Plan
from tracer.errors import UsageError
from tracer.recording import recorder as recording
from tracer.recording.rank_part import Facts
from tracer.recording.run_json import _light_notes, _stack_notes
from tracer.recording.windows import blocks_of_round


def recorded(folder, rounds=3, light="cupti"):
    """The part that a rank leaves of a whole recording."""
    subject = recording.Subject(small_model(), Facts())
    with recording.Recorder(folder, subject, Plan(0, 1, 2, rounds, light=light)) as training:
        while training.step():
            pass
    return training.part


def windows(done):
    return [entry for entry in done if entry.endswith(":")]


def test_every_step_is_a_sample_and_a_round_is_one_block_of_each_control(made_gpu, tmp_path):
    done = made_gpu()
    part = recorded(tmp_path)
    assert windows(done) == ["cupti:", "full:"] * 3
    block = [1000, 1000]
    assert part.steps_ns == {"unprofiled": [block + block] * 3, "light": [block] * 3, "full": [block] * 3}
    assert (part.light, part.why_not_cupti, part.failed_light) == ("cupti", None, {})
    assert part.kept_rounds.keys() == {"light", "full"}
    assert _light_notes([part]) == []


def test_hosts_are_timed_before_unprofiled_blocks_but_for_the_last_untimed_step(made_gpu, tmp_path):
    done = made_gpu()
    subject = recording.Subject(small_model(), Facts())
    with recording.Recorder(tmp_path, subject, Plan(0, 4, 2, 3)) as training:
        while training.step():
            pass
    assert [len(block) for block in training.part.steps_ns["host"]] == [2 * 2] * 3
    assert all(ns > 0 for block in training.part.steps_ns["host"] for ns in block)
    assert windows(done) == ["cupti:", "full:"] * 3


@pytest.mark.parametrize(("first_took_s", "steps"), [(1.0, 300), (7.0, 100), (0.0001, 10_000)])
def test_an_unprofiled_block_is_as_long_as_the_plan_says(made_gpu, tmp_path, monkeypatch, first_took_s, steps):
    """Its first hundred steps tell the pace; the second one of a round is as long as all others."""
    made_gpu()
    clock = chain((0.0, first_took_s), repeat(9.0))
    monkeypatch.setattr(recording.time, "perf_counter", lambda: next(clock))
    with recording.Recorder(
        tmp_path, recording.Subject(small_model(), Facts()), Plan(0, 1, 2, 1, unprofiled_s=3.0)
    ) as training:
        while training.step():
            pass
    part = training.part
    assert [len(block) for block in part.steps_ns["unprofiled"]] == [steps + 2]
    assert part.step_numbers["unprofiled"] == [[*range(2, steps + 2), steps + 3, steps + 4]]
    assert [len(block) for block in part.steps_ns["light"]] == [2]
    assert training.done == part.of_steps == part.steps


def test_a_recording_that_comes_again_has_blocks_of_a_known_length():
    with pytest.raises(UsageError, match="without unprofiled_s"):
        Plan(every=1000, unprofiled_s=3.0).check()


@pytest.mark.parametrize(("stacks", "expected"), [(True, [False, True] * 2), (False, [False] * 4)])
def test_stacks_are_sampled_in_full_windows_alone(made_gpu, tmp_path, monkeypatch, stacks, expected):
    made_gpu()
    asked, made = [], recording.PythonSamples
    monkeypatch.setattr(recording, "PythonSamples", lambda sampling: asked.append(sampling) or made(sampling))
    monkeypatch.setattr("tracer.recording.windows.python_samples._is_taken", lambda number: True)
    subject = recording.Subject(small_model(), Facts())
    with recording.Recorder(tmp_path, subject, Plan(0, 1, 2, 2, stacks=stacks)) as training:
        while training.step():
            pass
    assert asked == expected
    why = "which Python functions rank 0 was in is not recorded: the program handles, ignores or blocks SIGURG"
    assert _stack_notes([training.part]) == [why] * stacks


def test_the_light_window_may_be_kinetos_by_choice(made_gpu, tmp_path):
    done = made_gpu(unusable="never asked")
    part = recorded(tmp_path, light="kineto")
    assert windows(done) == ["light:", "full:"] * 3
    assert (part.light, part.why_not_cupti) == ("kineto", None)
    assert _light_notes([part]) == []


def test_where_cupti_alone_cannot_be_used_kineto_takes_all_light_windows(made_gpu, tmp_path):
    done = made_gpu(unusable="llvmlite is not installed")
    part = recorded(tmp_path)
    assert windows(done) == ["light:", "full:"] * 3
    assert (part.light, part.failed_light) == ("kineto", {})
    assert _light_notes([part]) == ["light windows are Kineto's, which stretch steps more: llvmlite is not installed"]


def test_where_the_first_window_failed_kineto_takes_the_others(made_gpu, tmp_path):
    done = made_gpu(failures=["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"])
    part = recorded(tmp_path)
    assert windows(done) == ["cupti:", "full:", *["light:", "full:"] * 2]
    assert part.failed_light == {1: "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}
    assert part.steps_ns["light"][0] == []
    assert part.kept_rounds["light"] != 1
    assert _light_notes([part]) == [
        "light windows are Kineto's from round 2 on, which stretch steps more: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        "round 1 has no light window: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
    ]


@pytest.mark.parametrize("failing", [2, 3])
def test_a_window_that_failed_later_costs_its_round_alone(made_gpu, tmp_path, failing):
    """Windows of two recorders would be no one control."""
    done = made_gpu(failures=[None] * (failing - 1) + ["30 records found no place in 67 MB"])
    part = recorded(tmp_path)
    assert windows(done) == ["cupti:", "full:"] * 3
    assert (part.light, part.failed_light) == ("cupti", {failing: "30 records found no place in 67 MB"})
    assert part.steps_ns["light"][failing - 1] == []
    assert part.kept_rounds["light"] != failing
    assert _light_notes([part]) == [f"round {failing} has no light window: 30 records found no place in 67 MB"]


def test_where_the_only_light_window_failed_there_is_none(made_gpu, tmp_path):
    made_gpu(failures=["30 records found no place in 67 MB"])
    part = recorded(tmp_path, rounds=1)
    assert part.kept_rounds == {"full": 1}
    assert _light_notes([part]) == ["there is no light window: 30 records found no place in 67 MB"]


@pytest.mark.parametrize(
    ("light", "order"),
    [("cupti", "UNLF UNLnF"), ("kineto", "ULNF ULNFsn"), (None, "UNF UNFsn")],
)
def test_nothing_is_timed_behind_cupti_and_no_profile_follows_one_of_kinetos(light, order):
    letters = {"unprofiled": "U", "nosync": "N", "light": "L", "full": "F"}

    def letter(block):
        return letters.get(block.control) or ("n" if block.profile else "s")

    rounds = [blocks_of_round(number, 2, light, nosync=True) for number in (1, 2)]
    assert " ".join("".join(map(letter, blocks)) for blocks in rounds) == order


@pytest.mark.parametrize("fails", [("no place",), (None, "no place")])
def test_a_failure_in_the_last_round_is_said_of_the_window_that_it_cost(made_gpu, tmp_path, monkeypatch, fails):
    done = made_gpu(failures=fails)
    monkeypatch.setattr(recording.Subject, "may_skip_sync", property(lambda _: True))
    monkeypatch.setattr(recording, "without_sync", lambda model, optimizer: nullcontext())
    part = recorded(tmp_path, rounds=1)
    if fails[0]:
        assert windows(done) == ["cupti:", "full:"]
        assert _light_notes([part]) == ["there is no light window: no place"]
    else:
        assert windows(done) == ["cupti:", "cupti:", "full:"]
        assert _light_notes([part]) == ["there is no window without gradient synchronization: no place"]
