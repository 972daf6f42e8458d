"""Runs out of what ranks left in a folder, by hand."""

import json

import msgspec
import pytest
from torch import nn

from analyzers.run.manifest import DeviceState, read_manifest
from tests.support.rank_parts import made_part
from tests.support.small_training import CONFIG
from tracer.commands.record import record
from tracer.config import Plan
from tracer.errors import RankFailed, TracerError
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_part import Facts, RankPart, facts_of, write_part

NS = 1_000_000


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def finisher(tmp_path, output):
    return Finisher(tmp_path / "hidden", output)


def leave(
    finisher, rank, *, size=2, place="run", rounds=2, ended=True, job="a", states=(), steps=None, command=(), **more
):
    """What a rank leaves of a recording of two rounds."""
    folder = finisher.folder / place
    for number in range(1, rounds + 1):
        full = folder / f"round{number}" / "full"
        full.mkdir(parents=True, exist_ok=True)
        (full / f"rank{rank}.json.gz").write_text(f"round {number}")
    (folder / "nosync").mkdir(parents=True, exist_ok=True)
    (folder / "nosync" / f"rank{rank}.json.gz").touch()
    steps = steps or {"unprofiled": [[NS, NS]] * rounds, "full": [[NS * number] for number in range(1, rounds + 1)]}
    part = made_part(
        rank=rank,
        world_size=size,
        recording=f"{job}-{place}",
        facts=Facts(model="Toy", command=list(command)),
        plan=Plan(rounds=2),
        steps=10 * rounds,
        of_steps=40,
        rounds=rounds,
        steps_ns=steps,
        device_states=list(states),
        kept_rounds={"full": 2} if ended else None,
        ended=ended,
        **more,
    )
    write_part(folder, part)


def names(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_run_appears_when_all_its_ranks_are_done(finisher, output):
    leave(finisher, 0)
    leave(finisher, 1, ended=False)
    assert finisher.take_complete() == []
    assert not output.exists()
    leave(finisher, 1)
    assert finisher.take_complete() == [output]
    assert names(output) == [
        "nosync/rank0.json.gz",
        "nosync/rank1.json.gz",
        "rank0.json.gz",
        "rank1.json.gz",
        "run.json",
    ]
    assert (output / "rank0.json.gz").read_text() == "round 2"
    assert finisher.take_complete() == finisher.take_rest() == []


def test_run_json_has_the_states_of_devices_where_nvml_said_any(finisher, output):
    states = [DeviceState(0, "H200", number, sm_mhz=1980, reasons=[]) for number in (1, 2)]
    leave(finisher, 0)
    leave(finisher, 1, states=states)
    finisher.take_complete()
    manifest, _ = read_manifest(output)
    assert manifest.device_states == {"1": states}


def test_run_json_has_the_command_without_its_secrets(finisher, output):
    command = [
        *("env", "HF_TOKEN=hunter", "train.py", "--data=https://me:hunter@host/x?X-Amz-Signature=hunter", "--lr=1"),
        *("--wandb_api_key", "hunter", "--tokenizer", "gpt2", "--max-tokens=4096"),
    ]
    for rank in (0, 1):
        leave(finisher, rank, command=command, failed_nosync="RuntimeError: https://me:hunter@host is down")
    finisher.take_complete()
    written = (output / "run.json").read_text()
    assert "hunter" not in written and "RuntimeError: https://***@host is down" in written
    assert json.loads(written)["command"] == [
        *("env", "HF_TOKEN=***", "train.py", "--data=https://***@host/x?***", "--lr=1"),
        *("--wandb_api_key", "***", "--tokenizer", "gpt2", "--max-tokens=4096"),
    ]


def test_what_a_rank_leaves_holds_no_secret_of_its_command():
    facts = facts_of(nn.Linear(1, 1), ["train.py", "--api-key", "hunter", "--lr", "1"])
    assert facts.command == ["train.py", "--api-key", "***", "--lr", "1"]


def test_run_json_has_every_single_step_of_each_block(finisher, output):
    steps = {"unprofiled": [[NS, NS + 1], [NS, NS + 2]], "full": [[2 * NS, 2 * NS], [2 * NS, 2 * NS]]}
    for rank in (0, 1):
        leave(finisher, rank, steps=steps)
    finisher.take_complete()
    controls = read_manifest(output)[0].controls
    assert controls.unprofiled.steps_ns == {"0": steps["unprofiled"], "1": steps["unprofiled"]}
    assert controls.distortion("full") == pytest.approx(2.0)


def test_without_nvml_run_json_has_null_for_them(finisher, output):
    leave(finisher, 0, size=1)
    finisher.take_complete()
    assert read_manifest(output)[0].device_states is None
    assert '"device_states": null' in (output / "run.json").read_text()


def test_a_window_that_failed_on_one_rank_is_kept_on_none(finisher, output):
    for rank in (0, 1):
        leave(finisher, rank, failed_nosync="no place")
    finisher.take_complete()
    assert names(output) == ["rank0.json.gz", "rank1.json.gz", "run.json"]
    notes = read_manifest(output)[0].notes
    assert notes == ["there is no window without gradient synchronization: no place"]


def test_of_a_recording_that_ended_early_the_rounds_stay_that_all_ranks_have(finisher, output):
    leave(finisher, 0, rounds=2, ended=False)
    leave(finisher, 1, rounds=1, ended=False)
    assert finisher.take_complete() == []
    assert finisher.take_rest() == [output]
    assert names(output) == ["rank0.json.gz", "rank1.json.gz", "run.json"]
    assert (output / "rank0.json.gz").read_text() == "round 1"
    manifest, _ = read_manifest(output)
    assert manifest.notes == ["the recording ended after at least 20 of 40 steps: its controls are of 1 of 2 rounds"]


def test_nothing_is_made_of_no_round(finisher, output):
    leave(finisher, 0, rounds=1, ended=False)
    leave(finisher, 1, rounds=0, ended=False)
    assert finisher.take_rest() == []
    assert not output.exists()
    assert finisher.how_far() == (
        "training ended before rank 1 had the first of 2 rounds; a whole recording takes 40 steps"
    )
    leave(finisher, 1, rounds=0, ended=False, trained=20)
    assert finisher.how_far() == (
        "training ended before rank 1 had the first of 2 rounds; the script took 20 steps; a whole recording takes 40, "
        "with --wait 5 --warmup 1 --active 4 --rounds 1 it takes 20"
    )


def test_without_a_round_of_all_ranks_the_early_windows_stay(finisher, output):
    for rank, rounds in enumerate((1, 0)):
        early = finisher.folder / "run" / "early"
        early.mkdir(parents=True, exist_ok=True)
        (early / f"rank{rank}.json.gz").write_text("early")
        leave(finisher, rank, rounds=rounds, ended=False, has_early=True, trained=20)
    assert finisher.take_rest() == [output]
    assert names(output) == ["rank0.json.gz", "rank1.json.gz", "run.json"]
    assert {(output / f"rank{rank}.json.gz").read_text() for rank in (0, 1)} == {"early"}
    manifest, _ = read_manifest(output)
    assert manifest.profiler["early_steps"] == 2
    assert manifest.controls.full is None
    assert manifest.notes == [
        "the recording ended after 20 of 40 steps: it is a full window of 2 early steps, without controls"
    ]
    assert finisher.incomplete == [
        "the script took 20 steps; a whole recording takes 40, "
        "with --wait 5 --warmup 1 --active 4 --rounds 1 it takes 20"
    ]


def test_early_windows_go_where_there_are_rounds(finisher, output):
    for rank in (0, 1):
        leave(finisher, rank, has_early=True)
        (finisher.folder / "run" / "early").mkdir(exist_ok=True)
    finisher.take_complete()
    assert not (output / "early").exists()
    assert "early_steps" not in read_manifest(output)[0].profiler


def test_a_host_s_ranks_are_a_part_of_the_run(finisher, output):
    for rank in (2, 3):
        leave(finisher, rank, size=4)
    assert finisher.take_complete() == [output / "ranks2-3"]
    assert list(read_manifest(output / "ranks2-3")[0].host_of_rank) == ["2", "3"]


def test_hosts_put_their_parts_beside_one_another_and_in_place_of_older_ones(tmp_path, output):
    def host(name, *ranks, size, job, force=False):
        finisher = Finisher(tmp_path / name, output, force)
        for rank in ranks:
            leave(finisher, rank, size=size, job=job)
        return finisher.take_complete()

    host("alone", 0, 1, size=2, job="old")
    host("a", 0, 1, size=4, job="a", force=True)
    host("b", 2, 3, size=4, job="a", force=True)
    assert sorted(place.name for place in output.iterdir()) == ["ranks0-1", "ranks2-3"]
    host("c", 3, size=4, job="new", force=True)
    host("d", 0, 1, 2, size=4, job="new", force=True)
    assert sorted(place.name for place in output.iterdir()) == ["ranks0-2", "ranks3-3"]
    host("e", 0, 1, size=2, job="newest", force=True)
    assert names(output) == [
        "nosync/rank0.json.gz",
        "nosync/rank1.json.gz",
        "rank0.json.gz",
        "rank1.json.gz",
        "run.json",
    ]


def test_the_newest_recordings_of_a_long_run_are_kept(tmp_path, output):
    finisher = Finisher(tmp_path / "hidden", output, keep=2)
    for step in (10, 110, 1010):
        leave(finisher, 0, size=1, place=f"step{step}")
        finisher.take_complete()
    assert sorted(place.name for place in output.iterdir()) == ["step1010", "step110"]
    again = Finisher(tmp_path / "again", output, force=True, keep=2)
    leave(again, 0, size=1, place="step10", job="b")
    again.take_complete()
    assert [place.name for place in output.iterdir()] == ["step10"]


def test_of_a_step_that_hosts_recorded_each_prunes_its_own(tmp_path, output):
    hosts = [Finisher(tmp_path / name, output, keep=1) for name in "ab"]
    for step in (10, 110):
        for rank, finisher in enumerate(hosts):
            leave(finisher, rank, place=f"step{step}")
            finisher.take_complete()
    assert names(output / "step110")[-1] == "ranks1-1/run.json"
    assert not (output / "step10").exists()


def test_what_came_up_meanwhile_is_an_error_and_no_more_is_taken(finisher, output):
    leave(finisher, 0, size=1)
    output.mkdir()
    (output / "run.json").touch()
    taking = Taking((finisher,))
    taking.look_last()
    assert len(taking.errors) == 1
    assert "The recording is in" in taking.errors[0]
    assert finisher.placed == []


def test_a_part_is_whole_or_an_error(finisher):
    (finisher.folder / "run").mkdir(parents=True)
    (finisher.folder / "run" / "rank0.writing").mkdir()
    with pytest.raises(TracerError, match=r"rank0\.part: cannot be written"):
        leave(finisher, 0)
    assert finisher.take_rest() == []


def test_parts_travel_as_json(finisher):
    leave(finisher, 0)
    file = finisher.folder / "run" / "rank0.part"
    assert msgspec.json.decode(file.read_bytes(), type=RankPart).facts.model == "Toy"


def test_ranks_that_did_not_meet_are_no_run(finisher, output):
    leave(finisher, 0)
    leave(finisher, 1, job="b")
    assert finisher.take_complete() == finisher.take_rest() == []
    assert not output.exists()
    assert "started anew" in finisher.how_far()


@pytest.mark.parametrize("complete", [True, False])
def test_a_rank_that_dies_when_all_have_left_all_costs_no_recording(output, monkeypatch, capsys, complete):
    """As gloo's worker may abort a process at its end."""

    def launch(job, folder, progress):
        leave(Finisher(folder, output), 0, size=1, ended=complete)
        raise RankFailed("rank 0 failed; nothing was kept", 134, "rank 0 failed (killed by SIGABRT)")

    monkeypatch.setattr("tracer.launching.launch", launch)
    if complete:
        assert record(CONFIG, output, force=False) == [output]
        assert capsys.readouterr().err == "rank 0 failed (killed by SIGABRT), when the recording was complete\n"
    else:
        with pytest.raises(RankFailed, match="nothing was kept"):
            record(CONFIG, output, force=False)
    assert output.exists() == complete
