"""Row types of tensor parallelism: what asynchronous TP could hide.

all_gather     ttttttt.........           exposed 7
mm             .......mmmm.....           asynchronous TP could run 4 of it at the same time
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.arrays import Int64
from analyzers.collectives import Exchange
from analyzers.rank import Measured, Purpose, device_label
from analyzers.ranks import RankNumber
from analyzers.trace import Collective

_DECOMPOSED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


class TensorWindow(msgspec.Struct, frozen=True):
    """Activations' collectives in one window: docs/measuring.md, What asynchronous TP could hide.

    `async_tp`: products and collectives are fused. `symmetric_memory`: some are copies, or no NCCL kernels.
    """

    rank: int
    device: int | str
    step: int
    collectives: int
    exposed_ns: int
    exposed_transfer_ns: int
    async_tp_bound_ns: int
    async_tp: bool
    symmetric_memory: bool


def tensor_rows(exchanged: Exchange) -> list[TensorWindow]:
    """Return a row for each window that communicates activations, by rank, device and step."""
    rows: list[TensorWindow] = []
    for index, number, measured in exchanged.run.numbered():
        if (measured.communication.purpose == Purpose.ACTIVATIONS).any() or measured.communication.pipelined:
            first = int(exchanged.first_row[index])
            moved_ns = exchanged.exposed_transfer_ns[first : first + len(measured.communication)]
            rows += _of_rank(number, measured, np.maximum(moved_ns, 0))
    return rows


def _of_rank(number: RankNumber, measured: Measured, moved_ns: Int64) -> Iterator[TensorWindow]:
    comm, windows = measured.communication, measured.windows
    # Asynchronous TP decomposes all-gathers and reduce-scatters; an all-reduce it leaves whole.
    beside_ns = np.where(np.isin(comm.kind, _DECOMPOSED), np.maximum(comm.matmul_ns, 0), 0)
    separate = comm.is_copy | comm.is_library
    is_asked = comm.purpose == Purpose.ACTIVATIONS
    for device, step in zip(windows.device.tolist(), windows.step.tolist(), strict=True):
        in_window = is_asked & (comm.window == step)
        # A copy between two devices is of both, and all of it is transfer.
        rows, copies = (np.flatnonzero(in_window & (of == device)) for of in (comm.device, comm.peer))
        exposed_ns = np.r_[comm.exposed_ns[rows], comm.peer_exposed_ns[copies]]
        transfer_ns = np.r_[moved_ns[rows], comm.peer_exposed_ns[copies]]
        both = np.r_[rows, copies]
        yield TensorWindow(
            rank=number,
            device=device_label(device),
            step=step,
            collectives=len(both),
            exposed_ns=int(exposed_ns.sum()),
            exposed_transfer_ns=int(transfer_ns.sum()),
            async_tp_bound_ns=int(np.minimum(transfer_ns, beside_ns[both]).sum()),
            async_tp=comm.pipelined > 0,
            symmetric_memory=bool(separate[both].any()),
        )
