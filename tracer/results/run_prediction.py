"""`tracer.whatif`: a run's steps predicted with other settings, GPUs or links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from analyzers.paths import Where
from analyzers.prediction import SCENARIOS, Options, WhatIf, to_json
from analyzers.prediction import whatif as predicted
from analyzers.rank import RunSummary
from analyzers.reporting import frame_method
from analyzers.run import Calibration, Manifest, world_size
from analyzers.settings import Affine, Hosts, LinkModel
from analyzers.units import LARGEST, NS_PER_US, SMALLEST
from tracer.errors import UsageError
from tracer.results.run_report import RunReport
from tracer.results.source import Picture, Source, calibration_of
from tracer.views import ITEMSIZE
from tracer.views.plots import prediction_picture
from tracer.views.sections.results import prediction_text

AS_GIVEN = "as given"
Dtype = Literal["bf16", "fp16", "fp32"]


class RunPrediction:
    """What is predicted of a run: `document` has every figure, the methods are a DataFrame, JSON and a picture."""

    def __init__(self, document: WhatIf) -> None:
        self.document = document

    @property
    def headline(self) -> str:
        """Return what is recommended, in a sentence."""
        return self.document.headline

    scenarios = frame_method(SCENARIOS)

    def plot(self) -> Picture:
        """Draw the scenarios, as `tracer whatif --plot` does."""
        return Picture(partial(prediction_picture, self.document))

    def json(self) -> str:
        """Return what `tracer whatif --json` prints."""
        return to_json(self.document)

    def __repr__(self) -> str:
        return prediction_text(self.document)


def whatif(
    run: Where | RunReport,
    *,
    only: str | Sequence[str] = (),
    bucket_mb: float | Sequence[float | None] | None = (),
    gpus: int | Sequence[int] = (),
    straggler: int | None = None,
    host_time: float | Sequence[float] = (),
    grad_accumulation: int | Sequence[int] = (),
    gradient_as_bucket_view: bool = False,
    broadcast_buffers: bool = True,
    grad_dtype: Dtype | None = None,
    prefetch: bool | None = None,
    reshard_after_forward: bool | None = None,
    separate_reduce_scatter_group: bool | None = None,
    param_dtype: Dtype | None = None,
    reduce_dtype: Dtype | None = None,
    bus_gbps: float | None = None,
    latency_us: float | None = None,
    gpus_per_host: int | None = None,
    host_gbps: float | None = None,
    links: str | Path | Calibration | None = None,
    steps: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    cache: str | Path | bool = True,
) -> RunPrediction:
    """Predict a run's steps with other settings, GPUs or links; without arguments all that the run can have.

        predicted = tracer.whatif("traces/resnet18-ddp4", bucket_mb=[10, 25], gpus=[4, 64])
        predicted.scenarios()

    The arguments are the options of `tracer whatif`, each of them one value or several (a cap None is DDP's default);
    `links`, `steps`, `workers`, `memory` and `cache` are those of `tracer.report`, whose result `run` may be.
    What it returns has `headline`, `document`, `scenarios()`, `plot()` and `json()`. Raises tracer.TracerError.
    """
    _check_links(links, bus_gbps, latency_us)
    _check_hosts(gpus_per_host, host_gbps)
    caps = (None,) if bucket_mb is None else _listed(bucket_mb)
    _numbers("bucket_mb", [cap for cap in caps if cap is not None])
    counts = _numbers("gpus", gpus, low=1, whole=True)
    options = Options(
        only=_listed(only),
        bucket_mb=tuple(dict.fromkeys(caps)),
        gpus=counts,
        bucket_views=gradient_as_bucket_view,
        broadcast_buffers=broadcast_buffers,
        gradient_itemsize=_itemsize(grad_dtype),
        hosts=None if gpus_per_host is None or host_gbps is None else Hosts(gpus_per_host, host_gbps),
        straggler=straggler,
        host_times=_numbers("host_time", host_time, low=0, high=1),
        accumulations=_numbers("grad_accumulation", grad_accumulation, low=1, whole=True),
        prefetch=prefetch,
        reshard_after_forward=reshard_after_forward,
        separate_reduce_scatter_group=separate_reduce_scatter_group,
        param_itemsize=_itemsize(param_dtype),
        reduce_itemsize=_itemsize(reduce_dtype),
    )
    source = _source(run, steps, workers, memory, cache)
    calibration = source.links if links is None else calibration_of(links)

    def predict(summary: RunSummary) -> WhatIf:
        asked = calibration if bus_gbps is None else given_links(bus_gbps, latency_us or 0.0, counts, summary)
        return predicted(summary, options, asked)

    return RunPrediction(source.read(predict))


def _source(
    run: Where | RunReport, steps: str | None, workers: int | None, memory: str | int | None, cache: str | Path | bool
) -> Source:
    """Return where a run is read from. Raises UsageError for a report that is to be read otherwise than it was."""
    if not isinstance(run, RunReport):
        return Source.of(run, None, steps, workers, memory, cache)
    given = {"steps": steps, "workers": workers, "memory": memory, "cache": None if cache is True else cache}
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name}={value!r}: a report is read as tracer.report was told to: give it there")
    return run.source


def _check_links(links: object, bus_gbps: float | None, latency_us: float | None) -> None:
    """Raise UsageError for links that make no sense."""
    if links is not None and bus_gbps is not None:
        raise UsageError("links and bus_gbps both describe the links: give one of them")
    if latency_us is not None and bus_gbps is None:
        raise UsageError("latency_us requires bus_gbps")
    _numbers("bus_gbps", () if bus_gbps is None else bus_gbps)
    _numbers("latency_us", () if latency_us is None else latency_us, low=0)


def _check_hosts(gpus_per_host: int | None, host_gbps: float | None) -> None:
    """Raise UsageError for hosts that make no sense."""
    if (gpus_per_host is None) != (host_gbps is None):
        raise UsageError("gpus_per_host and host_gbps require each other: give both")
    _numbers("gpus_per_host", () if gpus_per_host is None else gpus_per_host, low=1, whole=True)
    _numbers("host_gbps", () if host_gbps is None else host_gbps)


def given_links(bus_gbps: float, latency_us: float, gpus: Iterable[int], summary: RunSummary) -> LinkModel:
    """Build links with the given bandwidth and latency, the same for every group that is asked about."""
    run_gpus = world_size(summary.manifest or Manifest(), summary.ranks)
    # One GPU is refused, without other numbers of them, when its steps are read.
    groups = {count for count in (run_gpus, *gpus) if count > 1} or {2}
    return LinkModel({count: Affine(count, latency_us * NS_PER_US, bus_gbps) for count in groups}, AS_GIVEN)


def _listed(given: Any) -> tuple[Any, ...]:
    """Return one value or several as several."""
    return (given,) if isinstance(given, str | int | float) else tuple(given)


def _numbers(
    name: str, given: Any, low: float = SMALLEST, high: float = LARGEST, *, whole: bool = False
) -> tuple[Any, ...]:
    """Return the numbers of an argument in order, each once. Raises UsageError for one that cannot be."""
    try:
        values = _listed(given)
        wrong = [
            value
            for value in values
            if isinstance(value, bool) or not low <= value <= high or (whole and value != int(value))
        ]
    except TypeError:
        wrong = [given]
    if wrong:
        what = "whole numbers" if whole else "numbers"
        raise UsageError(f"{name}={wrong[0]!r}: give {what} from {low:g} to {high:g}")
    return tuple(sorted(set(map(int, values) if whole else values)))


def _itemsize(dtype: Dtype | None) -> int | None:
    if dtype is not None and (not isinstance(dtype, str) or dtype not in ITEMSIZE):
        raise UsageError(f"{dtype!r} is not one of {', '.join(ITEMSIZE)}")
    return None if dtype is None else ITEMSIZE[dtype]
