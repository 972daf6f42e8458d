"""Pipeline parallelism: messages between stages, one microbatch at a time."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, dimension
from analyzers.trace import Collective


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    message = calls.of(Collective.SEND_RECV)
    yield Purpose.MESSAGES, message & (calls.is_message | calls.over(PIPELINE.dimension))


PIPELINE = Strategy(
    name="pipeline", dimension=dimension("pp", "stage", r"pipeline_(?:model_)?parallel\w*"), purposes=_purposes
)
