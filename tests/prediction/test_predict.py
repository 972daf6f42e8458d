"""What if: predictions from recorded runs, and what they must obey."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analyzers.collectives import exchange, late_rank
from analyzers.errors import NotReplayable
from analyzers.notices import Code, Notice, Notices
from analyzers.prediction import EVERY, LATE, Kind, Options, Scenario, WhatIf, known_within, whatif
from analyzers.prediction.hosts import input_doubt
from analyzers.prediction.link_model import Affine, Hosts, LinkModel
from analyzers.prediction.model import Scene
from analyzers.prediction.run_model import model_of
from analyzers.prediction.scenarios import against_own, doubts
from analyzers.rank.summary import RunSummary
from analyzers.run.calibration import read_calibration
from analyzers.run.controls import Control
from analyzers.run.manifest import Manifest
from tests.support.drawing import meet
from tests.support.samples import RUNS, SAMPLES, params, reported, summarized

DDP = ["resnet18-ddp2", "resnet18-ddp4", "resnet50-ddp4-bf16"]
CAPS = (None, 1, 2, 5, 10, 25, 50, 100)


@pytest.fixture(scope="module")
def runs() -> dict[str, RunSummary]:
    return {name: summarized(SAMPLES / name) for name in (*DDP, "resnet18-ddp1")}


@pytest.fixture
def resnet50(runs):
    return runs["resnet50-ddp4-bf16"]


def given(gbps: float, gpus: int = 4) -> LinkModel:
    return LinkModel({gpus: Affine(gpus, 10_000, gbps)}, "given")


def doubted(scenario: Scenario) -> set[Code]:
    return {notice.code for notice in scenario.why or ()}


def steps_ns(run, options, links=None):
    return [each.predicted_step_ns for each in whatif(run, options, links).scenarios]


@pytest.mark.parametrize("name", DDP)
def test_a_run_is_replayed_as_it_was(runs, name):
    assert abs(whatif(runs[name], Options()).baseline.error) < 0.01


@cache
def replayed(path: Path) -> WhatIf:
    """A run as it was, with a host that is as it was."""
    return whatif(summarized(path), Options(host_times=(1,)))


@pytest.mark.parametrize("path", params(RUNS, slow="resnet18-fsdp4"))
def test_every_run_is_replayed_as_it_was_or_says_why_not(path):
    try:
        found = whatif(summarized(path), Options(gpus=(4,)), given(300))
    except NotReplayable as error:
        assert "\n" not in str(error)
        return
    own = replayed(path) if found.baseline.gpus > 1 else found
    # On a CPU communication takes cores from compute, and the prediction says that it is none to trust.
    if abs(own.baseline.error) < 0.01 or Code.CORES_ARE_SHARED in doubted(own.scenarios[0]):
        return
    # Hosts that were timed without the profiler are taken as they are: what they do not explain is the replay's error.
    assert summarized(path).manifest.controls.host is not None
    low, high = own.scenarios[0].interval_ns
    assert low <= own.baseline.measured_step_ns <= high or Code.REPLAY_IS_OFF in doubted(own.scenarios[0])


def test_the_cap_of_a_run_that_does_not_say_it_is_found(runs):
    found = whatif(replace(runs["resnet50-ddp4-bf16"], manifest=None), Options())
    assert found.baseline.bucket_mb == 25
    assert whatif(replace(runs["resnet18-ddp4"], manifest=None), Options()).baseline.bucket_mb is None


def test_buckets_are_those_that_were_recorded(resnet50):
    found = whatif(resnet50, Options(bucket_mb=(25,)))
    assert found.scenarios[0].buckets == found.baseline.buckets == [31584296, 26255360, 26550272, 9724160]
    assert found.scenarios[0].predicted_step_ns == found.baseline.predicted_step_ns


def test_the_control_is_what_is_predicted(resnet50):
    found = whatif(resnet50, Options())
    assert found.baseline.measured_from == "unprofiled control"
    assert found.baseline.measured_step_ns == resnet50.manifest.controls.step_ns("unprofiled")
    unsaid = replace(resnet50, manifest=msgspec.structs.replace(resnet50.manifest, controls=Manifest().controls))
    found = whatif(unsaid, Options())
    assert found.baseline.measured_from == "light window"
    assert Code.CONTROLS_MISSING in doubted(found.scenarios[0])


def test_ranks_that_are_missing_make_it_doubtful(resnet50):
    some = replace(resnet50, ranks=resnet50.ranks[:2])
    found = whatif(some, Options())
    assert "2 of 4 ranks" in str(found.scenarios[0].why)
    assert found.scenarios[0].predicted_step_ns == found.baseline.predicted_step_ns


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.5])
def test_a_control_that_contradicts_the_trace_is_not_trusted_and_no_time_is_negative(resnet50, factor):
    controls = resnet50.manifest.controls
    wrong = Control({"0": [[round(factor * controls.unprofiled.median_ns)]]})
    controls = msgspec.structs.replace(controls, unprofiled=wrong)
    run = replace(resnet50, manifest=msgspec.structs.replace(resnet50.manifest, controls=controls))
    for each in whatif(run, Options(bucket_mb=CAPS)).scenarios:
        assert not each.reliable
        assert each.predicted_step_ns > 0


def test_the_recommendation_is_of_gpus_that_communicate(resnet50):
    found = whatif(resnet50, Options(bucket_mb=CAPS, gpus=(1, 8)), given(20, 8))
    assert found.recommended.gpus == 8
    assert found.recommended.why.startswith("on 8 GPUs")


def test_a_cap_that_did_not_make_the_buckets_is_warned_of(resnet50):
    manifest = msgspec.structs.replace(resnet50.manifest, bucket_cap_mb=5.0)
    found = whatif(replace(resnet50, manifest=manifest), Options()).warnings
    assert any("not those of DDP's rule" in warning for warning in found)


def test_more_bandwidth_is_never_slower(resnet50):
    steps = [steps_ns(resnet50, Options(bucket_mb=CAPS), given(gbps)) for gbps in (1, 4, 16, 64, 256)]
    assert all(a >= b for slow, fast in pairwise(steps) for a, b in zip(slow, fast, strict=True))


def test_one_gpu_has_no_communication(resnet50):
    found = whatif(resnet50, Options(gpus=(1, 4)), given(300)).scenarios
    assert found[0].predicted_exposed_comm_ns == 0
    assert found[0].buckets == []
    assert found[0].efficiency == 1.0
    assert found[0].predicted_step_ns < found[1].predicted_step_ns
    assert found[0].predicted_step_ns == resnet50.manifest.controls.step_ns("nosync")


def test_without_that_control_packing_is_taken_away(resnet50):
    controls = msgspec.structs.replace(resnet50.manifest.controls, nosync=None)
    unsaid = replace(resnet50, manifest=msgspec.structs.replace(resnet50.manifest, controls=controls))
    alone_ns = steps_ns(unsaid, Options(gpus=(1, 4)))[0]
    assert alone_ns == pytest.approx(resnet50.manifest.controls.step_ns("nosync"), rel=0.02)


def test_hardly_any_bandwidth_is_all_that_counts(resnet50):
    (found,) = whatif(resnet50, Options(bucket_mb=(100,)), given(0.1)).scenarios
    assert found.predicted_exposed_comm_ns == pytest.approx(sum(found.buckets) * 1.5 / 0.1, rel=0.01)


def test_exposed_communication_is_what_the_report_calls_so(resnet50):
    found = whatif(resnet50, Options()).scenarios[0]
    buckets = reported(SAMPLES / "resnet50-ddp4-bf16").buckets
    mean_ns = sum(row.exposed_ns for row in buckets) / len({(row.rank, row.step) for row in buckets})
    whole_ns = sum(row.dur_ns for row in buckets) / len({(row.rank, row.step) for row in buckets})
    assert found.predicted_exposed_comm_ns == pytest.approx(mean_ns, abs=0.2 * whole_ns)
    assert found.predicted_stall_ns <= found.predicted_exposed_comm_ns


def test_smaller_gradients_are_faster(resnet50):
    options = Options(bucket_mb=(25,))
    half = msgspec.structs.replace(options, gradient_itemsize=2)
    assert steps_ns(resnet50, half, given(10)) < steps_ns(resnet50, options, given(10))
    assert whatif(resnet50, half, given(10)).scenarios[0].buckets[0] == 31584296 // 2


def test_buffers_that_are_not_broadcast_take_nothing(resnet50):
    options = Options(bucket_mb=(25,))
    without = msgspec.structs.replace(options, broadcast_buffers=False)
    saved_ns = steps_ns(resnet50, options)[0] - steps_ns(resnet50, without)[0]
    assert saved_ns == pytest.approx(320_000, rel=0.2)


def test_scaling_out_loses_efficiency_and_says_what_was_not_measured(resnet50):
    links = replace(given(300), hosts=Hosts(8, 50))
    found = whatif(resnet50, Options(gpus=(4, 8, 64, 1024)), links).scenarios
    efficiency = [each.efficiency for each in found]
    assert efficiency == sorted(efficiency, reverse=True)
    assert [each.reliable for each in found] == [True, False, False, False]
    assert "64 GPUs are not measured" in str(found[2].why)


def test_one_gpu_tells_what_ddp_would_cost(runs):
    single = runs["resnet18-ddp1"]
    links = read_calibration(SAMPLES / "resnet18-ddp4" / "links.json")
    found = whatif(single, Options(bucket_mb=(None,), gpus=(4,)), links)
    assert found.baseline.gpus == 1
    assert found.baseline.error == pytest.approx(0, abs=0.01)
    assert found.scenarios[0].buckets == [9461800, 26494976, 8769792]
    assert found.scenarios[0].predicted_step_ns > found.baseline.predicted_step_ns
    assert any("DDP adds" in each for each in found.assumptions)


@pytest.mark.parametrize(("devices", "is_doubted"), [(["NVIDIA H200"], False), (["NVIDIA H100"], True), ([], True)])
def test_figures_of_another_device_are_not_trusted(runs, devices, is_doubted):
    single = runs["resnet18-ddp1"]
    manifest = msgspec.structs.replace(single.manifest, devices=devices)
    ranks = tuple(replace(rank, header=replace(rank.header, device_names=())) for rank in single.ranks)
    found = whatif(replace(single, manifest=manifest, ranks=ranks), Options(gpus=(4,)), given(300)).scenarios[0]
    assert (Code.FIGURES_OF_ANOTHER_DEVICE in doubted(found)) == is_doubted


def test_a_run_that_tells_all_borrows_nothing(resnet50):
    other = replace(resnet50, manifest=msgspec.structs.replace(resnet50.manifest, devices=["NVIDIA B200"]))
    assert whatif(other, Options()).scenarios[0].reliable


def test_an_element_is_taken_for_a_float_only_where_nothing_says_more(runs):
    known, unknown = runs["resnet18-ddp1"], replace(runs["resnet18-ddp1"], manifest=None)
    said = [whatif(run, Options(gpus=(4,)), given(300)).assumptions for run in (known, unknown)]
    assert [any("4 bytes per element" in each for each in words) for words in said] == [False, True]


def test_one_gpu_alone_needs_to_be_told_of_others_and_of_links(runs):
    with pytest.raises(NotReplayable, match="--gpus"):
        whatif(runs["resnet18-ddp1"], Options(bucket_mb=CAPS), given(300))
    with pytest.raises(NotReplayable, match="--links"):
        whatif(runs["resnet18-ddp1"], Options(gpus=(4,)))


@pytest.mark.parametrize(("name", "why"), [("resnet18-dp4", "nn.DataParallel"), ("every-collective4", "no all-reduce")])
def test_other_strategies_are_not_replayed(name, why):
    with pytest.raises(NotReplayable, match=why):
        whatif(summarized(SAMPLES / name), Options(gpus=(4,)), given(300))


def test_a_calibration_of_other_links_is_taken_as_it_is(resnet50):
    rows = [msgspec.structs.replace(row, time_ns=10 * row.time_ns) for row in resnet50.calibration.rows]
    found = whatif(resnet50, Options(), msgspec.structs.replace(resnet50.calibration, rows=rows))
    assert found.scenarios[0].predicted_step_ns > 1.04 * found.baseline.predicted_step_ns


def test_links_that_are_a_little_slower_are_slower_and_leave_the_run_as_it_was(resnet50):
    own = whatif(resnet50, Options()).baseline
    steps = []
    for factor in (0.7, 1.0, 1.4, 2.0, 5.0):
        rows = [msgspec.structs.replace(row, time_ns=round(factor * row.time_ns)) for row in resnet50.calibration.rows]
        found = whatif(resnet50, Options(), msgspec.structs.replace(resnet50.calibration, rows=rows))
        assert found.baseline == own
        steps.append(found.scenarios[0].predicted_step_ns)
    assert steps == sorted(set(steps))


def test_a_run_is_replayed_over_its_own_links_whatever_is_asked(resnet50):
    own = whatif(resnet50, Options()).baseline
    assert whatif(resnet50, Options(), given(3)).baseline == own
    alone = replace(resnet50, calibration=None)
    assert whatif(alone, Options(), resnet50.calibration).baseline == own


def test_a_host_bound_step_is_predicted_and_not_trusted(runs):
    (found,) = whatif(runs["resnet18-ddp4"], Options(bucket_mb=(25,))).scenarios
    assert not found.reliable
    assert Code.HOST_IS_THE_LIMIT in doubted(found)


def test_the_recommendation_says_when_no_choice_matters(resnet50):
    found = whatif(resnet50, Options(bucket_mb=(10, 25)))
    assert found.recommended.why.startswith("no choice matters here")
    slow = whatif(resnet50, Options(bucket_mb=(5, 25, 100)), given(20))
    assert slow.recommended.predicted_step_ns == min(each.predicted_step_ns for each in slow.scenarios)
    own_cap = slow.scenarios[1]
    assert slow.gain_ns == own_cap.predicted_step_ns - slow.recommended.predicted_step_ns > 0
    assert f"{slow.gain_ns / 1e6:.3f} ms off" in slow.recommended.why


@pytest.fixture
def sick():
    return summarized(SAMPLES / "resnet18-ddp2-sick")


def test_the_rank_that_stands_out_is_late_with_what_is_wrong_with_it(sick):
    found = whatif(sick, Options(straggler=LATE))
    gain_ns = {each.cause: each.gain_ns for each in found.others}
    assert {each.rank for each in found.others} == {1}
    # It spends 3 ms of each step in Python (benchmarks/sick_run.py), and has a little more to launch.
    assert 2.5e6 < gain_ns["host"] <= gain_ns["all"] < 4e6
    assert gain_ns["compute"] == gain_ns["input"] == 0
    assert all(Code.HOST_IS_THE_LIMIT in doubted(each) for each in found.others)


@pytest.mark.parametrize(
    ("comm", "late"),
    [(["aaa.bb", ".aa.bb"], 1), (["aaa.bb", ".aabbb"], None), (["aaa...", "aaa..."], None), (["aa", "aa", "aa"], None)],
)
def test_a_rank_stands_out_that_most_is_waited_for(comm, late):
    assert late_rank(exchange(meet(*comm), None)) == late


def test_another_rank_can_be_asked_for_and_none_is_predicted_unasked(runs):
    ddp2 = runs["resnet18-ddp2"]
    assert {(each.kind, each.rank) for each in whatif(ddp2, Options(straggler=1)).others} == {(Kind.STRAGGLER, 1)}
    assert {each.rank for each in whatif(ddp2, Options(straggler=EVERY)).others} == {None}
    assert whatif(ddp2, Options()).others == []


def test_a_rank_that_is_not_there_is_refused(resnet50):
    with pytest.raises(NotReplayable, match="rank 4 is not in the run; those in it are 0, 1, 2, 3"):
        whatif(resnet50, Options(straggler=4))
    with pytest.raises(NotReplayable, match="rank 3 is alone in the run"):
        whatif(replace(resnet50, ranks=resnet50.ranks[3:]), Options(straggler=3))


def test_faster_hosts_help_where_they_are_the_limit_and_nowhere_else(runs, resnet50):
    bound = whatif(runs["resnet18-ddp4"], Options(host_times=None))
    assert [each.host_time for each in bound.others] == [0.5, 0.0]
    assert 0 < bound.others[0].gain_ns < bound.others[1].gain_ns
    assert whatif(resnet50, Options(host_times=None)).others == []
    same, half, graph = whatif(resnet50, Options(host_times=(1, 0.5, 0))).others
    assert (same.gain_ns, half.gain_ns) == (0, 0)
    # Without gaps between kernels there is more than without waits for launches.
    assert 0 < graph.gain_ns < 0.1 * same.predicted_step_ns


def test_one_gpu_is_predicted_with_a_faster_host_and_no_links(runs):
    found = whatif(runs["resnet18-ddp1"], Options(host_times=None))
    assert (found.links, found.synchronizes) == ("nothing", False)
    # What a graph's reasons refer to is said, and nothing of links.
    assert [each.split(",")[0] for each in found.assumptions] == [
        "one GPU's step as a CUDA graph is known to within 6.0 %",
        "the whole step can be captured as a CUDA graph",
    ]
    assert whatif(runs["resnet18-ddp1"], Options(host_times=(0.5,))).assumptions == []
    half, graph = found.others
    assert (found.recommended.predicted_step_ns, found.gain_ns) == (graph.predicted_step_ns, graph.gain_ns)
    assert 0 < half.gain_ns < graph.gain_ns
    # A graph runs what was recorded without any wait: what costs the host is nothing to it.
    windows = runs["resnet18-ddp1"].measured[0].windows
    assert graph.predicted_step_ns == pytest.approx(float(np.median(windows.span_ns - windows.idle_ns)), rel=0.01)
    assert (graph.reliable, half.reliable) == (True, False)
    assert graph.interval_ns[0] < graph.predicted_step_ns < graph.interval_ns[1]


def test_microbatches_save_synchronization_and_nothing_else(resnet50):
    found = whatif(resnet50, Options(accumulations=(1, 2, 4)))
    own_ns = found.baseline.predicted_step_ns
    one, two, four = found.others
    assert {each.kind for each in found.others} == {Kind.ACCUMULATION}
    assert [each.grad_accumulation for each in found.others] == [1, 2, 4]
    assert (one.predicted_step_ns, one.gain_ns) == (own_ns, 0)
    assert four.predicted_step_ns - two.predicted_step_ns == pytest.approx(
        2 * (two.predicted_step_ns - own_ns), rel=2e-3
    )
    # Forward and backward of one more are less than a step, and most of it.
    assert 0.9 < (two.predicted_step_ns - own_ns) / own_ns < 1
    assert two.gain_ns == pytest.approx(2 * own_ns - two.predicted_step_ns, abs=2)
    assert two.efficiency is None
    assert against_own(two, found.baseline) == pytest.approx(two.predicted_step_ns / (2 * own_ns) - 1, abs=1e-7)
    low, high = two.interval_ns
    assert low < two.predicted_step_ns < high


def test_one_gpu_adds_up_gradients_too(runs):
    found = whatif(runs["resnet18-ddp1"], Options(accumulations=(4,)))
    (four,) = found.others
    step, before = (f"{ns / 1e6:.2f} ms" for ns in (four.predicted_step_ns, four.predicted_step_ns + four.gain_ns))
    assert found.recommended.why.startswith(f"4 microbatches in one step would take {step} instead of {before}")
    assert 3 * found.baseline.predicted_step_ns < four.predicted_step_ns < 4 * found.baseline.predicted_step_ns


def test_the_headline_is_what_would_help_most(sick, resnet50):
    bound = whatif(sick, Options(host_times=None))
    graph = f"{bound.others[1].predicted_step_ns / 1e6:.2f} ms"
    assert bound.headline.startswith(f"as one CUDA graph a step would take {graph} instead of ")
    assert bound.headline.count("to be trusted") == 1 and ". Neither is to be trusted: the CPU" in bound.headline
    assert bound.headline.split(". ")[1].startswith("No cap here is better")
    late = whatif(sick, Options(straggler=1))
    assert late.headline.startswith("with rank 1 as the others a step would take ")
    # What gains less than noise is not said first.
    for options in (Options(), Options(host_times=(0.5,))):
        made = whatif(resnet50, options)
        assert made.headline == made.recommended.why


def test_views_of_buckets_save_the_copies_out_of_them(resnet50):
    usual, views = (whatif(resnet50, Options(bucket_views=each)) for each in (False, True))
    model = model_of(resnet50, None)
    saved_ns = usual.scenarios[0].predicted_step_ns - views.scenarios[0].predicted_step_ns
    assert 0 < saved_ns <= np.median(model.steps.copy_ns.sum(axis=-1)) + 1
    assert usual.as_recorded and not views.as_recorded
    assert "gradients are views of their buckets: none is copied out" in views.assumptions


def test_one_gpu_has_no_copies_to_leave_out_and_several_from_it_have(runs):
    single = runs["resnet18-ddp1"]
    with pytest.raises(NotReplayable, match="gradients as bucket views: one GPU synchronizes nothing"):
        whatif(single, Options(bucket_views=True, host_times=(0.5, 0)))
    links = LinkModel({4: Affine(4, 0.0, 300.0)}, "given")
    usual, views = (whatif(single, Options(bucket_views=each, gpus=(4,)), links) for each in (False, True))
    saved_ns = usual.scenarios[0].predicted_step_ns - views.scenarios[0].predicted_step_ns
    gradients = model_of(single, None).steps.gradients
    assert 0 < saved_ns <= gradients * 9000 + 1e5


def test_waits_for_input_stay_and_are_doubted(runs):
    model = model_of(runs["resnet18-ddp1"], None)
    fed = replace(model, steps=replace(model.steps, input_ns=model.steps.span_ns / 2))
    usual_ns, fed_ns = (each.predict(Scene(None, 1, host_time=0)).step_ns for each in (model, fed))
    assert fed_ns > max(usual_ns, float(np.median(fed.steps.input_ns)) - model.profiler_ns)
    doubt = input_doubt(fed.steps)
    assert doubt is not None and "50.0 % of the step" in str(doubt)
    assert input_doubt(model.steps) is None


@pytest.mark.parametrize("path", params(RUNS, slow="resnet18-fsdp4"))
def test_what_changes_nothing_predicts_the_runs_own_step(path):
    try:
        found = replayed(path)
    except NotReplayable:
        return
    assert {each.predicted_step_ns for each in found.others} <= {found.baseline.predicted_step_ns}


def test_intervals_hold_the_step_and_grow_with_the_change(resnet50):
    found = whatif(resnet50, Options(bucket_mb=CAPS, straggler=EVERY), given(20))
    own, widths = found.baseline.predicted_step_ns, []
    for each in sorted(found.scenarios, key=lambda each: abs(each.predicted_step_ns - own)):
        low, high = each.interval_ns
        assert 0 <= low < each.predicted_step_ns < high
        widths.append((high - low) / each.predicted_step_ns)
    assert widths[-1] > widths[0] > 2 * 0.017


def test_a_doubt_with_a_semicolon_is_one_doubt(resnet50):
    first, second = Notice(Code.HOST_IS_THE_LIMIT, "a; b"), Notice(Code.DTYPES_DIFFER, "c")
    scenario = whatif(resnet50, Options()).scenarios[0]
    scenarios = [msgspec.structs.replace(scenario, why=Notices(why)) for why in ([first, second], [second])]
    assert doubts([scenario, *scenarios]) == [*(scenario.why or ()), first, second]


def test_one_gpu_of_a_run_on_several_is_a_scenario(resnet50):
    found = whatif(resnet50, Options(gpus=(1,), host_times=(0.5,)))
    (one,) = found.of_settings
    assert (one.gpus, one.efficiency) == (1, 1.0)
    assert found.recommended.why.startswith("on one GPU a step would take ")
    assert found.recommended.predicted_step_ns == one.predicted_step_ns < found.baseline.predicted_step_ns
    assert found.synchronizes


def test_other_changes_are_of_the_runs_own_settings(resnet50):
    plain, changed = (
        whatif(resnet50, Options(straggler=EVERY, host_times=(1,), bucket_views=views, broadcast_buffers=not views))
        for views in (False, True)
    )
    assert [each.predicted_step_ns for each in plain.others] == [each.predicted_step_ns for each in changed.others]
    assert "gradients as bucket views, no broadcast of buffers a step would take" in changed.recommended.why


def test_what_is_recommended_says_which_scenario_it_is(runs, resnet50):
    found = whatif(resnet50, Options(bucket_mb=CAPS), given(20))
    best = min(found.of_settings, key=lambda each: each.predicted_step_ns)
    names = ("kind", "bucket_mb", "predicted_step_ns", "gain_ns", "host_time", "sharding")
    assert [getattr(found.recommended, name) for name in names] == [getattr(best, name) for name in names]
    graph = whatif(runs["resnet18-ddp1"], Options(host_times=(0.5, 0))).recommended
    assert (graph.kind, graph.host_time) == (Kind.HOST, 0)


def test_a_replay_that_misses_its_own_run_is_doubted(resnet50):
    rows = [msgspec.structs.replace(row, time_ns=30 * row.time_ns) for row in resnet50.calibration.rows]
    transfers = replace(resnet50, calibration=msgspec.structs.replace(resnet50.calibration, rows=rows))
    found = whatif(replace(transfers, manifest=None), Options())
    is_off = abs(found.baseline.error) > 0.05
    assert (Code.REPLAY_IS_OFF in doubted(found.scenarios[0])) == is_off


def test_a_graph_on_several_gpus_or_another_device_was_never_measured(runs, resnet50):
    (several,) = whatif(resnet50, Options(host_times=(0,))).others
    assert Code.GRAPH_NOT_MEASURED in doubted(several)
    single = runs["resnet18-ddp1"]
    other = replace(single, manifest=msgspec.structs.replace(single.manifest, devices=["AMD Instinct MI250X"]))
    (graph,) = whatif(other, Options(host_times=(0,))).others
    assert doubted(graph) == {Code.FIGURES_OF_ANOTHER_DEVICE}


@pytest.mark.parametrize(("loss", "is_said"), [(Code.TRACE_INCOMPLETE, True), (Code.RUN_JSON_MISSING, False)])
def test_what_may_have_taken_the_gradients_is_said_where_there_are_none(resnet50, monkeypatch, loss, is_said):
    monkeypatch.setattr("analyzers.prediction.run_model.recorded_steps", lambda *_: None)
    run = replace(resnet50, warnings=(Notice(loss, "the first"), Notice(Code.KERNEL_UNKNOWN, "the last")))
    with pytest.raises(NotReplayable) as refused:
        whatif(run, Options())
    assert str(refused.value).endswith(
        "; the first" if is_said else "; record backward passes with record_shapes=True, or with `tracer record`"
    )


def test_steps_that_differ_by_more_than_they_take_tell_nothing():
    assert known_within(999_000, 1e6) == "differences below 0.999 ms are noise"
    assert "too few, or too unequal" in known_within(1_000_000, 1e6)
