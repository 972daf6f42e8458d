"""What the doctor says of machines that this one is not: fakes of torch, NVML, disks and profilers."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from analyzers.errors import install_hint
from analyzers.run.manifest import DeviceState
from tests.support.environments import HEAD, PAGE, rows_in
from tracer import recording
from tracer.cli import main
from tracer.commands.doctor import text
from tracer.doctor import examination, places, trial_process
from tracer.doctor.examination import Examination, examine
from tracer.doctor.findings import Finding, probed
from tracer.doctor.gpus import clock_finding, driver_finding, gpus_finding, mode_findings, peer_finding
from tracer.doctor.places import CIFAR10, GB, image_findings, place_findings
from tracer.doctor.software import (
    LEAST_TORCH,
    PACKAGES,
    TRIED_TORCH,
    _two_numbers,
    communication_findings,
    no_torch,
    package_findings,
    python_finding,
    torch_finding,
)
from tracer.doctor.trials import CUPTI, KINETO, Trial, driver_parameters, trial_findings, try_profiler
from tracer.errors import INSTALL_TORCH, TracerError


class FakeCuda(SimpleNamespace):
    """As much of torch.cuda as is asked; pairs in `apart` cannot access each other's memory."""

    def is_available(self):
        return self.count > 0

    def device_count(self):
        return self.count

    def get_device_properties(self, index):
        return SimpleNamespace(name="NVIDIA H200", total_memory=139 * 2**30, uuid=f"{index}")

    def can_device_access_peer(self, one, other):
        return (one, other) not in self.apart

    def init(self):
        raise RuntimeError("The NVIDIA driver on your system is too old\n(found version 11040)")


def fake_torch(count=2, cuda="13.2", hip=None, version="2.15.0+cu132", apart=(), nccl=True, gloo=True):
    distributed = SimpleNamespace(
        is_available=lambda: nccl or gloo, is_nccl_available=lambda: nccl, is_gloo_available=lambda: gloo
    )
    devices = FakeCuda(count=count, apart=set(apart), nccl=SimpleNamespace(version=lambda: (2, 30, 7)))
    return SimpleNamespace(
        __version__=version, version=SimpleNamespace(cuda=cuda, hip=hip), cuda=devices, distributed=distributed
    )


def state(device=0, sm_mhz=345, reasons=("gpu_idle",)):
    return DeviceState(device, "H200", 1, sm_mhz, 1980, 3201, 80.0, 700.0, 30, list(reasons))


def said(finding):
    return f"{finding.state} {finding.detail}: {finding.remedy}"


@pytest.mark.parametrize(("version", "state"), [((3, 10, 1), "no"), ((3, 11, 0), "ok"), ((3, 14, 2), "ok")])
def test_pythons_that_are_too_old(version, state):
    assert python_finding(version).state == state


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (fake_torch(), "ok 2.15.0+cu132, built for CUDA 13.2"),
        (fake_torch(cuda=None, version="2.11.0+cpu"), "ok 2.11.0+cpu, built for CPUs alone"),
        (fake_torch(cuda=None, hip="7.1", version="2.12"), "ok 2.12, built for ROCm 7.1"),
        (fake_torch(version="2.4.0"), "ok 2.4.0, built for CUDA 13.2"),
        (fake_torch(version="2.3.1"), "no 2.3.1, built for CUDA 13.2; recording was tried with 2.4.1, "),
        (fake_torch(version="2.5.1"), "ok 2.5.1, built for CUDA 13.2; recording was tried with 2.4.1, "),
        (fake_torch(version="2.99.0"), "ok 2.99.0, built for CUDA 13.2; recording was tried with 2.4.1, "),
    ],
)
def test_what_torch_is_built_for(torch, words):
    assert said(torch_finding(torch)).startswith(words)


def test_a_torch_that_is_missing_is_told_from_one_that_is_broken():
    missing = no_torch(ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert said(missing) == f"missing not installed: nothing can be recorded: {INSTALL_TORCH}"
    broken = no_torch(OSError("libcudart.so.13: cannot open shared object file\nmore"))
    assert said(broken).startswith("no cannot be imported (OSError: libcudart.so.13: cannot open shared object file)")


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        (fake_torch(), ["NCCL ok", "gloo ok"]),
        (fake_torch(cuda=None, hip="7.1"), ["RCCL ok", "gloo ok"]),
        (fake_torch(nccl=False), ["NCCL no", "gloo ok"]),
        (fake_torch(nccl=False, cuda=None), ["gloo ok"]),
        (fake_torch(nccl=False, gloo=False), ["ranks no"]),
        (fake_torch(gloo=False), ["NCCL ok", "gloo no"]),
    ],
)
def test_what_ranks_can_communicate_through(torch, found):
    assert [f"{finding.what} {finding.state}" for finding in communication_findings(torch)] == found


def test_each_package_that_is_missing_has_its_pip_line():
    found = list(package_findings(lambda module: module not in ("hta", "viztracer")))
    assert {finding.what: finding.remedy for finding in found if finding.state != "ok"} == {
        "traceinsight": install_hint("hta"),
        "viztracer": install_hint("offline"),
    }


def test_what_was_tried_is_what_the_table_of_environments_has():
    """Each row is made by `make environments`, and has a torch that installing left as it was."""
    rows = rows_in(PAGE.read_text())
    assert tuple(row[0] for row in rows) == TRIED_TORCH
    assert _two_numbers(TRIED_TORCH[0]) == LEAST_TORCH
    for row in rows:
        assert row[HEAD.index("pip changes")] == "nothing"
        assert row[HEAD.index("DDP")] == "2 ranks"


def test_every_extra_that_is_named_is_one():
    extras = (Path(__file__).resolve().parents[2] / "setup.cfg").read_text()
    for _, _, extra, _ in PACKAGES:
        assert f"\n{extra} =\n" in extras


@pytest.mark.parametrize(
    ("torch", "nvml_count", "words"),
    [
        (fake_torch(), 2, "ok 2 x NVIDIA H200, 139 GiB"),
        (fake_torch(0), 0, "no none: scripts are recorded on the CPU, with gloo"),
        (fake_torch(0, cuda=None), 8, "missing the driver has 8, and torch cannot use them"),
        (fake_torch(0), 8, "RuntimeError: The NVIDIA driver on your system is too old: look at"),
    ],
)
def test_gpus_or_why_there_are_none(torch, nvml_count, words):
    assert words in said(gpus_finding(torch, nvml_count))


@pytest.mark.parametrize("version", ["580.65.06", b"580.65.06"])
def test_the_driver_and_the_newest_cuda_that_it_runs(version):
    nvml = SimpleNamespace(nvmlSystemGetDriverVersion=lambda: version, nvmlSystemGetCudaDriverVersion=lambda: 13020)
    assert driver_finding(nvml).detail == "580.65.06: runs programs for CUDA up to 13.2"


@pytest.mark.parametrize(
    ("modes", "states"), [([], []), ([0, 0], ["ok"]), ([0, 3], ["ok"]), ([2, 0], ["no"]), ([2, 1], ["no", "ok"])]
)
def test_compute_modes(modes, states):
    assert [finding.state for finding in mode_findings(modes)] == states


def test_peers():
    assert peer_finding(fake_torch(2), "18 NVLinks") == Finding("peer access", "ok", "18 NVLinks")
    assert peer_finding(fake_torch(4), "18 NVLinks").detail == "all 6 pairs of GPUs; 18 NVLinks"
    apart = peer_finding(fake_torch(4, apart=[(0, 3), (3, 1)]), "")
    assert "not between 2 of 6 pairs of GPUs (0-3, 1-3)" in said(apart)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([state()], "ok SM at 345 MHz, at most 1,980 MHz (gpu_idle)"),
        ([state(), state(1, 1980, [])], "ok SM at 345 to 1,980 MHz, at most 1,980 MHz (gpu_idle)"),
        ([state(), state(3, 600, ["hw_slowdown", "sw_power_cap"])], "held back: GPU 3: hw_slowdown: steps are slower"),
        ([state(sm_mhz=None)], "ok SM at an unknown clock"),
    ],
)
def test_clocks_and_what_holds_them_back(states, words):
    assert words in said(clock_finding(states))


def test_images_to_train_on(tmp_path):
    nowhere, data = tmp_path / "data", tmp_path / "home"
    found = list(image_findings((nowhere, data)))
    assert (found[0].state, found[0].remedy) == ("missing", f"unpack cifar-10-python.tar.gz in {nowhere}/")
    (data / CIFAR10).mkdir(parents=True)
    found = list(image_findings((nowhere, data)))
    assert (found[0].state, found[0].detail) == ("ok", f"accuracy on real images: --data cifar10:{data}")
    assert "--data digits" in found[1].detail


def test_space(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "SHARED_MEMORY", tmp_path)
    free = {tmp_path: 64 * 10**6}
    traces, _, shared = place_findings(tmp_path / "not" / "yet" / "traces", lambda folder: free.get(folder, 7 * GB))
    assert (traces.what, traces.state) == ("traces/", "no")
    assert traces.detail.startswith("0.1 GB free")
    assert "--shm-size" in shared.remedy
    monkeypatch.setattr(places.os, "access", lambda place, mode: False)
    assert {finding.state for finding in place_findings(tmp_path)} == {"no"}


PERMITTED = "RmProfilingAdminOnly: 0\n"


@pytest.mark.parametrize(
    ("trial", "parameters", "words"),
    [
        (Trial(KINETO, 1, "Kineto"), PERMITTED, "ok Kineto: full windows"),
        (Trial(CUPTI, 2, "libcupti.so.13"), PERMITTED, "ok libcupti.so.13: light windows at the least cost: "),
        (Trial(CUPTI, 0, "libcupti.so.13"), PERMITTED, "it saw no kernel; light windows by Kineto, which stretches"),
        (Trial(KINETO, 0), PERMITTED, "end other profilers of this GPU"),
        (Trial(KINETO, 0), "RmProfilingAdminOnly: 1\n", "NVreg_RestrictProfilingToAdminUsers=0"),
        (
            Trial(CUPTI, why="cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
            "",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (Trial(CUPTI, why="llvmlite is not installed: pip install llvmlite"), "", "pip install llvmlite"),
        (Trial(CUPTI, why="what CUDA_INJECTION64_PATH names uses CUPTI in this process"), "", "end other profilers"),
        (Trial(CUPTI, why="CUPTI's version 140000 is not known"), "", "not known; light windows by Kineto"),
    ],
)
def test_trials_of_profilers_and_their_remedies(trial, parameters, words):
    (finding,) = trial_findings([trial], parameters)
    assert words in said(finding)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os; os.kill(os.getpid(), 11)", "its trial was killed by SIGSEGV"),
        ("import sys; print('x', file=sys.stderr); sys.exit('no memory')", "ended with exit code 1: no memory"),
        ("import time; time.sleep(60)", "took longer than 1 s"),
    ],
)
def test_a_profiler_may_crash_or_hang(program, why):
    trial = try_profiler(CUPTI, (sys.executable, "-c", program), 20.0 if "sleep" not in program else 1.0)
    assert why in trial.why


def test_a_program_that_cannot_be_started_is_said():
    assert "could not be started" in try_profiler(KINETO, ("/nonesuch",)).why


@pytest.mark.slow
def test_without_a_gpu_cupti_is_refused_with_its_reason():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert try_profiler(CUPTI).why == "there is no NVIDIA GPU"


def test_what_an_attempt_raises_is_in_its_trial():
    def fails(error):
        raise error

    assert trial_process.tried(CUPTI, lambda: fails(TracerError("no"))).why == "no"
    assert trial_process.tried(KINETO, lambda: fails(RuntimeError("no kernel image\nCompile"))).why == (
        "RuntimeError: no kernel image"
    )
    assert trial_process.tried(KINETO, lambda: Trial(KINETO, 1)) == Trial(KINETO, 1)


def test_a_probe_that_fails_is_a_finding():
    assert probed("GPUs", lambda: 1 / 0) == [
        Finding("GPUs", "no", "could not be asked (ZeroDivisionError: division by zero)")
    ]


def test_the_driver_s_parameters_may_be_missing(tmp_path):
    (tmp_path / "params").write_text(PERMITTED)
    assert driver_parameters(tmp_path / "params") == PERMITTED
    assert driver_parameters(tmp_path / "none") == ""


def test_a_machine_with_gpus_is_examined_in_order(monkeypatch, tmp_path):
    gpu = SimpleNamespace(
        nvml=SimpleNamespace(nvmlDeviceGetComputeMode=lambda handle: 0), handle=0, state=lambda number: state()
    )
    link = SimpleNamespace(source="NVML: 18 NVLinks", limit_gbps=478.0)
    monkeypatch.setattr(recording, "open_gpus", lambda gpus: [gpu])
    monkeypatch.setattr(recording, "peer_link", lambda members: link)
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setattr(examination, "_nvml", lambda: None)
    monkeypatch.setattr(examination, "try_profilers", lambda profilers: [Trial(profiler, 1) for profiler in profilers])
    found = examine(tmp_path / "traces")
    names = [finding.what for finding in found.findings]
    assert names[:10] == [
        *("Python", "torch", "GPUs", "NCCL", "gloo", "compute mode", "peer access", KINETO, CUPTI, "clocks"),
    ]
    assert found.findings[6].detail == "NVML: 18 NVLinks, 478 GB/s one way"
    assert text(found).endswith("Training on these GPUs can be recorded: tracer record train.py.")


def test_without_torch_nothing_can_be_recorded_and_that_is_said(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "missing  torch" in out
    assert out.endswith("tracer report RUN.\n")
    assert err == ""


def test_a_broken_torch_is_no_traceback(monkeypatch, capsys):
    real = importlib.import_module

    def load(name, package=None):
        if name == "torch":
            raise OSError("libtorch.so: cannot open shared object file")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", load)
    assert main(["doctor"]) == 1
    assert "cannot be imported (OSError: libtorch.so" in capsys.readouterr().out


def test_on_this_machine(capsys):
    """Whatever it has: torch is here, as tests of recording need it."""
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in ("ok", "missing", "no") for line in lines[:-2])
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["can_record"]) == ("tracer.doctor/1", True)
    assert set(document["findings"][0]) == {"what", "state", "detail", "remedy"}


def test_each_finding_is_one_line():
    found = Examination("", True, (Finding("torch", "ok", "2.15"), Finding("viz\ntracer", "missing", "x", "pip")))
    assert text(found).splitlines()[:2] == [
        "ok       torch       2.15",
        "missing  viz\N{REPLACEMENT CHARACTER}tracer  x: pip",
    ]
    assert len(text(found).splitlines()) == 4


def test_nvml_without_a_driver_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace())
    assert examination._nvml() is None
