"""Three production jobs, published with what a simulator said of them, as folders of Kineto traces.

They are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025); `shared/public`
beside the checkout has them. A worker is a stage of a pipeline in one data-parallel line. What is not recorded:

* Hosts. All of a step is launched at its beginning, in the order in which it started, and the host then waits for the
  device: the order of launches, streams and peers alone bind.
* Sizes, and the tensor-parallel peers of a worker: its all-reduce with them is of a group of one.
* Synchronizations between a worker's last message and its first all-reduce: no worker of the last stage goes on before
  all of them have come so far, and in two jobs none of the first line. They are drawn as all-reduces
  (`Kind.UNRECORDED`): a kernel that an idle device begins seconds after its launch is corrupt for whoever reads it.

As Megatron's, they have no ranges around microbatches, and autograd launches backwards from a thread of its own.

    compute stream   all-gather F0 F1 ....... B0 ....  ......  all-reduces reduce-scatter norm optimizer
    message streams             s0  s1 rrrrrr    s0 rrr
    host             [launches, and waits of the compute stream for messages][........ synchronizes ........]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet

from tests.support.kineto_files import Event

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT.parent / "shared" / "public" / "stragglers"
JOBS = sorted(path.stem for path in PUBLIC.glob("*.parquet"))
_COLUMNS = ["dp_rank", "stage", "step", "optype", "seq_id", "mb_id", "start_ts", "duration"]


class Kind(StrEnum):
    """Kinds of operations, by the names that the job gave them."""

    FORWARD = "forward-compute"
    BACKWARD = "backward-compute"
    FORWARD_SEND = "forward-send"
    FORWARD_RECV = "forward-recv"
    BACKWARD_SEND = "backward-send"
    BACKWARD_RECV = "backward-recv"
    PARAMETERS = "params-all-gather"
    COLLECTION = "gc"
    LAYERNORM = "layernorm-grads-all-reduce"
    EMBEDDING = "embedding-grads-all-reduce"
    GRADIENTS = "grads-reduce-scatter"
    # It clips by the norm of all workers' gradients.
    NORM = "optimizer-clip-main-grad"
    OPTIMIZER = "optimizer"
    UNRECORDED = "unrecorded"

    @property
    def is_message(self) -> bool:
        """Whether it is one end of a message between stages."""
        return self.sends or self.receives

    @property
    def sends(self) -> bool:
        """Whether it sends a message."""
        return self in (Kind.FORWARD_SEND, Kind.BACKWARD_SEND)

    @property
    def receives(self) -> bool:
        """Whether it receives a message."""
        return self in (Kind.FORWARD_RECV, Kind.BACKWARD_RECV)

    @property
    def computes(self) -> bool:
        """Whether it is a microbatch's forward or backward."""
        return self in (Kind.FORWARD, Kind.BACKWARD)

    @property
    def is_collective(self) -> bool:
        """Whether its worker needs others to end it, in one collective."""
        return not (self.is_message or self.computes or self in (Kind.COLLECTION, Kind.OPTIMIZER))

    @property
    def is_forward(self) -> bool:
        """Whether it is a microbatch's forward, or a message from one stage's forward to the next's."""
        return self.startswith("forward")


@dataclass(frozen=True, order=True)
class Worker:
    """One stage of one data-parallel line."""

    stage: int
    line: int


@dataclass(frozen=True)
class Operation:
    """One operation of a worker in a step: the number-th of its kind there; ns from the step's beginning."""

    worker: Worker
    kind: Kind
    number: int
    microbatch: int
    start_ns: int
    end_ns: int

    @property
    def peer(self) -> Worker:
        """Return the other worker of a message."""
        ahead = self.kind.is_forward == self.kind.sends
        return Worker(self.worker.stage + (1 if ahead else -1), self.worker.line)

    @property
    def meeting(self) -> tuple[object, ...]:
        """What all operations that end together have in common, whoever they are of."""
        worker, kind = self.worker, self.kind
        if kind.is_message:
            sender = worker.stage if kind.sends else self.peer.stage
            return "message", kind.is_forward, sender, worker.line, self.number
        if kind in (Kind.PARAMETERS, Kind.GRADIENTS):
            return kind, worker.stage, self.number
        if kind == Kind.EMBEDDING:
            return kind, worker.line, self.number
        if kind == Kind.UNRECORDED:
            return kind, self.number
        return (kind, self.number) if kind == Kind.NORM else (kind, worker, self.number)


Steps = dict[int, dict[Worker, list[Operation]]]


@dataclass(frozen=True)
class Job:
    """Sampled steps of a job by their numbers: each worker's operations, sorted by start."""

    name: str
    stages: int
    lines: int
    steps: Steps

    @property
    def workers(self) -> list[Worker]:
        """All workers, in the order of their ranks."""
        return [Worker(stage, line) for stage in range(self.stages) for line in range(self.lines)]

    def rank_of(self, worker: Worker) -> int:
        """The rank of a worker: lines are neighbours, as Megatron has it."""
        return worker.stage * self.lines + worker.line


def read(name: str) -> Job:
    """Read a job as it was published; raises FileNotFoundError where the shared folder is missing."""
    rows = pyarrow.parquet.read_table(PUBLIC / f"{name}.parquet", columns=_COLUMNS).to_pydict()
    steps: Steps = defaultdict(lambda: defaultdict(list))
    for line, stage, step, kind, number, microbatch, start, took in zip(*map(rows.get, _COLUMNS), strict=True):
        times = round(start * 1e9), round((start + took) * 1e9)
        worker = Worker(stage, line)
        steps[step][worker].append(Operation(worker, Kind(kind), number, microbatch, *times))
    for workers in steps.values():
        for operations in workers.values():
            operations.sort(key=lambda one: (one.start_ns, one.end_ns))
    job = Job(name, 1 + max(rows["stage"]), 1 + max(rows["dp_rank"]), dict(sorted(steps.items())))
    assert all(set(workers) == set(job.workers) for workers in job.steps.values())
    return job


def drawn(job: Job) -> Job:
    """The job as its traces draw it: without collections, which took no time, and with what held workers up unrecorded.

    An operation that began, by its job's clock, before what its device's streams had it wait for begins at that's end.
    """
    steps: Steps = {}
    unrecorded = _unrecorded(job)
    for step, workers in job.steps.items():
        steps[step] = {worker: list(_without_collections(operations)) for worker, operations in workers.items()}
        _add_unrecorded(unrecorded, steps[step])
        steps[step] = {worker: _in_stream_order(operations) for worker, operations in steps[step].items()}
    return replace(job, steps=steps)


def _without_collections(operations: Sequence[Operation]) -> Iterator[Operation]:
    for one in operations:
        if one.kind != Kind.COLLECTION:
            yield one
        elif one.end_ns != one.start_ns:
            raise ValueError(f"a collection took {one.end_ns - one.start_ns} ns")


def _unrecorded(job: Job) -> dict[int, list[Worker]]:
    """What synchronized its members behind their last message, by number: the last stage, then the first line.

    Those are told by when they went on: in no step did any of them before the last of them had come so far.
    """
    last_stage = [worker for worker in job.workers if worker.stage == job.stages - 1]
    first_line = [worker for worker in job.workers if worker.line == 0]
    return {
        number: members
        for number, members in enumerate((last_stage, first_line))
        if all(_wait_for_each_other(members, workers) for workers in job.steps.values())
    }


def _wait_for_each_other(members: Sequence[Worker], workers: dict[Worker, list[Operation]]) -> bool:
    """Whether none of these went on in a step before the last of them had come as far as its first all-reduce."""
    arrived, went_on = zip(*(_goes_on(workers[worker]) for worker in members), strict=True)
    return min(went_on) > max(arrived)


def _goes_on(operations: Sequence[Operation]) -> tuple[int, int]:
    """When all before a worker's first all-reduce had ended, and when that began."""
    place = next(place for place, one in enumerate(operations) if one.kind == Kind.LAYERNORM)
    return max(one.end_ns for one in operations[:place]), operations[place].start_ns


def _add_unrecorded(unrecorded: dict[int, list[Worker]], workers: dict[Worker, list[Operation]]) -> None:
    """Add what synchronized workers: all of its members left when the first of them went on."""
    goes_on = {worker: _goes_on(operations) for worker, operations in workers.items()}
    arrived = {worker: came for worker, (came, _) in goes_on.items()}
    for number, members in unrecorded.items():
        left = min(goes_on[worker][1] for worker in members)
        for worker in members:
            place = next(place for place, one in enumerate(workers[worker]) if one.kind == Kind.LAYERNORM)
            end = max(arrived[worker], left)
            workers[worker].insert(place, Operation(worker, Kind.UNRECORDED, number, -1, arrived[worker], end))
            arrived[worker] = end


def waits_for(operations: Sequence[Operation]) -> list[list[int]]:
    """What each operation of a worker in a step waits for on its own device, by place in the order of launches.

    Messages of one kind are a stream, all else is another. A message waits for what that other held when it was
    launched; the first to be launched there afterwards waits for all messages since, sent or received: on no worker
    does compute run beside a message.
    """
    waits: list[list[int]] = []
    last: dict[Kind | None, int] = {}
    pending: list[int] = []
    for place, one in enumerate(operations):
        stream = one.kind if one.kind.is_message else None
        before = [last[key] for key in dict.fromkeys((stream, None)) if key in last]
        if one.kind.is_message:
            pending.append(place)
        else:
            before, pending = [*before, *pending], []
        last[stream] = place
        waits.append(before)
    return waits


def _in_stream_order(operations: Sequence[Operation]) -> list[Operation]:
    """The operations, each from when what it waits for has ended; their clock is off by up to a tenth of a ms."""
    ordered: list[Operation] = []
    for one, waits in zip(operations, waits_for(operations), strict=True):
        start = max([one.start_ns, *(ordered[place].end_ns for place in waits)])
        ordered.append(replace(one, start_ns=start, end_ns=max(start, one.end_ns)))
    return ordered


@dataclass(frozen=True)
class Group:
    """A process group: its name and description, and its ranks in order."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Groups:
    """The process groups of a job, each made by all ranks in one order, with the descriptions that Megatron gives.

    Messages of forwards and of backwards have a group each: torch gives each pair of ranks in a group one stream, and
    these run at once.
    """

    job: Job

    @cached_property
    def all(self) -> dict[tuple[str, object], Group]:
        """Return every group, by what it is for and whose it is."""
        job, stages, lines = self.job, range(self.job.stages), range(self.job.lines)
        members: dict[tuple[str, object], list[Worker]] = {("default_pg", None): job.workers}
        for stage in stages:
            members["DATA_PARALLEL_GROUP", stage] = [Worker(stage, line) for line in lines]
        for line in lines:
            pipeline = [Worker(stage, line) for stage in stages]
            for is_forward in (True, False):
                members["PIPELINE_MODEL_PARALLEL_GROUP", (line, is_forward)] = pipeline
            members["EMBEDDING_GROUP", line] = [pipeline[0], pipeline[-1]]
        members |= {("TENSOR_MODEL_PARALLEL_GROUP", worker): [worker] for worker in job.workers}
        return {
            key: Group(str(number), key[0], tuple(map(job.rank_of, workers)))
            for number, (key, workers) in enumerate(members.items())
        }

    def of(self, one: Operation) -> Group:
        """Return the group in which an operation communicates."""
        worker, kind = one.worker, one.kind
        if kind.is_message:
            return self.all["PIPELINE_MODEL_PARALLEL_GROUP", (worker.line, kind.is_forward)]
        if kind == Kind.UNRECORDED and one.number:
            return self.all["PIPELINE_MODEL_PARALLEL_GROUP", (worker.line, True)]
        if kind in (Kind.PARAMETERS, Kind.GRADIENTS, Kind.UNRECORDED):
            return self.all["DATA_PARALLEL_GROUP", worker.stage]
        if kind == Kind.EMBEDDING:
            return self.all["EMBEDDING_GROUP", worker.line]
        if kind == Kind.LAYERNORM:
            return self.all["TENSOR_MODEL_PARALLEL_GROUP", worker]
        return self.all["default_pg", None]

    def listed(self, rank: int) -> list[dict[str, Any]]:
        """Return a rank's groups as a trace's header lists them."""
        return [
            {"pg_name": one.name, "pg_desc": one.description, "pg_size": len(one.ranks), "ranks": one.ranks}
            for one in self.all.values()
            if rank in one.ranks
        ]


COMPUTE_STREAM = 7
STREAMS = {
    kind: 20 + number
    for number, kind in enumerate((Kind.FORWARD_SEND, Kind.FORWARD_RECV, Kind.BACKWARD_SEND, Kind.BACKWARD_RECV))
}
# What torch 2.11 calls them: the operator, the call, the range around the launch, and the kernel.
_ALL_REDUCE = ("c10d::allreduce_", "allreduce", "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
_CALLS = {
    Kind.PARAMETERS: (
        *("c10d::_allgather_base_", "_allgather_base"),
        *("nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL"),
    ),
    Kind.GRADIENTS: (
        *("c10d::_reduce_scatter_base_", "_reduce_scatter_base"),
        *("nccl:_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
    ),
    Kind.LAYERNORM: _ALL_REDUCE,
    Kind.EMBEDDING: _ALL_REDUCE,
    Kind.NORM: _ALL_REDUCE,
    Kind.UNRECORDED: _ALL_REDUCE,
}
_SEND_RECV = "ncclDevKernel_SendRecv"
_NCCL_ARGUMENTS = "(ncclDevKernelArgsStorage<4096ul>)"

CALL_NS = 1000  # what each call takes on the drawn hosts
_NESTED_NS = 100  # between the begin of a row and that of what it encloses
_AHEAD_NS = 20_000  # the first step's mark before the first kernel
_APART_NS = 100_000  # between the last end of a step and the first kernel of the next
_ORIGIN_NS = 1_000_000
_BASE_NS = 1_700_000_000_000_000_000
_PID, _ENGINE = 9, 10


@dataclass
class _Rank:
    """The rows of a rank, and its host's clock, ns, which each call moves on."""

    rank: int
    now_ns: int = _ORIGIN_NS - _AHEAD_NS
    rows: list[Event] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)

    def number(self, what: str) -> int:
        """Return the next number of what is numbered, from 1 on."""
        self.numbers[what] += 1
        return self.numbers[what]

    @contextmanager
    def within(self, name: str, category: str, **args: object) -> Iterator[int]:
        """Enclose what is called meanwhile in a row; gives the row's External id."""
        external = self.number("External id")
        args = {"External id": external} | args
        row = {"ph": "X", "cat": category, "name": name, "pid": _PID, "tid": _PID, "ts": self.now_ns / 1000}
        self.rows.append(row)
        begin, self.now_ns = self.now_ns, self.now_ns + _NESTED_NS
        yield external
        self.now_ns += _NESTED_NS
        row |= {"dur": (self.now_ns - begin) / 1000, "args": args}

    def call(self, name: str, until_ns: int = 0, category: str = "cuda_runtime", tid: int = _PID) -> int:
        """Call CUDA, and come back after CALL_NS or at an instant; return the call's correlation."""
        correlation = self.number("correlation")
        end = max(until_ns, self.now_ns + CALL_NS)
        row = {"ph": "X", "cat": category, "name": name, "pid": _PID, "tid": tid, "ts": self.now_ns / 1000}
        self.rows.append(row | {"dur": (end - self.now_ns) / 1000, "args": {"correlation": correlation}})
        self.now_ns = end
        return correlation

    def launch(self, name: str, stream: int, start_ns: int, end_ns: int, *, tid: int = _PID, **args: object) -> None:
        """Launch a kernel that runs from start to end; raises ValueError where it starts before its call is over."""
        is_nccl = name.startswith("nccl")
        called = ("cuLaunchKernelEx", 0, "cuda_driver") if is_nccl else ("cudaLaunchKernel",)
        correlation = self.call(*called, tid=tid)
        if start_ns < self.now_ns:
            raise ValueError(f"rank {self.rank} is {self.now_ns - start_ns} ns late to launch {name}")
        args = {"device": self.rank, "stream": stream, "correlation": correlation} | args
        row = {"ph": "X", "cat": "kernel", "name": name, "pid": self.rank, "tid": stream, "args": args}
        self.rows.append(row | {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000})


@dataclass(frozen=True)
class _Writer:
    """Writes a job's operations as rows of ranks."""

    job: Job
    groups: Groups

    def step(self, rank: _Rank, step: int, operations: Sequence[Operation], begin_ns: int) -> None:
        """Write a worker's step: launches and waits, and a synchronization up to the end of the last kernel."""
        pending: list[Operation] = []
        with rank.within(f"ProfilerStep#{step}", "user_annotation"):
            for one in operations:
                times = begin_ns + one.start_ns, begin_ns + one.end_ns
                if one.kind.is_message:
                    self._message(rank, one, *times)
                    pending.append(one)
                    continue
                for message in pending:
                    self._wait(rank, message)
                pending = []
                if one.kind.is_collective:
                    self._collective(rank, one, *times)
                else:
                    self._compute(rank, one, *times)
            assert not pending
            rank.call("cudaDeviceSynchronize", begin_ns + max(one.end_ns for one in operations) + CALL_NS)

    def _compute(self, rank: _Rank, one: Operation, start_ns: int, end_ns: int) -> None:
        """A microbatch's forward, its backward on autograd's thread, or the optimizer in its range."""
        if one.kind.computes:
            rank.launch(one.kind.value, COMPUTE_STREAM, start_ns, end_ns, tid=_PID if one.kind.is_forward else _ENGINE)
        else:
            with rank.within("Optimizer.step#Adam.step", "user_annotation"):
                rank.launch(one.kind.value, COMPUTE_STREAM, start_ns, end_ns)

    def _said(self, one: Operation, call: str) -> dict[str, object]:
        """What torch writes of a call in a group, on its host row and its kernel."""
        group = self.groups.of(one)
        return {
            "Collective name": call,
            "Process Group Name": group.name,
            "Process Group Description": group.description,
            "Process Group Ranks": str(list(group.ranks)),
            "Group size": len(group.ranks),
        }

    def _collective(self, rank: _Rank, one: Operation, start_ns: int, end_ns: int) -> None:
        """A collective that its caller waits for: such run on the caller's stream."""
        operator, call, ranged, kernel = _CALLS[one.kind]
        said = self._said(one, call)
        said["Seq"] = rank.number(f"Seq {said['Process Group Name']}")
        with (
            rank.within(operator, "cpu_op"),
            rank.within("record_param_comms", "cpu_op", **said) as external,
            rank.within(ranged, "user_annotation"),
        ):
            said["External id"] = external
            rank.launch(kernel + _NCCL_ARGUMENTS, COMPUTE_STREAM, start_ns, end_ns, **said)

    def _message(self, rank: _Rank, one: Operation, start_ns: int, end_ns: int) -> None:
        """A message on its own stream, which first waits for what the caller's stream holds by then."""
        call = "send" if one.kind.sends else "recv"
        mine, peer = one.worker.stage, one.peer.stage
        said = self._said(one, call) | {"Dst Rank" if one.kind.sends else "Src Rank": peer}
        with (
            rank.within("c10d::send" if one.kind.sends else "c10d::recv_", "cpu_op"),
            rank.within("record_param_comms", "cpu_op", **said) as external,
        ):
            rank.call("cudaEventRecordWithFlags")
            rank.call("cudaStreamWaitEvent")
            with rank.within(f"nccl:{call} {mine}{'->' if one.kind.sends else '<-'}{peer}", "user_annotation"):
                said["External id"] = external
                rank.launch(_SEND_RECV + _NCCL_ARGUMENTS, STREAMS[one.kind], start_ns, end_ns, **said)
            rank.call("cudaEventRecordWithFlags")

    def _wait(self, rank: _Rank, one: Operation) -> None:
        """The caller's stream waits for a message, as torch says it: with the group's name, and no ranks."""
        said = self._said(one, "wait") | {"Process Group Ranks": "[]", "Group size": 1}
        with rank.within("record_param_comms", "cpu_op", **said):
            rank.call("cudaStreamWaitEvent")


def convert(job: Job, folder: Path) -> Job:
    """Write a trace of each worker into a folder that is there; return the job as it is drawn.

    The steps, which were sampled, follow one another and are numbered so, from the first one's number on. Raises
    ValueError where a kernel would start before its launch.
    """
    shown, groups = drawn(job), Groups(job)
    writer = _Writer(job, groups)
    for worker in job.workers:
        rank, begin_ns = _Rank(job.rank_of(worker)), _ORIGIN_NS
        for step, workers in enumerate(shown.steps.values(), start=min(shown.steps)):
            writer.step(rank, step, workers[worker], begin_ns)
            begin_ns += _APART_NS + max(one.end_ns for operations in workers.values() for one in operations)
        header = {"backend": "nccl", "rank": rank.rank, "world_size": len(job.workers)}
        document = {
            "schemaVersion": 1,
            "distributedInfo": header | {"pg_config": groups.listed(rank.rank)},
            # The job's clock is one.
            "host_name": "one",
            "baseTimeNanoseconds": _BASE_NS,
            "traceEvents": rank.rows,
        }
        (folder / f"rank{rank.rank}.json").write_bytes(msgspec.json.encode(document))
    return shown
