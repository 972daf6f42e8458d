"""Hosts timed without the profiler: when they count, and what predictions make of them."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from analyzers.notices import Code
from analyzers.prediction import Kind, Options, whatif
from analyzers.prediction.hosts import explains_gaps, host_doubt, timed_hosts, unused_hosts
from analyzers.prediction.run_model import model_of
from analyzers.run import control
from tests.support.samples import SAMPLES, summarized


def with_hosts(run, host_ns):
    """The run as if single steps had taken each rank's host so long, in ns, by rank."""
    hosts = control({rank: [samples] for rank, samples in host_ns.items()})
    controls = msgspec.structs.replace(run.manifest.controls, host=hosts)
    return replace(run, manifest=msgspec.structs.replace(run.manifest, controls=controls))


def alike(ns, ranks=4):
    return {rank: [round(0.9 * ns), round(ns), round(1.1 * ns)] for rank in range(ranks)}


@pytest.fixture(scope="module")
def resnet50():
    return summarized(SAMPLES / "resnet50-ddp4-bf16")


@pytest.fixture(scope="module")
def sick():
    return summarized(SAMPLES / "resnet18-ddp2-sick")


def test_hosts_count_where_all_ranks_were_timed_and_none_takes_longer_than_the_step(resnet50):
    assert timed_hosts(resnet50, resnet50.manifest) is None
    run = with_hosts(resnet50, {**alike(20e6), 3: [90_000_000] * 3})
    found = timed_hosts(run, run.manifest)
    unprofiled_ns = run.manifest.controls.step_ns("unprofiled")
    assert found.step_ns.tolist() == [20e6] * 3 + [unprofiled_ns]
    # Nine in ten of normal values: 2.44 median absolute deviations.
    assert found.scatter.tolist() == pytest.approx([0.244] * 3 + [0])
    few = with_hosts(resnet50, alike(20e6, ranks=3))
    assert timed_hosts(few, few.manifest) is None
    nothing = msgspec.structs.replace(
        run.manifest, controls=msgspec.structs.replace(run.manifest.controls, unprofiled=None)
    )
    assert timed_hosts(run, nothing) is None


def test_a_host_that_waits_for_its_device_has_no_time_of_its_own(resnet50):
    run = with_hosts(resnet50, alike(20e6))

    def waiting(summary):
        idle = summary.timed.idle
        launching = replace(idle.launching, waited_ns=idle.launching.host_ns // 10)
        return replace(summary, timed=replace(summary.timed, idle=replace(idle, launching=launching)))

    waits = replace(run, ranks=tuple(map(waiting, run.ranks)))
    assert timed_hosts(waits, run.manifest) is None
    assert "wait for their devices" in str(unused_hosts(waits, run.manifest)[0])


def test_a_host_that_is_far_ahead_changes_nothing(resnet50):
    ahead = whatif(with_hosts(resnet50, alike(10e6)), Options(bucket_mb=(5, 25), host_times=(1, 0.5)))
    assert abs(ahead.baseline.error) < 0.02
    assert all(each.reliable for each in ahead.scenarios)
    own, half = ahead.others
    assert own.gain_ns == half.gain_ns == 0


def test_a_host_as_long_as_the_step_is_the_step(resnet50):
    unprofiled_ns = resnet50.manifest.controls.step_ns("unprofiled")
    found = whatif(with_hosts(resnet50, alike(unprofiled_ns)), Options(bucket_mb=(25,)))
    assert found.baseline.predicted_step_ns == pytest.approx(unprofiled_ns, rel=0.01)
    (cap,) = found.of_settings
    assert Code.HOST_IS_THE_LIMIT in {notice.code for notice in cap.why}
    # What a step takes its host differs by a quarter, and so may the step.
    assert cap.interval_ns[1] > 1.2 * unprofiled_ns


def test_a_late_host_as_the_others_leaves_theirs(sick):
    """Rank 1 spends 3 ms of each step in Python."""
    run = with_hosts(sick, {0: [8_600_000] * 3, 1: [11_600_000] * 3})
    found = whatif(run, Options(straggler=1))
    assert abs(found.baseline.error) < 0.05
    steps_ns = {each.cause: each.predicted_step_ns for each in found.others if each.kind is Kind.STRAGGLER}
    assert steps_ns["all"] == steps_ns["host"] == 8_600_000
    assert steps_ns["compute"] == found.baseline.predicted_step_ns


def test_more_buckets_are_more_calls_for_a_host_that_is_the_limit(sick):
    run = with_hosts(sick, alike(12e6, ranks=2))
    many, few = whatif(run, Options(bucket_mb=(1, 100))).scenarios
    assert len(many.buckets) > len(few.buckets)
    assert many.predicted_step_ns > few.predicted_step_ns


def test_long_pauses_are_the_hosts_where_launches_are_estimated_and_hosts_nearly_the_limit(sick):
    ahead, near = (with_hosts(sick, alike(ns, ranks=2)) for ns in (3e6, 11.5e6))
    assert explains_gaps(sick, None)
    assert explains_gaps(ahead, timed_hosts(ahead, ahead.manifest))
    assert not explains_gaps(near, timed_hosts(near, near.manifest))
    totals = [float(np.median(model_of(run, None).steps.total_ns)) for run in (ahead, near)]
    assert totals[0] > totals[1]


def test_what_is_said_of_a_host_is_how_well_the_slowest_is_known(sick):
    assert "for 12.0 % of the step, and its own time per step varies by 3.0 %" in str(host_doubt(0.12, 0.03))
    assert "or nearly so" in str(host_doubt(0.0, 0.03))
    assert "not modelled" in str(host_doubt(0.12, None))
    run = with_hosts(sick, {0: [4_000_000, 8_000_000, 12_000_000], 1: [11_900_000, 12_000_000, 12_100_000]})
    (found,) = whatif(run, Options()).scenarios
    assert "its own time per step varies by 2.0 %" in str(found.why)


def test_two_steps_of_a_host_tell_nothing_of_others(sick):
    run = with_hosts(sick, {0: [8_000_000] * 3, 1: [12_000_000] * 2})
    assert timed_hosts(run, run.manifest) is None
    (why,) = unused_hosts(run, run.manifest)
    assert (why.code, str(why) in whatif(run, Options()).warnings) == (Code.HOST_TIMES_UNUSED, True)
    assert "rank 1 has fewer than 3" in str(why)
    assert unused_hosts(sick, sick.manifest) == []
    enough = with_hosts(sick, alike(8e6, ranks=2))
    assert unused_hosts(enough, enough.manifest) == []


def test_what_synchronizes_nothing_takes_hosts_no_longer_than_measured(resnet50):
    """Hosts are timed with DDP's calls in their steps."""
    controls = resnet50.manifest.controls
    unprofiled_ns, nosync_ns = (controls.step_ns(name) for name in ("unprofiled", "nosync"))
    run = with_hosts(resnet50, alike(unprofiled_ns))
    found = whatif(run, Options(gpus=(1,), accumulations=(2,)))
    assert found.of_settings[0].predicted_step_ns == nosync_ns
    (two,) = found.others
    # The devices' own are a little longer.
    assert unprofiled_ns + nosync_ns <= two.predicted_step_ns < 1.02 * (unprofiled_ns + nosync_ns)
