"""Cost of reading what the host was in: own times per step, and steps with and without it in turn.

`python benchmarks/marking.py`, on a GPU where there is one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from tracer.recording.host_states import HostWatch

CALLS = 20_000
BLOCKS, STEPS = 30, 20


def main() -> None:
    """Print each reading's own time, the share of a step that its calls take, and the ratio of blocks in turn."""
    step, synchronize = _training()
    watch = HostWatch()
    for _ in range(STEPS):
        step()
    with watch.collections:
        watch.begin(0)
        mark_ns = _own_ns(lambda: watch.mark(0))
        watch.forget()
        collection_ns = _own_ns(lambda: _collect(watch))
        pairs = [_pair_ns(step, synchronize, watch, number % 2 == 0) for number in range(BLOCKS)]
    step_ns = statistics.median(without_ns for _, without_ns in pairs)
    low, middle, high = statistics.quantiles(with_ns / without_ns for with_ns, without_ns in pairs)
    print(f"a step takes {step_ns / 1e6:.3f} ms; its one mark {mark_ns / 1e3:.2f} us, {mark_ns / step_ns:.3%} of it")
    print(f"a collection's two callbacks take {collection_ns / 1e3:.2f} us")
    print(f"blocks with marks over blocks without, in turn: {middle:.4f}, quartiles {low:.4f} and {high:.4f}")


def _training() -> tuple[Callable[[], None], Callable[[], None]]:
    is_gpu = torch.cuda.is_available()
    device, synchronize = ("cuda", torch.cuda.synchronize) if is_gpu else ("cpu", lambda: None)
    width = 1024 if is_gpu else 128
    model = nn.Sequential(*(layer for _ in range(30) for layer in (nn.Linear(width, width), nn.ReLU()))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    batch = torch.randn(64, width, device=device)

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, synchronize


def _pair_ns(
    step: Callable[[], None], synchronize: Callable[[], None], watch: HostWatch, marked_first: bool
) -> tuple[float, float]:
    """A block with marks and a block without, one or the other first."""
    first = _block_ns(step, synchronize, watch, marked_first)
    second = _block_ns(step, synchronize, watch, not marked_first)
    return (first, second) if marked_first else (second, first)


def _own_ns(call: Callable[[], object]) -> float:
    begin_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin_ns) / CALLS


def _collect(watch: HostWatch) -> None:
    watch.collections._note("start", {"generation": 0})
    watch.collections._note("stop", {"generation": 0})


def _block_ns(step: Callable[[], None], synchronize: Callable[[], None], watch: HostWatch, is_marked: bool) -> float:
    synchronize()
    watch.begin(0)
    begin_ns = time.perf_counter_ns()
    for number in range(STEPS):
        step()
        if is_marked:
            watch.mark(number)
    synchronize()
    return (time.perf_counter_ns() - begin_ns) / STEPS


if __name__ == "__main__":
    main()
