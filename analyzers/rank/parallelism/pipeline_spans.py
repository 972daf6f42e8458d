"""Pipeline actions on the host: when each microbatch's forward and backward launched.

    main       |F0....|>  |F1....|>            |F2....|>             > up to the next message, node or forward
    messages              s         r                   r
    autograd                           |B0 nodes|          |B1 nodes|

torch's runtime for several stages writes a range for each action, `PP:1F3`, and GPipe `Forward 3`. 1F1B writes none:
its k-th forward of a step is microbatch k, and a backward is of the microbatch whose forward made its nodes. A
recomputed forward runs inside a node, and so belongs to the backward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Labelled, begins
from analyzers.rank.columns import Steps
from analyzers.rank.host import Autograd, Host, Places, forwards
from analyzers.trace import OPTIMIZER, ROOT, Category

_RUNTIME = "PP:"
# torch.distributed.pipelining.schedules: _get_profiler_function_name, _Action.__repr__; numbers that an int64 holds.
_ACTION = re.compile(r"(\d{1,9})([FBIW])(\d{1,9})")
_OVERLAPPED = re.compile(r"\((.*)\)OVERLAP_F_B")
_OF_GPIPE = re.compile(r"(Forward|Backward) (\d{1,9})")


class ActionKind(Labelled):
    """What a stage does with a microbatch; a backward is whole, or apart for inputs and for weights."""

    FORWARD = 0
    BACKWARD = 1
    BACKWARD_INPUT = 2
    BACKWARD_WEIGHT = 3

    @property
    def label(self) -> str:
        """Return the letter that torch's schedules and every output use."""
        return "FBIW"[self]


class SpanLaunches(IntEnum):
    """Which launches inside a span are the action's: all, or those outside of autograd's nodes, or inside."""

    ALL = 0
    OUTSIDE_NODES = 1
    IN_NODES = 2


@dataclass(frozen=True, eq=False)
class ActionSpans(Columns):
    """Actions by start on the host, a row each, ns; `stage` is UNKNOWN where no range names it.

    Spans are disjoint, but for a forward and a backward that torch overlaps: of one span, the forward first.
    """

    start_ns: Int64
    end_ns: Int64
    kind: NDArray[np.int8]
    stage: Int64
    microbatch: Int64
    launches: NDArray[np.int8]


def action_spans(host: Host, nodes: Autograd, messages: Int64, steps: Steps) -> ActionSpans | None:
    """Return the actions of one rank whose pipeline's messages were launched at some instants; None if not known."""
    named = _from_runtime(host)
    if len(named):
        return named
    forward, backward = _of_gpipe(host)
    if forward.shape[1]:
        begun = np.r_[forward[0], backward[0], nodes.spans.start_ns]
        extent = _up_to_next(forward, np.sort(np.r_[messages, begun, _steps_and_optimizers(host, steps)]))
        return join_spans(extent, backward, forward[2], backward[2])
    cuts = np.sort(np.r_[messages, _steps_and_optimizers(host, steps)])
    began = _model_forwards(host, nodes)
    if began is None:
        began = _forwards_between(host, nodes, cuts)
    if not len(began):
        return None
    extent = _up_to_next(np.stack([began, began]), np.sort(np.r_[cuts, began, nodes.spans.start_ns]))
    number = number_in_step(began, steps)
    ran = _find_backwards(nodes, extent, np.sort(np.r_[cuts, began]))
    if ran is None:
        return None
    start, end, forward_index = ran
    same_step = steps.index_at(start) == steps.index_at(began[forward_index])
    backward = np.stack([start, end])[:, same_step]
    return join_spans(extent, backward, number, number[forward_index[same_step]])


def _from_runtime(host: Host) -> ActionSpans:
    """Return what torch's schedule runtime names; of an overlapped pair both, in one span."""
    events = host.events
    rows = np.flatnonzero((events.category == Category.ANNOTATION) & events.named(_RUNTIME))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    parsed = {code: _parse_actions(events.names[code]) for code in np.unique(events.name[rows]).tolist()}
    records = [
        (events.start_ns[row], events.end_ns[row], *action)
        for row, code in zip(rows.tolist(), events.name[rows].tolist(), strict=True)
        for action in parsed[code]
    ]
    columns = np.array(records, dtype=np.int64).reshape(-1, 6).T
    start, end, stage, kind, microbatch, launches = columns
    return ActionSpans(start, end, kind.astype(np.int8), stage, microbatch, launches.astype(np.int8))


def _parse_actions(name: str) -> list[tuple[int, int, int, int]]:
    """Return stage, kind, microbatch and launches of the actions in a range's name; none for messages and the like."""
    label = name.removeprefix(_RUNTIME)
    several = _OVERLAPPED.fullmatch(label)
    matches = [_ACTION.fullmatch(part.strip()) for part in (several[1].split(";") if several else [label])]
    actions = [(int(match[1]), "FBIW".index(match[2]), int(match[3])) for match in matches if match]
    if not several:
        return [(*action, SpanLaunches.ALL) for action in actions]
    actions.sort(key=lambda action: action[1])
    if len(actions) != 2 or actions[0][1] != ActionKind.FORWARD or actions[1][1] == ActionKind.FORWARD:
        return []  # what is launched for which of them cannot be told
    return [(*actions[0], SpanLaunches.OUTSIDE_NODES), (*actions[1], SpanLaunches.IN_NODES)]


def _of_gpipe(host: Host) -> tuple[Int64, Int64]:
    """Return start, end and microbatch of the forwards, and of the backwards, that GPipe names."""
    events = host.events
    rows = np.flatnonzero(events.category == Category.ANNOTATION)
    parsed = {code: _OF_GPIPE.fullmatch(events.names[code]) for code in np.unique(events.name[rows]).tolist()}
    number = {code: int(match[2]) for code, match in parsed.items() if match}
    rows = rows[np.isin(events.name[rows], list(number))]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    microbatch = np.array([number[code] for code in events.name[rows].tolist()], dtype=np.int64)
    columns = np.stack([events.start_ns[rows], events.end_ns[rows], microbatch])
    is_forward = np.array([events.names[code].startswith("F") for code in events.name[rows].tolist()], dtype=bool)
    return columns[:, is_forward], columns[:, ~is_forward]


def _steps_and_optimizers(host: Host, steps: Steps) -> Int64:
    began: Int64 = host.events.start_ns[host.named(OPTIMIZER)]
    return np.concatenate([began, steps.start_ns, steps.end_ns])


def _model_forwards(host: Host, nodes: Autograd) -> Int64 | None:
    """Return when the model's own forwards began, outside of backwards; None where no range is the model's."""
    ranges, modules, _ = forwards(host)
    places = Places(ranges.thread, ranges.start_ns)
    outer = (ranges.outermost(places) == np.arange(len(ranges))) & (nodes.spans.around(places) < 0)
    names = np.array([module.name for module in modules], dtype=object)
    distinct = set(names[outer].tolist())
    if ROOT in distinct:
        outer &= names == ROOT
    elif len(distinct) != 1:
        return None  # blocks, or a loss beside the model: which of them begins a microbatch is not said
    return np.sort(ranges.start_ns[outer])


def _forwards_between(host: Host, nodes: Autograd, cuts: Int64) -> Int64:
    """Return when stretches of operators that autograd goes back to began, each between messages and backwards."""
    makers = np.unique(nodes.maker[nodes.maker >= 0])
    makers = makers[nodes.spans.around(host.places(makers)) < 0]
    made = np.sort(host.events.start_ns[makers])
    others = np.sort(np.r_[cuts, nodes.spans.start_ns])
    is_first = begins(np.searchsorted(others, made, side="right"))
    return made[is_first]


def _up_to_next(spans: Int64, cuts: Int64) -> Int64:
    """Return spans with their ends moved to the next cut: a loss is launched behind its forward."""
    following = np.searchsorted(cuts, spans[1], side="right")
    end = np.r_[cuts, np.iinfo(np.int64).max][following]
    return np.stack([spans[0], end])


def number_in_step(start_ns: Int64, steps: Steps) -> Int64:
    """Return how many forwards of the same step began before each."""
    step = steps.index_at(start_ns)
    first = np.flatnonzero(begins(step))
    return np.arange(len(start_ns)) - np.repeat(first, np.diff(np.r_[first, len(start_ns)]))


def _find_backwards(nodes: Autograd, forward: Int64, cuts: Int64) -> tuple[Int64, Int64, Int64] | None:
    """Return start, end and the forward of each backward; None where a forward has several, or they overlap.

    Nodes between two cuts that no forward made (recomputation's, unnumbered) go with the node before.
    """
    start, end = nodes.spans.start_ns, nodes.spans.end_ns
    block = np.searchsorted(cuts, start, side="right")
    made = np.where(nodes.maker >= 0, nodes.host.events.start_ns[nodes.maker], UNKNOWN)
    index = np.searchsorted(forward[0], made, side="right") - 1
    index = np.where((index >= 0) & (made < forward[1][index]) & (made != UNKNOWN), index, UNKNOWN)
    index = _fill_unknown(index, block)
    index = _fill_unknown(index[::-1], block[::-1])[::-1]
    start, end, block, index = (column[index >= 0] for column in (start, end, block, index))
    first = np.flatnonzero(begins(block) | begins(index))
    if not len(first):
        return start, end, index
    owner = index[first]
    if len(np.unique(owner)) < len(owner):
        return None
    begin, finish = start[first], np.maximum.reduceat(end, first)
    return None if (begin[1:] < finish[:-1]).any() else (begin, finish, owner)


def _fill_unknown(values: Int64, block: Int64) -> Int64:
    """Return unknown values filled with the last known one in the same block."""
    place = np.arange(len(values))
    last = np.maximum.accumulate(np.where((values >= 0) | begins(block), place, 0))
    filled: Int64 = values[last]
    return filled


def join_spans(forward: Int64, backward: Int64, forward_number: Int64, backward_number: Int64) -> ActionSpans:
    """Return forwards and backwards (rows of starts and ends) as actions with their microbatches, by start."""
    start, end = np.r_[forward[0], backward[0]], np.r_[forward[1], backward[1]]
    order = np.argsort(start, kind="stable")
    kind = np.repeat([ActionKind.FORWARD, ActionKind.BACKWARD], [forward.shape[1], backward.shape[1]])
    unknown = np.full(len(start), UNKNOWN, dtype=np.int64)
    number = np.r_[forward_number, backward_number]
    everything = np.full(len(start), SpanLaunches.ALL, dtype=np.int8)
    return ActionSpans(start[order], end[order], kind.astype(np.int8)[order], unknown, number[order], everything)
