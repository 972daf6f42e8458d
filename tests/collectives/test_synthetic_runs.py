"""Worlds keep to physics and tell the truth, damage is what it says, and the oracle finds the truth."""

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

import analyzers
from tests.support import damage as perturb
from tests.support.generator import LAYOUTS
from tests.support.pairs import Short, best_alignments, disputed, judge, left, oracle
from tests.support.physics import SYNCHRONIZING, Collective, Compute, columns, ddp, every_kind, fsdp, mesh, rows
from tests.support.synthetic_runs import World, any_world, build, simulate
from tests.support.wide import wide

SAMPLES = Path(__file__).resolve().parents[2] / "traces"
WORLDS = {
    "ddp": World(program=ddp()),
    "fsdp": World(program=fsdp()),
    "alike": World(program=fsdp(), jitter=0.0),
    "mesh": World(ranks=8, program=mesh(8, 4)),
    "kinds": World(program=every_kind(4)),
    "two hosts": World(program=ddp(), offsets_ns=(0, 0, 812_345_678, 812_345_678), devices_per_host=2),
    "slow": World(program=ddp(), link_gbps=4.0, noise_us=500.0),
}
MANY = [any_world(Random(seed)) for seed in range(40)]


@pytest.fixture(params=[*WORLDS.values(), *MANY], ids=[*WORLDS, *map(str, range(len(MANY)))])
def world(request):
    return request.param


def test_members_of_a_synchronizing_instance_meet(world):
    together = defaultdict(list)
    for machine in simulate(world):
        for kernel in machine.kernels:
            together[kernel.instance].append(kernel)
    del together[-1]
    for kernels in together.values():
        assert sorted(kernel.rank for kernel in kernels) == sorted(kernels[0].ranks)
        if kernels[0].op.kind in SYNCHRONIZING:
            first_end, last_start = min(k.end_ns for k in kernels), max(k.start_ns for k in kernels)
            assert last_start < first_end
            noise = min(1000 * world.noise_us, max(80_000, 0.15 * (first_end - last_start)))
            assert max(k.end_ns for k in kernels) - first_end <= noise + 1


def test_streams_serialize_and_launches_precede(world):
    for machine in simulate(world):
        launches = [(kernel.launch_ns, kernel.correlation) for kernel in machine.kernels]
        assert launches == sorted(launches)
        assert len({correlation for _, correlation in launches}) == len(launches)
        assert all(kernel.launch_ns < kernel.start_ns < kernel.end_ns for kernel in machine.kernels)
        streams = defaultdict(list)
        for kernel in machine.kernels:
            streams[kernel.stream].append(kernel)
            assert machine.steps[kernel.step][0] <= kernel.launch_ns < machine.steps[kernel.step][1]
        for kernels in streams.values():
            assert all(before.end_ns <= after.start_ns for before, after in pairwise(kernels))


def test_the_truth_is_what_was_written(world):
    made = build(replace(world, missing=0.1))
    members = [member for instance in made.truth for member in instance.members]
    written = [member for document in made.documents for member in perturb.members(document)]
    assert sorted(members) == sorted(written)
    assert all((len(one.members) == len(one.ranks)) == one.complete for one in made.truth)


def test_the_oracle_finds_the_truth_of_undamaged_worlds(world):
    made = build(world)
    found = oracle(made.documents)
    whole = [instance.members for instance in made.truth]
    assert judge(found, whole, left(made.documents)).wrong == []
    profiled = [one.members for one in made.truth if one.step >= world.first_step]
    assert all(one.complete for one in made.truth if one.step >= world.first_step)
    assert set(profiled) <= set(found)


def test_without_jitter_steps_are_alike():
    machines = simulate(replace(WORLDS["alike"], lead_us=0))
    for machine in machines:
        by_step = defaultdict(list)
        for kernel in machine.kernels:
            by_step[kernel.step].append((kernel.start_ns - machine.steps[kernel.step][0], kernel.end_ns))
        starts = [[start for start, _ in kernels] for step, kernels in by_step.items() if step > 3]
        assert all(other == starts[0] for other in starts)


def test_the_root_of_a_small_broadcast_does_not_wait():
    made = build(World(program=(Collective("broadcast", 1000, waited=True), Compute(100)), late_us=900))
    by_instance = defaultdict(dict)
    for kernel in made.kernels:
        by_instance[kernel.instance][kernel.rank] = kernel
    assert any(one[0].end_ns < max(k.start_ns for k in one.values()) for one in by_instance.values() if 0 in one)


def test_what_was_launched_before_the_opening_has_neither_launch_nor_metadata():
    made = build(World(program=ddp(), warmup=3, leads_us=(0, 9000, 3000)))
    heads = 0
    for document in made.documents:
        called = {perturb.correlation(e) for e in document["traceEvents"] if e["cat"] == "cuda_driver"}
        for kernel in filter(perturb.is_nccl, document["traceEvents"]):
            launched = kernel["args"]["correlation"] in called
            heads += not launched
            assert launched == ("Collective name" in kernel["args"]) == ("External id" in kernel["args"])
    assert heads
    assert len({len(perturb.members(document)) for document in made.documents}) > 1


def test_heads_tails_windows_and_absent_ranks_are_uneven():
    uneven = World(program=ddp(), tails_us=(0, 2500), windows=((4, 6), (5, 6), (4, 5)), absent=(3,), lead_us=6000)
    made = build(uneven)
    assert [perturb.rank_of(document) for document in made.documents] == [0, 1, 2]
    assert [list(perturb.steps(document)) for document in made.documents] == [[4, 5, 6], [5, 6], [4, 5]]
    assert any(not one.complete for one in made.truth)
    assert any(one.complete for one in made.truth)


def test_a_device_only_profile_says_nothing_of_collectives():
    for document in build(World(program=ddp(), metadata=False)).documents:
        assert {event["cat"] for event in document["traceEvents"]} == {"kernel", "cuda_runtime", "cuda_driver"}
        assert all(not {"External id", "dtype"} & set(event["args"]) for event in document["traceEvents"])


def test_groups_of_the_same_ranks_or_the_same_name():
    names = Collective("all_reduce", name="tp", teams=rows(4, 2))
    made = build(World(program=(names, replace(names, name="dp", teams=columns(4, 2)), Compute(50))))
    assert {(one.group, one.ranks) for one in made.truth} == {
        *(("tp", (0, 1)), ("tp", (2, 3))),
        *(("dp", (0, 2)), ("dp", (1, 3))),
    }


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "array"])
def test_documents_are_written_to_the_digit_and_read_by_the_program(layout, tmp_path):
    documents = build(World(program=ddp(), offsets_ns=(0, 999_999_999), missing=0.1)).documents
    folder = perturb.write_run(tmp_path / "run", documents, layout)
    assert perturb.read_run(folder) == documents
    run = analyzers.load(folder)
    assert len(analyzers.breakdown(run)) == 12


def times(document):
    base = document["baseTimeNanoseconds"]
    return [base + perturb.start_ns(event) for event in document["traceEvents"] if "ts" in event]


@pytest.fixture(params=["made", "recorded"])
def document(request):
    if request.param == "made":
        return build(World(program=ddp())).documents[1]
    return perturb.read(SAMPLES / "resnet18-ddp2" / "rank1.json.gz")


def test_clocks_and_bases_move_to_the_nanosecond(document):
    moved = perturb.shift_clock(document, -812_345_679)
    assert [after - before for before, after in zip(times(document), times(moved), strict=True)] == [
        -812_345_679
    ] * len(times(document))
    rebased = perturb.rebase(document, 86_400_000_000_001)
    assert times(rebased) == times(document)
    assert perturb.shift_clock(moved, 812_345_679)["traceEvents"] == document["traceEvents"]
    assert all(-event["ts"].as_tuple().exponent == 3 for event in moved["traceEvents"] if "ts" in event)


def test_dropping_takes_what_it_says(document):
    whole, random = set(perturb.members(document)), Random(3)
    rest = perturb.drop_kernels(document, 0.25, random)
    assert len(document["traceEvents"]) - len(rest["traceEvents"]) == round(0.25 * len(whole))
    assert set(perturb.members(rest)) < whole
    bare = perturb.drop_kernels(document, 0.25, random, with_calls=True)
    gone = {number for _, _, number in whole - set(perturb.members(bare))}
    assert gone
    assert not gone & {perturb.correlation(event) for event in bare["traceEvents"]}
    step = sorted(perturb.steps(document))[1]
    start, end = perturb.steps(document)[step]
    less = perturb.drop_step(document, step)
    assert step not in perturb.steps(less)
    assert not [e for e in less["traceEvents"] if perturb.on_host(e) and start <= perturb.start_ns(e) < end]
    assert len(perturb.members(less)) < len(whole)


def test_cutting_shuffling_stripping_and_renaming(document):
    low, high = perturb.extent(document)
    middle = (low + high) // 2
    starts = [
        *map(perturb.start_ns, filter(perturb.is_nccl, perturb.cut_head(document, middle)["traceEvents"])),
        *(-perturb.start_ns(e) for e in filter(perturb.is_nccl, perturb.cut_tail(document, middle)["traceEvents"])),
    ]
    assert starts
    assert all(start >= middle or -start <= middle for start in starts)
    mixed = perturb.shuffle(document, Random(1))["traceEvents"]
    assert mixed != document["traceEvents"]
    assert {id(event) for event in mixed} == {id(event) for event in document["traceEvents"]}
    bare = perturb.strip_metadata(document, 1.0, Random(1), with_external=True, with_host=True)
    assert not [e for e in bare["traceEvents"] if perturb.is_nccl(e) and {"dtype", "External id"} & set(e["args"])]
    assert perturb.members(bare) == perturb.members(document)
    assert len(set(perturb.renamed([document] * 9, Random(2)))) == 9


def test_any_damage_leaves_documents_that_can_be_written(document, tmp_path):
    for seed in range(5):
        perturb.write_run(tmp_path / str(seed), perturb.damaged([document, document], Random(seed)))


@pytest.mark.parametrize(("run", "count"), [("resnet18-ddp2", 10), ("resnet18-ddp4", 10), ("resnet18-dp4", 22)])
@pytest.mark.parametrize("window", ["", "light"])
def test_the_oracle_pairs_all_of_recorded_runs(run, count, window):
    documents = perturb.read_run(SAMPLES / run / window)
    found = oracle(documents)
    assert len(found) == count
    assert frozenset().union(*found) == left(documents)
    assert {frozenset(device for _, device, _ in members) for members in found} == {frozenset(range(int(run[-1])))}


def test_a_judge_tells_wrong_from_unmatched():
    a, b, c, d = (0, 0, 1), (1, 1, 1), (0, 0, 2), (1, 1, 2)
    verdict = judge([{a, d}], [{a, b}, {c, d}], {a, b, c, d})
    assert verdict.wrong == [frozenset({a, d})]
    assert (verdict.matched, verdict.matchable) == (0, 4)
    verdict = judge([{a, b}], [{a, b}, {c, d}], {a, b, c})
    assert (verdict.wrong, verdict.share) == ([], 1.0)


def test_alignments_that_are_as_good_dispute_each_other():
    periodic = [Short("all_reduce", 1_000_000 * k) for k in range(4)]
    fewer = periodic[1:]
    good = best_alignments(periodic, fewer)
    assert {pairs[0] for pairs in good} == {(0, 0), (1, 0)}
    assert disputed([(1, 0)], good) == {(1, 0)}
    assert best_alignments(periodic, fewer, offset_ns=0) == [((1, 0), (2, 1), (3, 2))]
    sized = [Short(size, 1_000_000 * k) for k, size in enumerate("abca")]
    assert disputed([(1, 0), (2, 1), (3, 2)], best_alignments(sized, sized[1:], margin=0.5)) == set()


def test_a_wide_run_keeps_to_the_same_physics():
    run = wide(ranks=64, steps=3, collectives=20, missing=0.05)
    instance, start, dur, group = (
        np.concatenate(parts)
        for parts in (run.truth, *([own[name] for own in run.columns] for name in ("start_ns", "dur_ns", "group")))
    )
    last, first = np.zeros(instance.max() + 1, dtype=np.int64), np.full(instance.max() + 1, 2**62)
    np.maximum.at(last, instance, start)
    np.minimum.at(first, instance, start + dur)
    assert (last < first).all()
    assert 0.9 < len(instance) / (64 * 60) < 1
    for place in np.unique(instance)[:50]:
        assert len(np.unique(group[instance == place])) == 1
        assert np.bincount(instance)[place] <= len(run.groups[group[instance == place][0]][1])
    for own in run.columns:
        ends = own["start_ns"] + own["dur_ns"]
        for stream in np.unique(own["stream"]):
            mine = own["stream"] == stream
            assert (own["start_ns"][mine][1:] > ends[mine][:-1]).all()


def test_decimals_keep_their_digits_in_every_layout():
    event = {"ph": "X", "ts": Decimal("9876543210123.457"), "dur": Decimal("0.001"), "name": "a"}
    trace = {"schemaVersion": 1, "distributedInfo": {}, "baseTimeNanoseconds": 1, "traceEvents": [event]}
    for layout in LAYOUTS.values():
        text = layout(trace | {"traceName": "t"})
        assert "9876543210123.457," in text
        assert "0.001" in text
