"""Simulator of distributed training, which knows the true price of what is wrong in a run.

    world = replace(HOST_BOUND, ranks=2, layers=8, buckets=4)
    fault = late_host(rank=1, ms=3)
    run = simulate(world.having(fault))
    write(run, folder)            what `tracer record` would leave there: rank0.json.gz, light/, run.json with controls
    run.step_ns                   the true unprofiled step
    price(world, fault)           what the fault costs a step, ns: the same run is simulated again without it

    world       what is trained, how fast hosts, devices and links are, and faults
    program     what a rank's host does in a step: one list of operations, for each strategy
    host        does them; dense time is longer under a profiler, sleeps, input and what blocks are not
    device      streams, events, the launch queue, collectives, on one heap of instants
    simulation  blocks of steps as the recorder takes them, and the steady pace without it
    run_folder  Kineto's JSON and the manifest
    identities  what every run must obey
    cases       named worlds with faults, and a table of what these truly cost

What another setting would bring has a true answer too: steady_pace(replace(world, buckets=1)), link_gbps=..., ranks=...

It knows nothing of `analyzers` or `tracer`, whose judge it is: nothing here is a graph of dependencies replayed, each
instant follows from what has happened before it. A fault leaves all other chance alone: its price has no noise of
its own.

What is not modelled: cores that threads share, threads of a rank that work at the same time, CUDA graphs, kernels that
overlap on a stream, links that two collectives share, clocks that drift, rows of Python functions; DataParallel, gloo,
experts, context parallelism, recomputation, interleaved pipelines.
"""

from tests.support.simulation.identities import violations
from tests.support.simulation.run_folder import write
from tests.support.simulation.simulation import Simulated, price, simulate, steady_pace
from tests.support.simulation.world import (
    BALANCED,
    DDP,
    DEVICE_BOUND,
    FSDP,
    HOST_BOUND,
    PIPELINE,
    STRATEGIES,
    Fault,
    World,
    allocations,
    blocking_items,
    broadcast_buffers,
    collections,
    event_waits,
    late_host,
    many_launches,
    moved_layers,
    pageable_input,
    pageable_output,
    random_healthy,
    saved_steps,
    slow_gpu,
    slow_host,
    slow_input,
    slow_link,
    small_reductions,
    starved_input,
    synchronized_batches,
    unequal_stage,
    uneven_work,
    unused_parameters,
)

__all__ = [
    "BALANCED",
    "DDP",
    "DEVICE_BOUND",
    "FSDP",
    "HOST_BOUND",
    "PIPELINE",
    "STRATEGIES",
    "Fault",
    "Simulated",
    "World",
    "allocations",
    "blocking_items",
    "broadcast_buffers",
    "collections",
    "event_waits",
    "late_host",
    "many_launches",
    "moved_layers",
    "pageable_input",
    "pageable_output",
    "price",
    "random_healthy",
    "saved_steps",
    "simulate",
    "slow_gpu",
    "slow_host",
    "slow_input",
    "slow_link",
    "small_reductions",
    "starved_input",
    "steady_pace",
    "synchronized_batches",
    "unequal_stage",
    "uneven_work",
    "unused_parameters",
    "violations",
    "write",
]
