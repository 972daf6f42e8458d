"""Whose work each kernel is, and DDP's reductions with their gradients, on steps drawn row by row."""

import pytest

from analyzers.reporting.document import Report
from tests.support.drawn_steps import ddp_step, fsdp_step, names_of
from tests.support.kineto_files import Event
from tests.support.training import (
    ENGINE,
    MAIN,
    all_reduce,
    backward,
    forward,
    host,
    kernel,
    ranged,
    step,
    told,
)


def lines(found: Report, rank: int = 0) -> dict[str, tuple[float, float]]:
    """Forward and backward of each line of the first window that computed, in us."""
    rows = [row for row in found.layers if row.rank == rank and row.step == found.layers[0].step]
    return {
        row.layer: (row.forward_ns / 1000, row.backward_ns / 1000) for row in rows if row.forward_ns + row.backward_ns
    }


def test_operators_with_parameters_stand_for_layers(tmp_path):
    assert lines(told(tmp_path, ddp_step(), ddp_step())) == {
        "linear_0": (2, 2),
        "linear_1": (2, 2),
        "relu": (2, 2),
        "(loss)": (2, 2),
        "(optimizer)": (3, 0),
        "(packing)": (0, 2),
    }


def test_modules_are_layers_where_the_trace_has_their_ranges(tmp_path):
    assert lines(told(tmp_path, names_of(ddp_step()), names_of(ddp_step()))) == {
        "first": (2, 2),
        "act": (2, 2),
        "last": (2, 2),
        "(loss)": (2, 2),
        "(optimizer)": (3, 0),
        "(packing)": (0, 2),
    }


def test_python_rows_of_modules_are_ranges_too(tmp_path):
    rows = [host(f"nn.Module: Linear_{k}", ts, 5, category="python_function") for k, ts in enumerate((9.5, 29.5))]
    rows.append(host("nn.Module: Net_0", 9, 28, category="python_function"))
    rows.append(host("torch/nn/modules/module.py(1): _call_impl", 9.2, 28, category="python_function"))
    found = lines(told(tmp_path, ddp_step() + rows))
    assert found["Linear_0"] == found["Linear_1"] == found["Net_0"] == (2, 2)


def test_the_innermost_module_counts(tmp_path):
    outer = [ranged("nn.Module: block (Sequential)", 9, 20), ranged("nn.Module: block.0 (Linear)", 9.5, 5)]
    found = lines(told(tmp_path, ddp_step() + outer))
    assert (found["block.0"], found["block"]) == ((2, 2), (2, 2))


def test_what_a_module_recomputes_in_the_backward_is_backward(tmp_path):
    """Checkpointing runs the forward again inside of its own node."""
    rows = names_of(ddp_step())
    rows += [ranged("nn.Module: first (Linear)", 92, 1.5), *kernel("again", 92.5, 140, 4, tid=ENGINE)]
    rows[-3]["tid"] = ENGINE
    assert lines(told(tmp_path, rows))["first"] == (2, 6)


def test_layers_come_in_the_order_of_the_forward_whichever_thread_runs_again_first(tmp_path):
    again = ranged("nn.Module: last (Linear)", 92, 1.5) | {"tid": ENGINE}
    assert [*lines(told(tmp_path, [again, *names_of(ddp_step())]))][:3] == ["first", "act", "last"]


BUCKETS = [
    # elements, ready, launched, start, dur: the copy of the last gradient is launched 1.2 us after its node began.
    {"bytes": 144, "ready": 80.0, "launched": 80, "start": 84, "dur": 20, "queued": 4, "late": 0},
    {"bytes": 288, "ready": 110.0, "launched": 110, "start": 112, "dur": 20, "queued": 2, "late": 0},
]


def bucket(row) -> dict:
    origin = row.start_ns
    found = {"bytes": row.bytes, "dur": row.dur_ns / 1000, "queued": row.queued_ns / 1000}
    found |= {"ready": row.ready_ns / 1000, "launched": row.launched_ns / 1000, "start": origin / 1000}
    return found | {"late": row.late_launch_ns / 1000}


def test_buckets_are_ready_launched_and_run(tmp_path):
    found = told(tmp_path, ddp_step(), ddp_step())
    assert [bucket(row) for row in found.buckets if row.rank == 1] == BUCKETS
    assert [row.parameters for row in found.summary.layout.buckets] == [
        ["linear_1.0 [4, 8]", "linear_1.0 [4]"],
        ["linear_0.0 [8, 8]", "linear_0.0 [8]"],
    ]
    hidden = [{(part.layer, part.direction): part.ns for part in row.hidden_by} for row in found.buckets[:2]]
    assert hidden == [{("relu", "backward"): 2000, ("linear_0", "backward"): 2000}, {}]


def test_a_host_that_is_late_is_told_from_links_that_are_busy(tmp_path):
    rows = [row | {"ts": row["ts"] + 1.2} if row["ts"] in (80, 80.5) else row for row in ddp_step()]
    late = told(tmp_path, rows, rows).buckets[0]
    assert (late.late_launch_ns, late.queued_ns) == (1200, 2800)


def test_a_bucket_is_shared_out_by_elements(tmp_path):
    found = told(tmp_path, ddp_step(), ddp_step())
    shares = {row.layer: sum(each.dur_ns for each in row.comm) for row in found.layers if row.rank == 0}
    assert (shares["linear_0"], shares["linear_1"]) == (20_000, 20_000)
    merged = [row for row in ddp_step() if row["ts"] < 80 or row["ts"] > 86]
    merged = [row for row in merged if row.get("args", {}).get("In msg nelems") != 36]
    for row in merged:
        if row.get("args", {}).get("In msg nelems") == 72:
            row["args"] |= {"In msg nelems": 108, "Out msg nelems": 108}
    rows = {row.layer: row for row in told(tmp_path, merged, merged).layers if row.rank == 0}
    assert [rows[f"linear_{k}"].comm[0].dur_ns for k in (1, 0)] == [6666, 13_334]
    assert [rows[f"linear_{k}"].comm[0].bytes for k in (1, 0)] == [144, 288]


def test_passes_of_a_step_count_from_nought(tmp_path):
    """Two forwards and backwards within one step, and two such steps."""
    events = []
    for number in (0, 1):
        for half in (0, 1):
            rows = [row for row in ddp_step(400 * number + 200 * half, 2 * number + half) if "Step#" not in row["name"]]
            events += [row | {"args": unnumbered(row, number, half)} for row in rows]
        events.append(step(number, 400 * number, 400))
    found = told(tmp_path, events, events)
    rows = [(row.step, row.backward_pass, row.bucket) for row in found.buckets if row.rank == 0]
    assert rows == [(number, half, which) for number in (0, 1) for half in (0, 1) for which in (0, 1)]
    assert len(found.summary.layout.buckets) == 2


def unnumbered(row: Event, number: int, half: int) -> dict:
    args = dict(row.get("args", {}))
    if "Sequence number" in args:
        args["Sequence number"] = args["Sequence number"] % 10 + 100 * (2 * number + half)
    return args


# What is no bucket, and what is one for all that.


def test_what_the_main_thread_reduces_is_no_bucket(tmp_path):
    rows = ddp_step() + all_reduce(140, 5, 142, 3, tid=MAIN)
    found = told(tmp_path, rows, rows)
    assert [row.bucket for row in found.buckets if row.rank == 0] == [0, 1]
    (own,) = [row for row in found.collectives if row.bytes == 20]
    assert (own.purpose, own.bucket) == ("norms", None)


def test_what_a_tensors_hook_reduces_is_no_bucket(tmp_path):
    rows = ddp_step() + all_reduce(91, 5, 141, 3)
    found = told(tmp_path, rows, rows)
    assert [row.bucket for row in found.buckets if row.rank == 0] == [0, 1]
    assert {row.purpose for row in found.collectives if row.bytes == 20} == {"activations"}


def test_whole_numbers_are_no_gradients(tmp_path):
    rows = ddp_step() + all_reduce(109.5, 4, 141, 3, dtype="Int")
    found = told(tmp_path, rows, rows)
    assert [row.bytes for row in found.buckets if row.rank == 0] == [144, 288]
    assert {row.purpose for row in found.collectives if row.bytes == 16} == {"other"}


def test_a_static_graphs_first_backward_reduces_all_at_its_end(tmp_path):
    """Outside of all nodes, by autograd's own thread."""
    rows = [row for row in ddp_step() if "allreduce" not in row["name"] and "nccl" not in row["name"]]
    rows += all_reduce(118, 108, 120, 9)
    found = told(tmp_path, rows, rows)
    assert [(row.bucket, row.bytes) for row in found.buckets if row.rank == 0] == [(0, 432)]
    assert found.summary.layout.buckets[0].parameters is not None


def test_a_bucket_may_hold_more_than_its_gradients(tmp_path):
    rows = ddp_step()
    for row in rows:
        if row.get("args", {}).get("In msg nelems") == 72:
            row["args"] |= {"In msg nelems": 172, "Out msg nelems": 172}
    found = told(tmp_path, rows, rows)
    assert [each.elements for each in found.summary.layout.buckets] == [36, 172]
    (rest,) = [row for row in found.layers if row.rank == 0 and row.layer == "(gradients)"]
    assert sum(each.dur_ns for each in rest.comm) == 20_000 - 20_000 * 72 // 172
    assert any("unused" in str(warning) for warning in found.run.notices)


def test_kernels_that_say_no_elements_have_no_bucket_of_known_size(tmp_path):
    rows = ddp_step()
    for row in rows:
        for key in ("In msg nelems", "Out msg nelems", "Collective name", "dtype"):
            row.get("args", {}).pop(key, None)
    found = told(tmp_path, rows, rows)
    assert {row.bytes for row in found.buckets} == {None}
    assert sum(row.exposed_ns for row in found.layers) == sum(row.exposed_ns for row in found.buckets)


# Lines that are no layers.


def test_ddps_copies_of_buffers_are_packing(tmp_path):
    rows = ddp_step()
    rows += [host("c10d::broadcast_", 8.5, 1), *kernel("flatten", 8.2, 8.4, 1)]
    assert lines(told(tmp_path, rows))["(packing)"] == (1, 2)


def test_copies_out_of_buckets_behind_the_backward_are_packing(tmp_path):
    rows = ddp_step() + kernel("copy_out", 116, 134, 5, tid=ENGINE)
    assert lines(told(tmp_path, rows))["(packing)"] == (0, 7)


def test_what_no_launch_is_known_of_is_other(tmp_path):
    rows = ddp_step() + kernel("lost", 136, 137, 4)[1:]
    assert lines(told(tmp_path, rows))["(other)"] == (4, 0)


def test_a_compiled_region_is_a_layer(tmp_path):
    rows = [ranged("Torch-Compiled Region: 0/0", 9.5, 28), *ddp_step()]
    found = lines(told(tmp_path, rows))
    assert found["Torch-Compiled Region: 0/0"] == (6, 6)


def test_each_captured_graph_of_a_step_is_a_layer(tmp_path):
    rows = [step(0, 0, 100), step(1, 100, 100)]
    for number in (0, 1):
        for ts in (10, 40):
            at = 100 * number + ts
            launch, first = kernel("a", at, at + 5, 6)
            _, second = kernel("b", at, at + 11, 4)
            rows += [launch | {"name": "cudaGraphLaunch"}, first, second]
    found = told(tmp_path, rows)
    assert [(row.step, row.layer, row.type, row.forward_ns) for row in found.layers] == [
        (number, f"CUDA graph {k}", "CUDA graph", 10_000) for number in (0, 1) for k in (0, 1)
    ]


def test_a_second_loss_and_evaluation_outside_of_the_model_are_no_layers(tmp_path):
    rows = [*ddp_step(), *forward(52, "mul", 5), *kernel("metric", 180, 181, 2), host("aten::argmax", 179, 5)]
    found = lines(told(tmp_path, rows))
    assert (found["(loss)"], found["(other)"]) == ((4, 2), (2, 0))


@pytest.mark.parametrize("name", ["aten::copy_", "aten::to", "aten::_to_copy"])
def test_copies_outside_of_layers_have_a_line(tmp_path, name):
    rows = [*ddp_step(), host(name, 179, 5), *kernel("cast", 180, 181, 2)]
    assert lines(told(tmp_path, rows))["(copies)"] == (2, 0)


# FSDP and nn.DataParallel.


def test_a_sharded_modules_gathers_are_its_own_prefetched_or_not(tmp_path):
    found = told(tmp_path, fsdp_step(), fsdp_step())
    own = {
        (row.layer, each.direction, each.prefetched): (each.kind, each.bytes, each.dur_ns)
        for row in found.layers
        for each in row.comm
    }
    assert found.summary.layers_from == "fsdp"
    assert own == {
        ("a", "forward", False): ("all_gather", 400, 2000),
        ("b", "forward", False): ("all_gather", 400, 2000),
        ("b", "backward", False): ("all_gather", 400, 3000),
        ("a", "backward", True): ("all_gather", 400, 5000),
    }
    assert lines(found) == {"a": (2, 0), "b": (2, 0)}
    assert not found.buckets
    assert found.summary.layout is None


def test_what_data_parallels_replicas_ran_is_a_line(tmp_path):
    rows = [
        step(0, 0, 200),
        ranged("DataParallel.forward", 5, 60),
        host("Scatter", 6, 5),
        *kernel("split", 8, 9, 1),
        *kernel("conv", 20, 21, 7, tid=77),
        *kernel("conv", 22, 23, 9, tid=78, device=1),
        *forward(80, "cross_entropy_loss", 4),
    ]
    found = told(tmp_path, rows)
    assert {(row.device, row.layer): row.forward_ns for row in found.layers} == {
        (0, "(packing)"): 1000,
        (0, "(replicas)"): 7000,
        (0, "(loss)"): 2000,
        (1, "(replicas)"): 9000,
    }


def test_a_copy_between_devices_is_a_line_of_both(tmp_path):
    copied = kernel("Memcpy PtoP (Device -> Device)", 10, 12, 8, fromDevice=0, inDevice=0, toDevice=1, bytes=4000)
    copied[1]["cat"] = "gpu_memcpy"
    rows = [step(0, 0, 100), ranged("DataParallel.forward", 5, 20), host("Scatter", 6, 10), *copied]
    rows += [*kernel("conv", 20, 21, 5, device=0), *kernel("conv", 22, 17, 5, device=1)]
    found = told(tmp_path, rows)
    lines = {row.device: (row.layer, row.comm[0].bytes, row.exposed_ns) for row in found.layers if row.comm}
    assert lines == {0: ("(inputs)", 4000, 8000), 1: ("(inputs)", 4000, 5000)}


def test_an_all_reduce_of_fsdp_is_no_bucket_of_ddp(tmp_path):
    """Hybrid sharding reduces each shard between replicas: that is its module's, as the reduce_scatter is."""
    rows = [step(0, 0, 200), *forward(2, "mm", 1), *backward(20, "mm", 1, gradients=[(4,)])]
    rows += [ranged("FSDP::post_backward_all_reduce (a)", 40, 10, tid=ENGINE), *all_reduce(41, 4, 45, 5)]
    found = told(tmp_path, rows, rows)
    assert (found.buckets, found.summary.layout) == ([], None)
    assert {(row.layer, each.kind) for row in found.layers for each in row.comm} == {("a", "all_reduce")}
