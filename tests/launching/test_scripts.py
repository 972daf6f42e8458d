"""What the user runs, and what is said where nothing was recorded of it."""

import argparse
import os
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

from tracer.commands.options.devices import add_host_arguments, host_count, torchrun_options
from tracer.config import Hook, Plan, hooked
from tracer.errors import UsageError
from tracer.launching.elastic import Job, _launcher, hook_environment, script_environment
from tracer.launching.script import Recording, Script, _why_not, record_script
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_process import (
    ERROR_FILE_BYTES,
    NO_ERROR_TEXT,
    WORK,
    claim,
    leave_notes,
    leave_reason,
    reasons,
)
from tracer.recording.windows import blocks_of_round


@pytest.mark.parametrize(
    ("words", "is_command", "name"),
    [
        ("train.py --model x.py", False, "train"),
        ("some/where/train.py", False, "train"),
        ("-m package.train --config eval.py", False, "package.train"),
        ("torchrun --nproc-per-node 4 train.py", True, "train"),
        ("python -m package.train", True, "package.train"),
        ("python -m accelerate.commands.launch train.py", True, "train"),
        ("./train.sh", True, "train.sh"),
    ],
)
def test_scripts_are_told_from_commands_and_name_their_recording(words, is_command, name):
    script = Script(tuple(words.split()))
    assert (script.is_command, script.name) == (is_command, name)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "a script is missing after --"),
        ("-m", "-m requires a module"),
        ("none.py", "no such script"),
        ("nonesuch 2", "there is no command"),
    ],
)
def test_a_script_that_cannot_be_run_is_refused(words, why):
    with pytest.raises(UsageError, match=why):
        Script(tuple(words.split())).check()


def hosts(*words):
    parser = argparse.ArgumentParser()
    add_host_arguments(parser)
    return parser.parse_args(words)


def test_torchrun_s_options_pass_through_as_they_are():
    given = hosts("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:1", "--rdzv-conf", "timeout=9")
    assert torchrun_options(given) == (
        "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1", "--rdzv-conf=timeout=9",
    )  # fmt: skip
    assert (host_count(given), host_count(hosts())) == (2, 1)


@pytest.mark.parametrize("nodes", ["1:4", "0", "two"])
def test_a_recording_has_a_fixed_number_of_hosts(nodes):
    with pytest.raises(UsageError, match="give one number"):
        host_count(hosts("--nnodes", nodes))


def test_options_of_several_hosts_need_their_number():
    with pytest.raises(UsageError, match="--master-addr only applies to a job on several hosts"):
        torchrun_options(hosts("--master-addr", "a"))


@pytest.mark.parametrize(("processes", "set_by_user", "threads"), [(2, None, "1"), (1, None, None), (2, "7", None)])
def test_a_script_has_the_threads_that_torchrun_gives_it(tmp_path, monkeypatch, processes, set_by_user, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_by_user:
        monkeypatch.setenv("OMP_NUM_THREADS", set_by_user)
    assert (
        script_environment("cuda", processes, Hook(str(tmp_path), "", 0, [], Plan())).get("OMP_NUM_THREADS") == threads
    )


def test_names_that_are_no_utf8_reach_the_script_s_processes_with_their_bytes(monkeypatch):
    hook = Hook(os.fsdecode(b"/runs/\xff"), "/", 1, ["tracer", os.fsdecode(b"\xe9.py")], Plan())
    for name, value in hook_environment(hook).items():
        monkeypatch.setenv(name, value)
    assert hooked() == hook


def test_a_plan_with_every_has_room_for_a_recording():
    Plan(rounds=1, every=44).check()
    with pytest.raises(UsageError, match="one recording takes up to 44"):
        Plan(rounds=1, every=43).check()


@pytest.mark.parametrize("light", [None, "cupti", "kineto"])
@pytest.mark.parametrize("plan", [Plan(), Plan(warmup=1, active=1, rounds=1)])
def test_a_recording_of_a_script_is_as_long_as_its_plan_says(plan, light):
    rounds = range(1, plan.rounds + 1)
    blocks = [block for number in rounds for block in blocks_of_round(number, plan.rounds, light, nosync=False)]
    length = sum(block.length(plan) for block in blocks)
    assert length == plan.longest("cuda" if light else "cpu") <= plan.longest()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / WORK).mkdir()
    return tmp_path


def why_not(folder, code):
    finisher = Finisher(folder, folder / "out")
    return _why_not(finisher, Taking((finisher,)), code)


def test_the_processes_of_a_script_are_told_its_command_without_secrets(tmp_path, monkeypatch):
    """The hook is in their environment, and in run.json; what runs is the command as it was given."""
    launched = []
    monkeypatch.setattr(
        "tracer.launching.script.launch_command", lambda words, hook, say: launched.append((words, hook.command)) or 1
    )
    words = ("torchrun", "train.py", "--api-key", "hunter")
    record_script(Recording(Script(words), None, Plan(), tmp_path / "x", False), print, lambda *_: None)
    assert launched == [(words, ["tracer", "record", "--", "torchrun", "train.py", "--api-key", "***"])]


def test_a_reader_that_went_away_stops_nobody_who_looks_after_a_recording(tmp_path, monkeypatch):
    def launch(words, hook, say):
        leave_notes(Path(hook.folder), ["99 more steps"])
        return 1

    def say(text):
        raise BrokenPipeError

    monkeypatch.setattr("tracer.launching.script.launch_command", launch)
    recording = Recording(Script(("torchrun", "train.py")), None, Plan(), tmp_path / "x", False)
    assert record_script(recording, say, lambda *_: None).exit_code == 1


def test_where_no_step_was_seen_the_exit_code_tells_why(folder):
    assert "python -I, -E and -S keep it out, and" in why_not(folder, 0)[0]
    assert why_not(folder, 137) == [
        "nothing was recorded: the script ended with exit code 137 before an optimizer of torch took a step"
    ]


def test_reasons_are_said_once_and_as_they_came(folder):
    for name, words in {"1": "the disk is full", "2": "rank 1 has left: the disk is full", "3": "another"}.items():
        (folder / WORK / f"{name}.out").write_text(words)
    assert reasons(folder) == ["the disk is full", "another"]
    assert why_not(folder, 0) == ["nothing was recorded: the disk is full", "nothing was recorded: another"]


def test_last_words_need_no_room_of_their_own(folder):
    assert claim(folder, 0)
    assert not claim(folder, 0)
    assert reasons(folder) == []
    (file,) = (folder / WORK).glob("*.out")
    leave_reason(folder, "é" * ERROR_FILE_BYTES)
    assert file.stat().st_size == ERROR_FILE_BYTES
    assert reasons(folder) == ["é" * (ERROR_FILE_BYTES // 2)]


def test_a_reason_that_found_no_room_at_all_is_said_to_be_missing(folder):
    (folder / WORK / "1.out").touch()
    assert why_not(folder, 0) == [f"nothing was recorded: {NO_ERROR_TEXT}"]


def test_words_of_a_script_are_none_of_torchruns():
    """`--n` would be ambiguous to it, and `--nproc-per-node` its own."""
    job = Job(("train.py", "--n=5", "--nproc-per-node=7", "-m"), "cpu", 2)
    assert _launcher(job, DefaultLogsSpecs()).nproc_per_node == 2
