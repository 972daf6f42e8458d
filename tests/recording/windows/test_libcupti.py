"""CUPTI found, refused, and what it complains of: by a made library, since the machine has no GPU."""

import ctypes
import sys
from types import SimpleNamespace

import pytest
import torch

from tracer.recording.windows import CuptiUnusable, device_activity, libcupti
from tracer.recording.windows.libcupti import Cupti, loaded_cupti

CALLBACKS = SimpleNamespace(reset=lambda: None, requested=1, completed=2, timestamp=3)


class MadeLibrary:
    """As much of libcupti as is asked, of one version; `results` has what other functions return."""

    def __init__(self, version, **results):
        self.version, self.results, self.called = version, results, []

    def cuptiGetVersion(self, pointer):  # noqa: N802
        pointer._obj.value = self.version
        return 0

    def cuptiGetResultString(self, result, pointer):  # noqa: N802
        pointer._obj.value = f"CUPTI_ERROR_{result}".encode()
        return 0

    def __getattr__(self, name):
        if not name.startswith("cupti") or name in self.results.get("lacks", ()):
            raise AttributeError(name)
        self.called.append(name)
        return lambda *_: self.results.get(name, 0)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Puts a made library where torch would have loaded one."""

    def make(version, **results):
        library = MadeLibrary(version, **results)
        maps = tmp_path / "maps"
        maps.write_text(
            "7f00 r-xp 00000000 08:01 1 /lib/libc.so.6\n7f01 r-xp 0 08:01 2 /a b/libcupti.so.13\n7f02 rw-p 0\n"
        )
        monkeypatch.setattr(libcupti, "MAPS", maps)
        monkeypatch.setattr(libcupti.ctypes, "CDLL", lambda path: library if path == "/a b/libcupti.so.13" else 1 / 0)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        return library

    return make


def test_without_a_gpu_nothing_is_called():
    with pytest.raises(CuptiUnusable, match="no NVIDIA GPU"):
        loaded_cupti()
    assert device_activity.why_unusable() == "there is no NVIDIA GPU"


@pytest.mark.parametrize("version", [18, 26, 28, 130000, 130500])
def test_the_library_says_its_version(made, version):
    made(version)
    assert loaded_cupti().version == version


def test_a_torch_without_libcupti_is_said(made, tmp_path):
    made(28)
    (tmp_path / "maps").write_text("7f00 r-xp 00000000 08:01 1 /lib/libc.so.6\n")
    with pytest.raises(CuptiUnusable, match="torch has loaded no libcupti"):
        loaded_cupti()
    (tmp_path / "maps").unlink()
    with pytest.raises(CuptiUnusable, match="cannot be read"):
        loaded_cupti()


def test_what_cupti_complains_of_is_said_in_its_own_words(made):
    made(28, cuptiActivityEnable=35)
    with pytest.raises(CuptiUnusable, match="cuptiActivityEnable: CUPTI_ERROR_35"):
        loaded_cupti().call("cuptiActivityEnable", 10)


def test_a_function_that_is_not_there_is_named(made):
    made(28, lacks=("cuptiActivityFlushAll",))
    with pytest.raises(CuptiUnusable, match="CUPTI has no cuptiActivityFlushAll"):
        loaded_cupti().call("cuptiActivityFlushAll", 1)


def test_where_recording_is_forbidden_everything_is_switched_off_again(made, monkeypatch):
    library = made(28, cuptiActivityEnable=35)
    with (
        pytest.raises(CuptiUnusable, match="cuptiActivityEnable"),
        device_activity.DeviceActivity(loaded_cupti(), CALLBACKS),
    ):
        pytest.fail("entered")
    assert library.called.count("cuptiActivityDisable") == 3


def test_a_clock_that_is_not_the_systems_is_refused(made, monkeypatch):
    made(28)
    with pytest.raises(CuptiUnusable, match="its clock is"), device_activity.DeviceActivity(loaded_cupti(), CALLBACKS):
        pytest.fail("entered")


@pytest.mark.parametrize("error", [RuntimeError("LLVM IR parsing error"), MemoryError(), OSError("mmap")])
def test_whatever_compiling_the_callbacks_raises_is_a_reason_against_them(made, monkeypatch, error):
    made(28)

    def compile_callbacks():
        raise error

    monkeypatch.setattr(device_activity, "compile_callbacks", compile_callbacks)
    device_activity.prepared.cache_clear()
    assert type(error).__name__ in device_activity.why_unusable()


@pytest.mark.parametrize("late_ns", [0, 5_000_000])
def test_a_thread_that_waits_between_two_looks_at_the_clock_fails_no_window(made, monkeypatch, late_ns):
    made(28)
    now_ns = [10**18]

    def look(_self=None):
        now_ns[0] += late_ns
        return now_ns[0]

    monkeypatch.setattr(device_activity.time, "time_ns", look)
    monkeypatch.setattr(Cupti, "timestamp_ns", look)
    with device_activity.DeviceActivity(loaded_cupti(), CALLBACKS):
        pass


def test_what_cannot_be_disabled_keeps_nothing_else_enabled(made, monkeypatch):
    library = made(28, cuptiActivityDisable=35)
    monkeypatch.setattr(device_activity.DeviceActivity, "_check_clock", lambda self: None)
    with (
        pytest.raises(CuptiUnusable, match="cuptiActivityDisable"),
        device_activity.DeviceActivity(loaded_cupti(), CALLBACKS),
    ):
        pass
    assert library.called.count("cuptiActivityDisable") == 3
    assert "cuptiActivityFlushAll" in library.called


def test_other_users_of_cupti_are_left_alone(monkeypatch):
    assert device_activity.other_user() is None
    monkeypatch.setitem(sys.modules, "triton.profiler.flags", SimpleNamespace(flags=SimpleNamespace(profiling_on=True)))
    assert device_activity.other_user() == "Proton"
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace())
    assert device_activity.other_user() == "cupti-python"
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/nsys.so")
    assert device_activity.other_user() == "what CUDA_INJECTION64_PATH names"
    with pytest.raises(CuptiUnusable, match="CUDA_INJECTION64_PATH names uses CUPTI in this process"):
        device_activity.device_activity()


def test_the_real_library_is_the_one_that_torch_loaded():
    if torch.version.cuda is None:
        pytest.skip("this torch has no CUDA")
    assert libcupti._loaded_library().name.startswith("libcupti.so")
    assert ctypes.CDLL(str(libcupti._loaded_library())).cuptiActivityEnable
