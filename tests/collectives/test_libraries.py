"""Kernels of other libraries than NCCL: their kind, their group, their size."""

from typing import Any

import pytest

import analyzers
from analyzers.collectives.matching import Matching, match_run
from analyzers.notices import Code
from analyzers.rank.summary import summarize
from analyzers.trace.collective_calls import kind_of_kernel, library_kernel
from analyzers.trace.libraries import Collective, ranks_in_name
from tests.support import damage
from tests.support.damage import Document, Event
from tests.support.members import together
from tests.support.pairs import judge, left
from tests.support.physics import Collective as Operation
from tests.support.physics import Compute, rows
from tests.support.synthetic_runs import Made, World, build

DISPATCH = "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*)"
MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)"
CROSS = "void vllm::cross_device_reduce_2stage<__nv_bfloat16, {}>(vllm::RankData*)"


@pytest.mark.parametrize(
    ("name", "kind", "bare", "ranks"),
    [
        (DISPATCH, Collective.DISPATCH, "deep_ep::internode_ll::dispatch", 0),
        ("void dpsk::ep::intranode::combine<__nv_bfloat16, 8, 768>(int*)", Collective.COMBINE, None, 8),
        ("void deep_ep::intranode::notify_dispatch<4>(int const*)", Collective.DISPATCH, None, 4),
        ("void deep_ep::internode::cached_notify<false, 2>(int)", Collective.BARRIER, None, 0),
        (MULTIMEM, Collective.ALL_REDUCE, "multimem_all_reduce_kernel", 0),
        (CROSS.format(8), Collective.ALL_REDUCE, "vllm::cross_device_reduce_2stage", 8),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Collective.ALL_REDUCE, "", 0),
        ("gloo:all_reduce", Collective.ALL_REDUCE, "", 0),
    ],
)
def test_a_name_tells_kind_library_and_sometimes_ranks(name, kind, bare, ranks):
    assert kind_of_kernel(name) == kind
    assert bare is None or library_kernel(name) == bare
    assert ranks_in_name(name) == ranks


def renamed(document: Document, name: str, groups: list[tuple[int, ...]]) -> Document:
    """A document whose collectives another library runs, beside process groups of these ranks."""
    known = [{"pg_name": str(place), "pg_size": len(ranks), "ranks": ranks} for place, ranks in enumerate(groups)]

    def changed(event: Event) -> Event:
        if not damage.is_nccl(event):
            return event
        args = {key: value for key, value in event["args"].items() if key not in damage.SAID_OF_COLLECTIVES}
        return event | {"name": name, "args": args}

    events = [changed(event) for event in document["traceEvents"] if event["name"] != "record_param_comms"]
    return document | {"traceEvents": events, "distributedInfo": document["distributedInfo"] | {"pg_config": known}}


def run_of(folder, name: str, groups: list[tuple[int, ...]], teams: tuple[Any, ...] = ()) -> tuple[Made, Matching]:
    program = (Compute(200), Operation("all_reduce", 1 << 16, name="{}", teams=teams, waited=True)) * 3
    made = build(World(ranks=4, program=program, lead_us=0))
    documents = [renamed(document, name, groups) for document in made.documents]
    damage.write_run(folder, documents)
    return made, match_run(summarize(folder))


@pytest.mark.parametrize("name", [DISPATCH, MULTIMEM, CROSS.format(4)])
def test_groups_of_the_same_ranks_leave_no_doubt(tmp_path, name):
    made, matching = run_of(tmp_path, name, [(0, 1, 2, 3), (0, 1, 2, 3)])
    verdict = judge(together(matching), [one.members for one in made.truth], left(made.documents))
    assert not verdict.wrong
    assert verdict.share == 1
    assert {key.ranks for key in matching.table.groups} == {(0, 1, 2, 3)}


def test_the_number_of_ranks_in_a_name_chooses_among_groups(tmp_path):
    teams = rows(4, 2)
    made, matching = run_of(tmp_path, CROSS.format(2), [(0, 1, 2, 3), *teams], teams)
    verdict = judge(together(matching), [one.members for one in made.truth], left(made.documents))
    assert not verdict.wrong
    assert verdict.share == 1


@pytest.mark.parametrize("name", [DISPATCH, CROSS.format(3)])
def test_where_several_groups_fit_or_none_does_nothing_is_matched(tmp_path, name):
    _, matching = run_of(tmp_path, name, [(0, 1, 2, 3), *rows(4, 2)])
    assert not len(matching.instances)
    assert set(matching.why.values()) == {"the trace does not say between which ranks"}


@pytest.mark.parametrize(("name", "is_known"), [(DISPATCH, False), (MULTIMEM, True)])
def test_kernels_that_may_only_post_leave_open_how_much_is_hidden(tmp_path, name, is_known):
    run_of(tmp_path, name, [(0, 1, 2, 3)])
    report = analyzers.report(analyzers.load(tmp_path))
    said = [notice.text for notice in report.run.warnings if notice.code == Code.TRANSFER_NOT_SHOWN]
    assert len(said) == (0 if is_known else 1)
    assert all(text.startswith("36 of 36 communication kernels (deep_ep::internode_ll::dispatch)") for text in said)
    assert ("how much of communication is hidden behind compute is not known" in report.summary.verdict) != is_known
    assert all(window.overlap is not None for window in report.windows)


def around(kernel: Event, name: str, document: Document) -> Event:
    """An operator around the launch of a kernel, with the shapes that vLLM's has."""
    call = next(
        event
        for event in document["traceEvents"]
        if event.get("cat") == "cuda_driver" and damage.correlation(event) == damage.correlation(kernel)
    )
    span = {"ts": call["ts"] - 1, "dur": call["dur"] + 2, "pid": call["pid"], "tid": call["tid"]}
    args = {"Input Dims": [[888, 2880], []], "Input type": ["c10::BFloat16", ""]}
    return {"ph": "X", "cat": "cpu_op", "name": name, "args": args, **span}


@pytest.mark.parametrize(
    ("operator", "elements"), [("vllm::all_reduce", 888 * 2880), ("symm_mem::all_gather", None), ("aten::add", None)]
)
def test_the_operator_of_the_same_kind_tells_the_size(tmp_path, operator, elements):
    document = build(World(ranks=1, program=(Compute(50), Operation("all_reduce"), Compute(50)), lead_us=0)).documents[
        0
    ]
    document = renamed(document, MULTIMEM, [(0, 1)])
    kernels = [event for event in document["traceEvents"] if event["name"] == MULTIMEM]
    operators = [around(kernel, operator, document) for kernel in kernels]
    damage.write_run(tmp_path, [document | {"traceEvents": [*document["traceEvents"], *operators]}])
    (summary,) = summarize(tmp_path).measured
    said = summary.communication.calls
    assert [(call.elements, call.dtype) for call in said] == ([(elements, "BFloat16")] if elements else [])
