"""Answers of `tracer whatif`: options, predictions, and what is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from analyzers.notices import Notices
from analyzers.prediction.evidence import MeasuredFrom
from analyzers.prediction.levelling import Cause
from analyzers.prediction.link_model import Hosts
from analyzers.units import ms, percent

SCHEMA = "tracer.whatif/2"
UNTRUSTED = "not to be trusted"
# No step is known better than this: over NVLink and host memory the median prediction was 0.7 % off what was measured
# (docs/dev/predictions.md). It is an accuracy, and no LEAST_SHARE, which says what is worth a line.
KNOWN_TO = 0.01
# Nine of ten predictions of other caps lie within so much of the step, and within so much of the change that they
# foresee. The first follows from the median of 47 cells, 0.68 %, as errors that are distributed normally have it; the
# second was seen over the cells that moved (docs/dev/predictions.md).
WITHIN, OF_CHANGE = 0.017, 0.2
# And within what steps take longer over links that are slower by so much, as they drift between a recording and minutes
# later: the same transfers took up to 15 % more or less over sockets, 12 % more over host memory:
# docs/dev/predictions.md.
DRIFT = 0.15
# Shorter times are written as 0.000 ms.
LEAST_SAID_NS = 500
IN_CAUSE = {Cause.COMPUTE: "compute", Cause.HOST: "launches", Cause.INPUT: "waits for input"}


class Kind(StrEnum):
    """What a scenario changes; the values are what documents hold."""

    CAPS = "caps"
    LINKS = "links"
    STRAGGLER = "straggler"
    HOST = "host"
    ACCUMULATION = "accumulation"
    FSDP = "fsdp"

    __str__ = str.__str__


class Prefetch(StrEnum):
    """In which passes FSDP2 asks for a module's parameters while the one before it computes."""

    NONE = "none"
    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"

    __str__ = str.__str__


class Sharding(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed of FSDP2; null is as recorded.

    `param_itemsize` and `reduce_itemsize` are bytes per element of what is gathered and reduced.
    """

    prefetch: Prefetch | None = None
    reshard_after_forward: bool | None = None
    separate_reduce_scatter_group: bool | None = None
    param_itemsize: int | None = None
    reduce_itemsize: int | None = None

    @property
    def words(self) -> str:
        """Say what is changed, in PyTorch's words."""
        parts = []
        if self.prefetch is not None:
            parts.append(IN_PASSES[self.prefetch])
        if self.reshard_after_forward is not None:
            parts.append(f"reshard_after_forward={self.reshard_after_forward}")
        if self.separate_reduce_scatter_group:
            parts.append("a process group for reduce-scatters")
        of_bytes: dict[int | None, list[str]] = {}
        for what, itemsize in (("all-gathers", self.param_itemsize), ("reduce-scatters", self.reduce_itemsize)):
            of_bytes.setdefault(itemsize, []).append(what)
        of_bytes.pop(None, None)
        parts += [f"{' and '.join(what)} of {itemsize} bytes per element" for itemsize, what in of_bytes.items()]
        return ", ".join(parts)


IN_PASSES = {
    Prefetch.NONE: "no prefetching",
    Prefetch.FORWARD: "prefetching in the forward alone",
    Prefetch.BACKWARD: "prefetching in the backward alone",
    Prefetch.BOTH: "prefetching in both passes",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to predict: every bucket cap (None: DDP's default) with every number of GPUs (none: the run's own).

    Besides, at the run's own settings: steps without a rank's lateness (a rank, `late` or `all`), with so much left of
    hosts' time (None: 0.5 and 0 where hosts are the limit), and with gradients of so many microbatches added up.
    """

    bucket_mb: Sequence[float | None] = ()
    gpus: Sequence[int] = ()
    broadcast_buffers: bool = True
    bucket_views: bool = False  # gradients are views of their buckets
    gradient_itemsize: int | None = None  # bytes of each element that travels; None: as recorded
    hosts: Hosts | None = None  # those that scenarios run on; None: as the links have them
    straggler: int | str | None = None
    host_times: Sequence[float] | None = ()
    accumulations: Sequence[int] = ()
    shardings: Sequence[Sharding] | None = None  # of FSDP2; None: the usual


class Baseline(msgspec.Struct, frozen=True):
    """The run's own settings, as measured and as the model has them. `bucket_mb` null is DDP's default."""

    bucket_mb: float | None
    gpus: int
    buckets: list[int]
    measured_step_ns: int
    predicted_step_ns: int
    measured_from: MeasuredFrom
    error: float


class Predicted(msgspec.Struct, frozen=True):
    """One prediction. `link_gbps` is the bus bandwidth its reductions get, `latency_us` the time of the smallest.

    `interval_ns` is where nine of ten such steps are expected. `gain_ns` is what it takes off the step with the run's
    own settings on these GPUs and links. Of `straggler`: `rank` (null: every rank is as the median of all) is as the
    others in what `cause` says; of `host`, `host_time` is what is left of its time; with 0 the step is as one CUDA
    graph. Of `fsdp`: `sharding` is what is changed of FSDP2 (null: nothing), and `buckets` what its reduce-scatters
    reduce. Of `accumulation`: a step adds up gradients of `grad_accumulation` microbatches, and gains over as many
    steps of the run's own.
    """

    bucket_mb: float | None
    gpus: int
    link_gbps: float | None
    latency_us: float | None
    predicted_step_ns: int
    interval_ns: tuple[int, int]
    predicted_exposed_comm_ns: int
    predicted_stall_ns: int
    efficiency: float | None
    buckets: list[int]
    reliable: bool
    kind: Kind
    gain_ns: int
    rank: int | None = None
    cause: Cause | None = None
    host_time: float | None = None
    grad_accumulation: int | None = None
    sharding: Sharding | None = None


class Scenario(Predicted, frozen=True, kw_only=True):
    """A prediction, and in `why` what speaks against trusting it; null where nothing does."""

    why: Notices | None

    @property
    def is_of_settings(self) -> bool:
        """Whether it has other settings of DDP or FSDP2, another number of GPUs or links, and nothing else."""
        return self.kind in (Kind.CAPS, Kind.LINKS, Kind.FSDP)


class Recommended(Predicted, frozen=True, kw_only=True):
    """The prediction that is recommended; `why` says in a sentence what for."""

    why: str


class WhatIf(msgspec.Struct, frozen=True):
    """All predictions of a run; `recommended` is the scenario with the shortest step, its `why` says so in a sentence.

    `gain_ns` is what that takes off the step of the run's own cap, on the same GPUs and links. `uncertainty_ns` is how
    well the run's step is known: differences below it are noise. `as_recorded`: links and all that is not scenarios'
    own are the run's.
    """

    schema: str
    run: str
    baseline: Baseline
    scenarios: list[Scenario]
    recommended: Recommended
    gain_ns: int
    uncertainty_ns: int
    as_recorded: bool
    links: str
    assumptions: list[str]
    warnings: list[str]

    @property
    def of_settings(self) -> list[Scenario]:
        """Return the scenarios with other settings of DDP or FSDP2, numbers of GPUs or links."""
        return [each for each in self.scenarios if each.is_of_settings]

    @property
    def others(self) -> list[Scenario]:
        """Return the scenarios at the run's own settings and number of GPUs."""
        return [each for each in self.scenarios if not each.is_of_settings]

    @property
    def synchronizes(self) -> bool:
        """Whether settings are asked about: those of one GPU, which synchronizes nothing, change nothing."""
        return self.baseline.gpus > 1 or any(each.gpus > 1 for each in self.of_settings)

    @property
    def is_of_fsdp(self) -> bool:
        """Whether its settings are FSDP2's."""
        return any(each.kind is Kind.FSDP for each in self.scenarios)

    @property
    def headline(self) -> str:
        """Say what would help most: what is recommended, after whatever else gains more than that and than noise."""
        chosen = self.recommended.why
        if not self.synchronizes or not self.others:
            return chosen
        best = most_gained(self.others)
        if best.gain_ns <= max(self.gain_ns, self.uncertainty_ns):
            return chosen
        said = would_take(best)
        doubts = self._doubts_of_chosen
        if doubts is not None and {*doubts} <= {*(best.why or ())}:
            chosen = chosen.replace(f"; {UNTRUSTED}: {doubts}", f". Neither is to be trusted: {best.why}")
        elif not best.reliable:
            said += f" ({UNTRUSTED}: {best.why})"
        return f"{said}. {chosen[:1].upper()}{chosen[1:]}"

    @property
    def _doubts_of_chosen(self) -> Notices | None:
        """What speaks against trusting what is recommended."""
        of = ("kind", "bucket_mb", "gpus", "sharding", "host_time", "grad_accumulation", "rank", "cause")
        same = (each for each in self.scenarios if all(getattr(each, x) == getattr(self.recommended, x) for x in of))
        return next((each.why for each in same), None)

    @property
    def has_caps(self) -> bool:
        """Whether there are buckets to have a cap: not of FSDP2, nor on one GPU."""
        return not self.is_of_fsdp and any(each.gpus > 1 for each in self.of_settings)

    def __repr__(self) -> str:
        return f"WhatIf({self.run})\n{self.headline}"


def most_gained(scenarios: Sequence[Scenario]) -> Scenario:
    """Return the scenario that takes the largest share off the step, the first of equal ones."""
    return max(scenarios, key=lambda each: each.gain_ns / (each.predicted_step_ns + each.gain_ns))


def microbatches(number: int) -> str:
    """Write a number of microbatches."""
    return f"{number:,} microbatch{'es' * (number > 1)}"


def would_take(scenario: Scenario) -> str:
    """Say what a step would take that has something else changed than its cap, its GPUs or its links."""
    step, before = ms(scenario.predicted_step_ns), ms(scenario.predicted_step_ns + scenario.gain_ns)
    if scenario.kind is Kind.FSDP:
        what = f"with {scenario.sharding.words}" if scenario.sharding is not None else f"on {scenario.gpus:,} GPUs"
        what += " a step"
    elif scenario.grad_accumulation is not None:
        what = f"{microbatches(scenario.grad_accumulation)} in one step"
    elif scenario.cause is not None:
        what = f"with {'every rank as the median' if scenario.rank is None else f'rank {scenario.rank} as the others'}"
        what += f" in {IN_CAUSE[scenario.cause]} a step" if scenario.cause in IN_CAUSE else " a step"
    elif scenario.host_time:
        what = f"with a CPU that takes {percent(scenario.host_time)} of the time a step"
    else:
        what = "as one CUDA graph a step"
    return f"{what} would take {step} instead of {before}"


def changed_of_ddp(options: Options) -> str:
    """Say what else of DDP is changed than its cap; empty where nothing is."""
    changed = {
        "gradients as bucket views": options.bucket_views,
        "no broadcast of buffers": not options.broadcast_buffers,
        f"gradients of {options.gradient_itemsize} bytes per element": options.gradient_itemsize is not None,
    }
    return ", ".join(what for what, is_asked in changed.items() if is_asked)


def at_most(time_ns: float) -> str:
    """Write a time that others do not exceed, in words where it is none."""
    return f"at most {ms(time_ns)}" if time_ns >= LEAST_SAID_NS else "nothing"


def known_within(uncertainty_ns: float, step_ns: float) -> str:
    """Say how well steps are told apart: with few timed steps, one of them odd, hardly at all."""
    if uncertainty_ns < step_ns:
        return f"differences below {ms(uncertainty_ns)} are noise"
    return "the run's timed steps are too few, or too unequal, to tell settings apart"


def chosen(best: Scenario, why: str) -> Recommended:
    """Return a scenario as what is recommended, with why."""
    if not best.reliable:
        why = f"{why}; {UNTRUSTED}: {best.why}"
    fields = {name: getattr(best, name) for name in Predicted.__struct_fields__}
    return Recommended(**fields, why=why)
