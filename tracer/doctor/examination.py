"""Examination of this machine, from Python to free space."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.doctor.findings import Finding, probed
from tracer.doctor.gpus import clock_finding, count_gpus, driver_finding, gpus_finding, mode_findings, peer_finding
from tracer.doctor.places import cache_finding, image_findings, place_findings
from tracer.doctor.software import communication_findings, no_torch, package_findings, python_finding, torch_finding
from tracer.doctor.trials import CUPTI, KINETO, driver_parameters, trial_findings, try_profilers

SCHEMA = "tracer.doctor/1"


@dataclass(frozen=True)
class Examination:
    """All findings, and whether anything can be recorded at all."""

    schema: str
    can_record: bool
    findings: tuple[Finding, ...]


def examine(traces: Path, cache: Path | None = None) -> Examination:
    """Probe this machine for recordings into a folder, and its cache's. What fails to answer is a finding."""
    findings = [python_finding(sys.version_info[:3])]
    torch: Any = None
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a library that torch needs may be missing, or of another version
        findings.append(no_torch(error))
    if torch is not None:
        findings += _torch_findings(torch)
    findings += probed("packages", package_findings)
    findings += probed("images", image_findings)
    findings += probed("free space", lambda: place_findings(traces))
    findings += probed("cache", lambda: [cache_finding(cache)])
    return Examination(SCHEMA, torch is not None, tuple(findings))


def _torch_findings(torch: Any) -> Iterator[Finding]:
    nvml = _nvml()
    yield from probed("torch", lambda: [torch_finding(torch)])
    yield from probed("GPUs", lambda: [gpus_finding(torch, nvml.nvmlDeviceGetCount() if nvml else 0)])
    if nvml is not None:
        yield from probed("driver", lambda: [driver_finding(nvml)])
    yield from probed("ranks", lambda: communication_findings(torch))
    yield from probed("GPUs", lambda: _gpu_findings(torch))


def _gpu_findings(torch: Any) -> Iterator[Finding]:
    """What there is to say where torch can use a GPU; the recording's own code is asked for it."""
    count = count_gpus(torch)
    if not count:
        return
    from tracer.recording import open_gpus

    opened = open_gpus(range(count))
    if opened:
        modes = probed(
            "compute mode", lambda: mode_findings([gpu.nvml.nvmlDeviceGetComputeMode(gpu.handle) for gpu in opened])
        )
        yield from modes
    if count > 1:
        yield from probed("peer access", lambda: [peer_finding(torch, _link_in_words(torch, count))])
    profilers = (KINETO,) if torch.version.hip else (KINETO, CUPTI)
    yield from probed("profilers", lambda: trial_findings(try_profilers(profilers), driver_parameters()))
    if opened:
        yield from probed("clocks", lambda: [clock_finding([gpu.state(1) for gpu in opened])])


def _link_in_words(torch: Any, count: int) -> str:
    from tracer.recording import LinkMember, peer_link

    devices = [torch.cuda.get_device_properties(index) for index in range(count)]
    link = peer_link([LinkMember("", str(device.name), str(device.uuid)) for device in devices])
    return f"{link.source}, {link.limit_gbps:,.0f} GB/s one way" if link.limit_gbps else link.source


def _nvml() -> Any:
    """NVML's module, None where there is none or it cannot be asked."""
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
    except Exception:  # no package, no driver, a package of the same name
        return None
    return pynvml
