"""Steps in other buckets: the recorded ones as they were, and simulated runs against what they truly take."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from analyzers.causes import Course, CourseEdges
from analyzers.rank import EdgeKind
from analyzers.rank.summary import summarize
from analyzers.settings.bucket_rule import MB, assign, lasts
from analyzers.settings.ddp import DdpSettings, OfDdp, Setting
from tests.support.causal import model_of, read_anew
from tests.support.samples import SAMPLES, summary_of
from tests.support.simulation import DEVICE_BOUND, HOST_BOUND, simulate, steady_pace, write

# A layer has one gradient of 8 MB here: so many buckets have so many of them, or fewer in the last.
LAYERS, LAYER_MB = 8, 8
DEVICES = replace(DEVICE_BOUND, layers=LAYERS, kernels=4, layer_mb=LAYER_MB, link_gbps=8.0, buckets=4)
HIDDEN = replace(DEVICES, link_gbps=100.0)
HOSTS = replace(HOST_BOUND, layers=LAYERS, kernels=4, layer_mb=LAYER_MB, buckets=4)
WORLDS = {"slow links": DEVICES, "hidden": HIDDEN, "hosts": HOSTS}
# How near a replay comes to what is true: hosts that set the pace are known less well.
NEAR = {"slow links": 0.01, "hidden": 0.01, "hosts": 0.02}


@pytest.mark.parametrize("run", ["resnet18-ddp2", "resnet50-ddp4-bf16", "resnet18-ddp4"])
def test_buckets_as_recorded_take_what_they_took(run):
    model = model_of(SAMPLES / run)
    settings = DdpSettings.of(summary_of(SAMPLES / run), model, None)
    answered = settings.answer([Setting(settings.bucket_mb, settings.gpus)], OfDdp())
    assert answered.lengths[:, 0] == pytest.approx(model.step_lengths, rel=1e-9)
    assert [round(nbytes) for nbytes in answered.buckets[0]] == settings.places.nbytes.tolist()


def test_a_host_that_goes_on_just_when_a_reduction_ends_does_not_wait_for_it(monkeypatch):
    """In one bucket that reduction ends behind the last gradient, which is taken later than the host goes on."""
    monkeypatch.setattr(Course, "over", lambda course, _: course)  # so that an edge is free
    model = read_anew(SAMPLES / "resnet18-ddp2")
    anew = copy(model)
    settings = DdpSettings.of(summary_of(SAMPLES / "resnet18-ddp2"), model, None)
    course, places = model.calibrated.course, settings.places
    stop = places.lags.facts.start_of_activity[places.reduced[0, 0, 0]] + 1
    number = np.setdiff1d(np.arange(len(model.graph.edges)), course.edges.edge)[0]
    model.graph.edges.kind[number] = EdgeKind.BLOCK
    one = np.array([number]), np.array([stop]), places.taken[0, 0, -2:-1], np.array([False]), np.array([0])
    seen = replace(course, edges=CourseEdges.joined([course.edges, CourseEdges(*one)]))
    vars(anew)["calibrated"] = replace(model.calibrated, course=seen)
    settings = DdpSettings.of(summary_of(SAMPLES / "resnet18-ddp2"), anew, None)
    own, single = settings.answer([Setting(None, 2), Setting(1000.0, 2)], OfDdp()).lengths[..., 0].mean(axis=0)
    assert 0 < own < 2 * single < 4 * own


def test_a_cap_splits_no_gradient_and_the_rule_makes_the_recorded_buckets():
    settings = DdpSettings.of(summary_of(SAMPLES / "resnet18-ddp2"), model_of(SAMPLES / "resnet18-ddp2"), None)
    elements = settings.places.elements
    assert lasts(assign(elements * 4, None)).tolist() == settings.places.own_lasts.tolist()
    answered = settings.answer([Setting(1e-6, 2)], OfDdp())
    assert answered.buckets[0] == (4 * elements).tolist()


def test_faster_links_never_take_longer_and_no_buckets_at_all_least():
    settings = DdpSettings.of(
        summary_of(SAMPLES / "resnet50-ddp4-bf16"), model_of(SAMPLES / "resnet50-ddp4-bf16"), None
    )
    slow = replace(settings.links.asked, strain=8 * settings.links.asked.strain)
    slower = replace(settings, links=replace(settings.links, asked=slow))
    caps = [Setting(cap, 4) for cap in (1.0, 25.0, 100.0)]
    own, slowed = (each.answer(caps, OfDdp()).lengths[..., 0].mean(axis=0) for each in (settings, slower))
    assert (own <= slowed + 1).all()
    (alone,) = settings.answer([Setting(None, 1)], OfDdp()).lengths[..., 0].mean(axis=0)
    assert alone <= own.min() + 1


def test_what_is_changed_besides_shortens_steps():
    settings = DdpSettings.of(summary_of(SAMPLES / "resnet18-ddp2"), model_of(SAMPLES / "resnet18-ddp2"), None)
    asked = [Setting(25.0, 2)]
    own = settings.answer(asked, OfDdp()).lengths[..., 0].mean()
    changes = [OfDdp(bucket_views=True), OfDdp(broadcast_buffers=False), OfDdp(gradient_itemsize=2)]
    found = [settings.answer(asked, change) for change in changes]
    assert all(each.lengths[..., 0].mean() <= own + 1 for each in found)
    assert found[1].lengths[..., 0].mean() < own
    assert sum(found[2].buckets[0]) * 2 == sum(settings.answer(asked, OfDdp()).buckets[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_other_buckets_of_simulated_runs_take_what_they_truly_take(name, tmp_path):
    world = WORLDS[name]
    write(simulate(world), tmp_path / "run")
    model = read_anew(tmp_path / "run")
    settings = DdpSettings.of(summarize(tmp_path / "run"), model, None)
    per_layer = len(settings.places.elements) // LAYERS
    layer_bytes = 4 * int(settings.places.elements[:per_layer].sum())
    own_ns = steady_pace(world)[0]
    for buckets in (1, 2, 8):
        cap = (layer_bytes * LAYERS // buckets) / MB - 1e-6
        answered = settings.answer([Setting(cap, world.ranks)], OfDdp())
        assert len(answered.buckets[0]) == buckets
        gained_ns = (answered.own - answered.lengths[:, 0])[:, 0].mean()
        truth_ns = steady_pace(replace(world, buckets=buckets))[0]
        assert own_ns - gained_ns == pytest.approx(truth_ns, rel=NEAR[name]), (buckets, own_ns)
