"""Matching across ranks: complete on whole runs, never wrong on damaged ones."""

import os
import re
from dataclasses import fields, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzers.arrays import UNKNOWN
from analyzers.collectives.alignment.common_offset import find_offsets
from analyzers.collectives.alignment.pairing import match
from analyzers.collectives.alignment.sequences import Kernels, Offset
from analyzers.collectives.matching import Matching, match_run
from analyzers.collectives.measured import exchange
from analyzers.collectives.warnings import exchange_warnings
from analyzers.rank.columns.communication import Communication
from analyzers.rank.strategies import Owners
from analyzers.rank.summary import Measured, RankSummary, RunSummary, summarize
from analyzers.run.manifest import Manifest, read_manifest
from analyzers.trace.collective_calls import Call, Collective, Group
from analyzers.trace.header import Header
from tests.support import damage as perturb
from tests.support import physics, samples
from tests.support.damage import Document, Member
from tests.support.drawing import called, meet
from tests.support.members import together
from tests.support.pairs import Short, best_alignments, disputed, judge, left, oracle
from tests.support.samples import RUNS, SAMPLES
from tests.support.synthetic_runs import Made, World, any_world, build
from tests.support.tiers import cases, quarters
from tests.support.wide import DTYPES, KINDS, Wide, wide

EXAMPLES = cases(int(os.environ.get("FUZZ_EXAMPLES", "12")))
# What the oracle reads, NCCL's kernels: recordings on the CPU have none.
ON_GPUS = [run for run in RUNS if (read_manifest(run)[0] or Manifest()).backend != "gloo"]
COMMUNICATING = [run for run in ON_GPUS if len(list(run.glob("rank*.json*"))) > 1 or "dp4" in run.name]
seeds = st.integers(0, 2**32 - 1)


def matched(folder: Path, documents: list[Document], names: list[str] | None = None) -> list[frozenset[Member]]:
    """The instances found in documents, copies left out."""
    perturb.write_run(folder, documents, names=names)
    return sets(match_run(summarize(folder)))


def sets(matching: Matching) -> list[frozenset[Member]]:
    found = (frozenset(members) for members in together(matching))
    places = np.stack([matching.table.rank, matching.table.device, matching.table.correlation])
    copies = set(map(tuple, places[:, matching.table.is_copy].T.tolist()))
    return [members for members in found if not members <= copies]


@pytest.mark.parametrize("program", [physics.ddp(), physics.fsdp(), physics.mesh(4, 2), physics.every_kind(4)])
def test_whole_worlds_are_matched_whole(tmp_path, program):
    made = build(World(ranks=4, program=program, lead_us=0))
    found = set(matched(tmp_path, made.documents))
    assert found == {each.members for each in made.truth if each.complete}


def test_kernels_from_before_the_profiler_opened_are_matched_where_there_is_one_group(tmp_path):
    made = build(World(ranks=4, program=physics.fsdp(), lead_us=6000, heads_us=(2000,) * 4))
    perturb.write_run(tmp_path, made.documents)
    matching = match_run(summarize(tmp_path))
    assert set(sets(matching)) == {each.members for each in made.truth if each.complete}
    assert (matching.instances.step < 0).any()


def test_kernels_from_before_the_profiler_opened_find_their_group_among_several(tmp_path):
    made = build(World(ranks=4, program=physics.mesh(4, 2), steps=4, lead_us=6000, heads_us=(2000,) * 4))
    perturb.write_run(tmp_path, made.documents)
    matching = match_run(summarize(tmp_path))
    verdict = judge(sets(matching), [each.members for each in made.truth], left(made.documents))
    assert not verdict.wrong
    heads = matching.instances.step < 0
    assert heads.sum() >= 5
    assert len(set(matching.instances.group[heads].tolist())) > 1


@pytest.mark.parametrize("path", quarters(samples.params(COMMUNICATING)))
def test_real_runs_have_the_instances_that_brute_force_finds(path):
    documents, found = whole_run(path)
    whole = oracle(documents)
    assert set(found) >= set(whole)
    # Batches and messages the oracle cannot read: what is more than it finds is of kernels that it leaves alone.
    known = set().union(*whole)
    assert not any(members & known for members in set(found) - set(whole))


def test_every_kind_of_collective_is_matched_whole():
    documents, found = whole_run(SAMPLES / "every-collective4")
    assert set().union(*found) == left(documents)


@cache
def whole_run(path: Path) -> tuple[list[Document], list[frozenset[Member]]]:
    """A real run and its instances, read once; of operators and arrows, most of a trace, what tells of collectives."""
    documents = [perturb.keep(perturb.read(file), tells) for file in sorted(path.glob("rank*.json*"))]
    return documents, sets(match_run(samples.summary_of(path)))


def tells(event: perturb.Event) -> bool:
    category = event.get("cat")
    if category == "cpu_op":
        return event["name"].startswith(("record_param_comms", "c10d::", "nccl:"))
    return category not in ("ac2g", "fwdbwd", "python_function")


@pytest.mark.parametrize("name", ["resnet18-ddp4", "resnet18-fsdp4", "resnet18-dp4"])
def test_operators_and_arrows_that_tell_of_no_collective_change_no_instance(name, tmp_path):
    documents, whole = whole_run(SAMPLES / name)
    assert set(matched(tmp_path, documents)) == set(whole)


@given(seed=seeds)
@settings(max_examples=EXAMPLES)
def test_damage_to_real_runs_makes_no_wrong_pair(tmp_path_factory, seed):
    random = Random(seed)
    documents, whole = whole_run(random.choice(samples.at_hand(COMMUNICATING)))
    damaged = perturb.damaged(documents, random)
    found = matched(tmp_path_factory.mktemp("damaged"), damaged, perturb.renamed(damaged, random))
    assert not judge(found, whole, left(damaged)).wrong


@given(seed=seeds)
@example(seed=143)  # five equal collectives, one step in common, and each rank lacks another one of them
@example(seed=5414)  # one step each, alike but not the same, and no step numbers in common
@example(seed=10296)  # one kernel of a known step, whose partner is lost
@example(seed=30185)  # two equal collectives 84 us apart, one unlabelled, ends that agree to 80
@settings(max_examples=cases(2) * EXAMPLES)
def test_damage_to_worlds_makes_no_wrong_pair(tmp_path_factory, seed):
    made = build(any_world(Random(seed)))
    damaged = perturb.damaged(made.documents, Random(seed + 1))
    found = matched(tmp_path_factory.mktemp("damaged"), damaged)
    assert not judge(found, [instance.members for instance in made.truth], left(damaged)).wrong


def without_step(document: Document, step: int, rank: int, lost: set[Member]) -> Document:
    """A rank's document without a step: its marks and rows, or where it marks none the step's kernels."""
    if step in perturb.steps(document):
        return perturb.drop_step(document, step)
    gone = {correlation for member, _, correlation in lost if member == rank}
    return perturb.keep(document, lambda event: perturb.correlation(event) not in gone)


identical = st.builds(
    World,
    ranks=st.sampled_from([2, 4]),
    steps=st.integers(3, 6),
    program=st.sampled_from([physics.ddp((500_000,) * 4), physics.fsdp(4), physics.ddp()]),
    seed=seeds,
    jitter=st.just(0.0),
    late_us=st.sampled_from([0.0, 5.0]),
    noise_us=st.sampled_from([0.0, 5.0, 30.0]),
    metadata=st.booleans(),
)


@given(world=identical, shift_ns=st.integers(-(10**9), 10**9), seed=seeds)
@settings(max_examples=cases(2) * EXAMPLES)
def test_a_step_lost_among_identical_ones_under_a_shifted_clock_shifts_no_pair(tmp_path_factory, world, shift_ns, seed):
    made = build(world)
    documents, random = list(made.documents), Random(seed)
    rank = random.randrange(world.ranks)
    step = random.choice([instance.step for instance in made.truth if instance.step is not None])
    lost = {member for instance in made.truth if instance.step == step for member in instance.members}
    documents[rank] = perturb.shift_clock(without_step(documents[rank], step, rank, lost), shift_ns)
    found = matched(tmp_path_factory.mktemp("identical"), documents)
    verdict = judge(found, [instance.members for instance in made.truth], left(documents))
    assert not verdict.wrong
    if world.metadata:
        assert verdict.share == (0 if is_tie(made, shift_ns) and not verdict.share else 1)


def is_tie(made: Made, shift_ns: int) -> bool:
    """Whether a clock so much ahead shows a step where, on equal clocks, another of the same kernels would be."""
    last = {kernel.step: kernel.end_ns for kernel in made.kernels}
    lengths = [later - earlier for earlier, later in permutations(last.values(), 2)]
    return any(abs(shift_ns - length) <= 200_000 for length in lengths)


def test_a_clock_ahead_by_whole_steps_is_no_clock_whose_steps_have_other_numbers(tmp_path):
    """Of five equal steps one is lost: on equal clocks ends agree as well, if rank 1 counts its steps from three on."""
    made = build(World(ranks=2, steps=5, program=physics.ddp((500_000,) * 4), jitter=0.0, late_us=0.0, noise_us=0.0))
    ends = sorted({kernel.step: kernel.end_ns for kernel in made.kernels}.values())
    shifted = perturb.shift_clock(made.documents[1], ends[-1] - ends[-3] + 5_000)
    perturb.write_run(tmp_path, [made.documents[0], shifted])
    matching = match_run(summarize(tmp_path))
    assert not len(matching.instances)
    assert set(matching.why.values()) == {"two alignments with the other members are about as good"}


def test_a_clock_ahead_by_less_than_a_step_is_matched_whole(tmp_path):
    """Of four equal buckets the third would be where the first is, and by order no step pairs so."""
    made = build(World(ranks=2, program=physics.ddp((500_000,) * 4), jitter=0.0, late_us=0.0, noise_us=0.0))
    lost = perturb.drop_step(made.documents[0], 5)
    found = matched(tmp_path, [perturb.shift_clock(lost, 755_455), made.documents[1]])
    verdict = judge(found, [each.members for each in made.truth], left([lost, made.documents[1]]))
    assert not verdict.wrong
    assert verdict.share == 1


def kernels(ends: list[int], signatures: list[int], step: int) -> Kernels:
    size = len(ends)
    return Kernels(
        end_ns=np.array(ends, dtype=np.int64),
        dur_ns=np.full(size, 20_000),
        step=np.full(size, step),
        sequence=np.full(size, -1),
        signature=np.array(signatures, dtype=np.int64),
        synchronizes=np.ones(size, dtype=bool),
        complete=np.zeros(size, dtype=bool),
        sure=np.zeros(size, dtype=bool),
    )


sequences = st.lists(st.tuples(st.integers(30, 400), st.integers(0, 1)), min_size=1, max_size=6)


@given(sequence=sequences, kept=st.lists(st.booleans(), min_size=12, max_size=12), shift=st.integers(-(10**9), 10**9))
@settings(max_examples=cases(8) * EXAMPLES)
def test_no_pair_stands_that_an_equally_good_alignment_disputes(sequence, kept, shift):
    """Small sequences, either of which lost kernels: every alignment is tried."""
    ends = np.cumsum([gap * 1000 for gap, _ in sequence]).tolist()
    codes = [code for _, code in sequence]
    mine = [k for k in range(len(ends)) if kept[k]]
    theirs = [k for k in range(len(ends)) if kept[6 + k]]
    a = kernels([ends[k] for k in mine], [codes[k] for k in mine], 3)
    b = kernels([ends[k] + shift for k in theirs], [codes[k] for k in theirs], 3)
    compatible = np.eye(2, dtype=bool)
    (offset,) = find_offsets(a, b, compatible, np.array([False]))
    partner = match(a, b, compatible, offset)
    pairs = [(i, j) for i, j in enumerate(partner.tolist()) if j >= 0]
    mine_short, their_short = (
        [Short((code,), end) for code, end in zip(side.signature.tolist(), side.end_ns.tolist(), strict=True)]
        for side in (a, b)
    )
    good = best_alignments(mine_short, their_short, offset_ns=offset.ns if offset else None, margin=0.25)
    assert not disputed(pairs, good)


def test_an_offset_that_is_known_needs_no_second_kernel():
    a, b = kernels([100_000], [0], 3), kernels([105_000], [0], 3)
    assert match(a, b, np.eye(1, dtype=bool), Offset(0, 0, 0)).tolist() == [0]
    far = kernels([400_000], [0], 3)
    assert match(a, far, np.eye(1, dtype=bool), Offset(0, 0, 0)).tolist() == [-1]


NAMES = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
    "all_to_all": "ncclDevKernel_SendRecv",
}


def summary_of(run: Wide, rank: int) -> RankSummary:
    """A rank of a wide run as its summary."""
    columns = run.columns[rank]
    size = len(columns["start_ns"])
    unknown = np.full(size, -1, dtype=np.int64)
    facts = np.stack([columns[name] for name in ("kind", "dtype", "elements_in", "elements_out", "group")])
    distinct, code = np.unique(facts, axis=1, return_inverse=True)
    calls = []
    for kind, dtype, elements_in, elements_out, group in distinct.T.tolist():
        name, ranks = run.groups[group]
        where = Group(name, len(ranks), ranks)
        calls.append(Call(Collective[KINDS[kind].upper()], elements_in, elements_out, DTYPES[dtype], where))
    kinds = np.array([Collective[kind.upper()] for kind in KINDS], dtype=np.int8)
    communication = Communication(
        device=np.zeros(size, dtype=np.int32),
        peer=unknown.astype(np.int32),
        stream=columns["stream"],
        correlation=columns["correlation"],
        start_ns=columns["start_ns"],
        dur_ns=columns["dur_ns"],
        name=columns["kind"].astype(np.int32),
        names=tuple(NAMES[kind] for kind in KINDS),
        kind=kinds[columns["kind"]],
        call=code.astype(np.int32),
        calls=tuple(calls),
        sequence=unknown,
        step=columns["step"],
        window=columns["step"],
        purpose=np.zeros(size, dtype=np.int8),
        strategy=np.full(size, UNKNOWN, dtype=np.int8),
        owners=Owners(unknown, (), unknown < 0, unknown),
        recomputed=np.zeros(size, dtype=bool),
        nbytes=unknown,
        exposed_ns=columns["dur_ns"],
        peer_exposed_ns=unknown,
        computed_ns=unknown,
        busy_ns=unknown,
        launched_ns=columns["launch_ns"],
        lost_before=np.zeros(size, dtype=np.int64),
        lost_after=np.zeros(size, dtype=np.int64),
        called=unknown,
    )
    # Matching reads no more of a rank than its communication.
    unread = dict.fromkeys(field.name for field in fields(Measured))
    measured = Measured(**(unread | {"earliest_ns": 0, "latest_ns": 0, "communication": communication, "exposed": {}}))
    return RankSummary(rank, Path(f"rank{rank}.json"), Header(), measured, None)


@pytest.mark.parametrize(("ranks", "missing", "least"), [(128, 0.0, 1.0), (64, 0.05, 0.9)])
def test_many_ranks_on_a_mesh_whose_hosts_clocks_differ(ranks, missing, least):
    run = wide(ranks=ranks, missing=missing, offset_ns=10**9)
    matching = match_run(RunSummary("wide", None, tuple(summary_of(run, rank) for rank in range(ranks)), ()))
    truth, found = np.concatenate(run.truth), matching.instance
    whole = np.bincount(truth)[truth] == np.array([key.size for key in matching.table.groups])[matching.table.group]
    assert (found[whole] >= 0).mean() >= least
    paired = np.unique(np.stack([found[found >= 0], truth[found >= 0]]), axis=1)
    assert len(paired[0]) == len(set(paired[0].tolist())) == len(set(paired[1].tolist()))


def test_ranks_that_are_not_in_the_run_leave_instances_partial(tmp_path):
    made = build(World(ranks=4, program=physics.ddp(), absent=(1, 3)))
    perturb.write_run(tmp_path, made.documents)
    instances = match_run(summarize(tmp_path)).instances
    assert instances.partial.all()
    assert set(np.diff(instances.first).tolist()) == {2}


def test_a_kernel_that_one_rank_lacks_leaves_the_others_unmatched_with_a_reason(tmp_path):
    made = build(World(ranks=2, program=physics.ddp(), steps=3))
    documents = [made.documents[0], perturb.drop_step(made.documents[1], sorted(perturb.steps(made.documents[1]))[1])]
    perturb.write_run(tmp_path, documents)
    matching = match_run(summarize(tmp_path))
    alone = np.flatnonzero(matching.instance < 0).tolist()
    lost = [row for row in alone if matching.table.step[row] >= 0]
    assert len(lost) == 6
    assert {matching.why[row] for row in lost} == {"rank 1 has no kernel for it"}


@pytest.mark.parametrize(("head", "tail"), [(0.3, 0.0), (0.0, 0.3), (0.3, 0.3)])
def test_a_reason_is_one_that_the_other_ranks_own_rows_bear_out(tmp_path, head, tail):
    made = build(World(ranks=2, program=physics.ddp(), steps=5, lead_us=0, hosts=("h", "h")))
    documents = [made.documents[0], perturb.cut_part(perturb.drop_step(made.documents[1], 6), head, tail)]
    perturb.write_run(tmp_path, documents)
    run = summarize(tmp_path)
    matching = match_run(run)
    first_ns, last_ns = run.measured[1].earliest_ns, run.measured[1].latest_ns
    told = {row: why for row, why in matching.why.items() if not matching.table.rank[row]}
    assert len(told) >= 6
    for row, why in told.items():
        assert ("begins later" in why) == (matching.table.start_ns[row] < first_ns)
        assert ("ends earlier" in why) == (matching.table.end_ns[row] > last_ns)
    for share, words in ((head, "begins later"), (tail, "ends earlier")):
        assert any(words in why for why in told.values()) is (share > 0)
    assert "rank 1 has no kernel for it" in told.values()


def all_to_all(split: tuple[int, ...] = ()) -> Call:
    return replace(called(Collective.ALL_TO_ALL, sum(split) or 4000, (0, 1)), split_in=split, split_out=split)


def test_an_uneven_all_to_all_is_no_even_one_and_no_other_uneven_one():
    even, small, large = all_to_all(), all_to_all((1000, 2000)), all_to_all((3000, 5000))
    for mine, theirs in ((even, small), (small, even), (small, large)):
        assert not len(match_run(meet("aaaa", "bbbb", calls={"a": mine, "b": theirs})).instances)
    sent, received = all_to_all((1000, 2000)), all_to_all((2000, 3000))
    assert len(match_run(meet("aaaa", "bbbb", calls={"a": sent, "b": received})).instances) == 1


def test_ranks_that_number_their_steps_differently_are_not_paired_by_them(tmp_path):
    documents, whole = whole_run(SAMPLES / "resnet18-ddp4")
    for shift in (1, -1):
        renumbered = [documents[0], with_steps(documents[1], shift), *documents[2:]]
        found = matched(tmp_path / str(shift), renumbered)
        assert not judge(found, whole, left(renumbered)).wrong


otherwise_numbered = st.builds(
    World,
    ranks=st.sampled_from([2, 4]),
    steps=st.integers(3, 5),
    program=st.sampled_from([physics.ddp((500_000,) * 4), physics.fsdp(4), physics.ddp(), physics.mesh(4, 2)]),
    seed=seeds,
    late_us=st.sampled_from([5.0, 150.0, 900.0]),
    noise_us=st.sampled_from([3.0, 20.0]),
    numbered_higher=st.sampled_from([(0, 1), (0, -1), (2, 0, 0, 0)]),
    windows=st.sampled_from([(), ((4, 5), (5, 6)), ((4, 6), (4, 5))]),
).filter(lambda world: world.ranks == 4 or world.program != physics.mesh(4, 2))


@given(world=otherwise_numbered, seed=seeds, lacks=st.booleans(), hosts=st.sampled_from([(), ("h0",) * 4]))
@settings(max_examples=cases(3) * EXAMPLES)
def test_a_rank_that_numbers_its_steps_differently_makes_no_wrong_pair(tmp_path_factory, world, seed, lacks, hosts):
    made = build(replace(world, hosts=hosts[: world.ranks]))
    documents, random = list(made.documents), Random(seed)
    # Ranks that share no step, where no host is known, may as well be right.
    if lacks and (hosts or not world.windows):
        place = random.randrange(world.ranks)
        documents[place] = perturb.drop_step(documents[place], random.choice([*perturb.steps(documents[place])]))
    found = matched(tmp_path_factory.mktemp("numbered"), documents)
    assert not judge(found, [each.members for each in made.truth], left(documents)).wrong


@pytest.mark.parametrize("higher", [1, -1])
@pytest.mark.parametrize("hosts", [("h0",) * 4, ()])
def test_a_rank_that_numbers_its_steps_differently_is_matched_by_ends_and_named(tmp_path, higher, hosts):
    numbered = World(program=physics.ddp(), lead_us=0, numbered_higher=(0, 0, 0, higher), hosts=hosts)
    made = build(numbered)
    perturb.write_run(tmp_path, made.documents)
    run = summarize(tmp_path)
    matching = match_run(run)
    assert set(sets(matching)) == {each.members for each in made.truth if each.complete}
    assert matching.renumbered_by == {3: higher}
    assert set(matching.instances.step.tolist()) == {4, 5, 6}
    said = [str(warning) for warning in exchange_warnings(exchange(run))]
    assert any(f"rank 3's steps have numbers 1 {'higher' if higher > 0 else 'lower'}" in each for each in said)


def test_ranks_of_one_host_pair_no_steps_that_ended_apart(tmp_path):
    """Each has the steps 4 and 5, as it counts; of rank 1 they are another's 5 and 6."""
    late = {"windows": ((4, 5), (5, 6)), "numbered_higher": (0, -1)}
    made = build(World(ranks=2, program=physics.ddp(), jitter=0.0, hosts=("h0", "h0"), **late))
    found = matched(tmp_path, made.documents)
    verdict = judge(found, [each.members for each in made.truth], left(made.documents))
    assert not verdict.wrong
    assert verdict.share > 0.7  # of broadcasts one step does not show whether one is missing


def test_hosts_whose_clocks_differ_are_matched_by_the_numbers_of_their_steps(tmp_path):
    hosts, offsets = ("h0", "h0", "h1", "h1"), (0, 0, 812_345_678, 812_345_678)
    made = build(World(program=physics.ddp(), lead_us=0, hosts=hosts, offsets_ns=offsets))
    assert set(matched(tmp_path, made.documents)) == {each.members for each in made.truth if each.complete}


def with_steps(document: Document, shift: int) -> Document:
    """A document whose steps have other numbers."""
    events = []
    for event in document["traceEvents"]:
        step = re.fullmatch(r"ProfilerStep#(\d+)", str(event.get("name")))
        events.append(event | {"name": f"ProfilerStep#{int(step[1]) + shift}"} if step else event)
    return document | {"traceEvents": events}


def test_kernels_that_all_ranks_lost_alike_do_not_shift_the_others():
    """Of twelve equal collectives one rank lost the sixth and the other the seventh, in every step."""
    ends = [step * 20_000_000 + place * 300_000 for step in range(4) for place in range(12)]
    steps = np.repeat(np.arange(4), 12)
    lost = [np.arange(48) % 12 != place for place in (5, 6)]
    a, b = (
        replace(kernels([end for end, has in zip(ends, kept, strict=True) if has], [0] * 44, 0), step=steps[kept])
        for kept in lost
    )
    a, b = (replace(each, complete=np.ones(44, dtype=bool), sure=np.ones(44, dtype=bool)) for each in (a, b))
    partner = match(a, b, np.ones((1, 1), dtype=bool), Offset(0, 2_000, 40))
    assert all(a.end_ns[i] == b.end_ns[j] for i, j in enumerate(partner.tolist()) if j >= 0)
    assert (partner >= 0).sum() == 40


def test_ranks_of_gloo_leave_milliseconds_apart_after_long_waits():
    ends = [step * 300_000_000 for step in range(1, 5)]
    a = replace(kernels(ends, [0] * 4, 0), step=np.arange(4), dur_ns=np.full(4, 80_000_000))
    late = [end + apart for end, apart in zip(ends, (0, 15_000_000, -4_000_000, 2_000_000), strict=True)]
    b = replace(a, end_ns=np.array(late), dur_ns=np.full(4, 20_000_000))
    a, b = (replace(each, complete=np.ones(4, dtype=bool), sure=np.ones(4, dtype=bool)) for each in (a, b))
    assert match(a, b, np.ones((1, 1), dtype=bool), Offset(0, 1_000_000, 4)).tolist() == [0, 1, 2, 3]


def test_numbers_that_began_anew_pair_nothing():
    """`Seq` runs 1, 2, 1, 2 on one member and 1, 2 on the other, which lacks one half: no end says which."""
    silent = {"synchronizes": np.zeros(4, dtype=bool)}
    a = replace(kernels([1, 2, 3, 4], [0] * 4, -1), sequence=np.array([1, 2, 1, 2]), **silent)
    half = kernels([1, 2], [0] * 2, -1)
    b = replace(half, sequence=np.array([1, 2]), synchronizes=np.zeros(2, dtype=bool))
    assert match(a, b, np.ones((1, 1), dtype=bool), None).tolist() == [-1] * 4
    once = replace(a, sequence=np.array([1, 2, 3, 4]))
    assert match(once, b, np.ones((1, 1), dtype=bool), None).tolist() == [0, 1, -1, -1]


def test_numbers_in_the_group_pair_what_ends_far_apart():
    """The second of three ends 3 ms later on b, which lost the first; no other row says that it is the second."""
    a = replace(kernels([1_000_000, 9_000_000, 17_000_000], [0] * 3, -1), sequence=np.array([7, 8, 9]))
    b = replace(kernels([12_000_000, 17_000_000], [0] * 2, -1), sequence=np.array([8, 9]))
    assert match(a, b, np.ones((1, 1), dtype=bool), Offset(0, 1_000, 3)).tolist() == [-1, 0, 1]
