"""Answers of `tracer whatif`: predictions, what is recommended, JSON and table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analyzers.json_documents import decoded, encoded
from analyzers.notices import Notice, Notices
from analyzers.prediction.evidence import MeasuredFrom
from analyzers.reporting import Table, columns, computed
from analyzers.scenarios import CAPS, printed_interval
from analyzers.statistics import LEAST_SHARE

WHATIF_SCHEMA = "tracer.whatif/3"
UNTRUSTED = "not to be trusted"


class Baseline(msgspec.Struct, frozen=True):
    """The run's own settings, measured and replayed.

    `error`: replayed over measured, less 1. `on_cpus`: `gpus` counts ranks.
    """

    bucket_mb: float | None
    gpus: int
    buckets: list[int]
    measured_step_ns: int
    predicted_step_ns: int
    measured_from: MeasuredFrom
    error: float
    on_cpus: bool = False


class Predicted(msgspec.Struct, frozen=True):
    """One change of the step, and what it brings.

    Settings alone have what follows `reliable`. `kind`: `caps`, `gpus`, `links`, `fsdp`, else the scenario. `at`:
    where. `value`: what is tried. `step_ns`: the measured step less the gain; of odd steps, the mean one.
    `interval_ns`: of settings as wide as the run's steps are known. `reliable`: the interval does not hold 0.
    `link_gbps`: the reductions' bus bandwidth. `latency_us`: the smallest one's time. `efficiency`: the step of one GPU
    that synchronizes nothing, over this one.
    """

    kind: str
    at: str
    value: float | int | str | None
    words: str
    predicted_step_ns: int
    step_ns: int
    gain_ns: int
    interval_ns: tuple[int, int]
    reliable: bool
    bucket_mb: float | None = None
    gpus: int | None = None
    link_gbps: float | None = None
    latency_us: float | None = None
    predicted_exposed_comm_ns: int | None = None
    efficiency: float | None = None
    buckets: list[int] = []
    assumptions: list[str] = []

    @property
    def is_setting(self) -> bool:
        """Whether it has other settings of DDP or FSDP2, another number of GPUs or links."""
        return self.gpus is not None

    @property
    def is_gain(self) -> bool:
        """Whether it brings something, told apart from nothing."""
        return self.interval_ns[0] > 0

    @property
    def before_ns(self) -> int:
        """Return the step without the change, as measured; of odd steps the mean one."""
        return self.step_ns + self.gain_ns

    @property
    def within_ns(self) -> tuple[int, int]:
        """Return what the gain lies between with the replay's own error, which is what is printed."""
        return printed_interval(CAPS if self.is_setting else self.kind, self.interval_ns, self.step_ns)

    @property
    def steps_within_ns(self) -> tuple[int, int]:
        """Return what the step lies between."""
        low_ns, high_ns = self.within_ns
        return max(self.before_ns - high_ns, 0), self.before_ns - low_ns

    @property
    def share(self) -> float:
        """Return the gain's share of the step."""
        return self.gain_ns / self.before_ns if self.before_ns else 0.0


class Prediction(Predicted, frozen=True, kw_only=True):
    """A prediction, and what speaks against it.

    `why`: what speaks against it. `of_degree`: how much is asked for, not found. `is_finding`: a definite cure.
    """

    why: Notices | None
    of_degree: bool = False
    is_finding: bool = False


class Recommended(Predicted, frozen=True, kw_only=True):
    """The recommended prediction.

    `why`: what for.
    """

    why: str


class AtGpus(msgspec.Struct, frozen=True):
    """The setting with the shortest step on so many GPUs.

    `hidden`: at most `little` or `noise_ns` of it is exposed.
    """

    gpus: int
    bucket_mb: float | None
    predicted_step_ns: int
    step_ns: int
    predicted_exposed_comm_ns: int
    efficiency: float | None
    reliable: bool
    hidden: bool


class ScaleOut(msgspec.Struct, frozen=True):
    """The best setting of each number of GPUs."""

    noise_ns: int
    little: float
    exposed_from_gpus: int | None
    rows: list[AtGpus]


class WhatIf(msgspec.Struct, frozen=True):
    """All predictions of a run: the largest gain first, then those of degree, then settings.

    `recommended`: the best setting that was asked for, else the first finding. `uncertainty_ns`: settings that are
    closer are not told apart. `as_recorded`: links, buffers and dtype are the run's.
    """

    schema: str
    run: str
    baseline: Baseline
    scenarios: list[Prediction]
    recommended: Recommended | None
    headline: str
    grade: str
    grade_why: str | None
    uncertainty_ns: int
    as_recorded: bool
    links: str
    assumptions: list[str]
    warnings: list[str]
    scale_out: ScaleOut | None = None

    @property
    def of_settings(self) -> list[Prediction]:
        """Return the scenarios with other settings of DDP or FSDP2, numbers of GPUs or links."""
        return [each for each in self.scenarios if each.is_setting]

    @property
    def others(self) -> list[Prediction]:
        """Return the scenarios at the run's own settings and number of GPUs."""
        return [each for each in self.scenarios if not each.is_setting]

    @property
    def is_of_fsdp(self) -> bool:
        """Whether its settings are FSDP2's."""
        return any(each.kind == "fsdp" for each in self.scenarios)

    @property
    def has_caps(self) -> bool:
        """Whether there are buckets to have a cap: not of FSDP2, nor on one GPU."""
        return not self.is_of_fsdp and any((each.gpus or 1) > 1 for each in self.of_settings)

    def __repr__(self) -> str:
        return f"WhatIf({self.run})\n{self.headline}"


def scaled_out(settings: Sequence[Prediction], noise_ns: int) -> ScaleOut | None:
    """Return how predictions of DDP go over GPUs; None where all have one number."""
    counts = sorted({each.gpus for each in settings if each.gpus is not None and each.kind != "fsdp"})
    if len(counts) < 2:
        return None
    rows = [_at([each for each in settings if each.gpus == gpus], gpus, noise_ns) for gpus in counts]
    exposed = [row.gpus for row in rows if not row.hidden]
    return ScaleOut(noise_ns, LEAST_SHARE, exposed[0] if exposed else None, rows)


def _at(settings: Sequence[Prediction], gpus: int, noise_ns: int) -> AtGpus:
    best = min(settings, key=lambda each: each.predicted_step_ns)
    exposed_ns = best.predicted_exposed_comm_ns or 0
    return AtGpus(
        gpus=gpus,
        bucket_mb=best.bucket_mb,
        predicted_step_ns=best.predicted_step_ns,
        step_ns=best.step_ns,
        predicted_exposed_comm_ns=exposed_ns,
        efficiency=best.efficiency,
        reliable=best.reliable,
        hidden=exposed_ns <= max(noise_ns, LEAST_SHARE * best.predicted_step_ns),
    )


def chosen(best: Prediction, why: str) -> Recommended:
    """Return a prediction as what is recommended, with why."""
    if not best.reliable:
        why = f"{why}; {UNTRUSTED}: {best.why}"
    fields = {name: getattr(best, name) for name in Predicted.__struct_fields__}
    return Recommended(**fields, why=why)


def is_own(prediction: Prediction, found: WhatIf) -> bool:
    """Whether a prediction has the settings that the run had: cap, number of GPUs, links and all else."""
    baseline = found.baseline
    own = (prediction.bucket_mb, prediction.gpus) == (baseline.bucket_mb, baseline.gpus)
    return prediction.is_setting and own and prediction.words == OWN_WORDS and found.as_recorded


OWN_WORDS = "settings as recorded"


def doubts(predictions: Sequence[Prediction]) -> list[Notice]:
    """Say why predictions cannot be trusted, each reason once."""
    return list(dict.fromkeys(notice for each in predictions for notice in each.why or ()))


def to_json(found: WhatIf) -> str:
    """Write predictions as one JSON document."""
    return encoded(found)


def from_json(text: str | bytes) -> WhatIf:
    """Read predictions that `to_json` wrote. Raises UnreadableDocument where the text is something else."""
    return decoded(text, WhatIf, WHATIF_SCHEMA, "make them with `tracer whatif RUN --json`")


def _cap(row: Prediction) -> str | None:
    """Return a bucket cap in words, where it is what is predicted."""
    if not row.buckets or row.kind == "fsdp":
        return None
    return "default" if row.bucket_mb is None else f"{row.bucket_mb:g}"


def _why(row: Prediction) -> str | None:
    return None if row.why is None else str(row.why)


SCENARIOS: Table[WhatIf] = Table(
    "scenarios",
    "one row per change that is predicted",
    {**columns(Prediction), **columns(Prediction, "within_ns"), **computed(bucket_mb=_cap, why=_why)},
    facts=("uncertainty_ns", "grade", "grade_why"),
)
