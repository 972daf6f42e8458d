"""`whatif`: what steps would take, by one graph for every strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from analyzers.arrays import Float64
from analyzers.causes import Model
from analyzers.errors import NotReplayable, Option
from analyzers.notices import Code, Notice, Notices
from analyzers.prediction.answers import OWN_WORDS, WHATIF_SCHEMA, Baseline, Prediction, Recommended, WhatIf, scaled_out
from analyzers.prediction.evidence import borrowing, measured_step, on_cpus, replay_doubts, run_doubts
from analyzers.prediction.first_sentence import FirstSentence
from analyzers.prediction.options import Options
from analyzers.rank import RunSummary, has_causes
from analyzers.ranks import RankNumber
from analyzers.reporting import MOST_UNKNOWN, Analyses, bar_of, judged, run_facts, words_of_unknown
from analyzers.run import Calibration, Manifest, world_size
from analyzers.scenarios import (
    CAPS,
    FSDP,
    KINDS,
    ODD,
    Gain,
    Scenario,
    Subject,
    gain_between,
    gains_of,
    host_at,
    of_rank,
    printed_interval,
)
from analyzers.settings import FSDP2, USUAL_MB, Assumption, DdpSettings, FsdpSettings, LinkModel, Setting, Sharding
from analyzers.statistics import Limits

# No step is known better than this (docs/dev/predictions.md).
KNOWN_TO = 0.01


def whatif(run: RunSummary, options: Options | None = None, links: LinkModel | Calibration | None = None) -> WhatIf:
    """Predict what is asked for; without options all that the run can have.

    `links` take the place of those beside the run, and of the run's own transfers. Raises NotReplayable where the run
    has no graph of causes, where more than a third of its step waits for what is not known, or for what its strategy
    does not have.
    """
    return _Answering(run, options or Options(), links).answer()


def usual(run: RunSummary, links: LinkModel | Calibration | None = None) -> WhatIf | None:
    """Predict all that a run can have; None where nothing can be predicted."""
    try:
        return whatif(run, links=links)
    except NotReplayable:
        return None


@dataclass(frozen=True, eq=False)
class _Found:
    """Predicted settings, what they rest on, and over what links."""

    predictions: list[Prediction]
    assumptions: list[Assumption]
    links: str
    bucket_mb: float | None
    buckets: list[int]


@dataclass(frozen=True, eq=False)
class _Answering:
    """A run, and what is asked of it."""

    run: RunSummary
    options: Options
    links: LinkModel | Calibration | None

    def answer(self) -> WhatIf:
        found = self._settings()
        others = [self._predicted(gain) for gain in self._gains]
        others += [*self._accumulations(), *self._without_odd()]
        others.sort(key=lambda each: (each.of_degree, -each.gain_ns))
        if not found.predictions and not others:
            raise self._refused("nothing of what is asked for can be changed in it")
        measured_ns, source, _ = self._measured
        error = self._step_ns / measured_ns - 1
        baseline = Baseline(
            found.bucket_mb,
            self.gpus,
            found.buckets,
            measured_ns,
            round(self._step_ns),
            source,
            error,
            on_cpus(self.run),
        )
        uncertainty_ns = self._uncertainty_ns
        first = FirstSentence(self.options, self.gpus, uncertainty_ns, found.predictions, others)
        recommended, headline = first.recommended()
        trust, why = self._trust(recommended, *first.named(recommended))
        return WhatIf(
            schema=WHATIF_SCHEMA,
            run=self.run.name,
            baseline=baseline,
            scenarios=[*others, *found.predictions],
            recommended=recommended,
            headline=headline,
            grade=trust,
            grade_why=why,
            uncertainty_ns=uncertainty_ns,
            as_recorded=self.links is None and self.options.hosts is None and not self.options.changed.words,
            links=found.links,
            assumptions=list(dict.fromkeys(each.text for each in found.assumptions)),
            warnings=list(map(str, self.run.warnings)),
            scale_out=scaled_out(found.predictions, uncertainty_ns),
        )

    def _trust(
        self, recommended: Recommended | None, gain_ns: int | None, within_ns: Limits | None
    ) -> tuple[str, str | None]:
        """Return how far what is said can be trusted, as the report grades it, and why no further."""
        if recommended is not None and not recommended.reliable:
            return "low", "what is recommended is not to be trusted"
        analyses = self.analyses
        return judged(analyses, run_facts(analyses), bar_of(analyses)).trust(gain_ns, within_ns)

    # What predictions are made from.

    @cached_property
    def analyses(self) -> Analyses:
        return Analyses(self.run, None)

    @property
    def model(self) -> Model:
        """Return the causal model. Raises NotReplayable where there is none that tells."""
        return self._subject.model

    @cached_property
    def _subject(self) -> Subject:
        """Return the run as scenarios change it. Raises NotReplayable where it has no causal model that tells."""
        if not has_causes(self.run) and self.analyses.why_no_causes is None:
            no_launches = "no launches of kernels are recorded: record the CPU's activity together with the device's"
            raise self._refused(no_launches)
        subject = self.analyses.subject
        if subject is None:
            raise self._refused(self.analyses.why_no_causes or "what waited for what is not known")
        if subject.model.unknown_share > MOST_UNKNOWN:
            raise self._refused(words_of_unknown(subject.model.unknown_share))
        return subject

    def _refused(self, *why: object) -> NotReplayable:
        return NotReplayable(f"{self.run.name}: ", *why)

    @cached_property
    def gpus(self) -> int:
        """Return how many GPUs the run had."""
        return world_size(self.run.manifest or Manifest(), self.run.ranks)

    @cached_property
    def _measured(self) -> tuple[int, Any, float]:
        return measured_step(self.analyses)

    @property
    def _uncertainty_ns(self) -> int:
        """Return what settings' steps differ by at least, to be told apart."""
        measured_ns, _, spread = self._measured
        return round(max(abs(self._step_ns / measured_ns - 1), spread, KNOWN_TO) * self._step_ns)

    @property
    def _step_ns(self) -> float:
        """Return the step as replayed."""
        return float(self.model.step_lengths[:, 0].mean())

    @cached_property
    def _doubts(self) -> list[Notice]:
        """Return what speaks against predicting another number of GPUs, or other links."""
        answers_to_hosts = self.model.calibrated.answers
        doubts = run_doubts(self.run, self.run.manifest or Manifest(), answers_to_hosts=answers_to_hosts)
        return [*doubts, *replay_doubts(self._step_ns / self._measured[0] - 1)]

    # Scenarios of the graph.

    @cached_property
    def _findings(self) -> list[Gain]:
        """Return what the report lists."""
        findings, odd = self.analyses.findings, self.analyses.odd_gain
        return [*(findings.listed if findings is not None else ()), *([odd] if odd is not None else [])]

    @cached_property
    def _gains(self) -> list[Gain]:
        subject, options = self._subject, self.options
        known_gains: list[Gain] = []
        asked: list[Scenario] = []
        if options.is_open or options.only:
            known = [*(kind.name for kind in KINDS), CAPS, FSDP, ODD]
            unknown = set(options.only) - {*known}
            if unknown:
                raise self._refused(
                    Option("only", min(unknown)), f": there is no such kind; give some of {', '.join(known)}"
                )
            kinds = [kind.name for kind in KINDS if not options.only or kind.name in options.only]
            known_gains += [gain for gain in self.analyses.gains if gain.scenario.kind in kinds]
        if options.straggler is not None:
            asked += self._straggler(subject, RankNumber(options.straggler))
        asked += [host_at(share) for share in options.host_times]
        return [*known_gains, *(gains_of(subject, asked) if asked else [])]

    def _straggler(self, subject: Subject, rank: RankNumber) -> list[Scenario]:
        ranks, asked_for = subject.lags.graph.ranks, Option("straggler", rank)
        if len(ranks) < 2:
            raise self._refused("one rank has no others to be late for: leave ", asked_for, " out")
        if rank not in ranks:
            raise self._refused(asked_for, ": there is no such rank in it")
        found = of_rank(subject, rank)
        if not found:
            raise self._refused(asked_for, ": no other rank runs the same kernels, so none says what it would take")
        return found

    def _predicted(self, gain: Gain) -> Prediction:
        scenario, doubts = gain.scenario, []
        if not gain.reliable:
            doubts.append(Notice(Code.NOTHING_EXPLAINS_IT, "most of it is time that no dependency explains"))
        if scenario.kind == "hook":
            doubts.append(Notice(Code.CASTS_NOT_COUNTED, "what the casts of gradients take is not counted"))
        return Prediction(
            kind=scenario.kind,
            at=scenario.place,
            value=scenario.value,
            words=scenario.words,
            predicted_step_ns=round(gain.step_ns),
            step_ns=self._less(gain),
            of_degree=scenario.of_degree,
            is_finding=gain in self._findings,
            **_judged(gain, doubts, scenario.kind),
        )

    def _less(self, gain: Gain) -> int:
        """Return the step as measured less a gain: of odd steps the mean one, of microbatches as many."""
        before_ns = gain.step_ns + gain.gain_ns
        if gain.scenario.kind != ODD:
            before_ns *= self._measured[0] / self._step_ns
        return max(round(before_ns) - round(gain.gain_ns), 0)

    def _accumulations(self) -> list[Prediction]:
        if not self.options.accumulations:
            return []
        if self._is_sharded:
            raise self._refused(Option("grad_accumulation", "N"), " is of DDP, and this run is of FSDP2: leave it out")
        settings = self._ddp
        found = []
        for count in self.options.accumulations:
            before, after = settings.accumulated(count)
            words = f"gradients of {count} microbatches added up in each step"
            scenario = Scenario("accumulation", "the step", lambda lags: lags, words, count, of_degree=True)
            found.append(self._predicted(gain_between(scenario, before, after)))
        return found

    def _without_odd(self) -> list[Prediction]:
        """Return steps that are all typical, where odd ones make the mean longer: of samples, and no replay."""
        gain = self.analyses.odd_gain
        wanted = self.options.is_open or ODD in self.options.only
        return [self._predicted(gain)] if gain is not None and wanted else []

    # Settings of strategies.

    @cached_property
    def _ddp(self) -> DdpSettings:
        try:
            return DdpSettings.of(self.run, self.model, self.links)
        except NotReplayable as error:
            raise self._refused(*error.args) from None

    @cached_property
    def _is_sharded(self) -> bool:
        return any(FSDP2 in measured.communication.strategy for measured in self.run.measured)

    def _settings(self) -> _Found:
        """Return predicted settings. What is not asked for by name, and a run does not have, is left out."""
        options = self.options
        nothing = _Found([], [], "the run's own", None, [])
        wanted = options.is_open or options.asks_of_settings or {CAPS, FSDP} & {*options.only}
        if not wanted:
            return nothing
        self.model  # noqa: B018  a run without one is refused for that
        try:
            if self._is_sharded:
                return self._of_fsdp()
            if options.asks_of_fsdp:
                raise self._refused("what is asked is FSDP2's, and this run has no FSDP2: leave its options out")
            return self._of_ddp()
        except NotReplayable:
            if options.is_open and self.links is None:
                return nothing
            raise

    def _of_ddp(self) -> _Found:
        options, settings = self.options, self._ddp
        counts = options.gpus or (self.gpus,)
        if max(counts) < 2 and options.asks_of_ddp:
            raise self._refused(
                "one GPU synchronizes nothing; say with ", Option("gpus", "N"), " how many there might be"
            )
        if max(counts) < 2 and not options.gpus:
            return _Found([], [], "none", settings.bucket_mb, [])
        caps = options.bucket_mb or (USUAL_MB if max(counts) > 1 else (settings.bucket_mb,))
        # One GPU has no buckets.
        asked = [Setting(cap, gpus) for gpus in counts for cap in (caps if gpus > 1 else (settings.bucket_mb,))]
        try:
            answered = settings.answer(asked, options.changed)
        except NotReplayable as error:
            raise self._refused(*error.args) from None
        assumptions = settings.assumed(asked, options.changed)
        links, predictions = replace(settings.links.asked, hosts=options.hosts), []
        for place, each in enumerate(asked):
            doubts = settings.doubts(each, options.changed)
            kind = "links" if self.links is not None or options.hosts is not None else "caps"
            own = each.bucket_mb == settings.bucket_mb and each.gpus == self.gpus and not options.changed.words
            cap = "DDP's default" if each.bucket_mb is None else f"{each.bucket_mb:g} MB"
            words = OWN_WORDS if own else f"buckets of {cap}" if each.gpus > 1 else "one GPU"
            words += f" and {options.changed.words}" if options.changed.words else ""
            sizes = answered.buckets[place]
            has_links = each.gpus > 1
            predictions.append(
                self._of_setting(
                    answered.own,
                    answered.lengths[:, place],
                    [
                        *doubts,
                        *(borrowing(self.run, self.run.manifest or Manifest(), assumptions) if has_links else []),
                    ],
                    kind=kind if each.gpus == self.gpus else "gpus",
                    at="DistributedDataParallel",
                    value=each.bucket_mb if each.gpus == self.gpus else each.gpus,
                    words=words if each.gpus in (1, self.gpus) else f"{words} on {each.gpus:,} GPUs",
                    bucket_mb=each.bucket_mb,
                    gpus=each.gpus,
                    link_gbps=links.busbw_gbps(sizes, each.gpus) if has_links else None,
                    latency_us=float(links.collective_ns(0, each.gpus)) / 1e3 if has_links else None,
                    predicted_exposed_comm_ns=round(answered.exposed_ns[place]),
                    buckets=sizes,
                    alone_ns=self._alone_ns(settings),
                )
            )
        own_buckets = settings.places.nbytes.tolist() if self.gpus > 1 else []
        return _Found(predictions, assumptions, links.source, settings.bucket_mb, own_buckets)

    def _alone_ns(self, settings: DdpSettings) -> float:
        """Return what a step takes that synchronizes nothing: as measured, else as replayed."""
        if self.gpus == 1:
            return self._step_ns
        nosync = self.analyses.controls.step_ns("nosync")
        lags = settings.unsynchronized
        return float(nosync) if nosync is not None else float(lags.paces(lags)[0, 0])

    def _of_fsdp(self) -> _Found:
        options = self.options
        unfit = {Option("bucket_mb", "MB"): options.bucket_mb, Option("grad_accumulation", "N"): options.accumulations}
        named = [*(name for name, value in unfit.items() if value), *filter(None, [options.changed.words])]
        if named:
            raise self._refused(named[0], " is of DDP, and this run is of FSDP2, which has no buckets: leave it out")
        if options.gpus and min(options.gpus) < 2:
            raise self._refused("on one GPU FSDP2 shards nothing; give 2 or more: ", Option("gpus", 2))
        try:
            settings = FsdpSettings.of(self.run, self.model, self.links)
        except NotReplayable as error:
            raise self._refused(*error.args) from None
        counts = options.gpus or (self.gpus,)
        by_name = [options.sharding(gpus) for gpus in counts if options.asks_of_fsdp]
        asked = by_name or ([Sharding(gpus) for gpus in counts] if options.gpus else settings.usual())
        try:
            lengths = settings.step_lengths(asked, options.hosts)
        except NotReplayable as error:
            raise self._refused(*error.args) from None
        links = settings.scatters.asked
        assumptions = settings.assumed(asked)
        predictions = [
            self._of_setting(
                self.model.step_lengths,
                lengths[:, place],
                settings.doubts(each, options.hosts),
                kind="fsdp",
                at="fully_shard",
                value=each.words or each.gpus,
                words=(each.words or OWN_WORDS) + (f" on {each.gpus:,} GPUs" if each.gpus != self.gpus else ""),
                gpus=each.gpus,
                link_gbps=links.busbw_gbps(settings.reduced_bytes(each), each.gpus),
                latency_us=float(links.collective_ns(0, each.gpus)) / 1e3,
                buckets=settings.reduced_bytes(each),
            )
            for place, each in enumerate(asked)
        ]
        own = settings.reduced_bytes(Sharding(self.gpus))
        return _Found(predictions, assumptions, settings.gathers.asked.source, None, own)

    def _of_setting(
        self, before: Float64, after: Float64, doubts: Sequence[Notice], *, alone_ns: float | None = None, **fields: Any
    ) -> Prediction:
        scenario = Scenario(fields["kind"], fields["at"], lambda lags: lags, fields["words"])
        gain = gain_between(scenario, before, after)
        if fields["kind"] == "links" or fields["gpus"] != self.gpus:
            doubts = [*self._doubts, *doubts]
        step_ns = max(gain.step_ns, 1.0)
        is_finding = any(
            scenario.kind == each.scenario.kind and fields["value"] == each.scenario.value for each in self._findings
        )
        # What the report advises has the report's interval: a finding is told apart already.
        noise_ns = 0 if is_finding else self._uncertainty_ns if fields["gpus"] == self.gpus else None
        return Prediction(
            predicted_step_ns=round(step_ns),
            step_ns=self._less(gain),
            efficiency=None if alone_ns is None else min(alone_ns / step_ns, 1.0),
            of_degree=True,
            is_finding=is_finding,
            **_judged(gain, doubts, CAPS, noise_ns),
            **fields,
        )


def _judged(gain: Gain, doubts: Sequence[Notice], kind: str, noise_ns: int | None = 0) -> dict[str, Any]:
    """Return a gain with its interval, widened by `noise_ns` on either side, and whether it is reliable, and why not.

    None: of other numbers of GPUs, whose steps are no gain to be told apart from nothing.
    """
    low_ns, high_ns = round(gain.interval_ns[0]) - (noise_ns or 0), round(gain.interval_ns[1]) + (noise_ns or 0)
    # What brings something in every replay does so; what costs something may lie within the replay's own error.
    _, most_ns = printed_interval(kind, (low_ns, high_ns), gain.step_ns)
    if noise_ns is not None and low_ns <= 0 <= most_ns:
        doubts = [*doubts, Notice(Code.GAIN_NOT_TOLD_APART, "what the gain lies between holds 0: it may bring nothing")]
    return {
        "gain_ns": round(gain.gain_ns),
        "interval_ns": (low_ns, high_ns),
        "reliable": not doubts,
        "why": Notices(doubts) if doubts else None,
    }
