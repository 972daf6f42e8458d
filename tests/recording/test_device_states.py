"""States of GPUs as NVML has them, and when a recording reads them."""

import sys
from types import SimpleNamespace

import msgspec
import pytest
import torch

from analyzers.run.manifest import DeviceState
from tests.support.small_training import small_model
from tracer.config import Plan
from tracer.recording import recorder as recording
from tracer.recording.device_states import open_gpus
from tracer.recording.rank_part import Facts

STATE = DeviceState(0, "H200", 1, 1200, 1980, 3201, 412.5, 700.0, 87, ["hw_slowdown", "hw_thermal_slowdown"])
BITS = {
    0x0: [],
    0x1: ["gpu_idle"],
    0x6: ["applications_clocks_setting", "sw_power_cap"],
    0x1B0: ["sync_boost", "sw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"],
    0x604: ["sw_power_cap", "0x600"],
}


class FakeNvml(SimpleNamespace):
    """As much of pynvml as is asked: GPUs by UUID and by bus, of which the busy one is where `known_by` says."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def nvmlInit(self):  # noqa: N802
        if self.known_by == "no driver":
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return self.handle("uuid", uuid, "GPU-7d6c")

    def nvmlDeviceGetHandleByPciBusId(self, bus_id):  # noqa: N802
        return self.handle("bus", bus_id, "00000000:AB:00.0")

    def handle(self, how, asked, known):
        if self.known_by != how or asked != known:
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return {1: 1200, 2: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):  # noqa: N802
        return {1: 1980}[kind]

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 412_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 700_000

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return {0: 87}[sensor]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        return self.bits


class Silent(FakeNvml):
    """Knows the GPU, and nothing of it."""

    def __getattribute__(self, name):
        if name.startswith("nvmlDeviceGet") and "Handle" not in name:
            raise AttributeError(name)
        return super().__getattribute__(name)


class Old(FakeNvml):
    """Of a driver that has the older name alone."""

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        raise self.NVMLError("Function Not Found")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return self.bits


@pytest.fixture
def states(monkeypatch):
    """The states of a process's GPUs, as a fake NVML has them."""
    properties = SimpleNamespace(name="H200", uuid="7d6c", pci_domain_id=0, pci_bus_id=0xAB, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: properties)

    def read(kind=FakeNvml, known_by="uuid", bits=0x48, gpus=(0,)):
        monkeypatch.setitem(sys.modules, "pynvml", kind and kind(known_by=known_by, bits=bits))
        return [gpu.state(1) for gpu in open_gpus(gpus)]

    return read


@pytest.mark.parametrize("known_by", ["uuid", "bus"])
def test_a_gpu_is_known_by_its_uuid_or_by_its_bus(states, known_by):
    assert states(known_by=known_by) == [STATE]


@pytest.mark.parametrize(("bits", "reasons"), BITS.items())
@pytest.mark.parametrize("kind", [FakeNvml, Old])
def test_reasons_are_in_nvmls_words(states, kind, bits, reasons):
    assert states(kind, bits=bits) == [msgspec.structs.replace(STATE, reasons=reasons)]


def test_what_nvml_does_not_say_is_null(states):
    assert states(Silent) == [DeviceState(0, "H200", 1)]


def test_without_nvml_there_are_no_states(states, monkeypatch):
    assert states(None) == []
    assert states(known_by="no driver") == []
    assert states(known_by="nothing") == []
    assert states(lambda **_: SimpleNamespace()) == []  # another package of the name
    assert states(gpus=()) == []
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert states() == []


def test_a_gpu_that_torch_cannot_name_has_no_state(states, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: 1 / 0)
    assert states() == []


@pytest.fixture
def log(made_gpu, monkeypatch):
    """What a recording on a GPU does, in order: the machine has none."""
    done = made_gpu()
    read = SimpleNamespace(state=lambda number: done.append("read") or msgspec.structs.replace(STATE, round=number))
    monkeypatch.setattr(recording, "open_gpus", lambda gpus: [read] * len(gpus))
    return done


def recorded(folder, rounds):
    """The part that a rank leaves of a whole recording."""
    subject = recording.Subject(small_model(), Facts())
    with recording.Recorder(folder, subject, Plan(0, 2, 1, rounds)) as training:
        while training.step():
            pass
    return training.part


def test_states_are_read_when_the_last_step_before_the_light_window_is_under_way(tmp_path, log):
    recorded(tmp_path, 1)
    light = log[log.index("cupti:") : log.index("full:")]
    warmup, window = ["wait", "step", "read", "wait", "step"], ["wait", "wait", "step", "write"]
    assert light[: len(warmup) + len(window) + 1] == ["cupti:", *warmup, *window]
    assert log.count("read") == 1


def test_every_round_has_its_states(tmp_path, log):
    part = recorded(tmp_path, 3)
    assert part.device_states == [msgspec.structs.replace(STATE, round=number) for number in (1, 2, 3)]


def test_on_a_cpu_there_are_no_states(tmp_path):
    assert recorded(tmp_path, 1).device_states == []
