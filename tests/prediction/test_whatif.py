"""`whatif`: what is asked is answered, the first sentence is of the best finding, and what cannot be is refused."""

from functools import cache
from pathlib import Path

import pytest

from analyzers.errors import NotReplayable
from analyzers.notices import Code
from analyzers.prediction import SCENARIOS, Options, Prediction, WhatIf, usual, whatif
from analyzers.prediction.answers import OWN_WORDS, scaled_out
from analyzers.rank.summary import summarize
from analyzers.run import Controls, control
from analyzers.run.calibration import read_calibration
from analyzers.scenarios import OF_SETTINGS
from analyzers.scenarios.findings import own_error
from analyzers.settings import USUAL_MB, Affine, Hosts, LinkModel
from analyzers.units import ms
from tests.support.causal import analyzed, gains, model_of
from tests.support.drawing import meet
from tests.support.samples import SAMPLES, SHARED, reported, summary_of

SICK, RESNET50, SINGLE = SAMPLES / "resnet18-ddp2-sick", SAMPLES / "resnet50-ddp4-bf16", SAMPLES / "resnet18-ddp1"
FSDP, EVERY = SAMPLES / "resnet18-fsdp4", SAMPLES / "every-collective4"


@cache
def answered(run: Path) -> WhatIf:
    return whatif(summary_of(run))


def one(found: WhatIf, kind: str, value: object = None) -> Prediction:
    (each,) = [each for each in found.scenarios if each.kind == kind and value in (None, each.value)]
    return each


def test_every_gain_of_the_graph_is_told_as_it_is():
    found = answered(SICK)
    for gain in gains(model_of(SICK)):
        at = gain.scenario.at.partition(":")[0]
        (told,) = [
            each
            for each in found.others
            if (each.kind, each.at, each.value) == (gain.scenario.kind, at, gain.scenario.value)
        ]
        assert told.gain_ns == round(gain.gain_ns)
        assert told.interval_ns == tuple(round(end) for end in gain.interval_ns)
        assert told.before_ns == pytest.approx(found.baseline.predicted_step_ns, abs=2)


def test_the_answer_is_the_largest_finding_with_what_it_would_take():
    found = answered(SICK)
    assert found.recommended is not None
    assert (found.recommended.kind, found.recommended.at, found.recommended.value) == ("straggler", "rank 1", "host")
    assert found.headline.startswith(
        "With the host of rank 1 as the others' a step would take 8.46 ms instead of 12.13"
    )
    assert found.recommended.why == found.headline[0].lower() + found.headline[1:]
    pageable = answered(SAMPLES / "resnet18-ddp2-pageable")
    assert pageable.recommended is not None
    assert pageable.recommended.kind == "copies"


def test_the_answer_takes_gains_off_the_step_that_people_see():
    """The graph replays 31.32 ms, and measured are 30.81."""
    found = answered(RESNET50)
    assert found.recommended is not None and found.recommended.gain_ns == pytest.approx(2_328_285, abs=1)
    assert found.headline.startswith("With the step as one CUDA graph a step would take 28.48 ms instead of 30.81 ms")
    assert found.recommended.predicted_step_ns == found.baseline.predicted_step_ns - found.recommended.gain_ns


def test_the_three_faults_of_a_sick_run_out_come_to_its_cured_step():
    """All are in rank 1's host, which is as the other's then; within a twentieth of the cured run's 8.14 ms."""
    found = answered(SICK)
    assert found.recommended is not None
    assert found.recommended.predicted_step_ns == pytest.approx(8.14e6, rel=0.05)


def test_a_healthy_run_is_told_what_is_of_degree():
    """No place brings a twentieth of its step: its hosts set the pace."""
    found = answered(SAMPLES / "resnet18-ddp2-cured")
    assert found.recommended is not None and found.recommended.kind == "graph"
    assert [(each.kind, each.of_degree) for each in found.scenarios if each.is_finding] == [("graph", True)]


def test_one_cuda_graph_has_no_pauses_between_kernels():
    """Which hosts at no time still have: measured, whole steps as graphs take what is left without them."""
    found = {gain.scenario.kind: gain for gain in gains(model_of(RESNET50))}
    paused_ns = sum(row.ns for row in analyzed(RESNET50).charge_rows if row.cause == "kernel_gap")
    steps = len(model_of(RESNET50).calibrated.course.steps)
    assert found["graph"].gain_ns > found["host"].gain_ns
    assert found["graph"].gain_ns == pytest.approx(paused_ns / steps, rel=0.25)


def test_a_rank_is_first_only_where_others_wait_for_it():
    """Rank 0's host is the slower one in the cured run by chance: nobody waits for it throughout."""
    late = [each for each in answered(SAMPLES / "resnet18-ddp2-cured").others if each.kind == "straggler"]
    assert late
    assert not any(each.is_finding for each in late)


def test_caps_and_gpus_are_each_answered_and_marked():
    found = whatif(summary_of(RESNET50), Options(bucket_mb=USUAL_MB, gpus=(4, 64)))
    assert [(each.bucket_mb, each.gpus) for each in found.of_settings] == [(c, g) for g in (4, 64) for c in USUAL_MB]
    assert {each.kind for each in found.of_settings} == {"caps", "gpus"}
    assert found.others == []
    assert found.scale_out == scaled_out(found.of_settings, found.uncertainty_ns)
    extrapolated = [each for each in found.of_settings if each.gpus == 64]
    assert all(Code.LINKS_EXTRAPOLATED in {notice.code for notice in each.why or ()} for each in extrapolated)
    more = {each.bucket_mb: each.predicted_step_ns for each in extrapolated}
    own = {each.bucket_mb: each.predicted_step_ns for each in found.of_settings if each.gpus == 4}
    assert all(more[cap] >= own[cap] for cap in own)
    assert all(0 < (each.efficiency or 0) <= 1 for each in found.of_settings)


def test_hosts_set_the_bandwidth_beyond_one():
    hosts = Hosts(8, 5.0)
    found = whatif(summary_of(RESNET50), Options(bucket_mb=(100.0,), gpus=(8, 16), hosts=hosts))
    near, far = found.of_settings
    assert (near.link_gbps or 0) > 5 >= (far.link_gbps or 0)
    assert any("5 GB/s per host" in words for words in found.assumptions)
    assert found.baseline == answered(RESNET50).baseline


def test_one_gpu_needs_links_and_then_has_caps():
    with pytest.raises(NotReplayable, match="links=FILE"):
        whatif(summary_of(SINGLE), Options(gpus=(4,)))
    links = LinkModel({4: Affine(4, 20_000.0, 2.0)}, "as given")
    found = whatif(summary_of(SINGLE), Options(bucket_mb=(25.0,), gpus=(1, 4)), links)
    alone, four = found.of_settings
    assert alone.gain_ns == 0
    assert four.predicted_step_ns > alone.predicted_step_ns
    # It is literally that of every group.
    assert four.latency_us == pytest.approx(20.0)
    assert "with buckets of 25 MB on 4 GPUs" in found.headline.lower().replace("mb", "MB").replace("gpus", "GPUs")


def test_microbatches_hosts_and_ranks_are_asked_for_by_name():
    found = whatif(summary_of(SICK), Options(accumulations=(2, 4), host_times=(0.5, 0), straggler=1))
    assert found.of_settings == []
    assert {each.kind for each in found.others} == {"accumulation", "host", "graph", "straggler"}
    two, four = (one(found, "accumulation", count) for count in (2, 4))
    own_ns = found.baseline.measured_step_ns
    assert two.before_ns == pytest.approx(2 * own_ns, abs=4)
    assert own_ns < two.predicted_step_ns < four.predicted_step_ns < 4 * own_ns
    whole = one(found, "straggler", "all")
    assert whole.gain_ns >= max(one(found, "straggler", part).gain_ns for part in ("host", "compute", "input")) - 1
    assert one(found, "graph").predicted_step_ns <= one(found, "host").predicted_step_ns


def test_only_what_is_asked_for():
    found = whatif(summary_of(SICK), Options(only=("straggler", "buffers")))
    assert {each.kind for each in found.scenarios} <= {"straggler", "buffers"}
    assert {each.kind for each in whatif(summary_of(SICK), Options(only=("caps",))).scenarios} == {"caps"}
    with pytest.raises(NotReplayable, match="there is no such kind"):
        whatif(summary_of(SICK), Options(only=("speed",)))


def test_what_is_printed_adds_the_replays_own_error():
    for each in answered(RESNET50).scenarios:
        apart = round((OF_SETTINGS if each.is_setting else own_error(each.kind)) * each.step_ns)
        least = each.interval_ns[0] - apart
        assert each.within_ns == (max(least, 0) if each.interval_ns[0] > 0 else least, each.interval_ns[1] + apart)


@pytest.mark.parametrize(
    ("run", "options", "words"),
    [
        (FSDP, Options(bucket_mb=(5.0,)), "has no buckets"),
        (FSDP, Options(gpus=(1,)), "shards nothing"),
        (RESNET50, Options(prefetch=False), "FSDP2's"),
        (SINGLE, Options(bucket_mb=(5.0,)), "gpus=N"),
        (SINGLE, Options(straggler=0), "leave straggler=0 out"),
        (SICK, Options(straggler=7), "no such rank"),
        (EVERY, Options(bucket_mb=(5.0,)), "do not show the gradients"),
    ],
)
def test_what_a_run_does_not_have_is_refused(run, options, words):
    with pytest.raises(NotReplayable, match=words):
        whatif(summary_of(run), options)


def test_a_run_that_was_read_without_its_graph_is_refused():
    bare = summarize(SICK, causes=False)
    assert usual(bare) is None
    with pytest.raises(NotReplayable, match="no launches of kernels are recorded"):
        whatif(bare)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no runs beside the checkout")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("accum", "accumulation"),
        ("buffers", "buffers"),
        ("optimizer", "optimizer"),
        ("pageable", "copies"),
        ("offload", "copies"),
        ("loader", "input"),
        ("sharedgpu", "straggler"),
        ("healthy", None),
        ("fp32", None),
        ("layout", None),
    ],
)
def test_planted_faults_are_what_the_first_sentence_names(run, kind):
    found = answered(SHARED / "traces-advice" / run)
    assert (found.recommended.kind if found.recommended is not None else None) == kind


@pytest.mark.skipif(not SHARED.is_dir(), reason="no runs beside the checkout")
@pytest.mark.slow
def test_a_run_whose_waits_have_no_cause_is_refused():
    run = SHARED / "traces-foreign" / "lightllm-decode8"
    with pytest.raises(NotReplayable, match="nothing tells what was waited for"):
        answered(run)
    assert "nothing tells what was waited for" in (reported(run).summary.headline.why or "")


def test_ranks_that_share_nothing_but_a_collective_are_answered():
    """No kernel of one is like another's: nothing is as the others'."""
    found = whatif(meet("aaa", ".aa."))
    assert {each.kind for each in found.others} >= {"alike", "host"}


def test_odd_steps_cost_what_they_add_to_the_mean_of_timed_ones():
    """Three of eight steps take 30 ms, the others 10: 7.5 a step; where every second is told to be odd, 10."""
    timed = control({0: [[10_000_000, 30_000_000] * 2, [30_000_000, 10_000_000, 10_000_000, 10_000_000]]})
    assert timed.odd_steps == 3
    gain_ns, (low_ns, high_ns) = timed.odd_cost_ns(None)
    assert gain_ns == 20_000_000 * 3 / 8
    assert 0 < low_ns < gain_ns < high_ns < 20_000_000
    assert timed.odd_cost_ns(2) == (10_000_000, (10_000_000, 10_000_000))
    assert control({0: [[10_000_000] * 8]}).odd_cost_ns(None) is None


@pytest.mark.parametrize(
    ("lengths", "numbers", "distance"),
    [
        ([[9, 1, 1, 9], [9, 1, 1, 9]], [], 3),
        ([[9, 1, 1, 9], [9, 1, 9, 1]], [], None),  # at other distances
        ([[9, 1, 1, 1], [9, 1, 1, 1]], [], None),  # one in each block, whose places say nothing of one another
        ([[9, 1, 1, 1], [9, 1, 1, 1], [1, 1, 9, 1]], [[13, 14, 15, 16], [19, 20, 21, 22], [35, 36, 37, 38]], 6),
        ([[9, 1, 1, 1], [9, 1, 1, 1], [1, 1, 1, 1]], [[13, 14, 15, 16], [19, 20, 21, 22], [35, 36, 37, 38]], None),
        ([[9, 1, 1, 1]], [[13, 14, 15, 16]], None),  # alone
        ([[9, 1, 1, 1], [9, 1, 1, 1], [9, 1, 1, 1]], [[1, 2, 3, 4], [13, 14, 15, 16], [25, 26, 27, 28]], None),  # or 6
    ],
)
def test_how_far_apart_odd_steps_are_is_told_where_no_step_says_otherwise(lengths, numbers, distance):
    """In the fifth 37 would be odd, were every sixth step so."""
    light = control({0: [[1_000_000 * ms for ms in block] for block in lengths]}, numbers)
    assert Controls(light=light).odd_distance() == distance


def test_all_controls_together_tell_how_far_apart_odd_steps_are():
    """Light blocks leave 12 or 6 open, of which an unprofiled one between them tells."""
    long, short = 9_000_000, 1_000_000
    light = control({0: [[long, short, short, short]] * 3}, [[1, 2, 3, 4], [13, 14, 15, 16], [25, 26, 27, 28]])
    bare = control({0: [[short, long, short, short]]}, [[6, 7, 8, 9]])
    assert Controls(light=light).odd_distance() is None
    assert Controls(unprofiled=bare, light=light).odd_distance() == 6


def test_where_a_distance_is_told_the_mean_step_is_by_it():
    """A window of four steps before each block begins it, so that 6 of 8 blocks' steps collect."""
    timed = control({0: [[9_000_000, 1_000_000]] * 4})
    assert (timed.mean_ns(None), timed.mean_ns(4)) == (5_000_000, 3_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(("run", "true_ms"), [("evaluate", 8.6), ("gc", 48.7), ("savestep", 24.3)])
def test_where_odd_steps_cost_most_they_are_the_answer(run, true_ms):
    """Every third step collects: what that costs is by its distance, since blocks of four steps have two of them."""
    if not (folder := SHARED / "traces-advice" / run).is_dir():
        pytest.skip("the runs with planted faults are not here")
    found = answered(folder)
    assert found.recommended is not None and found.recommended.kind == "odd"
    low_ns, high_ns = found.recommended.within_ns
    assert low_ns < true_ms * 1e6 < high_ns
    after_ns, before_ns = found.recommended.step_ns, found.recommended.before_ns
    assert f"the mean step would take {ms(after_ns)} instead of {ms(before_ns)}" in found.headline


def test_what_ddp_would_take_a_host_that_sets_the_pace_is_not_known_of_one_gpu():
    """Four GPUs take 9.19 ms where one takes 7.54: calls and copies for reductions cost the CPU, too."""
    found = whatif(summary_of(SINGLE), Options(gpus=[4]), read_calibration(SAMPLES / "resnet18-ddp4" / "links.json"))
    assert {Code.CALLS_NOT_TIMED} <= {notice.code for each in found.of_settings for notice in each.why or ()}
    assert found.grade == "low"


def test_what_costs_less_than_the_replays_own_error_is_not_reliable():
    found = whatif(summary_of(SAMPLES / "resnet18-ddp2-pageable"), Options())
    lost = [each for each in found.scenarios if each.interval_ns[1] < 0 <= each.within_ns[1]]
    assert lost
    assert not any(each.reliable for each in lost)


@pytest.mark.parametrize("run", ["resnet18-ddp4", "resnet18-ddp2-cured"])
def test_what_is_not_told_apart_is_neither_reliable_nor_recommended(run):
    found = whatif(summary_of(SAMPLES / run), Options(bucket_mb=USUAL_MB))
    assert found.recommended is None
    for each in found.of_settings:
        low_ns, high_ns = each.interval_ns
        assert high_ns - low_ns >= 2 * found.uncertainty_ns
        assert each.reliable == (not low_ns <= 0 <= high_ns)
    assert not any(each.reliable for each in found.of_settings if each.words == OWN_WORDS)
    frame = SCENARIOS.frame(found)
    assert [*zip(frame["within_ns_low"], frame["within_ns_high"], strict=True)] == [
        each.within_ns for each in found.scenarios
    ]
    assert (frame.attrs["uncertainty_ns"], frame.attrs["grade"]) == (found.uncertainty_ns, found.grade)
