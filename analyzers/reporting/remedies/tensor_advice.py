"""Rule of advice on tensor parallelism: products beside their collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.layers import TensorWindow
from analyzers.reporting.remedies.advised import Advice, StepTime, advised
from analyzers.units import duration

_SWITCH_ON = (
    "run tensor parallelism's collectives beside the matrix products that they feed (asynchronous TP: symmetric "
    "memory, and torch._inductor.config._micro_pipeline_tp under torch.compile)"
)
_WHY_NOT = "find out why torch.compile fuses no collective with its matrix product, although asynchronous TP is on"


def advice_on_tensor(step: StepTime, rows: Sequence[TensorWindow], is_asked_for: bool = False) -> Iterator[Advice]:
    """Yield what asynchronous TP could hide at most; nothing where the trace has it already.

    `is_asked_for`: the program switched it on.
    """
    if any(row.async_tp for row in rows):
        return
    figure = step.typical((row, row.async_tp_bound_ns) for row in rows)
    exposed = step.typical((row, row.exposed_transfer_ns) for row in rows)
    yield advised(
        "async_tp",
        _WHY_NOT if is_asked_for else _SWITCH_ON,
        figure,
        f"tensor parallelism's transfers are exposed for {step.part(exposed)}, while matrix products that could hide "
        "them wait",
        f"{duration(exposed)} per step of activations' transfer is exposed, and the products next to it take "
        f"{duration(figure)}",
    )
