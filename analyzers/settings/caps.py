"""Bucket cap that brings most, as a finding."""

from __future__ import annotations

from functools import partial

from analyzers.errors import NotReplayable
from analyzers.rank import RunSummary
from analyzers.scenarios import CAPS, OF_SETTINGS, Gain, Scenario, Subject, Told, gain_between
from analyzers.settings.ddp import DdpSettings, OfDdp, Setting
from analyzers.units import count, size

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
