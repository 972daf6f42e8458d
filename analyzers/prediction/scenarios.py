"""Usual scenarios, where communication stops being hidden, JSON and CSV rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from analyzers.errors import NotReplayable
from analyzers.json_documents import decoded, encoded
from analyzers.notices import Notice
from analyzers.prediction.answers import SCHEMA, Baseline, Options, Scenario, WhatIf
from analyzers.prediction.levelling import LATE
from analyzers.prediction.link_model import LinkModel
from analyzers.prediction.predict import whatif
from analyzers.rank import RunSummary
from analyzers.run import Calibration
from analyzers.statistics import LEAST_SHARE

if TYPE_CHECKING:
    import pandas as pd

# Caps that people try, in MB; None is DDP's default.
USUAL_MB: tuple[float | None, ...] = (None, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)


class AtGpus(msgspec.Struct, frozen=True):
    """The scenario with the shortest step on so many GPUs, and whether its communication is hidden."""

    gpus: int
    bucket_mb: float | None
    predicted_step_ns: int
    predicted_exposed_comm_ns: int
    predicted_stall_ns: int
    efficiency: float | None
    reliable: bool
    hidden: bool


class ScaleOut(msgspec.Struct, frozen=True):
    """The best scenario of each number of GPUs, and from which number on communication is not hidden.

    It is hidden where compute waits for it no longer than `noise_ns`, or than `little` of the step: what else is
    exposed lies beside gaps between kernels, and costs nothing.
    """

    noise_ns: int
    little: float
    exposed_from_gpus: int | None
    rows: list[AtGpus]


class Prospect(WhatIf, frozen=True):
    """What `tracer whatif --json` writes: all predictions, and what they come to over GPUs (null for one number)."""

    scale_out: ScaleOut | None = None


def usual(run: RunSummary, links: LinkModel | Calibration | None = None) -> WhatIf | None:
    """Predict the usual on the run's own number of GPUs; None where a run cannot be replayed.

    That is the usual caps, the run without its late rank, if one stands out, and faster hosts where they are the limit.
    """
    try:
        return whatif(run, Options(bucket_mb=USUAL_MB, straggler=LATE, host_times=None), links)
    except NotReplayable:
        return None


def scale_out(predictions: WhatIf) -> ScaleOut | None:
    """Return how predictions of DDP go over GPUs; None where all have one number."""
    counts = sorted({each.gpus for each in predictions.of_settings})
    if len(counts) < 2 or predictions.is_of_fsdp:
        return None
    rows = [_at(predictions, gpus) for gpus in counts]
    exposed = [row.gpus for row in rows if not row.hidden]
    return ScaleOut(predictions.uncertainty_ns, LEAST_SHARE, exposed[0] if exposed else None, rows)


def _at(predictions: WhatIf, gpus: int) -> AtGpus:
    best = min((each for each in predictions.of_settings if each.gpus == gpus), key=lambda each: each.predicted_step_ns)
    return AtGpus(
        gpus=gpus,
        bucket_mb=best.bucket_mb,
        predicted_step_ns=best.predicted_step_ns,
        predicted_exposed_comm_ns=best.predicted_exposed_comm_ns,
        predicted_stall_ns=best.predicted_stall_ns,
        efficiency=best.efficiency,
        reliable=best.reliable,
        hidden=best.predicted_stall_ns <= max(predictions.uncertainty_ns, LEAST_SHARE * best.predicted_step_ns),
    )


def against_own(scenario: Scenario, baseline: Baseline) -> float:
    """Return how much longer a scenario's step is than with the run's own settings, both predicted, as a share.

    A step of more microbatches is compared with as many of the run's own.
    """
    if scenario.grad_accumulation is not None:
        return -scenario.gain_ns / (scenario.predicted_step_ns + scenario.gain_ns)
    return scenario.predicted_step_ns / baseline.predicted_step_ns - 1


def is_own(scenario: Scenario, predictions: WhatIf) -> bool:
    """Whether a scenario has the settings that the run had: cap, number of GPUs, links and all else."""
    baseline = predictions.baseline
    has_own = (scenario.bucket_mb, scenario.gpus) == (baseline.bucket_mb, baseline.gpus) and scenario.sharding is None
    has_own &= scenario.buckets == baseline.buckets
    return has_own and scenario.is_of_settings and predictions.as_recorded


def doubts(scenarios: Sequence[Scenario]) -> list[Notice]:
    """Say why predictions cannot be trusted, each reason once."""
    return list(dict.fromkeys(notice for each in scenarios for notice in each.why or ()))


def to_json(predictions: WhatIf) -> str:
    """Write predictions as one JSON document."""
    fields = {name: getattr(predictions, name) for name in WhatIf.__struct_fields__}
    document = Prospect(**fields, scale_out=scale_out(predictions))
    return encoded(document)


def from_json(text: str | bytes) -> Prospect:
    """Read predictions that `to_json` wrote. Raises UnreadableDocument where the text is something else."""
    return decoded(text, Prospect, SCHEMA, "make them with `tracer whatif RUN --json`")


def scenarios_frame(found: WhatIf) -> pd.DataFrame:
    """Return the scenarios, a row each, under the JSON's names and in its units.

    Buckets' bytes have spaces between them; the interval is `from_ns` and `to_ns`.
    """
    import pandas as pd

    rows = []
    for scenario in found.scenarios:
        share = against_own(scenario, found.baseline)
        why = None if scenario.why is None else str(scenario.why)
        row = msgspec.structs.asdict(scenario) | {"why": why, "against_own": share}
        low_ns, high_ns = row.pop("interval_ns")
        row |= {"from_ns": low_ns, "to_ns": high_ns, "buckets": " ".join(map(str, scenario.buckets))}
        rows.append(row | {"bucket_mb": "default" if scenario.bucket_mb is None else f"{scenario.bucket_mb:g}"})
    return pd.DataFrame(rows)
