"""Equal collectives in a row, which order alone tells apart: found where none can be missing, never paired wrongly."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.collectives.alignment.pairing import match
from analyzers.collectives.alignment.sequences import Kernels, Offset
from analyzers.collectives.matching import match_run
from analyzers.rank.summary import summarize
from tests.support import damage
from tests.support.damage import Document
from tests.support.members import together
from tests.support.pairs import Verdict, judge, left
from tests.support.physics import Collective, Compute
from tests.support.synthetic_runs import Made, World, build
from tests.support.tiers import cases

EQUAL = 10  # collectives in a row


def known_skew(late_us: int, elements: int, **settings: object) -> World:
    """A world in which rank 1 comes so much late to each of ten equal collectives, its host far ahead."""
    program = (Compute(20), Collective("all_reduce", elements, waited=True)) * EQUAL
    return World(ranks=2, program=program, skew_us=(0, late_us), late_us=5.0, lead_us=20_000, **settings)


def verdict_of(folder, made: Made, documents: list[Document], manifest: dict[str, object] | None = None) -> Verdict:
    damage.write_run(folder, documents)
    if manifest:
        (folder / "run.json").write_text(json.dumps({"schema": "tracer.run/1", **manifest}))
    found = [frozenset(members) for members in together(match_run(summarize(folder)))]
    launched = {each for one in made.truth if one.step >= made.world.first_step for each in one.members}
    return judge(found, [one.members for one in made.truth], launched & left(documents))


@pytest.mark.parametrize("late_us", [0, 50, 250, 1000])
@pytest.mark.parametrize(("elements", "noise_us"), [(1, 5), (1 << 14, 30), (1 << 22, 90)])
def test_every_instance_of_a_known_skew_is_found(tmp_path, late_us, elements, noise_us):
    made = build(known_skew(late_us, elements, noise_us=noise_us, link_gbps=25.0, steps=3))
    verdict = verdict_of(tmp_path, made, made.documents)
    assert not verdict.wrong
    assert verdict.share == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_a_recording_opens_all_windows_at_one_step_so_that_one_step_is_enough(tmp_path, steps):
    made = build(known_skew(0, 1 << 14, noise_us=90, steps=steps))
    manifest = {"profiler": {"active": steps}, "hosts": ["h"]}
    verdict = verdict_of(tmp_path, made, made.documents, manifest)
    assert not verdict.wrong
    assert verdict.share == 1


def lost(document: Document, places: list[int]) -> Document:
    """A document without the kernels at these places."""
    kernels = sorted(filter(damage.is_nccl, document["traceEvents"]), key=damage.start_ns)
    gone = {id(kernels[place]) for place in places}
    return damage.keep(document, lambda event: id(event) not in gone)


def some(document: Document, random: Random) -> Document:
    """A document that lost one to three kernels at its head, at its tail or anywhere."""
    size, count = len(damage.members(document)), random.randint(1, 3)
    where = random.choice([range(count), range(size - count, size), random.sample(range(size), count)])
    return lost(document, list(where))


def one_loses(documents: list[Document], random: Random) -> list[Document]:
    return [some(documents[0], random), *documents[1:]]


def all_lose(documents: list[Document], random: Random) -> list[Document]:
    return [some(document, random) for document in documents]


def a_step_is_lost(documents: list[Document], random: Random) -> list[Document]:
    return [damage.drop_step(documents[0], random.choice([*damage.steps(documents[0])])), *documents[1:]]


def clocks_shift(documents: list[Document], random: Random) -> list[Document]:
    return [damage.shift_clock(document, random.randint(-(10**9), 10**9)) for document in documents]


DAMAGES: list[Callable[[list[Document], Random], list[Document]]] = [
    one_loses,
    all_lose,
    a_step_is_lost,
    clocks_shift,
    lambda documents, random: clocks_shift(one_loses(documents, random), random),
    lambda documents, random: clocks_shift(all_lose(documents, random), random),
    lambda documents, random: a_step_is_lost(clocks_shift(documents, random), random),
]
worlds = st.builds(
    known_skew,
    late_us=st.sampled_from([0, 50, 250, 1000]),
    elements=st.sampled_from([1, 1 << 14, 1 << 18, 1 << 20]),
    steps=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    noise_us=st.sampled_from([3, 30, 90]),
    link_gbps=st.sampled_from([25.0, 300.0]),
    heads_us=st.sampled_from([(), (0, 500), (2000, 2000)]),
    numbered_higher=st.sampled_from([(), (), (0, 1), (2, 0)]),
    metadata=st.sampled_from([True, True, False]),
    hosts=st.sampled_from([(), ("h", "h")]),
)


@given(world=worlds, damaged=st.sampled_from(DAMAGES), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=cases(40))
def test_no_pair_of_equal_collectives_is_wrong(tmp_path_factory, world, damaged, seed):
    if damaged in DAMAGES[3:]:
        world = replace(world, hosts=())  # of one host the clock is one
    made = build(world)
    if not world.metadata and damaged is a_step_is_lost:
        damaged = one_loses  # nothing marks its steps
    documents = damaged(list(made.documents), Random(seed)) if damage.steps(made.documents[0]) else made.documents
    assert not verdict_of(tmp_path_factory.mktemp("equal"), made, documents).wrong


def test_kernels_lost_in_some_steps_leave_the_others_and_their_own_neighbours_matched(tmp_path):
    """Of ten equal collectives one rank lacks the fourth in the second step: what lies behind it keeps its partners."""
    made = build(known_skew(0, 1 << 14, noise_us=30, steps=5))
    head = len(damage.members(made.documents[0])) - 5 * EQUAL
    documents = [lost(made.documents[0], [head + EQUAL + 3]), made.documents[1]]
    verdict = verdict_of(tmp_path, made, documents)
    assert not verdict.wrong
    assert verdict.share >= 40 / 49


def rows(ends: list[int], steps: list[int], **facts: object) -> Kernels:
    size = len(ends)
    kernels = Kernels(
        end_ns=np.array(ends),
        dur_ns=np.full(size, 40_000),
        step=np.array(steps),
        sequence=np.full(size, -1),
        signature=np.zeros(size, dtype=np.int64),
        synchronizes=np.ones(size, dtype=bool),
        complete=np.ones(size, dtype=bool),
        sure=np.ones(size, dtype=bool),
    )
    return replace(kernels, **facts)


def test_as_many_between_matched_neighbours_pair_where_one_member_lacks_none():
    """The third of four in each step ends 30 us apart, too far for ends alone; a lost the first of the last step."""
    ends = [step * 2_000_000 + place * 50_000 for step in range(4) for place in range(4)]
    steps = np.repeat(np.arange(4), 4)
    b = rows([end + by for end, by in zip(ends, [0, 0, 30_000, 0] * 4, strict=True)], steps.tolist())
    kept = np.arange(16) != 12
    a = rows(np.array(ends)[kept].tolist(), steps[kept].tolist(), complete=steps[kept] < 3)
    one = np.ones((1, 1), dtype=bool)
    assert match(a, b, one, Offset(0, 1_000, 16)).tolist() == [*range(12), 13, 14, 15]
    # Where b may lack one as well, the third may be any.
    b = replace(b, complete=steps < 3)
    assert match(a, b, one, Offset(0, 1_000, 16)).tolist() == [*range(12), 13, -1, 15]


DENSE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def dense(random: Random) -> World:
    """A world whose steps hold three to sixteen equal collectives between two gates, each step another kind."""
    alike, gate = random.choice([3, 8, 16]), Collective("all_reduce", 1, "Long", waited=True)
    elements, late_us = random.choice([1, 1 << 14, 1 << 18, 1 << 20]), random.choice([0, 50, 250, 1000])
    programs = tuple(
        (gate, *(op for _ in range(alike) for op in (Compute(10), Collective(kind, elements, waited=True))), gate)
        for kind in random.sample(DENSE, 4)
    )
    return World(
        ranks=random.choice([2, 2, 4]),
        steps=4,
        program=(gate,),
        programs=programs,
        skew_us=(0, late_us),
        late_us=5.0,
        lead_us=20_000,
        noise_us=random.choice([3, 30, 90]),
    )


BOTH_LOST = "both ranks lost as many of a broadcast's kernels, each another: order alone tells nothing"
LAUNCHED = "both lost one kernel of a step within its last millisecond, whose launches are recorded"


@pytest.mark.parametrize(
    ("seed", "with_calls"),
    [
        pytest.param(34, True, id=BOTH_LOST),
        pytest.param(34, False, id=f"{BOTH_LOST}, launched"),
        pytest.param(403, False, id=LAUNCHED),
        pytest.param(1899, False, id=f"{LAUNCHED}, late rank"),
    ],
)
def test_members_that_lost_kernels_pair_no_equal_counts_of_what_one_step_holds(tmp_path, seed, with_calls):
    random = Random(seed)
    made = build(replace(dense(random), seed=seed))
    documents = [
        damage.drop_kernels(each, random.uniform(0, 0.05), random, with_calls=with_calls) for each in made.documents
    ]
    assert not verdict_of(tmp_path, made, documents).wrong


@pytest.mark.parametrize(
    ("steps", "late_us", "elements", "seed"),
    [(4, 50, 1 << 14, 46), (4, 50, 1 << 14, 59), (5, 0, 1 << 18, 15), (5, 0, 1 << 18, 58), (5, 0, 1 << 18, 64)],
)
def test_one_clock_whose_ends_are_as_noisy_as_the_next_is_far_pairs_no_neighbours(
    tmp_path, steps, late_us, elements, seed
):
    """Nothing is lost and nothing numbers steps: clocks apart by one collective explain as much as none."""
    noisy = {"noise_us": 90, "link_gbps": 25.0, "metadata": False, "hosts": ("h", "h")}
    made = build(known_skew(late_us, elements, steps=steps, seed=seed, **noisy))
    assert not verdict_of(tmp_path, made, made.documents).wrong


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("damaged", [clocks_shift, DAMAGES[4]])
def test_steps_that_ends_deny_pair_nothing_though_a_head_makes_up_for_a_step(tmp_path, seed, damaged):
    """Of three steps rank 1 numbers each one higher: its head, a step long, pairs with what its last step lacks."""
    numbered = {"heads_us": (0, 500), "numbered_higher": (0, 1)}
    made = build(known_skew(0, 1 << 14, steps=3, seed=seed, noise_us=3, link_gbps=300.0, **numbered))
    assert not verdict_of(tmp_path, made, damaged(list(made.documents), Random(seed))).wrong
