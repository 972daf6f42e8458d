"""Whole training steps drawn row by row: two layers under DDP, and under FSDP."""

from __future__ import annotations

from tests.support.kineto_files import Event
from tests.support.training import (
    MAIN,
    all_reduce,
    backward,
    forward,
    host,
    kernel,
    ranged,
    step,
)

DDP = ranged("DistributedDataParallel.forward", 8, 32)


def ddp_step(ts: float = 0, number: int = 0) -> list[Event]:
    """Two linear layers with a relu between them, of 36 and 72 parameters in two buckets; 200 us."""
    rows = [
        step(number, 0, 200),
        DDP,
        *forward(10, "linear", 1),
        *forward(20, "relu", 2),
        *forward(30, "linear", 3),
        *forward(44, "cross_entropy_loss", 4),
        *backward(60, "cross_entropy_loss", 4),
        *backward(70, "linear", 3, gradients=[(4, 8), (4,)]),
        *all_reduce(80, 36, 84, 20),
        *backward(90, "relu", 2),
        *backward(100, "linear", 1, gradients=[(8, 8), (8,)]),
        *all_reduce(110, 72, 112, 20),
        ranged("Optimizer.step#SGD.step", 150, 20),
        *kernel("sgd", 155, 156, 3),
    ]
    return [shifted(row, ts, 1000 * 1000 * number) for row in rows]


def shifted(row: Event, ts: float, correlation: int) -> Event:
    args = row.get("args", {})
    moved = {key: args[key] + correlation for key in ("correlation",) if key in args}
    numbers = {"Sequence number": args["Sequence number"] + 10 * (correlation > 0)} if "Sequence number" in args else {}
    return row | {"ts": row["ts"] + ts, "args": args | moved | numbers}


def names_of(events: list[Event]) -> list[Event]:
    """The same with ranges around the forward of each layer."""
    ranges = [("first (Linear)", 9.5, 5), ("act (ReLU)", 19.5, 5), ("last (Linear)", 29.5, 5)]
    return events + [ranged(f"nn.Module: {name}", ts, dur) for name, ts, dur in ranges]


def gathered(ts: float, start: float, dur: float, name: str, elements: int) -> list[Event]:
    said = {"Collective name": "_allgather_base", "In msg nelems": elements // 2, "Out msg nelems": elements}
    said |= {"dtype": "Float", "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    return [
        ranged(f"FSDP::all_gather ({name})", ts, 2),
        host("c10d::_allgather_base_", ts + 0.5, 1),
        *kernel("ncclDevKernel_AllGather_RING_LL(x)", ts + 1, start, dur, stream=20, **said),
    ]


def fsdp_step() -> list[Event]:
    """Two modules: `a` is gathered in its turn; `b` by a prefetch in the backward, in its turn in the forward."""
    rows = [step(0, 0, 200)]
    for name, ts in (("a", 10), ("b", 30)):
        rows += [ranged(f"FSDP::pre_forward ({name})", ts, 4), *gathered(ts + 1, ts + 3, 2, name, 100)]
        rows += [*forward(ts + 5, "mm", ts), ranged(f"FSDP::post_forward ({name})", ts + 10, 1)]
    backward_b = ranged("FSDP::pre_backward (b)", 60, 10, tid=MAIN)
    rows += [backward_b, *gathered(61, 64, 3, "b", 100)]
    rows += [ranged("FSDP::backward_prefetch for a", 65, 4), *gathered(66, 70, 5, "a", 100)]
    return rows
