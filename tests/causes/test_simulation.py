"""The simulator of training: its runs are read without a warning, obey physics, and know what a fault costs."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

import analyzers
from tests.support import simulation
from tests.support.simulation import (
    DEVICE_BOUND,
    FSDP,
    HOST_BOUND,
    PIPELINE,
    Fault,
    World,
    blocking_items,
    broadcast_buffers,
    collections,
    late_host,
    pageable_input,
    pageable_output,
    price,
    random_healthy,
    simulate,
    slow_gpu,
    slow_host,
    slow_link,
    unequal_stage,
    violations,
    write,
)

pytestmark = pytest.mark.slow

HOSTS, DEVICES = (replace(world, layers=4, kernels=3) for world in (HOST_BOUND, DEVICE_BOUND))
STAGES = replace(DEVICE_BOUND, strategy=PIPELINE, ranks=2, layers=2, buckets=1, kernels=2, batches=3, steps=4)
SHARDS = replace(DEVICE_BOUND, strategy=FSDP, layers=4, kernels=3, steps=4)
WORLDS = {
    "host-bound": HOSTS.having(blocking_items(2), late_host(1, 2)),
    "device-bound": replace(DEVICES, input_mb=20.0).having(pageable_input(), slow_gpu(0, 1.2)),
    "pipeline": STAGES,
    "sharded": SHARDS,
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_run_is_read_without_a_warning_and_its_windows_are_as_long_as_its_true_step(world, tmp_path):
    simulated = simulate(world)
    report = analyzers.report(analyzers.load(write(simulated, tmp_path / "run")))
    assert not report.run.warnings
    assert not report.unmatched
    assert violations(simulated) == []
    instances = sum(members[0].window == "full" for members in simulated.network.instances)
    assert len(report.collectives) == instances
    spans = [window.span_ns for window in report.windows if window.step < max(each.step for each in report.windows)]
    assert median(spans) == pytest.approx(simulated.step_ns, rel=0.06)
    assert report.run.controls.unprofiled_step_ns == pytest.approx(simulated.typical_ns, rel=0.02)


def test_random_world_obeys_physics():
    for seed in (3, 5):
        world = replace(random_healthy(seed), rounds=1, steps=2, layers=4, buckets=2, noise=4.0)
        assert violations(simulate(world)) == []


def test_launch_waits_for_room_where_the_host_is_a_thousand_launches_ahead():
    ahead = World(layers=24, kernels=6, kernel_us=150, operator_us=4, python_us=2, rounds=1, steps=4)
    simulated = simulate(ahead)
    assert violations(simulated) == []
    calls_ns = [row.end_ns - row.start_ns for row in simulated.hosts[0].rows if row.name == "cudaLaunchKernel"]
    assert sum(ns > 300_000 for ns in calls_ns) > 20, "they wait until a batch is done"
    assert median(calls_ns) < 10_000, "most find room"
    launched = simulated.activities(0, "full")
    pending = [
        sum(other.launched_ns <= each.launched_ns < other.end_ns for other in launched) for each in launched[500::100]
    ]
    assert 1_000 < max(pending) <= 1_031


@pytest.mark.parametrize(
    ("world", "fault", "ms"),
    [
        (HOSTS, late_host(1, 3), 3.0),
        (DEVICES, late_host(1, 1), 0.0),
        (HOSTS, slow_gpu(1, 1.3), 0.0),
        (HOSTS, collections(30), 10.0),
        (DEVICES, slow_gpu(1, 1.0), 0.0),
    ],
)
def test_price_of_a_fault_is_what_it_takes_where_nothing_hides_it(world: World, fault: Fault, ms: float):
    assert price(world, fault) / 1e6 == pytest.approx(ms, abs=0.1)


def test_slow_kernels_and_links_cost_what_they_take_where_they_set_the_pace():
    compute_ns = price(DEVICES.having(slow_gpu(1, 1.5)), slow_gpu(0, 1.5))
    assert compute_ns == pytest.approx(0, abs=5_000), "the other rank is as slow"
    lone = replace(DEVICES, buckets=1, link_gbps=5.0)
    transfer_ns = lone.layers * lone.layer_mb * 1e6 / lone.link_gbps + lone.latency_us * 1000
    assert price(lone, slow_link(2)) == pytest.approx(transfer_ns, rel=0.02)


def test_simulator_imports_nothing_of_what_it_judges():
    for file in Path(simulation.__file__).parent.glob("*.py"):
        imports = [
            node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        named = {getattr(node, "module", None) or node.names[0].name for node in imports}
        assert not [name for name in named if name.partition(".")[0] in ("analyzers", "tracer")]


def test_root_of_a_small_broadcast_does_not_wait_for_a_late_rank():
    simulated = simulate(replace(HOSTS, rounds=1).having(broadcast_buffers(4), slow_host(1, 1.5)))
    assert violations(simulated) == []
    broadcasts = [
        {member.rank: member.end_ns - member.start_ns for member in members}
        for members in simulated.network.instances
        if members[0].name.startswith("ncclDevKernel_Broadcast")
    ]
    assert max(each[0] for each in broadcasts) < 20_000


def test_fault_that_could_do_nothing_is_refused():
    for fault in (unequal_stage(0, 1), blocking_items(9), pageable_output(), late_host(2, 1)):
        with pytest.raises(AssertionError):
            HOSTS.having(fault)
    with pytest.raises(AssertionError, match="twice"):
        HOSTS.having(slow_host(0, 1.5), slow_host(0, 1.2))


def test_run_is_the_same_whenever_it_is_simulated():
    first, second = simulate(DEVICES), simulate(DEVICES)
    assert first.steps_ns(1, first.steps("full")[0]) == second.steps_ns(1, second.steps("full")[0])
