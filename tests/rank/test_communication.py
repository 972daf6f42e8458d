"""Which call each kernel belongs to, what it is for, and what the device and the host did before it."""

from typing import Any

import numpy as np
import pytest

import analyzers
from analyzers.collectives.matching import NO_GROUP
from analyzers.rank.columns.activity import activities
from analyzers.rank.columns.attribution import attribution
from analyzers.rank.columns.communication import Communication, communication
from analyzers.rank.strategies import Purpose
from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.trace.collective_calls import Collective
from tests.support.drawing import draw
from tests.support.kineto_files import Event, write
from tests.support.samples import SAMPLES, reported
from tests.support.tiers import quarters

KERNEL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
WORLD = {"Group size": 2, "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}


def said(name: str, elements_in: int, elements_out: int | None = None, **more: Any) -> dict[str, Any]:
    """What PyTorch says of a collective."""
    out = elements_in if elements_out is None else elements_out
    return {"Collective name": name, "In msg nelems": elements_in, "Out msg nelems": out} | WORLD | more


def host(name: str, ts: float, dur: float, category: str = "cpu_op", tid: int = 9, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def operator(ts: float, dur: float, external: int, *, tid: int = 9, **metadata: Any) -> Event:
    return host("record_param_comms", ts, dur, tid=tid, **{"External id": external}, **metadata)


def kernel(
    ts: float, dur: float, correlation: int, launched: float, name: str = "AllReduce_Sum_f32_RING_LL", **more: Any
) -> list[Event]:
    """A kernel, and the call that launched it at this instant."""
    place = {"device": 0, "stream": 7, "correlation": correlation}
    launch = host("cudaLaunchKernelExC", launched, 1, "cuda_runtime", more.pop("tid", 9), correlation=correlation)
    tail = {"pid": more.get("device", 0), "tid": 7, "ts": ts, "dur": dur, "args": place | more}
    return [launch, {"ph": "X", "cat": "kernel", "name": KERNEL.format(name), **tail}]


STEP = host("ProfilerStep#3", 0.0, 1000.0, "user_annotation")


def document(events: list[Event], rank: int = 0, world_size: int = 2, **distributed: Any) -> dict[str, Any]:
    known = {"backend": "nccl", "rank": rank, "world_size": world_size} | distributed
    base = 1_700_000_000_000_000_000
    return {"schemaVersion": 1, "distributedInfo": known, "baseTimeNanoseconds": base, "traceEvents": [STEP, *events]}


@pytest.fixture
def found(tmp_path):
    """The communication that one rank's events tell of."""

    def read(*events: Event, **more: Any) -> Communication:
        trace = analyzers.load(write(tmp_path / "rank0.json", document(list(events), **more))).ranks[0]
        return communication(trace, activities(trace), attribution(trace))

    return read


@pytest.fixture
def told(tmp_path):
    """The report of ranks that have these events each."""

    def read(*ranks: list[Event], world_size: int | None = None, **more: Any) -> Report:
        for rank, events in enumerate(ranks):
            write(tmp_path / "run" / f"rank{rank}.json", document(events, rank, world_size or len(ranks), **more))
        return report(summarize(tmp_path / "run"))

    return read


def call(of: Communication, row: int = 0):
    return of.calls[of.call[row]] if of.call[row] >= 0 else None


# Where a call is found.


def test_a_kernel_tells_of_its_own_call(found):
    of = found(*kernel(10, 5, 1, 8, **said("allreduce", 500)))
    assert (call(of).kind, call(of).nbytes, call(of).group.ranks) == (Collective.ALL_REDUCE, 2000, (0, 1))
    assert (of.step.tolist(), of.start_ns.tolist(), of.dur_ns.tolist()) == ([3], [1_700_000_000_000_010_000], [5000])


def test_an_operator_with_the_kernels_external_id_tells_of_it(found):
    of = found(
        operator(2, 1, 41, **said("allreduce", 100)),
        operator(4, 1, 42, **said("broadcast", 900)),
        *kernel(10, 5, 1, 8, "Broadcast_RING_LL", **{"External id": 42}),
    )
    assert (of.kind.tolist(), call(of).elements) == ([Collective.BROADCAST], 900)


def test_the_operator_around_the_launch_tells_of_it(found):
    of = found(operator(2, 4, 41, **said("allreduce", 100)), *kernel(10, 5, 1, 5, **{"External id": 99}))
    assert call(of).elements == 100


def test_an_operator_that_has_ended_or_runs_elsewhere_tells_of_no_kernel(found):
    for tid, launched in ((9, 6.5), (10, 5)):
        of = found(operator(2, 4, 41, **said("allreduce", 100)), *kernel(10, 5, 1, launched, tid=tid))
        assert call(of) is None
        assert of.kind.tolist() == [Collective.ALL_REDUCE]  # its name still says that much


def test_the_metadata_of_a_kernel_comes_before_its_operators(found):
    of = found(operator(2, 4, 41, **said("allreduce", 100)), *kernel(10, 5, 1, 5, **said("allreduce", 200)))
    assert call(of).elements == 200


def test_waiting_for_work_is_no_operation(found):
    of = found(
        operator(2, 4, 41, **said("wait", 0)),
        operator(20, 9, 42, **said("allreduce", 100)),
        operator(21, 7, 43, **said("wait", 0)),
        *kernel(10, 5, 1, 5, "SendRecv"),
        *kernel(30, 5, 2, 23),
    )
    assert call(of) is None
    assert call(of, 1).elements == 100


def test_an_all_reduce_of_nothing_is_a_barrier(found):
    of = found(*kernel(10, 5, 1, 8, **said("allreduce", 0)), *kernel(20, 5, 2, 18, **said("barrier", 0)))
    assert of.kind.tolist() == [Collective.BARRIER] * 2


# Several operations in one kernel.


def batch(ts: float) -> Event:
    return host("nccl:coalesced", ts, 5, "user_annotation")


def test_coalesced_operations_add_up(found):
    of = found(
        operator(2, 1, 41, **said("_allgather_base", 100, 200)),
        operator(4, 1, 42, **said("_allgather_base", 300, 600)),
        batch(6),
        *kernel(10, 5, 1, 8, "AllGather_RING_LL"),
    )
    assert (call(of).kind, call(of).elements_in, call(of).elements) == (Collective.ALL_GATHER, 400, 800)


def test_each_batch_has_the_operations_since_the_one_before(found):
    of = found(
        operator(2, 1, 41, **said("_allgather_base", 100, 200)),
        batch(6),
        *kernel(10, 5, 1, 8, "AllGather_RING_LL"),
        operator(12, 1, 42, **said("_allgather_base", 300, 600)),
        batch(16),
        *kernel(20, 5, 2, 18, "AllGather_RING_LL"),
    )
    assert [call(of, row).elements for row in (0, 1)] == [200, 600]


def test_what_has_a_kernel_of_its_own_is_in_no_batch(found):
    of = found(
        operator(1, 2, 40, **said("_allgather_base", 1000, 2000)),
        *kernel(5, 1, 1, 2, "AllGather_RING_LL", **{"External id": 40}, **said("_allgather_base", 1000, 2000)),
        operator(4, 1, 41, **said("_allgather_base", 100, 200)),
        batch(6),
        *kernel(10, 5, 2, 8, "AllGather_RING_LL"),
    )
    assert [call(of, row).elements for row in (0, 1)] == [2000, 200]


def test_a_batch_of_different_operations_has_no_size(found):
    of = found(
        operator(2, 1, 41, **said("allreduce", 100)),
        operator(4, 1, 42, **said("_allgather_base", 300, 600)),
        batch(6),
        *kernel(10, 5, 1, 8),
    )
    assert call(of) is None


def messages(rank: int) -> list[Event]:
    """What `batch_isend_irecv` leaves on one of two ranks: a send, a recv, one kernel."""
    other = 1 - rank
    return [
        operator(2, 1, 41, **said("send", 500, **{"Dst Rank": other})),
        operator(4, 1, 42, **said("recv", 500, **{"Src Rank": other})),
        batch(6),
        *kernel(10 + rank, 9 - rank, 1, 8, "SendRecv"),
    ]


def test_a_batch_of_messages_goes_both_ways(found):
    of = found(*messages(0))
    assert (call(of).kind, call(of).sent_to, call(of).received_from) == (Collective.SEND_RECV, (1,), (1,))


def test_batches_of_messages_are_matched_and_have_the_size_of_a_message(told):
    both = [*kernel(2, 3, 90, 1, **said("allreduce", 7))]
    rows = told([*both, *messages(0)], [*both, *messages(1)]).collectives
    assert [(row.kind, row.group, row.bytes) for row in rows] == [
        ("all_reduce", [0, 1], 28),
        ("send_recv", [0, 1], 2000),
    ]
    assert rows[1].transfer_ns == 8000
    assert [member.wait_ns for member in rows[1].members] == [1000, 0]


def test_a_kernel_without_metadata_takes_it_from_the_other_members(told):
    silent, speaking = kernel(10, 5, 1, 8), kernel(11, 4, 1, 8, **said("allreduce", 500))
    anchors = [*kernel(20, 5, 2, 18, **said("allreduce", 900))]
    (first, _) = told([*silent, *anchors], [*speaking, *anchors]).collectives
    assert (first.bytes, first.dtype, first.transfer_ns) == (2000, "Float", 4000)


# Odd metadata.


ODD = {
    "numbers as text": {"In msg nelems": "500", "Out msg nelems": "500", "Group size": "2"},
    "ranks as a list": {"Process Group Ranks": [0, 1]},
    "ranks without brackets": {"Process Group Ranks": "0, 1"},
    "a name that is a number": {"Process Group Name": 0},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_another_spelling_says_the_same(told, odd):
    events = [*kernel(10, 5, 1, 8, **said("allreduce", 500) | odd)]
    (row,) = told(events, events).collectives
    assert (row.kind, row.bytes, row.group) == ("all_reduce", 2000, [0, 1])


BROKEN = {
    "elements": {"In msg nelems": None, "Out msg nelems": "many"},
    "elements below nothing": {"In msg nelems": -5, "Out msg nelems": -5},
    "elements as fractions": {"In msg nelems": 0.5, "Out msg nelems": 0.5},
    "dtype": {"dtype": 7},
    "no dtype": {"dtype": None},
    "a rank twice": {"Process Group Ranks": "[0, 0]"},
    "ranks that are none": {"Process Group Ranks": "[zero, one]"},
    "more ranks than can be": {"Process Group Ranks": "[" + ", ".join(["7"] * 50_000) + "]", "Group size": 50_000},
    "others' ranks": {"Process Group Ranks": "[5, 6]"},
    "no group": {"Process Group Ranks": "", "Process Group Name": "", "Group size": 0},
    "an empty name": {"Collective name": ""},
    "an unknown name": {"Collective name": "quantum_entangle"},
    "a name that is none": {"Collective name": 5},
    "splits": {"Collective name": "all_to_allv", "In split size": "[x]", "Out split size": 5},
    "nested splits": {"Collective name": "all_to_allv", "In split size": [[1], [2]], "Out split size": {"a": 1}},
    "peers": {"Collective name": "send", "Dst Rank": 99},
    "a peer that is none": {"Collective name": "send", "Dst Rank": "you"},
    "a sequence": {"Seq": "first"},
    "a huge sequence": {"Seq": 2**70},
}


@pytest.mark.parametrize("broken", quarters([*BROKEN.values()]), ids=BROKEN)
def test_metadata_of_any_form_loses_no_kernel(told, broken):
    events = [*kernel(10, 5, 1, 8, **said("allreduce", 500) | broken), *kernel(20, 5, 2, 18, **said("allreduce", 9))]
    of = told(events, events)
    assert sum(len(row.members) for row in of.collectives) + len(of.unmatched) == 4
    assert 36 in [row.bytes for row in of.collectives]
    for window in of.windows:
        parts = window.exposed_wait_ns + window.exposed_transfer_ns + window.exposed_unresolved_ns
        assert parts == window.exposed_comm_ns == 10_000


UNHASHABLE = {
    "elements in a list": {"In msg nelems": [1, 2]},
    "dtype in a list": {"dtype": ["Float"]},
    "a name in an object": {"Process Group Name": {"a": 1}},
    "peers in a list": {"Collective name": "send", "Dst Rank": [1]},
}
OVERFLOWING = {
    "more elements than memory": {"In msg nelems": 2**61, "Out msg nelems": 2**61, "dtype": "Long"},
    "more splits than memory": {
        "Collective name": "all_to_allv",
        "In split size": f"[{10**17}, {10**17}]",
        "Out split size": f"[{10**18 - 1}, {10**18 - 1}]",
        "dtype": "ComplexDouble",
    },
}


@pytest.mark.parametrize("broken", UNHASHABLE.values(), ids=UNHASHABLE)
def test_metadata_that_is_a_list_loses_no_kernel(told, broken):
    test_metadata_of_any_form_loses_no_kernel(told, broken)


@pytest.mark.parametrize("broken", OVERFLOWING.values(), ids=OVERFLOWING)
def test_sizes_that_cannot_be_lose_no_kernel(told, broken):
    test_metadata_of_any_form_loses_no_kernel(told, broken)


def test_shortened_lists_of_ranks_are_taken_from_the_header(told):
    group = {"Process Group Name": "7", "Process Group Ranks": "[0, 2, ..., 126, ...]", "Group size": 64}
    listed = [{"pg_name": "7", "pg_size": 64, "ranks": list(range(0, 128, 2))}]
    events = [*kernel(10, 5, 1, 8, **said("allreduce", 500, **group))]
    (row,) = told(events, world_size=128, pg_config=listed).collectives
    assert (row.group, row.group_size, row.partial) == (list(range(0, 128, 2)), 64, True)


def test_a_group_that_the_header_names_needs_no_size(told):
    group = {"Process Group Name": "7", "Process Group Ranks": "[0, 2, ..., 126, ...]", "Group size": None}
    listed = [{"pg_name": "7", "pg_size": 64, "ranks": list(range(0, 128, 2))}]
    events = [*kernel(10, 5, 1, 8, **said("allreduce", 500, **group))]
    of = told(events, world_size=128, pg_config=listed)
    assert [row.group_size for row in of.collectives] == [64]


ODD_GROUPS = {
    "no list": 5,
    "entries that are none": [5, None, "x"],
    "ranks as text": [{"pg_name": "7", "pg_size": 2, "ranks": "[0, 1]"}],
    "no ranks": [{"pg_name": "7"}],
    "a size that is none": [{"pg_name": "7", "pg_size": "two", "ranks": [0, 1]}],
    "below nothing": [{"pg_name": "7", "pg_size": -2, "ranks": [-1, -2]}],
    "beyond all": [{"pg_name": "7", "pg_size": 2**70, "ranks": [0, 2**70]}],
    "too many": [{"pg_name": "7", "pg_size": 2, "ranks": [0, 1, 2]}],
}


@pytest.mark.parametrize("listed", ODD_GROUPS.values(), ids=ODD_GROUPS)
def test_any_list_of_groups_in_the_header_loses_no_kernel(told, listed):
    group = {"Process Group Name": "7", "Process Group Ranks": "[0, ...]", "Group size": 2}
    events = [*kernel(10, 5, 1, 8, **said("allreduce", 500, **group)), *kernel(20, 5, 2, 18)]
    of = told(events, events, pg_config=listed)
    assert sum(len(row.members) for row in of.collectives) + len(of.unmatched) == 4


def test_a_shortened_list_of_everyone_is_everyone(told):
    group = {"Process Group Ranks": "[0, ..., 29, ...]", "Group size": 128}
    (row,) = told([*kernel(10, 5, 1, 8, **said("allreduce", 500, **group))], world_size=128).collectives
    assert (row.group, row.bytes) == (list(range(128)), 2000)


def test_a_shortened_list_that_nothing_completes_leaves_the_kernel_unmatched(told):
    group = {"Process Group Name": "7", "Process Group Ranks": "[0, ..., 29, ...]", "Group size": 64}
    of = told([*kernel(10, 5, 1, 8, **said("allreduce", 500, **group))], world_size=128)
    assert of.collectives == []
    assert "which ranks" in of.unmatched[0].why


SPLITS = {
    "unsaid": {},
    "shortened": {"In split size": "[1, 2, ..., 9, ...]", "Out split size": "[1, 2, ..., 9, ...]"},
}


@pytest.mark.parametrize("splits", SPLITS.values(), ids=SPLITS)
def test_uneven_all_to_alls_are_matched_without_their_splits(told, splits):
    anchor = kernel(20, 5, 2, 18, **said("allreduce", 9))
    ranks = [
        [*kernel(10, 5, 1, 8, "SendRecv", **said("all_to_allv", *elements, **splits)), *anchor]
        for elements in ((100, 200), (400, 300))
    ]
    of = told(*ranks)
    assert [(row.kind, row.bytes) for row in of.collectives] == [("all_to_all", None), ("all_reduce", 36)]


# Kernels without metadata, as before PyTorch 2.2.

TAKER = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def ranged(name: str, *shapes: list[int], dtype: str = "float", ts: float = 4) -> Event:
    """NCCL's range around a launch a microsecond later, with the tensors that a rank puts in."""
    of = {"Input Dims": list(shapes), "Input type": [dtype] * len(shapes)}
    return host(f"nccl:{name}", ts, 3, "user_annotation", **of)


def asked(name: str, *shapes: Any, ts: float = 3) -> Event:
    """The process group's call around it; what is no tensor has no shape."""
    return host(f"c10d::{name}", ts, 5, **{"Input Dims": [*shapes, []], "Input type": ["float"] * len(shapes) + [""]})


def bare(events: list[Event], name: str) -> list[Event]:
    return [*events, *kernel(10, 5, 1, 5, name)]


def test_the_range_around_the_launch_says_the_size(told):
    rows = [asked("allreduce_", []), ranged("all_reduce", [250_000])]
    of = told(*[bare(rows, "AllReduce_RING_LL")] * 2)
    assert [(row.kind, row.bytes, row.dtype) for row in of.collectives] == [("all_reduce", 1_000_000, "Float")]


def test_the_operator_says_the_kind_that_the_name_leaves_open(told):
    around = host(TAKER, 1, 20)
    rows = [around, asked("allreduce_", []), ranged("all_reduce", [250_000])]
    of = told(*[bare(rows, "SendRecv_RING_SIMPLE_Sum_int8_t")] * 2)
    found = [(row.kind, row.bytes, row.purpose, row.group) for row in of.collectives]
    assert found == [("all_reduce", 1_000_000, "gradients", [0, 1])]
    assert of.traffic["gradients"] == 1_000_000


@pytest.mark.parametrize(
    ("name", "kernels", "kind"),
    [
        ("gather", "SendRecv", Collective.GATHER),
        ("send 0->1", "SendRecv", Collective.SEND_RECV),
        ("broadcast", "SendRecv", Collective.BROADCAST),
        ("_broadcast_oop", "Broadcast_RING_LL", Collective.BROADCAST),
        ("coalesced", "SendRecv", Collective.SEND_RECV),
    ],
)
def test_kinds_by_the_range_where_the_name_leaves_them_open(found, name, kernels, kind):
    assert found(*bare([ranged(name, [100])], kernels)).kind.tolist() == [kind]


def test_a_name_that_says_the_kind_is_what_ran(found):
    of = found(*bare([asked("broadcast_", []), ranged("broadcast", [100])], "AllReduce_RING_LL"))
    assert (of.kind.tolist(), call(of)) == ([Collective.ALL_REDUCE], None)


def test_an_all_gather_by_broadcasts_is_broadcasts(found):
    of = found(*bare([asked("allgather_", [], []), ranged("_broadcast_oop", [100])], "Broadcast_RING_LL"))
    assert (call(of).kind, call(of).nbytes) == (Collective.BROADCAST, 400)


def test_an_all_reduce_for_a_barrier_is_a_barrier(found):
    of = found(*bare([asked("barrier", [1]), ranged("all_reduce", [1], dtype="unsigned char")], "AllReduce_RING_LL"))
    assert of.kind.tolist() == [Collective.BARRIER]


# Operator, its shapes, the range and its shapes, and the bytes: of one rank alone, and among two.
SAID_BY_OPERATORS = {
    "all-gather": (("_allgather_base_", [200], [100]), ("_all_gather_base", [100]), 800, 800),
    "its range alone": (None, ("_all_gather_base", [100]), None, 800),
    "all-gather of a list": (("allgather_", [], []), ("all_gather", [100]), None, 800),
    "reduce-scatter": (("_reduce_scatter_base_", [100], [200]), ("_reduce_scatter_base", [200]), 800, 800),
    "reduce-scatter of a list": (("reduce_scatter_", [], []), ("reduce_scatter", [200]), 800, 800),
    "all-to-all": (("alltoall_base_", [200], [200]), ("all_to_all", [200]), 800, 800),
    "uneven all-to-all": (("alltoall_base_", [100], [200]), ("all_to_all", [200]), None, None),
    # Of a list the range has the first tensor alone.
    "all-to-all of a list": (("alltoall_", [], []), ("all_to_all", [200]), None, None),
    "and with shapes": (("alltoall_", [[50], [150]], [[100], [100]]), ("all_to_all", [50]), 800, 800),
    "perhaps of a list": (None, ("all_to_all", [200]), None, None),
    "several tensors": (None, ("allreduce_coalesced", [100], [10, 10]), 800, 800),
    "a scalar": (None, ("all_reduce", []), 4, 4),
}


@pytest.mark.parametrize("name", SAID_BY_OPERATORS)
def test_bytes_by_operators_are_what_counts_of_each_kind(told, name):
    operator, within, _, among = SAID_BY_OPERATORS[name]
    rows = bare([*([asked(*operator)] if operator else []), ranged(*within)], "SendRecv")
    assert [row.bytes for row in told(rows, rows).collectives] == [among]


@pytest.mark.parametrize("name", SAID_BY_OPERATORS)
def test_bytes_by_operators_of_a_rank_whose_group_is_not_known(told, name):
    operator, within, alone, _ = SAID_BY_OPERATORS[name]
    rows = bare([*([asked(*operator)] if operator else []), ranged(*within)], "SendRecv")
    groups = [{"pg_name": str(one), "pg_size": 2, "ranks": [0, 1]} for one in (0, 1)]
    of = told(rows, rows, pg_config=groups)
    assert (of.collectives, of.traffic["other"]) == ([], alone)


def test_kernels_that_share_an_operator_have_no_size(found):
    of = found(ranged("all_reduce", [100]), *kernel(10, 5, 1, 5, "SendRecv"), *kernel(20, 5, 2, 6, "SendRecv"))
    assert of.kind.tolist() == [Collective.ALL_REDUCE] * 2
    assert call(of).nbytes == call(of, 1).nbytes == -1


def test_an_all_gather_among_fewer_than_all_denies_that_all_are_one_group(told):
    of_all = [asked("allreduce_", []), ranged("all_reduce", [100]), *kernel(10, 5, 1, 5)]
    of_half = [asked("_allgather_base_", [200], [100], ts=23), ranged("_all_gather_base", [100], ts=24)]
    one = [*of_all, *of_half, *kernel(30, 5, 2, 25, "AllGather_RING_LL")]
    assert len(told(one, one).collectives) == 2
    of = told(one, one, one, one)
    assert (of.collectives, {row.why for row in of.unmatched}) == ([], {NO_GROUP})


def test_shapes_of_operators_are_read_only_where_no_metadata_tell(tmp_path):
    rows = [asked("allreduce_", []), ranged("all_reduce", [100])]
    for metadata, shaped in (({}, 2), (said("allreduce", 100), 0)):
        events = [*rows, *kernel(10, 5, 1, 5, **metadata)]
        trace = analyzers.load(write(tmp_path / "rank0.json", document(events))).ranks[0]
        assert (trace.events.inputs >= 0).sum() == shaped


def test_a_buckets_shape_is_no_gradients(told, tmp_path):
    taken = host("torch::autograd::AccumulateGrad", 2, 1, **{"Input Dims": [[30, 2]], "Input type": ["float"]})
    node = host(TAKER, 1, 20, **{"Sequence number": 5, "Fwd thread id": 0})
    rows = [node, taken, asked("allreduce_", []), ranged("all_reduce", [100])]
    told(bare(rows, "AllReduce_RING_LL"))
    assert summarize(tmp_path / "run").measured[0].gradients.shapes == ((30, 2),)


# No step.


def behind_the_step(*sizes: int) -> list[Event]:
    """All-reduces that are launched when the profiler's only step is over: the device has one window, step 0."""
    at = [2000 + 300 * place + place * place for place in range(len(sizes))]
    calls = [said("allreduce", size) for size in sizes]
    return [row for number, ts in enumerate(at) for row in kernel(ts, 50, number + 1, ts - 9, **calls[number])]


def test_without_steps_all_communication_is_in_the_one_window(told):
    of = told(*[behind_the_step(100, 200, 300, 400)] * 2)
    assert [(row.bytes, row.step) for row in of.collectives] == [(400, 0), (800, 0), (1200, 0), (1600, 0)]
    assert {row.step for row in of.windows} == {row.step for row in of.waiting} == {0}
    assert of.traffic["other"] == 4000
    assert [entry.bytes for row in of.layers for entry in row.comm] == [4000, 4000]


def test_without_steps_what_is_unmatched_is_in_the_one_window(told):
    of = told(behind_the_step(100, 200, 300, 400, 500), behind_the_step(100, 200, 300, 400))
    assert [(row.rank, row.step) for row in of.unmatched] == [(0, 0)]
    assert of.traffic["other"] == (4000 + 6000) / 2


def test_the_step_of_the_one_window_is_no_number_to_match_by(told, tmp_path):
    """A rank whose every launch is behind its step has the same kernels as one whose steps are numbered."""
    rows = behind_the_step(100, 200, 300, 400)
    numbered = [host(f"ProfilerStep#{k}", 1900 + 600 * k, 600, "user_annotation") for k in (0, 1)]
    of = told([*numbered, *rows], rows)
    assert [(row.bytes, row.step) for row in of.collectives] == [(400, 0), (800, 0), (1200, 1), (1600, 1)]
    assert summarize(tmp_path / "run").measured[1].communication.step.tolist() == [-1] * 4


# gloo.


def gloo(rank: int, name: str, shape: list[Any]) -> list[Event]:
    shapes = {"Input Dims": shape, "Input type": ["float"] * len(shape)}
    return [
        host("aten::mm", 1, 4),
        host(f"c10d::{name}_", 6, 2, **{"External id": 5}),
        host(f"gloo:{name}", 10 + rank, 20 - rank, tid=77, **shapes),
        host("aten::add", 31, 5),
    ]


def test_gloos_spans_have_the_size_of_their_tensors(told):
    (row,) = told(gloo(0, "all_reduce", [[100, 5]]), gloo(1, "all_reduce", [[100, 5]]), backend="gloo").collectives
    assert (row.kind, row.group, row.bytes, row.transfer_ns) == ("all_reduce", [0, 1], 2000, 19_000)
    assert [(member.device, member.wait_ns) for member in row.members] == [("cpu", 1000), ("cpu", 0)]


def test_gloos_all_gather_counts_what_is_gathered(told):
    (row,) = told(gloo(0, "all_gather", [[100]]), gloo(1, "all_gather", [[100]]), backend="gloo").collectives
    assert (row.kind, row.bytes) == ("all_gather", 800)


def scattered(rank: int, ts: float) -> list[Event]:
    """A scatter of gloo's: the root's span alone has tensors, one for each rank."""
    said = {"Input Dims": [[100], [100]], "Input type": ["float", "float"]} if rank == 0 else {}
    return [host("gloo:scatter", ts + rank, 20 - rank, tid=77, **said)]


def test_gloos_scatters_are_matched_though_the_root_alone_tells_of_tensors(told):
    ranks = [[*gloo(rank, "all_reduce", [[50]]), *scattered(rank, 40)] for rank in (0, 1)]
    of = told(*ranks, backend="gloo")
    assert [(row.kind, row.bytes, len(row.members)) for row in of.collectives] == [
        ("all_reduce", 200, 2),
        ("scatter", 800, 2),
    ]
    assert of.unmatched == []


def test_gloos_messages_have_a_size(told):
    shaped = {"Input Dims": [[100]], "Input type": ["float"]}
    ranks = [[host(f"gloo:{name}", 10, 5, tid=77, **shaped)] for name in ("send", "recv")]
    of = told(*ranks, backend="gloo")
    assert ([row.kind for row in of.unmatched], of.traffic["other"]) == (["send_recv"] * 2, 400)


def test_gloos_threads_may_begin_in_another_order_than_they_were_asked(found):
    """Two all-reduces queued one after the other; the second one's thread is quicker."""
    shaped = {"Input type": ["float"]}
    of = found(
        host("c10d::allreduce_", 6, 2, **{"Input Dims": [[[100]], [], []]}, **shaped),
        host("c10d::allreduce_", 9, 2, **{"Input Dims": [[[70]], [], []]}, **shaped),
        host("gloo:all_reduce", 12, 20, tid=77, **{"Input Dims": [[70]]}, **shaped),
        host("gloo:all_reduce", 13, 20, tid=78, **{"Input Dims": [[100]]}, **shaped),
        backend="gloo",
    )
    assert [call(of, row).elements for row in (0, 1)] == [70, 100]
    assert (of.launched_ns - 1_700_000_000_000_000_000).tolist() == [9000, 6000]


# Purposes.


def purposes(of: Communication) -> list[str]:
    return [Purpose(each).label for each in of.purpose.tolist()]


AROUND = {
    ("broadcast", "DistributedDataParallel.forward", "cpu_op"): "buffers",
    ("allreduce", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "cpu_op"): "gradients",
    ("_allgather_base", "FSDP::all_gather", "user_annotation"): "parameters",
    ("_reduce_scatter_base", "FSDP::post_backward_reduce", "user_annotation"): "gradients",
    ("allreduce", "aten::mm", "cpu_op"): "other",
    ("broadcast", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "cpu_op"): "other",
}


@pytest.mark.parametrize(("name", "around", "category"), AROUND, ids=[f"{a} {b}"[:50] for a, b, _ in AROUND])
def test_a_purpose_follows_from_what_is_around_the_launch(found, name, around, category):
    of = found(host(around, 5, 10, category), *kernel(20, 5, 1, 8, **said(name, 100)))
    assert purposes(of) == [AROUND[name, around, category]]


def test_a_range_on_another_thread_or_before_the_launch_says_nothing(found):
    ranged = host("DistributedDataParallel.forward", 5, 2)
    assert purposes(found(ranged, *kernel(20, 5, 1, 8, **said("broadcast", 100)))) == ["other"]
    ranged = host("DistributedDataParallel.forward", 5, 10, tid=10)
    assert purposes(found(ranged, *kernel(20, 5, 1, 8, **said("broadcast", 100)))) == ["other"]


def test_nested_ranges_do_not_hide_one_another(found):
    ranges = [host("DistributedDataParallel.forward", 5, 30), host("DistributedDataParallel.forward", 6, 1)]
    assert purposes(found(*ranges, *kernel(20, 5, 1, 12, **said("broadcast", 100)))) == ["buffers"]


# What came before.


def of_picture(**picture: str) -> Communication:
    trace = draw(**picture)
    return communication(trace, activities(trace), attribution(trace))


def test_exposed_time_is_what_no_compute_covers():
    of = of_picture(compute="..cc..d.", comm="aaaa..bb")
    assert of.exposed_ns.tolist() == [2, 1]


def test_computed_is_the_end_of_the_last_compute_before():
    of = of_picture(compute="..cc....dd..", comm="a.....b..eee")
    # Nothing before the first; the start of the third while d runs.
    assert of.computed_ns.tolist() == [-1, 4, 9]


def test_busy_is_all_that_was_computed_before():
    of = of_picture(compute="..cc....dd..", compute2="...c........", comm="a.....b..eee")
    assert of.busy_ns.tolist() == [0, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_what_came_before_equals_brute_force(seed):
    random = np.random.default_rng(seed)
    compute, second, comm = ("".join(random.choice(list("....ab"), 60)) for _ in range(3))
    of = of_picture(compute=compute, compute2=second, comm=comm)
    busy = [a != "." or b != "." for a, b in zip(compute, second, strict=True)]
    for start, length, exposed, computed, before in zip(
        of.start_ns.tolist(),
        of.dur_ns.tolist(),
        of.exposed_ns.tolist(),
        of.computed_ns.tolist(),
        of.busy_ns.tolist(),
        strict=True,
    ):
        assert exposed == sum(not each for each in busy[start : start + length])
        assert before == sum(busy[:start])
        assert computed == max((at + 1 for at in range(start) if busy[at]), default=-1)


# nn.DataParallel.


def peer_copy(compute_on_target: list[Event]) -> list[Event]:
    at = {"device": 0, "stream": 7, "correlation": 1, "fromDevice": 0, "inDevice": 0, "toDevice": 1, "bytes": 4000}
    copied = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0, "tid": 7, "ts": 10}
    return [
        host("cudaMemcpyAsync", 8, 1, "cuda_runtime", correlation=1),
        copied | {"dur": 4, "args": at},
        *compute_on_target,
    ]


def test_a_copy_between_devices_is_a_message_of_both(told):
    of = told(peer_copy([]), world_size=1)
    (row,) = of.collectives
    assert (row.kind, row.group, row.group_size, row.bytes, row.transfer_ns) == ("send_recv", [0], 2, 4000, 4000)
    assert [(member.rank, member.device) for member in row.members] == [(0, 0), (0, 1)]
    assert row.busbw_gbps == 1
    assert sorted(window.device for window in of.windows) == [0, 1]


def test_each_end_of_a_copy_is_exposed_on_its_own_device(told):
    gemm = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 1, "tid": 7, "ts": 11, "dur": 3}
    gemm["args"] = {"device": 1, "stream": 7, "correlation": 2}
    of = told(peer_copy([host("cudaLaunchKernel", 9, 1, "cuda_runtime", correlation=2), gemm]), world_size=1)
    assert [member.exposed_ns for member in of.collectives[0].members] == [4000, 1000]


def test_data_parallel_broadcasts_all_parameters_in_each_step():
    of = reported(SAMPLES / "resnet18-dp4")
    steps = {window.step for window in of.windows}
    for step in steps:
        rows = [row for row in of.collectives if row.step == step]
        broadcast = [row.bytes for row in rows if row.kind == "broadcast" and row.purpose == "parameters"]
        reduced = [row.bytes for row in rows if row.kind == "reduce"]
        # 11,173,962 parameters and 4,800 * 2 statistics: resnet18 with 10 classes has 11,181,642 floats.
        assert sum(broadcast) == sum(reduced) == 44_726_568 == 11_181_642 * 4
        assert all(row.group_size == 4 and len(row.members) == 4 for row in rows if row.kind != "send_recv")
        inputs = [row.bytes for row in rows if row.purpose == "inputs"]
        assert inputs == [128 * 3 * 32 * 32 * 4] * 3  # of four devices' parts one is there already
