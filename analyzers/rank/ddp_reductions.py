"""DDP's gradient reductions of one rank: ready, launched, and their gradients.

backward thread   |conv  |copy in| |norm |copy in|all_reduce| |conv |copy in| ...
stream 7             ####  ##         ###   ##                   ####  ##
all_reduce                                    ^ready  ##########
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, begins, distinct, first_of, places_since, rows_by, values_at
from analyzers.rank.columns import Attribution, Communication, profiler_steps
from analyzers.rank.strategies import DDP, STRATEGIES, Purpose
from analyzers.run import RankTrace
from analyzers.trace import ACCUMULATE, Category, Collective, Kind


@dataclass(frozen=True, eq=False)
class Reductions(Columns):
    """One row for each all-reduce of gradients launched in a step, by step and call.

    `kernel` is its row in the rank's communication, `pass_` counts backward passes within the step, `place` all-reduces
    within the pass. `ready_ns` is the end of the last kernel launched before the host's call on its thread,
    `launched_ns` the start of that call: in a light window, which has no calls, of the kernel's own launch, which is
    estimated where it has none of these either; -1 unknown.
    """

    kernel: Int64
    step: Int64
    pass_: Int64
    place: Int64
    ready_ns: Int64
    launched_ns: Int64


@dataclass(frozen=True, eq=False)
class Gradients(Columns):
    """One row for each gradient taken in a step, in order.

    Its node's row among the rank's events, line, elements and shape (indexes `shapes`), and the reduction (a row of
    Reductions) it went with, -1 for none.
    """

    row: Int64
    step: Int64
    pass_: Int64
    line: Int64
    elements: Int64
    shape: Int64
    shapes: tuple[tuple[int, ...], ...]
    reduction: Int64

    def by_reduction(self, count: int) -> list[list[int]]:
        """Return for each of `count` reductions the gradients (rows) that went with it, in order."""
        gradients: list[list[int]] = [[] for _ in range(count)]
        for index, reduction in enumerate(self.reduction.tolist()):
            if reduction >= 0:
                gradients[reduction].append(index)
        return gradients


def reductions(trace: RankTrace, attribution: Attribution, comm: Communication) -> tuple[Reductions, Gradients]:
    """Return one rank's reductions, and the gradients in its steps."""
    events = trace.events
    in_buckets = (comm.purpose == Purpose.GRADIENTS) & (comm.strategy == STRATEGIES.index(DDP))
    kernels = np.flatnonzero((comm.kind == Collective.ALL_REDUCE) & in_buckets & (comm.step != UNKNOWN))
    calls = comm.called[kernels]
    kernels, calls = kernels[calls >= 0], calls[calls >= 0]
    order = np.lexsort((events.start_ns[calls], comm.step[kernels]))
    kernels, calls = kernels[order], calls[order]
    step, call_ns = comm.step[kernels], events.start_ns[calls]
    passes = attribution.pass_at(call_ns)
    begins_step, begins_pass = begins(step), begins(step) | begins(passes)
    told = not trace.is_light
    reduced = Reductions(
        kernel=kernels,
        step=step,
        pass_=passes - first_of(passes, begins_step),
        place=places_since(begins_pass),
        ready_ns=ready_at(trace, attribution, events.thread[calls], call_ns),
        launched_ns=call_ns if told else comm.launched_ns[kernels],
    )
    return reduced, _find_gradients(trace, attribution, calls, passes, step)


def ready_at(trace: RankTrace, attribution: Attribution, threads: Int64, instants_ns: Int64) -> Int64:
    """Return the end of the last compute that a thread launched (a CPU's: ran) before each instant on the host; -1."""
    events = trace.events
    if trace.is_cpu_run:
        ended, thread, rows = events.end_ns[attribution.rows], events.thread[attribution.rows], attribution.rows
    else:
        mine = (events.kind[attribution.rows] == Kind.COMPUTE) & (events.category[attribution.rows] == Category.KERNEL)
        mine &= (attribution.launches >= 0) & trace.timed.on_device[attribution.rows]
        launches, rows = attribution.launches[mine], attribution.rows[mine]
        ended, thread = events.start_ns[launches], events.thread[launches]
    order = np.lexsort((ended, thread))
    by_thread = rows_by(thread[order])
    ready = np.full(len(instants_ns), UNKNOWN, dtype=np.int64)
    for caller, asked in rows_by(threads).items():
        on_thread = order[by_thread.get(caller, order[:0])]
        last = np.searchsorted(ended[on_thread], instants_ns[asked], side="left") - 1
        ends = trace.timed.end_ns[rows[on_thread]]
        ready[asked] = values_at(ends, last)
    return ready


def _find_gradients(trace: RankTrace, attribution: Attribution, calls: Int64, passes: Int64, step: Int64) -> Gradients:
    events = trace.events
    steps = profiler_steps(events)
    rows = attribution.gradient_row
    taken_ns = events.start_ns[rows]
    number = steps.number_at(taken_ns)
    inside = number != UNKNOWN
    rows, taken_ns, number, line = rows[inside], taken_ns[inside], number[inside], attribution.gradient_line[inside]
    pass_ = attribution.pass_at(taken_ns)
    shape, shapes = _find_shapes(trace, attribution, rows)
    following = np.searchsorted(events.start_ns[calls], taken_ns) if len(calls) else np.zeros(len(rows), dtype=np.int64)
    reduction = np.where(following < len(calls), following, UNKNOWN)
    same = (reduction >= 0) & (values_at(passes, reduction) == pass_) & (values_at(step, reduction) == number)
    return Gradients(
        row=rows,
        step=number,
        pass_=pass_ - first_of(pass_, begins(number)),
        line=line,
        elements=np.array([int(np.prod(sizes, dtype=np.int64)) for sizes in shapes] + [UNKNOWN])[shape],
        shape=shape,
        shapes=shapes,
        reduction=np.where(same, reduction, UNKNOWN),
    )


def _find_shapes(trace: RankTrace, attribution: Attribution, rows: Int64) -> tuple[Int64, tuple[tuple[int, ...], ...]]:
    """Return the shape that each gradient's node was given, as its operator inside says; -1 where none is recorded."""
    events = trace.events
    takers = np.flatnonzero((events.inputs >= 0) & events.named(ACCUMULATE))
    holder = attribution.host.around(takers, rows)
    takers, holder = takers[holder >= 0], holder[holder >= 0]
    codes: dict[tuple[int, ...], int] = {}
    code_of_inputs = np.full(len(events.shapes), UNKNOWN, dtype=np.int64)
    given = distinct(events.inputs[takers])
    # Codes count the shapes in the order in which they come first.
    for inputs in given.columns[0][np.argsort(given.first)].tolist():
        shapes = events.shapes[inputs].shapes
        if shapes and all(isinstance(size, int) for size in shapes[0]):
            code_of_inputs[inputs] = codes.setdefault(tuple(shapes[0]), len(codes))
    code = np.full(len(events), UNKNOWN, dtype=np.int64)
    said = code_of_inputs[events.inputs[takers]]
    code[holder[said >= 0]] = said[said >= 0]
    return code[rows], tuple(codes)
