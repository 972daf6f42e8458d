"""GPUs that torch can use: their driver, modes, peers, links and clocks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from analyzers.run import DeviceState
from analyzers.texts import listed
from tracer.doctor.findings import Finding, in_one_line

GIB = 2**30
# nvml.h, nvmlComputeMode_t; 0 is the default: any number of processes.
EXCLUSIVE_THREAD, PROHIBITED = 1, 2
# In `device_states`' words: what slows a GPU down that is not idle by itself, nor held by a setting or its power limit.
THROTTLED = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
CPU_INSTEAD = "scripts are recorded on the CPU, with gloo"


def count_gpus(torch: Any) -> int:
    """Return how many GPUs torch can use; what it warns of is for `gpus_finding` to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def gpus_finding(torch: Any, nvml_count: int) -> Finding:
    """Name the GPUs, or say why there are none."""
    count = count_gpus(torch)
    if count:
        properties = [torch.cuda.get_device_properties(index) for index in range(count)]
        models = Counter(f"{each.name}, {each.total_memory / GIB:.0f} GiB" for each in properties)
        return Finding("GPUs", "ok", "; ".join(f"{number} x {model}" for model, number in models.items()))
    if not nvml_count:
        return Finding("GPUs", "no", f"none: {CPU_INSTEAD}")
    seen = f"the driver has {nvml_count}, and torch cannot use them: {CPU_INSTEAD}"
    if torch.version.cuda is None:
        remedy = "install a torch that is built for CUDA: https://pytorch.org/get-started/locally"
        return Finding("GPUs", "missing", f"{seen}; this torch is built without CUDA", remedy)
    return Finding("GPUs", "missing", f"{seen}; {_why_unusable(torch)}", "look at CUDA_VISIBLE_DEVICES and the driver")


def driver_finding(nvml: Any) -> Finding:
    """Name the driver's version, and the newest CUDA that it runs."""
    version = nvml.nvmlSystemGetDriverVersion()
    text = version.decode() if isinstance(version, bytes) else str(version)
    number = int(nvml.nvmlSystemGetCudaDriverVersion())
    return Finding("driver", "ok", f"{text}: runs programs for CUDA up to {number // 1000}.{number % 1000 // 10}")


def mode_findings(modes: Sequence[int]) -> Iterator[Finding]:
    """Say which GPUs do not take just any process, one compute mode of NVML's per GPU."""
    prohibited = [index for index, mode in enumerate(modes) if mode == PROHIBITED]
    others = [index for index, mode in enumerate(modes) if mode >= EXCLUSIVE_THREAD and mode != PROHIBITED]
    if prohibited:
        remedy = "sudo nvidia-smi --compute-mode=DEFAULT"
        yield Finding("compute mode", "no", f"prohibited: no program may use {_gpus(prohibited)}", remedy)
    if others:
        yield Finding("compute mode", "ok", f"exclusive: {_gpus(others)} take one process each, which is enough")
    if modes and not prohibited and not others:
        yield Finding("compute mode", "ok", "default: any number of processes")


def peer_finding(torch: Any, link: str) -> Finding:
    """Say between which GPUs data goes directly, and over which link, in `link_rates`' words."""
    pairs = list(combinations(range(count_gpus(torch)), 2))
    apart = [pair for pair in pairs if not all(map(torch.cuda.can_device_access_peer, pair, reversed(pair)))]
    if not apart:
        return Finding("peer access", "ok", f"all {len(pairs)} pairs of GPUs; {link}" if len(pairs) > 1 else link)
    names = listed([f"{one}-{other}" for one, other in apart], 4)
    detail = f"not between {len(apart)} of {len(pairs)} pairs of GPUs ({names}): their data goes through the host"
    return Finding("peer access", "no", detail, "nvidia-smi topo -p2p r shows why; virtual machines often forbid it")


def clock_finding(states: Sequence[DeviceState]) -> Finding:
    """Say how fast the GPUs run now, and at most, and whether something holds them back."""
    detail = f"SM at {_range(state.sm_mhz for state in states)}, at most {_range(state.sm_max_mhz for state in states)}"
    throttled = {state.device: sorted(THROTTLED & set(state.reasons or ())) for state in states}
    throttled = {device: reasons for device, reasons in throttled.items() if reasons}
    if throttled:
        words = "; ".join(f"GPU {device}: {', '.join(reasons)}" for device, reasons in throttled.items())
        remedy = "steps are slower until this ends: cool it, or look at its power supply"
        return Finding("clocks", "no", f"{detail}; held back: {words}", remedy)
    held = sorted({reason for state in states for reason in state.reasons or ()})
    return Finding("clocks", "ok", detail + (f" ({', '.join(held)})" if held else ""))


def _range(values: Iterator[int | None]) -> str:
    known = sorted({value for value in values if value is not None})
    if not known:
        return "an unknown clock"
    return f"{known[0]:,} MHz" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,} MHz"


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"


def _why_unusable(torch: Any) -> str:
    try:
        torch.cuda.init()
    except Exception as error:
        return in_one_line(error)
    return "torch does not say why"
