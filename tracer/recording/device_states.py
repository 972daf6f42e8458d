"""Clocks, power, heat and throttling of GPUs, read from NVML.

Nothing here may fail a recording: what NVML does not say is null, and a GPU that it does not know has no reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from analyzers.run import DeviceState
from tracer.recording.link_rates import nvml_uuid

# nvml.h, nvmlClocksEventReasons (nvmlClocksThrottleReasons before): a bit each, in its own words.
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
MILLI = 1_000


@dataclass(frozen=True)
class OpenGpu:
    """A GPU of this process that NVML knows: torch's index and name of it, NVML's module and handle."""

    index: int
    name: str
    nvml: Any
    handle: Any

    def state(self, number: int) -> DeviceState:
        """Read the state of the GPU in a round, which has a number from 1.

        What changes fastest comes first: the device may have ended its work when the last answer is there.
        """
        nvml, handle = self.nvml, self.handle
        reasons = _reasons(nvml, handle)
        sm_mhz = _answer(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)))
        memory_mhz = _answer(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)))
        return DeviceState(
            device=self.index,
            name=self.name,
            round=number,
            sm_mhz=sm_mhz,
            sm_max_mhz=_answer(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_mhz=memory_mhz,
            power_w=_answer(lambda: float(nvml.nvmlDeviceGetPowerUsage(handle) / MILLI)),
            power_limit_w=_answer(lambda: float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / MILLI)),
            temperature_c=_answer(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            reasons=reasons,
        )


def open_gpus(gpus: Sequence[int]) -> list[OpenGpu]:
    """Find those of torch's GPUs that NVML knows; none on a CPU, on ROCm, or where NVML cannot be asked."""
    if not gpus or torch.version.hip is not None:
        return []
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no driver, a package of the same name: then there are no readings
        return []
    return [opened for gpu in gpus if (opened := _answer(partial(_opened, pynvml, gpu))) is not None]


def _opened(nvml: Any, gpu: int) -> OpenGpu:
    properties: Any = torch.cuda.get_device_properties(gpu)
    for handle in _handles(nvml, properties):
        if handle is not None:
            return OpenGpu(gpu, str(properties.name), nvml, handle)
    raise LookupError(f"NVML does not know GPU {gpu}")


def _handles(nvml: Any, properties: Any) -> Iterator[Any]:
    """Ask by UUID, then by bus: CUDA_VISIBLE_DEVICES renumbers what torch counts, and NVML counts all GPUs."""
    yield _answer(lambda: nvml.nvmlDeviceGetHandleByUUID(nvml_uuid(str(properties.uuid))))
    yield _answer(lambda: nvml.nvmlDeviceGetHandleByPciBusId(_bus_id(properties)))


def _bus_id(properties: Any) -> str:
    """NVML's spelling: domain, bus and device in hexadecimal, and function 0, which is the GPU."""
    domain, bus, device = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def _reasons(nvml: Any, handle: Any) -> list[str] | None:
    """What holds the clocks down just now; older drivers have the older name alone."""
    bits = _answer(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
    if bits is None:
        bits = _answer(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
    if bits is None:
        return None
    unknown = bits & ~sum(REASONS)
    return [*(word for bit, word in REASONS.items() if bits & bit), *([hex(unknown)] if unknown else [])]


def _answer(ask: Callable[[], Any]) -> Any:
    """What NVML answers, None where it does not."""
    try:
        return ask()
    except Exception:  # NVML has errors of its own, and old packages lack functions
        return None
