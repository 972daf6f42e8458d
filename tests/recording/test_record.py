"""Recording for real, on two CPU ranks: the same path that GPUs take, without their times."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import nn

import analyzers
from analyzers.reporting.build import report
from analyzers.run.calibration import read_calibration
from analyzers.run.manifest import Dataset
from analyzers.trace.reader import read_trace
from tests.support.launching import environment_of_training, run_here
from tracer.config import Plan
from tracer.errors import SessionIncomplete
from tracer.recording import link_rates as links
from tracer.recording.rank_part import Facts, RankRounds, kept_rounds, typical_round
from tracer.recording.recorder import Recorder, Subject
from tracer.recording.windows import KinetoWindow, kineto_window
from tracer.workload import models_and_data as workloads

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["--ranks", "2", "--batch", "2", "--wait", "1", "--warmup", "1", "--active", "2"]


@pytest.fixture(scope="module")
def recorded(second_tier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings") / "cpu2"
    more = shlex.split(
        "--rounds 2 --bucket-mb 25 --epochs 2 --epoch-samples 8 --lr 0.01 --zero-init-residual "
        "--gradient-as-bucket-view"
    )
    done = run_here("record", *QUICK, *more, "-o", str(folder))
    assert done.returncode == 0, done.stderr
    return folder, done


def test_recording_ends_in_a_report_and_the_next_command(recorded):
    _, done = recorded
    assert "MAIN PROBLEM" in done.stdout
    assert "NEXT " in done.stdout
    assert "recording resnet18, ddp, batch 2 a device, on 2 CPU ranks" in done.stderr
    assert "round 2 of 2: full profile" in done.stderr


def test_the_folder_holds_the_windows_and_nothing_left_over(recorded):
    folder, _ = recorded
    ranks = {"rank0.json.gz", "rank1.json.gz"}
    assert {file.name for file in folder.iterdir()} == {*ranks, "run.json", "links.json", "nosync"}
    assert {file.name for file in (folder / "nosync").iterdir()} == ranks
    assert [file.name for file in folder.parent.iterdir()] == [folder.name]


def test_run_json_says_how_it_was_recorded(recorded):
    written = json.loads((recorded[0] / "run.json").read_text())
    assert written["schema"] == "tracer.run/1"
    assert (written["world_size"], written["backend"], written["bucket_cap_mb"]) == (2, "gloo", 25)
    assert len(written["parameters"]) == 62
    assert written["parameters"][0] == {
        "name": "conv1.weight", "shape": [64, 3, 7, 7], "dtype": "float32", "module": "conv1",
    }  # fmt: skip
    # ResNet-18 under an explicit 25 MB cap, every parameter in one bucket.
    assert [bucket["nbytes"] for bucket in written["buckets"]] == [28_872_744, 15_853_824]
    assert sorted(index for bucket in written["buckets"] for index in bucket["parameters"]) == list(range(62))
    for name in ("unprofiled", "nosync", "full"):
        assert [len(blocks) for blocks in written["controls"][name]["steps_ns"].values()] == [2, 2]


def test_run_json_says_what_was_asked_for(recorded):
    settings = json.loads((recorded[0] / "run.json").read_text())["settings"]
    asked = {"lr": 0.01, "lr_scaling": None, "lr_warmup": 0, "zero_init_residual": True, "grad_accumulation": 1}
    asked |= {"amp": None, "image_size": 32, "seed": 0, "data": "synthetic", "channels_last": False, "compile": False}
    options = {"bucket_mb": 25, "find_unused": False, "broadcast_buffers": True, "gradient_as_bucket_view": True}
    asked["ddp_options"] = options | {"static_graph": False, "comm_hook": None}
    assert {key: value for key, value in settings.items() if key != "ddp"} == asked


def test_epochs_follow_the_recording(recorded):
    folder, done = recorded
    run = analyzers.load(folder).manifest
    assert run.dataset == Dataset("synthetic", 8, True)
    assert [(epoch.epoch, epoch.steps, epoch.learning_rate) for epoch in run.epochs] == [(1, 2, 0.01), (2, 2, 0.01)]
    assert all(epoch.time_ns > 0 and epoch.loss > 0 and 0 <= epoch.accuracy <= 1 for epoch in run.epochs)
    shown = report(analyzers.load(folder)).run
    assert (shown.epochs, shown.dataset, shown.memory) == (run.epochs, run.dataset, run.memory)
    assert "epoch 2 of 2" in done.stderr
    assert "Epochs of 8 samples (synthetic)" in done.stdout


def test_full_windows_say_which_functions_ran_between_operators(recorded):
    folder, _ = recorded
    for rank in (0, 1):
        events = read_trace(folder / f"rank{rank}.json.gz").events
        (thread,) = set(events.samples.thread.tolist())
        steps = events.steps
        assert set(events.thread[steps].tolist()) == {thread}
        assert (events.samples.noted_ns >= events.start_ns[steps[0]]).all()
        names = {events.names[code] for code in events.samples.name}
        assert any("tracer/workload/" in name for name in names)
        assert not any("(/" in name or "tracer/recording" in name for name in names)
        assert len(read_trace(folder / "nosync" / f"rank{rank}.json.gz").events.samples) == 0
    assert not any("Python functions" in note for note in analyzers.load(folder).manifest.notes)


def test_memory_is_known_by_rank(recorded):
    found = analyzers.load(recorded[0]).manifest.memory
    assert "ru_maxrss" in found.source
    assert sorted(found.peak_bytes) == ["0", "1"]
    # Torch alone takes more than the one, and this machine has less than the other.
    assert all(10**8 < peak_bytes < 10**12 for peak_bytes in found.peak_bytes.values())


def test_on_a_cpu_no_device_has_a_state_and_nobody_is_warned(recorded):
    folder, done = recorded
    assert json.loads((folder / "run.json").read_text())["device_states"] is None
    assert "NVML" not in done.stderr + done.stdout


def test_links_are_calibrated_after_training(recorded):
    folder, done = recorded
    found = read_calibration(folder / "links.json")
    assert found.links.backend == "gloo"
    for collective in ("all_reduce", "broadcast"):
        sizes = [row.bytes for row in found.rows if row.collective == collective]
        # And some between, where the curve bends.
        assert {4096 * 2**power for power in range(14)} <= set(sizes)
        assert sizes == sorted(set(sizes))
        assert len(sizes) <= 14 + 6
    assert {row.collective for row in found.rows} == {"all_reduce", "broadcast"}
    assert {row.group_size for row in found.rows} == {2}
    assert "measuring the links" in done.stderr
    # Two profiled steps of two buckets each, and nothing of the calibration's.
    for rank in analyzers.load(folder).ranks:
        assert (rank.events.named("gloo:all_reduce") & rank.gloo).sum() == 4


def test_gloo_is_seen_overlapping_backward(recorded):
    found = analyzers.breakdown(analyzers.load(recorded[0])).to_frame()
    assert found["device"].unique().tolist() == ["cpu"]
    assert len(found) == 4
    assert (found["comm_ns"] > 0).all()
    assert (found["overlapped_comm_ns"] > 0).any()


def test_the_no_sync_window_has_no_all_reduce(recorded):
    run = analyzers.load(recorded[0] / "nosync")
    events = run.ranks[0].events
    assert not events.named("gloo:all_reduce").any()
    assert analyzers.load(recorded[0]).ranks[0].events.named("gloo:all_reduce").any()


def test_a_failing_rank_stops_all_and_its_exit_code_passes_through(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1':\n"
        "    print('the disk is on fire', file=sys.stderr)\n"
        "    sys.stderr.flush()\n"
        "    os._exit(42)\n"
    )
    done = run_here("record", *QUICK, "-o", str(tmp_path / "out"), before=tmp_path)
    assert done.returncode == 42
    assert "rank 1 failed (exit code 42)" in done.stderr
    assert "rank 1: the disk is on fire" in done.stderr
    assert "Traceback" not in done.stderr
    assert [file.name for file in tmp_path.iterdir() if "out" in file.name] == []


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "ranks"), [(signal.SIGINT, "2"), (signal.SIGTERM, "1")])
def test_an_interrupted_recording_leaves_nothing(tmp_path, sign, ranks):
    endless = [*QUICK, "--ranks", ranks, "--wait", "100000", "-o", str(tmp_path / "out")]
    command = [sys.executable, "-m", "tracer", "record", *endless]
    process = subprocess.Popen(command, env=environment_of_training(), stderr=subprocess.PIPE, text=True)
    while "settling" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(sign)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + sign
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["resnet18", "resnet18-cifar"])
def test_models_have_the_sizes_they_are_known_by(model):
    count = sum(parameter.numel() for parameter in workloads.build_model(model).parameters())
    assert count == {"resnet18": 11_181_642, "resnet18-cifar": 11_173_962}[model]


def test_what_fully_shard_wraps():
    assert len(workloads.shard_units(workloads.build_model("resnet18"))) == 4
    with torch.device("meta"):
        assert len(workloads.shard_units(workloads.Transformer())) == 12
    assert len(workloads.shard_units(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)))) == 2


def test_a_training_loop_that_ends_early_is_an_error(tmp_path):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    subject = Subject(model, Facts(), optimizer)
    training = Recorder(tmp_path, subject, Plan(0, 1, 1, 1), lambda label, done, total: None)
    with pytest.raises(SessionIncomplete, match="after 1 step; this recording takes 6"), training as session:
        session.step()


def test_a_profile_is_written_without_an_object_for_each_event(tmp_path, monkeypatch):
    def parse(*arguments: object, **options: object) -> None:
        raise AssertionError("events were parsed")

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", parse)
    with KinetoWindow("cpu", 1, 1) as profiling:
        for _ in range(2):
            torch.ones(1).add(1)
            profiling.step()
    profiling.write(tmp_path, 0)
    assert read_trace(tmp_path / "rank0.json.gz").events.named("aten::add").any()


def test_a_torch_without_acc_events_is_not_given_it_and_makes_no_objects_either(monkeypatch):
    """As 2.4 is, which parses what it has recorded whatever it is asked for."""

    class Older:
        def __init__(self, activities, schedule, record_shapes):
            self.profiler = None

        def start(self):
            self.profiler = SimpleNamespace(_parse_kineto_results=lambda result: [result])

        def stop(self):
            assert self.profiler._parse_kineto_results("an event") == []

    monkeypatch.setattr(kineto_window, "profile", Older)
    with KinetoWindow("cpu", 1, 1):
        pass


def test_the_most_typical_round_is_kept():
    rounds = {1: (100, 102), 2: (130, 131), 3: (109, 111), 4: (500, 510), 5: (90, 91)}
    blocks = {number: [[step, step, 9 * step] for step in steps] for number, steps in rounds.items()}
    assert typical_round(blocks) == 3


def test_a_round_whose_light_window_failed_on_any_rank_is_not_kept():
    first = RankRounds(steps_ns={"light": [[5], [5], []], "full": [[9], [8], [8]]}, failed_light={3: "why"})
    second = RankRounds(steps_ns={"light": [[], [7], [9]], "full": [[9], [8], [8]]}, failed_light={1: "why"})
    assert kept_rounds([first, second], 3) == {"light": 2, "full": 2}
    assert kept_rounds([first, second], 1) == {"full": 1}


def test_nccl_says_its_transport_in_its_log(tmp_path):
    log = tmp_path / "nccl.1.log"
    log.write_text(
        "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
        "h:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[2] [send] via NET/Socket/0\n"
    )
    assert links.nccl_transport([log]) == "NET/Socket + P2P/CUMEM"
    assert links.nccl_transport([]) is None


def test_what_was_written_is_what_is_read(recorded):
    folder, _ = recorded
    run = analyzers.load(folder)
    assert msgspec.json.decode((folder / "run.json").read_bytes(), type=analyzers.Manifest) == run.manifest
    assert report(run).run.times_from == "full"
