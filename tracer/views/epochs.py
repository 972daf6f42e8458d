"""Whole epochs as text: time, loss, accuracy; and the memory that training took."""

from __future__ import annotations

from analyzers.document import RunFacts
from analyzers.manifest import Epoch
from analyzers.units import NS_PER_S, percent
from tracer.views.communication import size
from tracer.views.terminal import Section, styled, table

SYNTHETIC = "Accuracy means nothing here, nor does loss: the data is synthetic, a few random batches over and over."


def epochs(run: RunFacts) -> Section:
    """The epochs that were trained after the recording, if any."""
    if not run.epochs:
        return []
    data = run.dataset
    of_data = f" of {data.samples:,} samples ({data.name})" if data is not None else ""
    rows = table("epoch", "s", "steps", "loss", "accuracy", "learning rate", "", left=("",))
    for epoch in run.epochs:
        rows.add_row(*_cells(epoch))
    title = f"Epochs{of_data}, from new weights, without a profiler; times are the slowest rank's"
    remark = [styled(SYNTHETIC)] if data is not None and data.is_synthetic else []
    return [styled(title, "bold"), rows, *remark]


def _cells(epoch: Epoch) -> list[str]:
    loss = "-" if epoch.loss is None else f"{epoch.loss:.4f}"
    figures = [f"{epoch.time_ns / NS_PER_S:,.2f}", str(epoch.steps), loss, percent(epoch.accuracy)]
    warm_up = "warm-up: its time is not counted" if epoch.epoch == 1 else ""
    return [str(epoch.epoch), *figures, f"{epoch.learning_rate:.4g}", warm_up]


def memory(run: RunFacts) -> Section:
    """The most memory that any rank had in use."""
    if run.memory is None or not run.memory.peak_bytes:
        return []
    rank, peak_bytes = max(run.memory.peak_bytes.items(), key=lambda item: item[1])
    return [styled(f"Memory: at most {size(peak_bytes)} in use, on rank {rank} ({run.memory.source}).")]
