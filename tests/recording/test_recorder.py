"""What a recorder asks of a GPU's windows, block by block, and what it does where CUPTI alone cannot be used."""

from contextlib import nullcontext

import pytest

from tests.support.small_training import small_model
from tracer.config import Plan
from tracer.recording import recorder as recording
from tracer.recording.rank_part import Facts
from tracer.recording.run_json import _light_notes
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


def test_every_step_of_a_block_is_a_sample_and_unprofiled_blocks_stand_before_the_windows(made_gpu, tmp_path):
    done = made_gpu()
    part = recorded(tmp_path)
    assert windows(done) == ["cupti:", "full:"] * 3
    block = [1000, 1000]
    assert part.steps_ns == {"unprofiled": [block] * 6, "light": [block] * 3, "full": [block] * 3}
    assert (part.light, part.why_not_cupti, part.failed_light) == ("cupti", None, {})
    assert part.kept_rounds.keys() == {"light", "full"}
    assert _light_notes([part]) == []


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


@pytest.mark.parametrize("failing", [1, 2])
def test_a_window_that_failed_is_not_kept_and_kineto_takes_the_next(made_gpu, tmp_path, failing):
    done = made_gpu(failures=[None] * (failing - 1) + ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"])
    part = recorded(tmp_path)
    after = ["light:", "full:"] * (3 - failing)
    assert windows(done) == ["cupti:", "full:"] * failing + after
    assert part.failed_light == {failing: "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}
    assert part.steps_ns["light"][failing - 1] == []
    assert part.kept_rounds["light"] != failing
    assert _light_notes([part]) == [
        f"light windows are Kineto's from round {failing + 1} on, which stretch steps more: "
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        f"there is no light window of round {failing}",
    ]


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


def test_a_failure_in_the_last_round_costs_the_window_without_synchronization(made_gpu, tmp_path, monkeypatch):
    done = made_gpu(failures=["no place"])
    monkeypatch.setattr(recording.Subject, "may_skip_sync", property(lambda _: True))
    monkeypatch.setattr(recording, "_without_sync", lambda subject: nullcontext())
    recorded(tmp_path, rounds=1)
    assert windows(done) == ["cupti:", "full:"]
