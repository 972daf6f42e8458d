"""What tells operations apart: kind, size and dtype where calls say them, on gloo in any order; else kernel names."""

import json
from pathlib import Path

import pytest

from analyzers.collectives.matching import Matching, match_run
from analyzers.rank.summary import summarize
from tests.support import damage
from tests.support.damage import Event
from tests.support.members import together
from tests.support.pairs import judge, left
from tests.support.physics import Collective, Compute
from tests.support.synthetic_runs import World, build

LL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def span(name: str, start_us: int, end_us: int, thread: int, elements: int = 0) -> Event:
    """A row of the host; a tensor of so many floats, if any."""
    shapes = {"Input Dims": [[elements]], "Input type": ["float"]} if elements else {}
    category = "user_annotation" if name.startswith("ProfilerStep") else "cpu_op"
    row = {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": thread, "ts": start_us, "dur": end_us - start_us}
    return row | {"args": shapes}


def gloo_run(folder: Path, orders: list[str], hosts: bool) -> Matching:
    """Two ranks of gloo whose letters, a step each word, are all_reduces issued back to back, as threads run them.

    rank 0   thread 1  aaaaaaaa...      rank 1   thread 1  bbbbbbbb...
             thread 2  .bbbbbbbb..               thread 2  .aaaaaaaa..
    """
    sizes = {"a": 100, "b": 5000, "c": 70}
    for rank, order in enumerate(orders):
        events = []
        for step, letters in enumerate(order.split()):
            begun = 10_000 * step
            events.append(span(f"ProfilerStep#{step}", begun, begun + 9_990, 1))
            events.append(span("aten::mm", begun + 1, begun + 40, 1))
            for place, letter in enumerate(letters):
                start = begun + 50 + 300 * place + 7 * rank
                # Each ends with its like, whatever its place.
                end = begun + 1500 + 40 * sorted(letters).index(letter) + 5 * rank
                events.append(span("gloo:all_reduce", start, end, 70 + place, sizes[letter]))
        said = {"backend": "gloo", "rank": rank, "world_size": 2, **({"host_name": "h"} if hosts else {})}
        document = {"schemaVersion": 1, "distributedInfo": said, "baseTimeNanoseconds": 0, "traceEvents": events}
        folder.mkdir(exist_ok=True)
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return match_run(summarize(folder))


@pytest.mark.parametrize("hosts", [True, False])
@pytest.mark.parametrize(
    "orders",
    [["ab ab ab ab", "ab ba ab ab"], ["ab ab ab ab", "ba ba ba ba"], ["abc abc abc", "abc cab bca"], ["ab", "ba"]],
    ids=["one step", "all steps", "three at once", "a step alone"],
)
def test_what_gloos_threads_ran_in_another_order_pairs_by_size(tmp_path, orders, hosts):
    matching = gloo_run(tmp_path / "run", orders, hosts)
    assert len(matching.instances) == len(orders[0].replace(" ", ""))
    rows, instances = matching.instances.members, matching.instances
    for first, past in zip(instances.first[:-1].tolist(), instances.first[1:].tolist(), strict=True):
        members = rows[first:past]
        assert len({int(matching.table.elements[row]) for row in members}) == 1
        assert len({int(matching.table.step[row]) for row in members}) == 1


def test_of_one_size_the_kth_of_gloo_pairs_with_the_kth(tmp_path):
    matching = gloo_run(tmp_path / "run", ["aba aba aba", "baa aab baa"], True)
    assert len(matching.instances) == 9
    assert {int(matching.table.step[row]) for row in matching.instances.members} == {0, 1, 2}


@pytest.mark.parametrize("name", [LL.replace("LL", "SIMPLE"), LL.replace("AllReduce_Sum_f32", "Broadcast"), "ncclSymX"])
def test_sizes_tell_operations_apart_and_not_the_names_of_kernels(tmp_path, name):
    """Of each size rank 1 chose another algorithm, in one step."""
    program = tuple(
        op for size in (1 << 14, 1 << 16) for op in (Collective("all_reduce", size, waited=True), Compute(50))
    )
    made = build(World(ranks=2, program=program, lead_us=0, hosts=("h", "h")))
    kernels = [event for event in made.documents[1]["traceEvents"] if damage.is_nccl(event)]
    for kernel in kernels[:2]:
        kernel["name"] = name
    damage.write_run(tmp_path, made.documents)
    found = together(match_run(summarize(tmp_path)))
    verdict = judge(found, [one.members for one in made.truth], left(made.documents))
    assert not verdict.wrong
    assert verdict.share == 1
