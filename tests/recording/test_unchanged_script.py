"""What the hook does with the steps that it hears of, without processes: recorders here only count."""

import gc
import inspect
import os
import subprocess
import threading
import weakref
from typing import ClassVar

import msgspec
import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from tracer.atomic_files import this_process
from tracer.config import Hook, Plan
from tracer.errors import TracerError
from tracer.recording import rank_part, rank_process
from tracer.recording import unchanged_script as attach
from tracer.recording.rank_process import CLAIM, PROGRESS, WORK, reasons, seldom_progress_of
from tracer.recording.unchanged_script import SILENCE
from tracer.recording.windows import ours


class Counting:
    """A recorder that takes `length` steps."""

    length = 10**9
    all: ClassVar[list["Counting"]] = []

    def __init__(self, folder, subject, plan, progress, on_recorded, patience, tell):
        self.on_recorded = on_recorded
        self.model, self.progress, self.done, self.why = subject.model, progress, 0, None
        self.notes = subject.facts.notes
        Counting.all.append(self)

    def begin(self):
        pass

    def step(self):
        self.done += 1
        return self.done < self.length

    def close(self, why="its training ended", trained=None):
        self.why, self.trained = why, trained


@pytest.fixture
def model():
    return nn.Linear(4, 2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / WORK).mkdir()
    return tmp_path


@pytest.fixture
def watched(folder, model, monkeypatch):
    monkeypatch.setattr(attach, "Recorder", Counting)
    monkeypatch.setattr(Counting, "length", 10**9)
    monkeypatch.setattr(Counting, "all", [])
    monkeypatch.setattr(rank_process._Sessions, "count", 0)
    found = attach.Watched(Hook(str(folder), "", 0, [], Plan(wait=10)))
    yield found
    found.is_disabled = True


@pytest.fixture
def hearing(watched, monkeypatch):
    """Optimizers and profilers are heard of, until the test ends."""
    places = [(Optimizer, "profile_hook_step"), (torch.amp.GradScaler, "step"), (SGD, "step")]
    places += [(torch.profiler.profiler._KinetoProfile, "__init__"), (torch.autograd.profiler.profile, "__init__")]
    for owner, name in places:
        monkeypatch.setattr(owner, name, owner.__dict__[name])
    # torch hooks a class once, when its first optimizer is made, which was another test's.
    SGD.step = inspect.unwrap(SGD.step, stop=lambda step: not hasattr(step, "hooked"))
    attach._after_steps(watched)
    attach._before_profilers(watched)
    return watched


def optimizers(model, count=2):
    return [SGD(model.parameters(), lr=0.1) for _ in range(count)]


def test_one_optimizer_counts_each_step(watched, model):
    (optimizer,) = optimizers(model, 1)
    for _ in range(3):
        watched.stepped(optimizer)
    (recorder,) = Counting.all
    assert recorder.done == 3
    assert recorder.model is model


def test_rank_0_says_how_far_it_is_for_the_launcher(watched, model, folder):
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    tell = Counting.all[0].progress
    for done in range(1, 143):
        tell("settling", done, 142)
    # The first, and the last: the others come too soon.
    assert (folder / PROGRESS).read_text() == "settling\t1\t142\nsettling\t142\t142\n"


def test_reports_are_seldom_and_rank_0_s(folder):
    clock = [0.0]
    tell, others = (seldom_progress_of(rank, folder, lambda: clock[0]) for rank in range(2))
    for clock[0], done in [(0.0, 1), (0.1, 2), (0.5, 3), (0.9, 4), (1.0, 5), (1.1, 6)]:
        tell("round 1", done, 6)
        others("round 1", 100, 6)
    assert [line.split("\t")[1] for line in (folder / PROGRESS).read_text().splitlines()] == ["1", "3", "5", "6"]


def test_the_optimizer_that_steps_least_often_counts_after_the_wait(watched, model):
    often, seldom = optimizers(model)
    for _ in range(2):
        for _ in range(5):
            watched.stepped(often)
        watched.stepped(seldom)
    # Ten steps of the wait, and the one that ended with the seldom one's.
    assert Counting.all[0].done == 11
    for _ in range(5):
        watched.stepped(often)
    assert Counting.all[0].done == 11
    watched.stepped(seldom)
    assert Counting.all[0].done == 12


def test_of_optimizers_that_step_as_often_the_last_counts_where_an_iteration_ends(watched, model):
    first, second, third = optimizers(model, 3)
    for _ in range(20):
        watched.stepped(first)
        watched.stepped(second)
        before = Counting.all[0].done
        watched.stepped(third)
    # Nor does the one that takes over when the wait ends count a step twice.
    assert Counting.all[0].done == before + 1 == 20


def test_optimizers_of_a_container_count_once_a_step(hearing):
    """As torchtitan steps one optimizer for each part of a pipeline's model, in an optimizer around them."""

    class Container(Optimizer):
        def __init__(self, parts):
            self.optimizers = [SGD(part.parameters(), lr=0.1) for part in parts]
            super().__init__([parameter for part in parts for parameter in part.parameters()], {})

        def step(self):
            for optimizer in self.optimizers:
                optimizer.step()

    container = Container([nn.Linear(4, 2), nn.Linear(2, 4)])
    for _ in range(20):
        container.step()
    assert Counting.all[0].done == 20


def test_an_optimizer_that_was_replaced_during_the_wait_counts_no_more(watched, model):
    first, second = optimizers(model)
    watched.stepped(first)
    for _ in range(SILENCE + 5):
        watched.stepped(second)
    assert Counting.all[0].done == 6
    assert not watched.is_disabled


def test_an_optimizer_that_stops_in_the_recording_ends_it(watched, model, folder):
    first, second = optimizers(model)
    for _ in range(12):
        watched.stepped(first)
    for _ in range(SILENCE):
        watched.stepped(second)
    assert watched.is_disabled
    assert "has stopped" in reasons(folder)[0]
    assert Counting.all[0].why == reasons(folder)[0]


def test_what_goes_wrong_ends_the_recording_and_not_the_training(watched, model, folder, monkeypatch):
    def step(self):
        raise TracerError("the disk is full")

    monkeypatch.setattr(Counting, "step", step)
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    watched.stepped(optimizer)
    assert reasons(folder) == ["the disk is full"]
    assert [recorder.why for recorder in Counting.all] == ["the disk is full"]


def test_nor_does_a_reason_that_cannot_be_written_down(watched, model, folder, monkeypatch):
    def step(self):
        raise TracerError("/data/\udcff: cannot be written")

    monkeypatch.setattr(Counting, "step", step)
    watched.stepped(*optimizers(model, 1))
    assert watched.is_disabled
    assert reasons(folder) == ["/data/?: cannot be written"]


@pytest.mark.parametrize("broken", ["close", "folder"])
def test_nor_does_what_goes_wrong_while_it_ends(watched, model, folder, monkeypatch, broken):
    def fail(self, why="", trained=None):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Counting, "step", fail)
    (optimizer,) = optimizers(model, 1)
    if broken == "close":
        monkeypatch.setattr(Counting, "close", fail)
        watched.stepped(optimizer)
        assert "No space left" in reasons(folder)[0]
    else:
        watched.stepped(optimizer)
        (folder / WORK).rename(folder / "gone")
        watched.disable("nobody hears this")
    assert watched.is_disabled


def test_a_complete_recording_holds_on_to_nothing(watched, folder):
    Counting.length = 2
    Counting.all = weakref.WeakSet()
    Counting.all.append = Counting.all.add
    model = nn.Linear(400, 2)
    (optimizer,) = optimizers(model, 1)
    for _ in range(3):
        watched.stepped(optimizer)
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert watched.is_disabled
    assert gone() is None
    assert reasons(folder) == []


def test_a_fork_trains_in_place_of_the_process_that_did_not(watched, model, monkeypatch):
    (optimizer,) = optimizers(model, 1)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    watched.stepped(optimizer)
    assert Counting.all[0].done == 1
    # A fork of the process that records is a loader's worker, or whatever: not recorded, and it ends nothing.
    monkeypatch.setattr(os, "getpid", lambda: -2)
    watched.stepped(optimizer)
    watched.disable("a fork's words")
    watched.end()
    assert (Counting.all[0].done, Counting.all[0].why) == (1, None)


def test_a_script_with_a_session_of_its_own_is_left_alone(watched, model, monkeypatch):
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    monkeypatch.setattr(rank_process._Sessions, "count", 1)
    watched.stepped(optimizer)
    assert Counting.all[0].why == "the script has a session of its own"
    assert Counting.all[0].done == 1


def test_a_script_that_uses_cupti_itself_is_left_alone(watched, model, folder, monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    assert watched.is_disabled
    assert reasons(folder) == [
        "what CUDA_INJECTION64_PATH names uses CUPTI in the script's process, and there can be but one"
    ]


def test_a_second_process_of_one_rank_is_not_recorded(watched, model, folder):
    (optimizer,) = optimizers(model, 1)
    (folder / CLAIM.format(rank=0, attempt=0)).write_text(this_process())
    watched.stepped(optimizer)
    assert reasons(folder) == ["another process of the script was recorded as rank 0 before"]
    assert watched.is_disabled


@pytest.mark.parametrize("left", ["nothing", "a round", "a recording"])
def test_a_process_follows_one_that_has_ended_without_a_round(watched, model, folder, left):
    """As torchrun starts a rank anew, and a script its second process."""
    (folder / CLAIM.format(rank=0, attempt=0)).write_text(ended_process())
    if left == "a round":
        part = rank_part.part([model], rank_part.Facts())
        rank_part.write_part(folder / "run", msgspec.structs.replace(part, rounds=1))
    elif left == "a recording":
        attach._mark_recorded(folder / "step10")
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    assert len(Counting.all) == (1 if left == "nothing" else 0)
    assert watched.is_disabled == (left != "nothing")


def ended_process() -> str:
    host, _, *rest = this_process().split()
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return " ".join([host, str(process.pid), *rest])


def test_who_gives_up_before_the_first_step_tells_the_others_at_it(watched, model, monkeypatch):
    said = []
    monkeypatch.setattr(attach.Meeting, "leave", lambda self, why: said.append(why))
    watched.disable("it profiles itself")
    assert said == []
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    watched.stepped(optimizer)
    assert said == ["it profiles itself"]
    assert Counting.all == []


def test_steps_that_the_scaler_skips_count(hearing, model):
    (optimizer,) = optimizers(model, 1)
    scaler = torch.amp.GradScaler("cpu")
    for loss in (1.0, float("inf"), float("nan"), 1.0):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 4)).sum() * loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert Counting.all[0].done == 4


def test_a_step_within_a_step_is_no_other(hearing, model):
    class Mine(SGD):
        def step(self, closure=None):
            return super().step(closure)

    SGD(model.parameters(), lr=0.1)
    mine = Mine(model.parameters(), lr=0.1)
    for _ in range(3):
        mine.step()
    assert Counting.all[0].done == 3


def test_a_step_that_fails_is_none(hearing, model):
    class Failing(SGD):
        def step(self, closure=None):
            raise ValueError("no step")

    class Working(SGD):
        def step(self, closure=None):
            return None

    with pytest.raises(ValueError, match="no step"):
        Failing(model.parameters(), lr=0.1).step()
    assert Counting.all == []
    Working(model.parameters(), lr=0.1).step()
    assert Counting.all[0].done == 1


def test_nothing_of_ours_is_compiled_into_a_step(hearing, model, monkeypatch):
    class Mine(SGD):
        def step(self, closure=None):
            return None

    mine = Mine(model.parameters(), lr=0.1)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    mine.step()
    assert Counting.all == []
    # GradScaler is not compiled.
    torch.amp.GradScaler("cpu", enabled=False).step(mine)
    assert Counting.all[0].done == 1


def test_a_script_that_profiles_is_left_alone(hearing, folder):
    with ours():
        torch.profiler.profile()
    torch.autograd.profiler.profile(enabled=False)
    assert reasons(folder) == []
    torch.profiler.profile()
    assert "uses torch.profiler itself" in reasons(folder)[0]


def test_the_model_is_the_one_that_the_optimizer_steps(watched):
    teacher, student = nn.Linear(1000, 10), nn.Linear(10, 2)
    watched.stepped(SGD(student.parameters(), lr=0.1))
    assert Counting.all[0].model is student
    assert teacher.weight.requires_grad


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_steps_may_move_to_another_thread_during_the_wait_alone(watched, model, folder):
    (optimizer,) = optimizers(model, 1)
    watched.stepped(optimizer)
    in_a_thread(lambda: [watched.stepped(optimizer) for _ in range(10)])
    assert Counting.all[0].done == 11
    watched.stepped(optimizer)
    assert watched.is_disabled
    assert reasons(folder) == ["the optimizer that steps are counted by went on in another thread"]


def test_a_scaled_step_counts_once_in_whichever_thread_it_is_taken(hearing, model):
    (optimizer,) = optimizers(model, 1)
    scaler = torch.amp.GradScaler("cpu")

    def train():
        for loss in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(1, 4)).sum() * loss).backward()
            scaler.step(optimizer)
            scaler.update()

    train()
    in_a_thread(train)
    assert Counting.all[0].done == 6


def test_a_short_training_whose_optimizer_was_replaced_says_so(watched, model, folder):
    first, second = optimizers(model)
    for _ in range(12):
        watched.stepped(first)
    for _ in range(13):
        watched.stepped(second)
    watched.end()
    assert reasons(folder) == ["the optimizer that steps were counted by stopped; another went on"]


@pytest.fixture
def one_of_two(monkeypatch):
    """This process is the first of two ranks that were launched, and in no process group."""
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("TORCHELASTIC_RUN_ID", "x")):
        monkeypatch.setenv(name, value)


def test_where_tracer_chose_the_ranks_a_script_without_a_process_group_is_stopped(one_of_two, watched, model, folder):
    watched._hook = msgspec.structs.replace(watched._hook, once="tracer record --gpus 1 train.py")
    (optimizer,) = optimizers(model, 1)
    with pytest.raises(SystemExit) as ended:
        watched.stepped(optimizer)
    assert ended.value.code == 1
    # Whoever catches that trains on, unrecorded.
    watched.stepped(optimizer)
    assert reasons(folder) == [
        "the script joined no process group in its first step: each of its 2 ranks would train all by itself, and was "
        "stopped. To record it on one: tracer record --gpus 1 train.py"
    ]
    assert Counting.all == []


def test_where_the_user_chose_them_there_is_a_warning_once(one_of_two, watched, model, folder):
    (optimizer,) = optimizers(model, 1)
    for _ in range(2):
        watched.stepped(optimizer)
    (recorder,) = Counting.all
    assert recorder.done == 2
    (warning,) = rank_process.take_notes(folder)
    assert warning == f"warning: {recorder.notes[0]}"
    assert warning.endswith("each of its 2 ranks trains by itself, and one of them is recorded")


def test_of_ranks_that_each_train_alone_one_is_recorded(one_of_two, watched, model, folder):
    (folder / CLAIM.format(rank=0, attempt=0)).write_text(this_process())
    watched.stepped(*optimizers(model, 1))
    assert Counting.all == []
    assert reasons(folder) == ["another process of the script was recorded as rank 0 before"]


def test_ranks_that_have_met_are_not_stopped(one_of_two, watched, model, folder, monkeypatch):
    watched._hook = msgspec.structs.replace(watched._hook, once="tracer record --gpus 1 train.py")
    monkeypatch.setattr(attach.compat, "backend", lambda: "gloo")
    watched.stepped(*optimizers(model, 1))
    assert len(Counting.all) == 1
    assert rank_process.take_notes(folder) == []


@pytest.mark.parametrize("words", [{"WORLD_SIZE": ""}, {"WORLD_SIZE": "8"}])
def test_a_world_that_somebody_else_names_is_not_this_script_s(watched, model, folder, monkeypatch, words):
    """As in a pod of a cluster, where one process is started by hand."""
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    watched.stepped(*optimizers(model, 1))
    assert (len(Counting.all), rank_process.take_notes(folder)) == (1, [])


def test_how_many_steps_a_training_took_is_told_where_one_optimizer_counts_them(watched, model):
    (optimizer,) = optimizers(model, 1)
    for _ in range(2):
        watched.stepped(optimizer)
    watched.end()
    assert (Counting.all[0].why, Counting.all[0].trained) == ("its training ended", 2)


def test_it_is_not_told_where_several_step(watched, model):
    for optimizer in optimizers(model):
        watched.stepped(optimizer)
    watched.end()
    assert Counting.all[0].trained is None


def test_a_step_that_a_graph_is_captured_from_is_none(watched, model, folder, monkeypatch):
    """Whatever waits for a device would end the capture, and what is called is done when the graph is replayed."""
    (optimizer,) = optimizers(model, 1)
    monkeypatch.setattr(attach.compat, "is_capturing", lambda: True)
    watched.stepped(optimizer)
    assert Counting.all == []
    watched.stepped(optimizer)
    assert [why.endswith("nothing here sees a step: use tracer.Session") for why in reasons(folder)] == [True]
    monkeypatch.setattr(attach.compat, "is_capturing", lambda: False)
    watched.stepped(optimizer)
    assert Counting.all[0].done == 1
