"""CUPTI's self-check, by a driver that does what it is told and rows that say so, or do not."""

import time
from types import SimpleNamespace

import msgspec
import pytest

from tracer.recording.windows import CuptiUnusable, device_activity, self_check
from tracer.recording.windows.records import DeviceRow
from tracer.recording.windows.self_check import COPIED_BYTES, KERNEL, WORDS, Driver, SelfCheck

STREAM, DEVICE = 21, 1


class MadeDriver:
    """As much of libcuda as is asked; `results` has what functions return, `context` whether there is one."""

    def __init__(self, context=True, **results):
        self.context, self.results, self.called = context, results, []

    def cuCtxGetCurrent(self, pointer):  # noqa: N802
        pointer._obj.value = 5 if self.context else None
        return 0

    def cuCtxGetDevice(self, pointer):  # noqa: N802
        pointer._obj.value = DEVICE
        return 0

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        self.called.append(name)
        return lambda *_: self.results.get(name, 0)


def stream_id(name, context, stream, per_thread, pointer):
    assert name == "cuptiGetStreamIdEx"
    pointer._obj.value = STREAM


def launched(driver):
    check = SelfCheck(SimpleNamespace(version=28, call=stream_id), Driver(driver))
    check.launch()
    return check


def row(category, name, start_ns, arguments, stream=STREAM):
    return DeviceRow(category, name, start_ns, start_ns + 5, DEVICE, stream, arguments)


RIGHT = [
    row("gpu_memset", "Memset (Device)", 100, {"bytes": 4 * WORDS}),
    row("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 110, {"bytes": COPIED_BYTES}),
    row("kernel", KERNEL, 120, {"grid": [3, 2, 1], "block": [64, 2, 1]}),
]


def test_rows_that_are_as_what_was_launched_are_right():
    driver = MadeDriver()
    check = launched(driver)
    another = row("kernel", "gemm", 90, {"grid": [1, 1, 1], "block": [1, 1, 1]}, stream=7)
    check.judge([another, *RIGHT], 100, 125)
    assert driver.called[-3:] == ["cuStreamDestroy_v2", "cuMemFree_v2", "cuModuleUnload"]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        RIGHT[:2],
        [*RIGHT[:2], msgspec.structs.replace(RIGHT[2], name="gemm")],
        [*RIGHT[:2], msgspec.structs.replace(RIGHT[2], arguments={"grid": [2, 3, 1], "block": [64, 2, 1]})],
        [*RIGHT[:2], msgspec.structs.replace(RIGHT[2], device=0)],
        [RIGHT[0], msgspec.structs.replace(RIGHT[1], arguments={"bytes": 0}), RIGHT[2]],
    ],
)
def test_rows_that_say_something_else_are_refused(wrong):
    with pytest.raises(CuptiUnusable, match=r"version 28 says .* of a self-check that did"):
        launched(MadeDriver()).judge(wrong, 0, 1000)


@pytest.mark.parametrize(("begin_ns", "end_ns"), [(101, 1000), (0, 124), (10**18, 2 * 10**18)])
def test_times_outside_of_the_check_are_refused(begin_ns, end_ns):
    with pytest.raises(CuptiUnusable, match="wrong times"):
        launched(MadeDriver()).judge(RIGHT, begin_ns, end_ns)


def test_times_out_of_order_are_refused():
    backwards = [RIGHT[0], msgspec.structs.replace(RIGHT[1], start_ns=90, end_ns=95), RIGHT[2]]
    with pytest.raises(CuptiUnusable, match="wrong times"):
        launched(MadeDriver()).judge(backwards, 0, 1000)


def test_what_the_driver_refuses_is_said_and_everything_given_back():
    driver = MadeDriver(cuLaunchKernel=209)
    with pytest.raises(CuptiUnusable, match="cuLaunchKernel returned 209"):
        launched(driver)
    assert driver.called[-3:] == ["cuStreamDestroy_v2", "cuMemFree_v2", "cuModuleUnload"]


def test_a_driver_that_lacks_a_function_is_unusable():
    with pytest.raises(CuptiUnusable, match="the driver has no memAlloc"):
        Driver(MadeDriver()).call("memAlloc")


def test_a_thread_without_a_context_is_said():
    with pytest.raises(CuptiUnusable, match="no CUDA context"):
        launched(MadeDriver(context=False))


def test_a_machine_without_a_driver_is_said(monkeypatch):
    def fail(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(self_check.ctypes, "CDLL", fail)
    with pytest.raises(CuptiUnusable, match=r"the driver cannot be loaded \(libcuda.so.1"):
        Driver()


class Callbacks:
    """Callbacks that nobody calls."""

    requested = completed = timestamp = 1

    def reset(self):
        pass

    def lacking(self):
        return 0

    def filled(self):
        return []


def test_a_process_is_checked_until_it_was_right_once(monkeypatch):
    rows = [[], RIGHT]

    def device_rows(cupti, buffers):
        now_ns = time.time_ns()
        return [msgspec.structs.replace(one, start_ns=now_ns, end_ns=now_ns) for one in rows.pop(0)]

    monkeypatch.setattr(device_activity, "device_rows", device_rows)

    def call(name, *arguments):
        if name == "cuptiGetStreamIdEx":
            stream_id(name, *arguments)

    cupti = SimpleNamespace(version=28, call=call, timestamp_ns=time.time_ns, dropped=lambda: 0)
    activity = device_activity.DeviceActivity(cupti, Callbacks())
    with pytest.raises(CuptiUnusable, match="self-check"):
        activity.check(Driver(MadeDriver()))
    activity.check(Driver(MadeDriver()))
    activity.check(Driver(MadeDriver()))
    assert rows == []
