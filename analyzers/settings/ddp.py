"""`DdpSettings`: steps with other buckets, GPUs or links, and the best cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.causes import Lags, Model
from analyzers.errors import NotReplayable
from analyzers.notices import Code, Notice
from analyzers.rank import RunSummary, Section
from analyzers.run import Calibration, Manifest, world_size
from analyzers.scenarios import (
    CAPS,
    OF_SETTINGS,
    Gain,
    Scenario,
    Subject,
    Told,
    gain_between,
    launched_in,
    relieved,
    share_in,
    transferring,
    without_activities,
    without_buffers,
    without_host_time,
)
from analyzers.settings.assumption import COPY_IN, COPY_OUT, Assumption, borrowed
from analyzers.settings.bucket_rule import assign, lasts
from analyzers.settings.link_model import GIVE_LINKS, Hosts, LinkModel, RunLinks, links_of
from analyzers.settings.places import FLOAT, Places, places_of
from analyzers.settings.rebucketed import Layout, Rebucketed
from analyzers.trace import itemsize
from analyzers.units import count, ms, size

# Caps that a run without run.json may have had, beside DDP's default, in MB.
LIKELY_MB = (25.0, 50.0, 100.0, 10.0, 5.0, 2.0, 1.0, 4.0, 8.0, 16.0, 20.0, 32.0, 64.0, 128.0, 200.0, 256.0, 512.0)


@dataclass(frozen=True)
class Setting:
    """Settings to predict: a cap (None: DDP's default) on so many GPUs, and what else of DDP is changed."""

    bucket_mb: float | None
    gpus: int


@dataclass(frozen=True)
class OfDdp:
    """What is changed of DDP beside caps; `gradient_itemsize` is bytes of each element that travels."""

    bucket_views: bool = False
    broadcast_buffers: bool = True
    gradient_itemsize: int | None = None
    hosts: Hosts | None = None

    @property
    def words(self) -> str:
        """Say what is changed, in PyTorch's words; empty where nothing is."""
        changed = {
            "gradient_as_bucket_view=True": self.bucket_views,
            "broadcast_buffers=False": not self.broadcast_buffers,
            f"gradients of {self.gradient_itemsize} bytes per element": self.gradient_itemsize is not None,
        }
        return ", ".join(what for what, is_asked in changed.items() if is_asked)


@dataclass(frozen=True, eq=False)
class Answered:
    """Steps under settings: lengths by step, setting and variant, `own` as recorded; ns. `buckets` are bytes."""

    own: Float64
    lengths: Float64
    exposed_ns: list[float]
    buckets: list[list[int]]


@dataclass(frozen=True, eq=False)
class DdpSettings:
    """What a run's steps of DDP are predicted from; `gpus` is how many it had."""

    places: Places
    gpus: int
    links: RunLinks
    bucket_mb: float | None
    itemsize: int  # of gradients
    travelling: int  # of what travels of them
    assumptions: list[Assumption]
    dtypes: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, run: RunSummary, model: Model, given: LinkModel | Calibration | None) -> DdpSettings:
        """Return them for a run. Raises NotReplayable where its traces do not show gradients, or nothing its links."""
        places, manifest = places_of(model), run.manifest or Manifest()
        gpus = world_size(manifest, run.ranks)
        if gpus > 1 and not len(places.own_lasts):
            raise NotReplayable("no all-reduce of its gradients shows in its steps")
        links = links_of(run, model.exchanged, gpus, given)
        travelling = float(places.nbytes.sum() / places.elements.sum()) if len(places.own_lasts) else 0.0
        dtypes = frozenset(parameter.dtype for parameter in manifest.parameters)
        own = max((itemsize(dtype) for dtype in dtypes), default=0)
        assumptions = list(links.assumptions)
        if not own and not travelling > 0:
            assumptions.append(Assumption(f"gradients have {FLOAT} bytes per element: nothing says their dtype"))
        own = own or round(travelling) or FLOAT
        cap = _cap(places, own) if run.manifest is None else manifest.bucket_cap_mb
        return cls(places, gpus, links, cap, own, round(travelling) or own, assumptions, dtypes)

    def assumed(self, settings: Sequence[Setting], changed: OfDdp) -> list[Assumption]:
        """Return what predictions of some settings rest on."""
        found = list(self.assumptions)
        if self.gpus == 1 and any(each.gpus > 1 for each in settings) and self._added_ns.any():
            found.append(borrowed(f"DDP adds {ms(float(self._added_ns.sum()))} of copies into and out of buckets"))
        if changed.hosts is not None:
            cards = f"network cards that carry {changed.hosts.gbps:g} GB/s per host"
            found.append(Assumption(f"beyond the {changed.hosts.gpus} GPUs of a host all bytes pass {cards}"))
        if any(each.gpus > self.gpus for each in settings):
            text = "further ranks are like those that were recorded, and none is later for being one of many"
            found.append(Assumption(text))
        if changed.words:
            found.append(Assumption(f"changed besides: {changed.words}"))
        return found

    def doubts(self, setting: Setting, changed: OfDdp) -> list[Notice]:
        """Say what makes a prediction doubtful."""
        found = []
        links = self.links.asked
        if setting.gpus > 1 and not self.places.model.knows_hosts:
            text = "what a call for one more reduction takes the CPU is not known: no step was launched at rest"
            found.append(Notice(Code.CALLS_NOT_TIMED, text))
        elif setting.gpus > 1 and not len(self.places.own_lasts) and self.places.model.calibrated.answers:
            text = (
                "what DDP's calls and copies take the CPU, which sets the pace, is not known: one GPU reduces nothing"
            )
            found.append(Notice(Code.CALLS_NOT_TIMED, text))
        if changed.gradient_itemsize is not None and changed.gradient_itemsize != self.travelling:
            found.append(Notice(Code.CASTS_NOT_COUNTED, "what the casts of gradients take is not counted"))
        if len(self.dtypes) > 1:
            text = "parameters of several dtypes are cut into buckets as if they had one"
            found.append(Notice(Code.DTYPES_DIFFER, text))
        return [*found, *link_doubts(links, setting.gpus, changed.hosts, "all-reduces")]

    def answer(self, settings: Sequence[Setting], changed: OfDdp) -> Answered:
        """Replay a run under settings, side by side. Raises NotReplayable where nothing tells of the links."""
        if any(each.gpus > 1 for each in settings) and not self.links.asked.timings:
            raise NotReplayable("nothing tells of the links; ", *GIVE_LINKS)
        asked = [each for each in settings if each.gpus > 1]
        own = self._own_layout()
        layouts = [*([own] if own is not None else []), *(self._layout(each, changed) for each in asked)]
        before = self.places.model.step_lengths
        replayed = Rebucketed(self.places, self.links.own, self.gpus, layouts) if layouts else None
        lengths = replayed.step_lengths() if replayed is not None else np.zeros((len(before), 0, before.shape[1]))
        exposed = replayed.exposed_ns() if replayed is not None else []
        if own is not None:
            # What the replay of the recorded buckets misses of the graph's own step is not the settings' doing.
            lengths, exposed = lengths[:, 1:] - lengths[:, :1] + before[:, None], exposed[1:]
        alone = self.unsynchronized.step_lengths(self.unsynchronized)[:, 0]
        columns, found, sizes = [], [], []
        by_setting = dict(
            zip(
                map(id, asked),
                zip(lengths.swapaxes(0, 1), exposed, layouts[own is not None :], strict=True),
                strict=True,
            )
        )
        for each in settings:
            if id(each) in by_setting:
                column, exposed_ns, layout = by_setting[id(each)]
                columns.append(column)
                found.append(exposed_ns)
                sizes.append([round(nbytes) for nbytes in layout.nbytes.tolist()])
            else:
                columns.append(before if self.gpus == 1 else alone)
                found.append(0.0)
                sizes.append([])
        return Answered(before, np.stack(columns, axis=1), found, sizes)

    def replayed(self, setting: Setting, base: Lags) -> Float64:
        """Return how long steps take under a setting, by step and variant, where all else takes what `base` says."""
        own, asked = self._own_layout(base), self._layout(setting, OfDdp(), base)
        layouts = [asked] if own is None else [own, asked]
        lengths = Rebucketed(self.places, self.links.own, self.gpus, layouts).step_lengths()
        if own is None:
            return lengths[:, 0]
        as_is: Float64 = base.step_lengths(base)[:, 0]
        return lengths[:, 1] - lengths[:, 0] + as_is

    def _own_layout(self, base: Lags | None = None) -> Layout | None:
        own = self.places.own_lasts
        if not len(own):
            return None
        base = base or self.places.lags
        return Layout(own, self.places.nbytes.astype(np.float64), self.links.own, self.gpus, base)

    def _layout(self, setting: Setting, changed: OfDdp, base: Lags | None = None) -> Layout:
        last = self.lasts(setting.bucket_mb)
        travelling = changed.gradient_itemsize or self.travelling
        nbytes = np.add.reduceat(self.places.elements, np.r_[0, last[:-1] + 1]).astype(np.float64) * travelling
        links = replace(self.links.asked, hosts=changed.hosts)
        return Layout(last, nbytes, links, setting.gpus, base or self._base(changed), as_given=self.links.as_given)

    def lasts(self, bucket_mb: float | None) -> Int64:
        """Return each bucket's last gradient under a cap: the recorded ones under the run's own."""
        own = self.places.own_lasts
        if len(own) and bucket_mb == self.bucket_mb:
            return own
        return lasts(assign(self.places.elements * self.itemsize, bucket_mb))

    def _base(self, changed: OfDdp) -> Lags:
        """Return what all else takes, with what is changed besides buckets."""
        lags = self.places.lags if self.gpus > 1 else self._packed
        if changed.bucket_views:
            gone = launched_in(lags.facts, Section.COPIES_OUT)
            share = share_in(lags.facts, Section.COPIES_OUT)
            lags = without_host_time(without_activities(lags, gone), share)
        return lags if changed.broadcast_buffers else without_buffers(lags)

    @property
    def _added_ns(self) -> Float64:
        """Return what copies of each gradient into and out of its bucket take, where one GPU makes none."""
        if self.places.copied[0, 0, 0] >= 0:
            return np.zeros(len(self.places.elements))
        nbytes = self.places.elements * self.itemsize
        return sum(latency_ns + nbytes / gbps for latency_ns, gbps in (COPY_IN, COPY_OUT))  # type: ignore[return-value]

    @cached_property
    def _packed(self) -> Lags:
        """Return one GPU's lags with what DDP would add to its kernels."""
        lags, places = self.places.lags, self.places
        facts = lags.facts
        run_to = np.full(len(lags.graph.points), -1)
        rows = np.flatnonzero(facts.activity >= 0)
        run_to[lags.graph.edges.target[rows]] = rows
        edge = run_to[places.ready]
        added = np.broadcast_to(self._added_ns, edge.shape)
        known = edge >= 0
        ns = lags.ns.copy()
        np.add.at(ns, edge[known], added[known][:, None])
        return replace(lags, ns=ns)

    @cached_property
    def unsynchronized(self) -> Lags:
        """Return the lags of a step that synchronizes nothing: no reductions, copies for them, or buffers."""
        lags, facts = self.places.lags, self.places.lags.facts
        gone = self.places.is_reduction
        lags = relieved(lags, transferring(facts, gone)) if gone.any() else lags
        gone = gone | facts.of_activities("packing").astype(bool) | launched_in(facts, Section.BUFFERS)
        share = np.maximum(share_in(facts, Section.COPIES_OUT), self.places.calls_share)
        lags = without_host_time(without_activities(lags, gone), share)
        return without_buffers(lags) if launched_in(facts, Section.BUFFERS).any() else lags

    @cached_property
    def _microbatch(self) -> Lags:
        """Return the lags of a microbatch that synchronizes nothing and takes no step of the optimizer."""
        lags, facts = self.unsynchronized, self.places.lags.facts
        gone = launched_in(facts, Section.OPTIMIZER)
        return without_host_time(without_activities(lags, gone), share_in(facts, Section.OPTIMIZER))

    def accumulated(self, count: int) -> tuple[Float64, Float64]:
        """Return so many of the run's steps, and one that adds up gradients of as many microbatches: by step, variant.

        All but the last microbatch synchronize nothing. Where steps accumulate already, so many of their batches.
        """
        before = self.places.model.step_lengths
        micro = self._microbatch.step_lengths(self._microbatch)[:, 0]
        return count * before, before + (count - 1) * np.minimum(micro, before)


def link_doubts(links: LinkModel, gpus: int, hosts: Hosts | None, words: str) -> list[Notice]:
    """Say what of the links of so many GPUs is not measured."""
    found: list[Notice] = []
    if gpus < 2 or not links.timings:
        return found
    measured = links.nearest(gpus)
    if gpus != measured:
        text = f"{words} over {gpus} GPUs are not measured, but extrapolated from those over {measured}"
        found.append(Notice(Code.LINKS_EXTRAPOLATED, text))
    if hosts is not None and gpus > hosts.gpus:
        found.append(Notice(Code.NETWORK_NOT_MEASURED, "transfers between hosts are not measured"))
    return found


def _cap(places: Places, own: int) -> float | None:
    """Guess the cap of a run that does not say it: the likeliest that makes its buckets; None is DDP's default."""
    for cap in (None, *LIKELY_MB):
        if len(places.own_lasts) and np.array_equal(lasts(assign(places.elements * own, cap)), places.own_lasts):
            return cap
    return None


# Caps that people try, in MB; None is DDP's default.
USUAL_MB: tuple[float | None, ...] = (None, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)


def best_cap(run: RunSummary, subject: Subject, hidden_ns: float) -> Gain | None:
    """Return what the best of the usual bucket caps brings, where that is more than the replay's own error.

    None where a run has no buckets, where hiding all transfers (`hidden_ns`) and making no calls for further buckets
    would not bring as much, and where a doubt stands.
    """
    model = subject.model
    try:
        settings = DdpSettings.of(run, model, None)
        if settings.gpus < 2 or not _could_bring(settings, hidden_ns):
            return None
        asked = [Setting(cap, settings.gpus) for cap in USUAL_MB]
        answered = settings.answer(asked, OfDdp())
    except NotReplayable:
        return None
    place = int(answered.lengths[:, :, 0].mean(axis=0).argmin())
    best = asked[place]
    if best.bucket_mb == settings.bucket_mb or settings.doubts(best, OfDdp()):
        return None
    told = _tell(settings, best, answered.buckets[place])
    words = "buckets of DDP's default" if best.bucket_mb is None else f"buckets of {best.bucket_mb:g} MB"
    change = partial(settings.replayed, best)
    scenario = Scenario(CAPS, "DistributedDataParallel", lambda lags: lags, words, best.bucket_mb, told, replay=change)
    gain = gain_between(scenario, answered.own, answered.lengths[:, place])
    return gain if gain.gain_ns > OF_SETTINGS * gain.step_ns else None


def _could_bring(settings: DdpSettings, hidden_ns: float) -> bool:
    """Whether hidden transfers and fewer calls would bring more than the replay's own error."""
    before_ns = float(settings.places.model.step_lengths[:, 0].mean())
    calls_ns = float(settings.places.call_ns[:, 0].max()) * (len(settings.places.own_lasts) - 1)
    return hidden_ns + calls_ns > OF_SETTINGS * before_ns


def _tell(settings: DdpSettings, best: Setting, buckets: list[int]) -> Told:
    own = settings.places.nbytes.tolist()
    larger = len(buckets) < len(own)
    problem = "buckets are so small that latency and launches are much of their time"
    if not larger:
        problem = "buckets are so large that the last ones end when no backward is left to hide them"
    cap = "the default bucket_cap_mb" if best.bucket_mb is None else f"bucket_cap_mb={best.bucket_mb:g}"
    because = f"{count(len(own), 'bucket')} of {size(max(own))} at most; then {len(buckets)} of {size(max(buckets))}"
    return Told(problem, f"give DistributedDataParallel {cap}", because)
