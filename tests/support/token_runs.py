"""Runs with experts, drawn: who sends how many tokens to whom, and when each rank comes; with the truth beside them.

dispatch   |all_to_all|                    rank r of n sends routing[layer][r][s] tokens to rank s, and gets
combine                  |all_to_all|      them back; rows of a tensor have `hidden` elements
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kineto_files import Event, write
from tests.support.training import ENGINE, MAIN, NODE, document, host, kernel, ranged, step

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
Matrix = Sequence[Sequence[int]]
EXCHANGE_US, APART_US = 5, 20


@dataclass(frozen=True)
class TokenRun:
    """One step: `routing` by layer; `late_us` by rank, how much later it comes to each combine; what is not written."""

    routing: Sequence[Matrix]
    hidden: int = 16
    late_us: Sequence[int] = ()
    cut: bool = False
    modules: bool = True
    missing: Sequence[int] = ()
    recomputed: bool = False
    counts: bool = True
    described: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return len(self.routing[0])


def events(run: TokenRun, rank: int) -> list[Event]:
    """One rank's step: forwards in order; backwards in the opposite order, their combine's gradient first."""
    layers = range(len(run.routing))
    end = 200 + 400 * len(run.routing)
    rows = [step(0, 0, 2 * end)]
    for layer in layers:
        ts = 100 + 100 * layer
        rows += _layer(run, rank, layer, ts, tid=MAIN)
    for place, layer in enumerate(reversed(layers)):
        rows += _backward(run, rank, layer, end + 200 * place)
    return rows


def _layer(run: TokenRun, rank: int, layer: int, ts: int, *, tid: int) -> list[Event]:
    matrix, late = run.routing[layer], (*run.late_us, *[0] * run.ranks)[rank]
    turned = [list(column) for column in zip(*matrix, strict=True)]
    rows = [host("aten::mm", ts + 1, 2, tid=tid, **({"Sequence number": 10 * layer + 1} if tid == MAIN else {}))]
    if run.modules:
        rows.append(ranged(f"nn.Module: layers.{layer}.moe (MoE)", ts, 80, tid=tid))
        rows.append(ranged(f"nn.Module: layers.{layer}.moe.experts (GroupedExperts)", ts + 30, 30, tid=tid))
    if run.counts:
        rows += _exchange(run, rank, [[1] * run.ranks] * run.ranks, (ts + 5, 0), tid=tid, dtype="Long")
    # The dispatch is called by the module, the combine by the experts inside of it.
    rows += _exchange(run, rank, matrix, (ts + 10, 0), tid=tid)
    rows += kernel("grouped_mm", ts + 32, ts + 33, 4 + late, tid=tid)
    return rows + _exchange(run, rank, turned, (ts + 40, late), tid=tid)


def _backward(run: TokenRun, rank: int, layer: int, ts: int) -> list[Event]:
    rows = []
    if run.recomputed:
        rows += [host(f"{NODE}MmBackward0", ts, 199, tid=ENGINE, **{"Sequence number": 10 * layer + 1})]
        rows += _layer(run, rank, layer, ts + 5, tid=ENGINE)
    matrix = run.routing[layer]
    turned = [list(column) for column in zip(*matrix, strict=True)]
    for place, sent in enumerate((matrix, turned)):
        start = ts + 100 + APART_US * place
        if not run.recomputed:
            rows.append(host(f"{NODE}MmBackward0", start, 15, tid=ENGINE, **{"Sequence number": 10 * layer + 1}))
        rows += _exchange(run, rank, sent, (start + 1, 0), tid=ENGINE)
    return rows


def _exchange(
    run: TokenRun, rank: int, matrix: Matrix, when: tuple[int, int], *, tid: int, dtype: str = "BFloat16"
) -> list[Event]:
    """A rank's kernel begins so much late, and ends with all others'."""
    (ts, late), hidden = when, 1 if dtype == "Long" else run.hidden
    sent, received = list(matrix[rank]), [row[rank] for row in matrix]
    said: dict[str, Any] = {"Collective name": "all_to_allv", "dtype": dtype, "Group size": run.ranks}
    said |= {"In msg nelems": hidden * sum(sent), "Out msg nelems": hidden * sum(received)}
    said |= {"In split size": _listed(sent, run.cut), "Out split size": _listed(received, run.cut)}
    said |= {
        "Seq": round(ts * 10),
        "Process Group Name": "3",
        "Process Group Ranks": str(list(range(run.ranks))),
    } | run.described
    most = max((*run.late_us, 0)) if late or run.late_us else 0
    begin, end = ts + 1 + late, ts + 1 + most + EXCHANGE_US
    return [
        host("c10d::alltoall_base_", ts, 2, tid=tid),
        *kernel(SEND_RECV, ts + 0.2, begin, end - begin, tid=tid, stream=20, device=rank, **said),
    ]


def _listed(numbers: Sequence[int], cut: bool) -> str:
    """A list as Kineto writes it, which cuts long ones short."""
    return str(numbers) if not cut else f"[{numbers[0]}, ..., {numbers[-1]}]"


def write_tokens(folder: Path, run: TokenRun) -> Path:
    for rank in range(run.ranks):
        if rank not in run.missing:
            rows = document(events(run, rank), rank, run.ranks) | {"host_name": "one"}
            write(folder / f"rank{rank}.json", rows)
    return folder
