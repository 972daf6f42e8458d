"""Pipelines drawn whole: schedules, their simulation by events, and runs of ranks as Kineto documents.

Actions are (kind, stage, microbatch); stage s is on rank s modulo the number of ranks, unless `rank_of` says otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from analyzers.rank import ActionKind
from tests.support.kineto_files import Event, write
from tests.support.training import ENGINE, NODE, host, ranged

F, B, OF_INPUT, W = ActionKind
Action = tuple[ActionKind, int, int]
Orders = list[list[Action]]
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
# What tells actions: torch's schedule runtime, GPipe's ranges, those of modules, messages with nodes, messages alone.
RANGES = ("runtime", "gpipe", "modules", "nothing", "messages")
STEP_US = 100_000
# Between two actions of a rank, the calls of its messages.
CALLS_US = 8


def before(action: Action, stages: int) -> list[Action]:
    """What must have run: the same microbatch one stage earlier, of a backward one stage later."""
    kind, stage, microbatch = action
    if kind == F:
        return [(F, stage - 1, microbatch)] if stage else []
    if kind == W:
        return [(OF_INPUT, stage, microbatch)]
    return [(kind, stage + 1, microbatch)] if stage < stages - 1 else [(F, stage, microbatch)]


def simulated(orders: Orders, dur: Callable[[Action], int]) -> dict[Action, int]:
    """When each action starts, by events: whoever is idle and may begin does, then the clock goes to the next end."""
    stages = 1 + max(stage for order in orders for _, stage, _ in order)
    left = [list(order) for order in orders]
    running: list[tuple[int, int, Action]] = []
    start: dict[Action, int] = {}
    ended: set[Action] = set()
    busy: set[int] = set()
    now = 0
    while any(left) or running:
        for rank, queue in enumerate(left):
            if rank not in busy and queue and ended.issuperset(before(queue[0], stages)):
                action = queue.pop(0)
                start[action] = now
                busy.add(rank)
                heapq.heappush(running, (now + dur(action), rank, action))
        assert running, "they wait for one another"
        now, rank, action = heapq.heappop(running)
        busy.remove(rank)
        ended.add(action)
    return start


def any_order(random: Random, ranks: int, per_rank: int, microbatches: int) -> Orders:
    """Any order that does not deadlock: of what may run next, any."""
    stages = ranks * per_rank
    left = {(kind, stage, number) for kind in (F, B) for stage in range(stages) for number in range(microbatches)}
    orders: Orders = [[] for _ in range(ranks)]
    while left:
        ready = sorted(action for action in left if not left.intersection(before(action, stages)))
        action = random.choice(ready)
        left.remove(action)
        orders[action[1] % ranks].append(action)
    return orders


def idle_between(starts: Sequence[int], ends: Sequence[int], low: int, high: int) -> int:
    """What none of these covers from low to high, instant by instant."""
    return sum(not any(start <= at < end for start, end in zip(starts, ends, strict=True)) for at in range(low, high))


@dataclass
class Drawn:
    """What a drawn rank did: its actions in order, when (us), and the intervals in which its kernels ran."""

    order: list[Action]
    start_us: list[int] = field(default_factory=list)
    end_us: list[int] = field(default_factory=list)
    kernels: list[tuple[int, int]] = field(default_factory=list)
    rows: list[Event] = field(default_factory=list)

    def bubble_us(self, stage: int) -> int:
        """What its device leaves empty from a stage's first action to the end of its last."""
        mine = [at for at, action in enumerate(self.order) if action[1] == stage]
        low, high = min(self.start_us[at] for at in mine), max(self.end_us[at] for at in mine)
        return idle_between(*zip(*self.kernels, strict=True), low, high)


def ran(orders: Orders, dur: Callable[[Action], int], message_us: int) -> list[Drawn]:
    """Ranks that ran orders, each message so long, with pauses for calls between two actions of a rank."""
    stages = 1 + max(stage for order in orders for _, stage, _ in order)
    ranks = [Drawn(order) for order in orders]
    ended: dict[Action, int] = {}
    where = {action[1]: rank for rank, order in enumerate(orders) for action in order}
    left = [list(order) for order in orders]
    while any(left):
        rank = next(at for at, queue in enumerate(left) if queue and set(before(queue[0], stages)) <= ended.keys())
        action, drawn = left[rank].pop(0), ranks[rank]
        free = drawn.end_us[-1] + CALLS_US if drawn.end_us else CALLS_US
        arrived = [ended[one] + message_us * (where[one[1]] != rank) for one in before(action, stages)]
        start = max([free, *arrived])
        drawn.start_us.append(start)
        drawn.end_us.append(start + dur(action))
        ended[action] = start + dur(action)
    return ranks


def run_of(
    folder: Path,
    orders: Orders,
    dur: Callable[[Action], int],
    *,
    ranges: str = "modules",
    message_us: int = 10,
    batched: bool = False,
) -> list[Drawn]:
    """Write one step of a pipeline, a trace for each rank; `ranges` tell its actions, those of RANGES.

    `batched`: what a rank sends behind one action and receives before the next, from one peer, is one kernel, as in
    torch's 1F1B; else each message has its own, as in its schedule runtime.
    """
    ranks = ran(orders, dur, message_us)
    where = {action[1]: rank for rank, order in enumerate(orders) for action in order}
    for rank, drawn in enumerate(ranks):
        drawn.rows.append(ranged("ProfilerStep#3", 0, STEP_US))
        for at in range(len(drawn.order)):
            _draw(drawn, at, ranges)
            _messages(drawn, at, rank, where, batched)
        group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": len(orders), "ranks": list(range(len(orders)))}
        header = {"rank": rank, "world_size": len(orders), "backend": "nccl", "pg_config": [group]}
        document = {"schemaVersion": 1, "distributedInfo": header, "host_name": "one", "traceEvents": drawn.rows}
        write(folder / f"rank{rank}.json", document)
    return ranks


def _draw(drawn: Drawn, at: int, ranges: str) -> None:
    """An action's range, its operator or node, and two kernels with a pause of a microsecond between."""
    (kind, stage, microbatch), start, end = drawn.order[at], drawn.start_us[at], drawn.end_us[at]
    number = 1 + 100 * stage + microbatch
    if ranges == "runtime":
        drawn.rows.append(ranged(f"PP:{stage}{kind.label}{microbatch}", start - 0.5, end - start + 1))
    if ranges == "gpipe":
        name = "Forward" if kind == F else "Backward"
        drawn.rows.append(ranged(f"{name} {microbatch}", start - 0.5, end - start + 1))
    if ranges == "messages":
        pass  # launches alone, a backward's on autograd's thread
    elif kind == F:
        if ranges == "modules":
            drawn.rows.append(ranged("nn.Module: (model) (Net)", start, end - start))
        drawn.rows.append(host("aten::linear", start, end - start, **{"Sequence number": number}))
    else:
        drawn.rows.append(host(f"{NODE}LinearBackward0", start, end - start, tid=ENGINE, **{"Sequence number": number}))
    middle = (start + end) // 2
    tid = {} if kind == F else {"tid": ENGINE}
    for begin, finish in ((start, middle), (middle + 1, end)):
        drawn.rows += _launched("gemm", begin, begin, finish - begin, **tid)
        drawn.kernels.append((begin, finish))


def _launched(name: str, launched: float, ts: float, dur: float, stream: int = 7, **more: int) -> list[Event]:
    correlation = round(launched * 10)
    launch = host("cudaLaunchKernel", launched, 0.1, category="cuda_runtime", correlation=correlation, **more)
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return [
        launch,
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args},
    ]


def _peer(action: Action, rank: int, where: dict[int, int], *, sends: bool) -> int | None:
    """The other rank to which an action's result goes, or that its input comes from; None for none."""
    kind, stage, _ = action
    onward = 1 if (kind == F) == sends else -1
    other = where.get(stage + onward, rank) if kind != W else rank
    return other if other != rank else None


def _messages(drawn: Drawn, at: int, rank: int, where: dict[int, int], batched: bool) -> None:
    """What a rank receives before an action, called for as soon as it is free, and sends behind the one before."""
    world = len(set(where.values()))
    start, ended = drawn.start_us[at], drawn.end_us[at - 1] if at else 0
    sent_to = _peer(drawn.order[at - 1], rank, where, sends=True) if at else None
    received_from = _peer(drawn.order[at], rank, where, sends=False)
    send, receive = (("send", "Dst Rank", sent_to), ("recv", "Src Rank", received_from))
    if batched and sent_to is not None and sent_to == received_from:
        drawn.rows += batch([send, receive], world, ended + 1, start)
    else:
        drawn.rows += batch([send], world, ended + 1, ended + 3) if sent_to is not None else []
        drawn.rows += batch([receive], world, ended + 4, start) if received_from is not None else []
    if at == len(drawn.order) - 1:
        last = _peer(drawn.order[at], rank, where, sends=True)
        end = drawn.end_us[at]
        drawn.rows += batch([("send", "Dst Rank", last)], world, end + 1, end + 3) if last is not None else []


def batch(messages: Sequence[tuple[str, str, int | None]], world: int, called: float, end: float) -> list[Event]:
    """Messages that one kernel carries: torch's batch_isend_irecv leaves nothing on it."""
    rows: list[Event] = []
    group = {"Group size": world, "Process Group Name": "0", "Process Group Ranks": str(list(range(world)))}
    for place, (name, key, peer) in enumerate(messages):
        at = called + 0.4 * place
        # Each row of a thread has an id of its own.
        said = {"External id": round(10 * at), "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float", key: peer}
        operator = f"c10d::{name}{'_' if name == 'recv' else ''}"
        rows.append(host(operator, at, 0.3, **{"External id": round(10 * at) + 1}))
        rows.append(host("record_param_comms", at + 0.1, 0.1, **{"Collective name": name}, **said, **group))
    rows.append(ranged("nccl:coalesced", called + 1, 0.6))
    return [*rows, *_launched(SEND_RECV, called + 1.1, called + 1.2, end - called - 1.2, stream=17)]
