"""Each piece of advice where there is reason for it, with its figure; none where there is not."""

from typing import Any

import msgspec
import numpy as np
import pytest

from analyzers.collectives.rows import WaitingRow
from analyzers.layers.bucket_table import BucketRow, BucketTimes
from analyzers.layers.layer_table import LayerComm, LayerRow
from analyzers.layers.line_columns import LineCommunication
from analyzers.layers.strategies.pipeline_summary import PipelineStage, PipelineSummary
from analyzers.rank.columns.activity import CPU_DEVICE
from analyzers.rank.idle.host_states import Cause
from analyzers.reporting.measures.idle_time import DeviceInput, IdleLine, Input, SynchronizingCall, WindowLaunches
from analyzers.reporting.measures.synchronization import IdleFrom, SyncCost
from analyzers.reporting.remedies.observations import HOST_CAUSES, Copies, DeviceIdle, Evidence
from analyzers.reporting.remedies.rules import advice
from analyzers.statistics import LEAST_SHARE, Spread
from analyzers.trace import Collective
from tests.support.drawn_steps import ddp_step, shifted
from tests.support.samples import REPORTED, reported
from tests.support.training import step, told

STEP = 1_000_000


def bucket(number: int, start: int, dur: int, exposed: int, **more) -> BucketRow:
    row = BucketRow(
        rank=0, device=0, step=0, backward_pass=0, bucket=number, collective=None, bytes=25_000_000, parameters=None,
        layers=[], ready_ns=start, launched_ns=start, start_ns=start, dur_ns=dur, wait_ns=0, transfer_ns=dur,
        bound=False,
        queued_ns=0, late_launch_ns=0, overlapped_ns=dur - exposed, exposed_ns=exposed, share_of_exposed=None,
        hidden_by=[],
    )  # fmt: skip
    return msgspec.structs.replace(row, **more)


def layer(name: str, *comm: LayerComm) -> LayerRow:
    exposed = sum(each.exposed_ns for each in comm)
    return LayerRow(0, 0, 0, name, name, 0, 0, 0, 0, None, None, [], list(comm), 0, exposed)


def comm(kind: str, exposed: int, *, wait: int = 0, prefetched: bool | None = None) -> LayerComm:
    return LayerComm(kind, "forward", 1, 8, exposed, wait, 0, exposed, prefetched)


def times(rows: list[BucketRow]) -> BucketTimes:
    """The rows as columns."""
    zeros = np.zeros(len(rows), dtype=np.int64)
    of = {"nbytes": "bytes"}
    names = ("rank", "device", "step", "bucket", "nbytes", "start_ns", "dur_ns", "wait_ns", "transfer_ns", "queued_ns")
    columns = {
        name: np.array([-1 if (value := getattr(row, of.get(name, name))) is None else value for row in rows], int)
        for name in (*names, "late_launch_ns", "exposed_ns")
    }
    bound = np.array([row.bound for row in rows], dtype=bool)
    return BucketTimes(row=zeros, instance=zeros, bound=bound, **columns)


def of_lines(rows: list[LayerRow]) -> LineCommunication:
    """The communication of the rows as columns, all in one window."""
    lines = tuple(dict.fromkeys(row.layer for row in rows))
    parts = [(lines.index(row.layer), each) for row in rows for each in row.comm]
    figures = np.array(
        [
            (
                *(0, line, Collective[each.kind.upper()], each.direction == "backward"),
                *(-1 if each.prefetched is None else each.prefetched, each.exposed_ns, each.wait_ns),
            )
            for line, each in parts
        ],
        dtype=np.int64,
    ).reshape(-1, 7)
    window, line, kind, backward, prefetched, exposed_ns, wait_ns = figures.T
    return LineCommunication(window, line, lines, kind, backward.astype(bool), prefetched, exposed_ns, wait_ns)


def replace(known: Evidence, **change: Any) -> Evidence:
    """Evidence with other figures; buckets and layers are given as rows."""
    if "buckets" in change:
        change["buckets"] = times(change["buckets"])
    if "layers" in change:
        change["of_lines"] = of_lines(change["layers"])
    return msgspec.structs.replace(known, **change)


def cost(**more) -> SyncCost:
    known = dict.fromkeys(SyncCost.__struct_fields__, 0)
    known |= {
        "control_interval_ns": None,
        "contention_is_estimate": True,
        "idle_from": IdleFrom.QUIET,
        "contention_ns": 0,
    }
    return SyncCost(**(known | more))


def waits_for_input(idle_ns: int, span_ns: int) -> Input:
    """The same in all full windows, which may be longer than the light ones."""
    idle, fetch, span = (Spread(4, *[float(ns)] * 5) for ns in (idle_ns, 2 * idle_ns, span_ns))
    return Input(idle, fetch, span, [DeviceInput(0, 0, idle, fetch, span)], "full")


FINE = replace(
    Evidence(step_ns=STEP, windows=1),
    buckets=[bucket(0, 100_000, 50_000, 0), bucket(1, 300_000, 9_000, 9_000)],
    layers=[layer("conv", comm("all_gather", 9_000, prefetched=False)), layer("(buffers)", comm("broadcast", 4_000))],
    waiting=[WaitingRow(0, 0, 0, 0, 9_000, {"launch": 9_000})],
    cost=cost(exposed_wait_ns=9_000, packing_ns=9_000, contention_ns=9_000),
    copies=Copies(100, 5_000, 60, 9_000),
    latency_ns=1_000,
    gradient_dtypes=frozenset({"Float"}),
    host={0: "here", 1: "there"},
)


def idle(rank: int = 0, **ns: int) -> DeviceIdle:
    by_cause = {Cause[name.upper()]: float(value) for name, value in ns.items()}
    return DeviceIdle(rank, rank, by_cause, sum(by_cause.get(cause, 0.0) for cause in HOST_CAUSES))


def pipeline(rest_ns: float = 0, **gains: float) -> PipelineSummary:
    """Two stages whose parts are known."""
    stages = [PipelineStage(stage, stage, 5_000, 9_000, rest_ns + 9_000, 9_000, 0, rest_ns) for stage in (0, 1)]
    known = {"even_stages_ns": 0, "more_microbatches_ns": 0, "interleaved_ns": 0} | gains
    return PipelineSummary([0, 1], 8, "1F1B", stages, 1, 4_000, 120_000, **known)


LAUNCHED = [WindowLaunches(0, 0, 0, 530, 520, 416, 5_000, 530 * 5_000, STEP, 0, 0)]
LATE = [bucket(0, 100_000, 50_000, 0, late_launch_ns=30_000), bucket(1, 300_000, 9_000, 0, late_launch_ns=10_000)]
# One behind the other on the links.
QUEUED = [
    bucket(0, 100_000, 200_000, 0),
    bucket(1, 300_500, 200_000, 60_000, queued_ns=150_000, overlapped_ns=140_000),
    bucket(2, 501_000, 20_000, 0, queued_ns=150_000),
]
WAITED = WaitingRow(0, 0, 0, 50_000, 0, {})
WAITED_FOR = WaitingRow(1, 0, 0, 0, 50_000, {"compute": 50_000})
TOLD = {
    "last bucket": (
        {"buckets": [bucket(0, 0, 90_000, 0), bucket(1, 300_000, 90_000, 80_000)]},
        ("the last bucket (bucket 1, 25.00 MB) smaller", 80_000),
    ),
    "last bucket that waits": (
        {"buckets": [bucket(1, 300_000, 90_000, 80_000, transfer_ns=20_000)]},
        ("the last bucket", 20_000),
    ),
    "queue": ({"buckets": QUEUED, "cost": cost(exposed_transfer_ns=70_000)}, ("send fewer bytes", 60_000)),
    "queue whose transfers overlap": (
        {"buckets": QUEUED, "cost": cost(exposed_transfer_ns=50_000)},
        ("send fewer bytes", 50_000),
    ),
    "host": ({"buckets": LATE}, ("launch less: a larger batch", 40_000)),
    "waiting for each other": (
        {
            "waiting": [WaitingRow(0, 0, 0, 50_000, 45_000, {"launch": 45_000}), WAITED_FOR],
            "cost": cost(exposed_wait_ns=30_000),
        },
        ("give all ranks equal work", 30_000),
    ),
    "waiting": (
        {"waiting": [WAITED, WAITED_FOR], "cost": cost(exposed_wait_ns=30_000)},
        ("give rank 1 as much work as the others, or find out what slows its device on host there", 50_000),
    ),
    "input": (
        {"waiting": [WAITED, WaitingRow(1, 0, 0, 0, 50_000, {"input": 50_000})], "cost": cost(exposed_wait_ns=30_000)},
        ("give rank 1 on host there more loader workers", 50_000),
    ),
    "buffers": (
        {"copies": Copies(100, 8_000), "layers": [layer("(buffers)", comm("broadcast", 9_000, wait=5_000))]},
        ("broadcast of buffers", 12_000),
    ),
    "packing": ({"cost": cost(packing_ns=20_000)}, ("fewer kernels", 20_000)),
    "copies out": ({"copies": Copies(0, 0, 60, 20_000)}, ("views of their buckets", 20_000)),
    "launch-bound": (
        {"idle": [idle(operator=60_000, python=9_000, launch_latency=20_000, kernel_gap=900)], "launches": LAUNCHED},
        ("a larger batch, torch.compile, CUDA graphs", 89_000),
    ),
    "a host that does something else": (
        {
            "idle": [idle(operator=60_000, python=900_000)],
            "launches": [msgspec.structs.replace(LAUNCHED[0], launches=3)],
        },
        ("find out what the CPU does instead of launching", 960_000),
    ),
    "a host that is the device": (
        {"idle": [DeviceIdle(0, CPU_DEVICE, {Cause.PYTHON: 900_000.0}, 900_000.0)]},
        ("find out what the CPU does while no operator runs", 900_000),
    ),
    "a pipeline": (
        {
            "waiting": [WaitingRow(0, 0, 0, 50_000, 45_000, {"launch": 45_000}), WAITED_FOR],
            "cost": cost(exposed_wait_ns=30_000),
            "waits_by_kind": {"send_recv": 90_000, "all_reduce": 5_000},
        },
        ("more microbatches", 30_000),
    ),
    "a pipeline of too few microbatches": (
        {"pipelines": [pipeline(more_microbatches_ns=30_000)]},
        ("16 microbatches instead of 8", 30_000),
    ),
    "a pipeline of large stages": ({"pipelines": [pipeline(interleaved_ns=30_000)]}, ("cut stages in two", 30_000)),
    "a pipeline of unequal stages": (
        {"pipelines": [pipeline(even_stages_ns=30_000)]},
        ("move layers away from stage 1 (on rank 1)", 30_000),
    ),
    "a pipeline whose hosts are late": (
        {"pipelines": [pipeline(rest_ns=30_000)]},
        ("launch each stage's work", 30_000),
    ),
    "pauses between kernels": ({"idle": [idle(kernel_gap=40_000)]}, ("fewer and larger kernels", 40_000)),
    "synchronizing calls": (
        {
            "idle": [idle(synchronize=30_000), idle(1, synchronize=40_000)],
            "synchronizing": [SynchronizingCall(0, "aten::item", "cudaStreamSynchronize", 3, 50_000)],
        },
        ("no .item()", 30_000),
    ),
    "data parallel launches late": (
        {"is_data_parallel": True, "buckets": [], "idle": [idle(python=800_000), idle(1, python=800_000)]},
        ("DistributedDataParallel", 813_000),
    ),
    "no prefetch": (
        {"layers": [layer("a", comm("all_gather", 40_000, wait=10_000, prefetched=False))]},
        ("prefetch parameters", 30_000),
    ),
    "data parallel": (
        {"is_data_parallel": True, "buckets": [], "layers": [layer("(parameters)", comm("broadcast", 70_000))]},
        ("DistributedDataParallel", 70_000),
    ),
    "contention": ({"cost": cost(contention_ns=25_000)}, ("fewer SMs", 25_000)),
    "waiting for input": ({"input": waits_for_input(15_000, 2 * STEP // 3)}, ("num_workers", 15_000)),
}


def test_nothing_is_advised_where_everything_is_fine():
    assert advice(FINE) == []


@pytest.mark.parametrize(("change", "expected"), TOLD.values(), ids=TOLD)
def test_each_rule_has_its_figure(change, expected):
    found, *others = advice(replace(FINE, **change))
    assert [each.code for each in others] == (["host_busy"] if found.code == "data_parallel" and others else [])
    words, figure = expected
    assert words in found.text
    assert found.figure_ns == figure
    assert found.because


NOT_TOLD = {
    "last bucket hidden by half": {"buckets": [bucket(0, 0, 9_000, 0), bucket(1, 0, 90_000, 40_000)]},
    "last bucket unknown": {"buckets": [bucket(1, 0, 90_000, 80_000, bucket=None)]},
    "queue behind waiting": {
        "buckets": [msgspec.structs.replace(row, transfer_ns=1_000) for row in QUEUED],
    },
    "prefetched": {"layers": [layer("a", comm("all_gather", 40_000, prefetched=True))]},
    "one rank alone that launches late": {"idle": [idle(python=900_000), idle(1, python=2_000)]},
    "a bucket that is all latency": {
        "buckets": [bucket(0, 0, 90_000, 0), bucket(1, 300_000, 90_000, 80_000)],
        "latency_ns": 50_000,
    },
    "unresolved buckets": {"buckets": [bucket(0, 0, 90_000, 0), bucket(1, 300_000, 90_000, 80_000, transfer_ns=None)]},
    "buckets of which ranks are missing": {
        "buckets": [bucket(0, 0, 90_000, 0), bucket(1, 300_000, 90_000, 80_000, bound=True)]
    },
    "unresolved broadcasts": {"layers": [layer("(buffers)", comm("broadcast", 90_000))], "complete": False},
    "buffers that only wait": {"layers": [layer("(buffers)", comm("broadcast", 90_000, wait=90_000))]},
    "no buffers": {"layers": [], "copies": Copies(100, 50_000)},
    "no cost known": {"cost": None},
    "faster beside communication": {"cost": cost(contention_ns=-50_000)},
    "contention unknown": {"cost": cost(contention_ns=None)},
    "no reductions": {"buckets": [], "copies": Copies(0, 0, 60, 50_000), "cost": cost(packing_ns=50_000)},
    "a little of a longer full window": {"input": waits_for_input(15_000, 2 * STEP)},
    "a loader that keeps up": {"input": waits_for_input(0, STEP)},
    "a pipeline whose bubble is divided, and short": {
        "waiting": [WaitingRow(0, 0, 0, 50_000, 45_000, {"launch": 45_000}), WAITED_FOR],
        "cost": cost(exposed_wait_ns=30_000),
        "waits_by_kind": {"send_recv": 90_000, "all_reduce": 5_000},
        "pipelines": [pipeline()],
    },
    "a pipeline of which ranks are missing": {
        "pipelines": [msgspec.structs.replace(pipeline(90_000), span_ns=None, slowest=None)]
    },
    "no windows": {"windows": 0},
    "empty windows": {"step_ns": 0, "buckets": QUEUED},
}


def test_only_passes_with_exposed_gathers_are_named():
    hidden = msgspec.structs.replace(comm("all_gather", 0, prefetched=False), direction="backward")
    (found,) = advice(replace(FINE, layers=[layer("a", comm("all_gather", 40_000, prefetched=False), hidden)]))
    assert "all-gathers of 1 module are launched in the module's own turn (forward)" in found.because


@pytest.mark.parametrize("change", NOT_TOLD.values(), ids=NOT_TOLD)
def test_no_rule_speaks_without_reason(change):
    assert advice(replace(FINE, **change)) == []


def test_what_brings_most_comes_first():
    more = {
        "copies": Copies(0, 0, 60, 20_000),
        "cost": cost(contention_ns=90_000, packing_ns=40_000),
    }
    found = advice(replace(FINE, **more))
    assert [each.figure_ns for each in found] == [90_000, 40_000, 20_000]


def test_only_what_is_of_the_full_window_bears_its_caution():
    change = {"input": waits_for_input(30_000, STEP), "copies": Copies(0, 0, 60, 20_000)}
    found = advice(replace(FINE, **change, input_caution="; full"))
    assert [each.because.endswith("; full") for each in found] == [True, False]


def test_a_figure_beyond_what_synchronization_costs_at_all_says_so():
    change = {"cost": cost(contention_ns=90_000, packing_ns=40_000, control_ns=50_000)}
    said = ["synchronization costs" in each.because for each in advice(replace(FINE, **change))]
    assert said == [True, False]
    change["cost"] = msgspec.structs.replace(change["cost"], control_interval_ns=[-20_000, 80_000])
    said = ["synchronization costs at most 80 us" in each.because for each in advice(replace(FINE, **change))]
    assert said == [True, False]


def test_totals_are_a_step():
    (found,) = advice(replace(FINE, buckets=LATE, windows=2))
    assert found.figure_ns == 20_000


@pytest.mark.parametrize("path", REPORTED)
def test_advice_of_recorded_runs_rests_on_figures_worth_it(path):
    found = reported(path)
    step_ns = found.summary.windows["span_ns"].median
    figures = [each.figure_ns for each in found.summary.advice]
    assert figures == sorted(figures, reverse=True)
    assert all(figure >= LEAST_SHARE * step_ns for figure in figures)
    assert len({each.text for each in found.summary.advice}) == len(figures)


def test_gradients_of_16_bits_are_not_compressed_to_as_many():
    found = {
        dtype: advice(replace(FINE, buckets=QUEUED, cost=cost(exposed_transfer_ns=70_000), gradient_dtypes={dtype}))
        for dtype in ("Float", "BFloat16", "Half")
    }
    assert {dtype: "bf16_compress_hook" in each[0].text for dtype, each in found.items()} == {
        "Float": True, "BFloat16": False, "Half": False,
    }  # fmt: skip


def test_launches_are_counted():
    change = {"idle": [idle(operator=60_000)], "launches": LAUNCHED}
    (found,) = advice(replace(FINE, **change))
    assert "(530 launches per step; 80 % of operations run for less time than their launch takes)" in found.problem
    assert found.because.startswith(f"{found.problem}; the CPU is ")
    on_cpu = [DeviceIdle(0, CPU_DEVICE, {Cause.PYTHON: 900_000.0}, 900_000.0)]
    (found,) = advice(replace(FINE, idle=on_cpu))
    assert (
        found.problem == "the CPU is idle at least 90 % of the step: no operator runs, and the main thread is in Python"
    )


def test_a_busy_host_is_named_by_a_place_never_by_the_rest_of_them():
    lines = [
        IdleLine(0, "operator", "forward", name, None, ns, 1)
        for name, ns in (("(others)", 90_000), ("aten::cat", 20_000), ("aten::add", 10_000))
    ]
    (found,) = advice(replace(FINE, idle=[idle(operator=120_000)], idle_lines=lines))
    assert found.text == "find out what the CPU does instead of launching: it is mostly in aten::cat (in the forward)"


def test_a_late_ranks_slow_device_or_its_python_is_named():
    late = WaitingRow(1, 0, 0, 0, 50_000, {"launch": 50_000})
    change = {"waiting": [WAITED, late], "cost": cost(exposed_wait_ns=30_000), "idle": [idle(), idle(1, python=45_000)]}
    (found,) = advice(replace(FINE, **change))
    assert found.text.startswith("find out what delays rank 1's CPU on host there")
    assert found.problem == "rank 1's CPU launches late: the other rank spends 5.0 % of its step waiting for it"
    assert "; 50 us per step, and 100.0 % of all waiting" in found.because
    assert "its CPU is in Python, outside PyTorch's operators, for 45 us per step" in found.because
    (found,) = advice(replace(FINE, **change, slowed={1: "its GPU runs at 1,200 MHz"}))
    assert "and its GPU runs at 1,200 MHz" in found.because


def hosts(*busy_ns: int, blocked_ns: int = 0) -> list[WindowLaunches]:
    """A step of 100 launches of 1 us on each rank's host, busy for so long; all but the last stand in a full queue."""
    rows = []
    for rank, ns in enumerate(busy_ns):
        extra = blocked_ns * (rank < len(busy_ns) - 1)
        waits = 7_000 * rank  # in calls that wait for the device, which is nobody's own time
        rows.append(WindowLaunches(rank, rank, 0, 100, 100, 50, 1_000, 100_000 + extra, ns + extra + waits, 1, waits))
    return rows


AWAITED = {
    "waiting": [WAITED, WaitingRow(1, 0, 0, 0, 500_000, {"launch": 500_000})],
    "cost": cost(exposed_wait_ns=250_000),
    "idle": [idle(), idle(1, operator=600_000)],
    "world_size": 2,
}


def test_a_late_rank_brings_no_more_than_the_other_cpus_allow():
    # Rank 0 waits 500 us for rank 1, whose CPU is busy 450 us longer: 50 us rank 0 would wait for its own.
    (found,) = advice(replace(FINE, **AWAITED, launches=hosts(500_000, 950_000)))
    assert (found.code, found.figure_ns) == ("straggler", 450_000)
    assert found.problem == (
        "rank 1's CPU launches late: the other rank spends 50 % of its step waiting for it, and would wait for its own "
        "CPU for 5.0 % if it were not late"
    )
    # Held up by a full queue it looks as busy, and is not.
    (same,) = advice(replace(FINE, **AWAITED, launches=hosts(500_000, 950_000, blocked_ns=400_000)))
    assert same.figure_ns == 450_000


def test_where_all_cpus_are_as_slow_no_rank_is_the_problem():
    (found, *others) = advice(replace(FINE, **AWAITED, launches=hosts(900_000, 950_000)))
    assert (found.code, found.figure_ns) == ("launch_bound", 450_000)
    assert found.problem == (
        "for at least 45 % of the step GPUs are idle, or wait for rank 1, whose CPU is hardly slower than the other's: "
        "the CPU launches too slowly (100 launches per step; 50 % of operations run for less time than their launch "
        "takes)"
    )
    assert [(each.code, each.figure_ns) for each in others] == [("straggler", 50_000)]


def test_a_late_rank_of_which_no_host_is_known_brings_what_is_waited():
    unknown = [msgspec.structs.replace(row, host_ns=None) for row in hosts(900_000, 950_000)]
    (found,) = advice(replace(FINE, **AWAITED, launches=unknown))
    assert (found.code, found.figure_ns) == ("straggler", 500_000)


@pytest.mark.parametrize(("contention_ns", "more_ns"), [(200_000, 200_000), (-200_000, 0), (None, 0)])
def test_kernels_that_wait_for_a_slow_rank_take_sms_from_the_others(contention_ns, more_ns):
    slow = {
        **AWAITED,
        "waiting": [WAITED, WaitingRow(1, 0, 0, 0, 500_000, {"compute": 500_000})],
        "cost": cost(exposed_wait_ns=250_000, contention_ns=contention_ns),
    }
    found = next(each for each in advice(replace(FINE, **slow)) if each.code == "straggler")
    assert found.figure_ns == 500_000 + more_ns
    assert ("make compute beside them slower" in found.because) == bool(more_ns)


def test_no_advice_contradicts_another():
    """Where the links are the limit, so that another size will not help, no smaller bucket is advised."""
    last = [*QUEUED[:2], bucket(2, 501_000, 20_000, 19_000, queued_ns=150_000)]
    (found,) = advice(replace(FINE, buckets=last, cost=cost(exposed_transfer_ns=80_000)))
    assert ("send fewer bytes" in found.text, found.figure_ns) == (True, 79_000)


def test_a_drawn_step_is_advised_as_a_whole(tmp_path):
    """Its last bucket is launched 30 us late, when all is over: by a host that keeps its device waiting altogether."""
    rows = [row | {"ts": row["ts"] + 30} if row["ts"] >= 110 and row["ts"] < 140 else row for row in ddp_step()]
    rows = [*rows, *(shifted(row, 200, 1_000_000) for row in rows if "Step#" not in row["name"]), step(1, 200, 200)]
    found = told(tmp_path, rows, rows).summary.advice
    # From 12 to 212 us runs what takes 54: the second step is the last, and does not count.
    assert [(" ".join(each.text.split()[:4]), each.figure_ns) for each in found] == [
        ("give the CPU less", 146_000),
        ("copy gradients into buckets", 2_000),
    ]
