"""Attribution of device events to modules by pass, or to other lines.

    forward     a kernel belongs to the innermost module whose forward held its launch
    backward    to the module that made the node of autograd that launched it (`analyzers.rank.host.autograd_nodes`)
    lines       optimizer, loss, packing, copies, replicas and other have lines of their own

Modules come from ranges on the host, else from FSDP's own, which name what it wraps; where a
trace has neither, forward operators that own parameters stand for their modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, distinct, find, places_since, rows_by, sorted_set, values_at
from analyzers.rank.host import REGION, Autograd, Host, LayerSource, Places, Spans, autograd, forwards
from analyzers.rank.strategies import GRAPH_LAUNCH, SPREADING, Launches, Purpose, packing
from analyzers.run import RankTrace
from analyzers.trace import C10D, DDP_FORWARD, DP_FORWARD, NODE, OPTIMIZER, STEP, Category, Events, Kind, Module


class OtherLine(IntEnum):
    """Lines that are no layers; they come first among an attribution's lines."""

    OTHER = 0
    OPTIMIZER = 1
    LOSS = 2
    PACKING = 3
    COPIES = 4
    REPLICAS = 5


# What stands for the type of a line that is no layer, under the line's name in brackets.
OWN_LINES = tuple(Module(f"({own.name.lower()})", own.name.lower()) for own in OtherLine)
# Every name of a line that is no layer; communication that is for no layer is a line by its purpose.
NO_LAYERS = frozenset([*(line.name for line in OWN_LINES), *(f"({purpose.label})" for purpose in Purpose)])
_LOSS = re.compile("loss|cross_entropy|criterion", re.IGNORECASE)
_COPY = re.compile(r"aten::(?:copy_|to|_to_copy|clone|contiguous|pin_memory)$")
# Operators that only record a collective.
_RECORDING = (C10D, "record_param_comms")


def is_layer(name: str) -> bool:
    """Whether a line of that name is a layer: a name in brackets may be a module's."""
    return name not in NO_LAYERS


def layer_name(module: str) -> str:
    """Return a module's name as a line's, told apart from the lines that are no layers."""
    return module if is_layer(module) else f"{module} module"


@dataclass(frozen=True, eq=False)
class Attribution:
    """Rows of devices (on a CPU run operators) and the line each belongs to, one of `lines`; `backward` of them.

    Gradients are the nodes that take a parameter's gradient, by start: their rows, the lines of their parameters, the
    forward and backward pass each is of, counted over the trace. `pass_start_ns` is when each pass's forward began.
    `nodes` are autograd's, and `modules` the forwards that modules are known by. Communication's rows, sorted, with the
    lines of their calls are `comm_row`, `comm_line`, `comm_backward`; `comm_recomputed`: a forward calls
    that the backward runs again (activation checkpointing).
    """

    host: Host
    nodes: Autograd
    modules: Spans
    rows: Int64
    launches: Int64
    line: Int64
    backward: Mask
    lines: tuple[Module, ...]
    source: LayerSource
    gradient_row: Int64
    gradient_line: Int64
    pass_start_ns: Int64
    comm_row: Int64
    comm_line: Int64
    comm_backward: Mask
    comm_recomputed: Mask

    @cached_property
    def places(self) -> Places:
        """Return where rows were launched."""
        return self.host.places(self.launches)

    def pass_at(self, instant_ns: Int64) -> Int64:
        """Return the pass that each instant on the host lies in or after, -1 before the first."""
        return np.searchsorted(self.pass_start_ns, instant_ns, side="right") - 1

    def calling(self, rows: Int64) -> tuple[Int64, Mask]:
        """Return for rows of communication the module (its line) that calls, -1 for none, and whether backward does."""
        index = find(self.comm_row, rows)
        line, backward = values_at(self.comm_line, index), values_at(self.comm_backward, index, False)
        is_module = (line >= len(OtherLine)) & (self.source in (LayerSource.MODULES, LayerSource.FSDP))
        # A compiled region is one whatever other ranges there are.
        is_module |= np.array([*(one.type == REGION for one in self.lines), False], dtype=bool)[line]
        return np.where(is_module, line, UNKNOWN), backward

    def recomputes(self, rows: Int64) -> Mask:
        """Whether a forward that the backward runs again calls for rows of communication."""
        return values_at(self.comm_recomputed, find(self.comm_row, rows), False)


def attribution(trace: RankTrace) -> Attribution:
    """Attribute every row of a rank's devices."""
    host = Host(trace.events)
    events = host.events
    if trace.is_cpu_run:
        workers = np.isin(events.thread, np.unique(events.thread[trace.gloo]))
        rows = np.flatnonzero((events.category == Category.OPERATOR) & ~workers & ~events.named(C10D))
        launches = rows
    else:
        rows = trace.device_rows
        launches = host.launches(rows)
    communicates = trace.gloo if trace.is_cpu_run else (events.kind == Kind.COMM) | (trace.timed.kind == Kind.COMM)
    comm = np.flatnonzero(communicates)
    return _Attributing(host).run(rows, launches, comm)


class _Attributing:
    """What the attribution of one rank's rows looks at."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.nodes: Autograd = autograd(host)
        self.node_spans = self.nodes.spans
        ranges, modules, self.source = forwards(host)
        self.ranges = ranges
        gradients = np.flatnonzero(self.nodes.is_gradient & (self.nodes.maker >= 0))
        tops = self.nodes.top_operators(host.places(self.nodes.maker[gradients]))
        self.pass_start_ns, owners, number = _passes(host.events, tops, host.events.start_ns[self.nodes.row[gradients]])
        self.lines = _Lines()
        self.line_of_range = np.full(len(modules) + 1, UNKNOWN, dtype=np.int64)
        # In the order of the forward, whichever thread runs it: checkpointed modules run again in the backward's.
        line_of_module: dict[Module, int] = {}
        for index in np.argsort(ranges.start_ns, kind="stable").tolist():
            module = modules[index]
            if module not in line_of_module:
                line_of_module[module] = self._line_of_module(module)
            self.line_of_range[index] = line_of_module[module]
        # Which operators own parameters, and the line each is.
        self.owner_line = np.full(len(host.events) + 1, UNKNOWN, dtype=np.int64)
        if self.source == LayerSource.OPERATORS:
            self.owner_line[owners] = self._lines_of_owners(owners, number)

    def _lines_of_owners(self, owners: Int64, number: Int64) -> Int64:
        """Return the line of each operator that owns parameters, by its name and its number in its pass."""
        events = self.host.events
        alike = distinct(events.name[owners], number)
        line = np.full(len(alike), UNKNOWN, dtype=np.int64)
        for index in np.argsort(alike.first).tolist():
            name = str(events.names[events.name[owners[alike.first[index]]]]).removeprefix("aten::")
            # Through some operators gradients reach all parameters at once.
            if name not in SPREADING:
                line[index] = self.lines.code(Module(f"{name}_{alike.columns[1][index]}", name))
        return line[alike.index]

    def run(self, rows: Int64, launches: Int64, comm: Int64) -> Attribution:
        """Attribute every row to a line, and the calls of the rows `comm`."""
        line, backward = self._lines_of(launches)
        comm_launches = self.host.launches(comm)
        comm_line, comm_backward = self._lines_of(comm_launches)
        self._packing(launches, line, backward)
        line[self.host.inside(self.host.places(launches), OPTIMIZER)] = OtherLine.OPTIMIZER
        line = self._with_graphs(launches, line)
        if len(self.host.named(DP_FORWARD)) and self.source == LayerSource.OPERATORS:
            self.source = LayerSource.NODES
        gradient = self.nodes.row[self.nodes.is_gradient]
        gradient_line = self._at(self.host.places(self.nodes.maker[self.nodes.is_gradient]))
        return Attribution(
            host=self.host,
            nodes=self.nodes,
            modules=self.ranges,
            rows=rows,
            launches=launches,
            line=line,
            backward=backward,
            lines=self.lines.known,
            source=self.source,
            gradient_row=gradient,
            gradient_line=gradient_line,
            pass_start_ns=self.pass_start_ns,
            comm_row=comm,
            comm_line=comm_line,
            comm_backward=comm_backward,
            comm_recomputed=self._recomputed(comm_launches),
        )

    def _line_of_module(self, module: Module) -> int:
        # torch.nn's losses are called so; the one that owns parameters (AdaptiveLogSoftmaxWithLoss) is a layer.
        is_loss = module.type.endswith("Loss") and not module.type.endswith("WithLoss")
        return OtherLine.LOSS if is_loss else self.lines.code(Module(layer_name(module.name), module.type))

    def _lines_of(self, launches: Int64) -> tuple[Int64, Mask]:
        """Return lines by the innermost module or node around each launch; nodes count where their forward ran."""
        host, nodes = self.host, self.nodes
        places = host.places(launches)
        node, inner = self.node_spans.around(places), self.ranges.around(places)
        started = values_at(self.ranges.start_ns, inner, np.iinfo(np.int64).min)
        by_node = (node >= 0) & (values_at(self.node_spans.start_ns, node, 0) >= started)
        makers = host.places(values_at(nodes.maker, node))
        line = self._at(
            Places(
                np.where(by_node, makers.thread, places.thread), np.where(by_node, makers.instant_ns, places.instant_ns)
            )
        )
        replica = values_at(self._replica_nodes(), node)
        return np.where(by_node & (replica >= 0), replica, line), node >= 0

    def _recomputed(self, launches: Int64) -> Mask:
        """Whether a module's forward holds launches inside a node of the backward."""
        places = self.host.places(launches)
        node, inner = self.node_spans.around(places), self.ranges.around(places)
        began = values_at(self.node_spans.start_ns, node, 0)
        recomputed: Mask = (node >= 0) & (inner >= 0) & (values_at(self.ranges.start_ns, inner, 0) > began)
        return recomputed

    def _replica_nodes(self) -> Int64:
        """Return lines for nodes whose forward ran unseen on nn.DataParallel's threads, numbered by name in order."""
        nodes, events = self.nodes, self.host.events
        line = np.full(len(nodes.row), UNKNOWN, dtype=np.int64)
        unseen = np.flatnonzero((nodes.maker < 0) & (events.forward[nodes.row] >= 0))
        if not len(self.host.named(DP_FORWARD)) or not len(unseen):
            return line
        row = nodes.row[unseen]
        keys = (events.forward[row], events.name[row], events.forward_thread[row])
        order = np.lexsort(keys)
        begins = np.r_[
            True, (np.diff(events.name[row][order]) != 0) | (np.diff(events.forward_thread[row][order]) != 0)
        ]
        number = np.empty(len(row), dtype=np.int64)
        number[order] = places_since(begins)
        # Lines come in the order of the forward.
        for index in np.argsort(events.forward[row], kind="stable").tolist():
            name = re.sub(r"Backward\d*$", "", events.names[events.name[row[index]]].removeprefix(NODE))
            line[unseen[index]] = self.lines.code(Module(f"{name}_{number[index]}", name))
        return line

    def _at(self, places: Places) -> Int64:
        """Return the line for each place in the forward."""
        line = self.line_of_range[self.ranges.around(places)]
        top = self.nodes.top_operators(places)
        by_name = self._lines_by_name(top)
        return np.where(line >= 0, line, np.where(self.owner_line[top] >= 0, self.owner_line[top], by_name))

    def _lines_by_name(self, top: Int64) -> Int64:
        """Return lines for operators that own no parameters, by operator name; -1 is no operator."""
        events = self.host.events
        line = np.full(len(top), OtherLine.OTHER, dtype=np.int64)
        inside = np.isin(top, sorted_set(self._model_operators(top)))
        known = np.flatnonzero(top >= 0)
        for code, places in rows_by(events.name[top[known]]).items():
            named, name = known[places], events.names[code]
            if _LOSS.search(name):
                line[named] = OtherLine.LOSS
                continue
            is_copy = _COPY.match(name) is not None
            line[named] = OtherLine.COPIES if is_copy else OtherLine.OTHER
            if name.startswith(_RECORDING) or name.removeprefix("aten::") in SPREADING:
                continue
            differentiable = named[events.forward[top[named]] >= 0]
            in_model = differentiable[inside[differentiable]]
            if not is_copy:
                line[differentiable] = OtherLine.LOSS
            if self.source == LayerSource.OPERATORS and len(in_model):
                short = name.removeprefix("aten::")
                line[in_model] = self.lines.code(Module(short, short))
        return line

    def _model_operators(self, top: Int64) -> Int64:
        """Return the operators that run inside a model's forward, as far as the trace tells what is inside."""
        forwards = self.host.named(DDP_FORWARD, DP_FORWARD)
        if self.source != LayerSource.OPERATORS:
            return top[:0]
        if not len(forwards):
            return top
        return top[self.host.spans(forwards).outermost(self.host.places(top)) >= 0]

    def _packing(self, launches: Int64, line: Int64, backward: Mask) -> None:
        """Mark what exists only for communication, and what replicas ran unseen."""
        packed = packing(Launches(self.host, self.nodes, self.ranges, launches, backward.copy()))
        line[packed.rows] = OtherLine.PACKING
        backward |= packed.backward
        if packed.replicas is not None:
            line[packed.replicas] = OtherLine.REPLICAS

    def _with_graphs(self, launches: Int64, line: Int64) -> Int64:
        """Return lines with one for each captured graph in a step that no module holds, in order."""
        events = self.host.events
        named = np.array([name.startswith(GRAPH_LAUNCH) for name in events.names], dtype=bool)
        graphs = (launches >= 0) & named[events.name[launches]] & (line == OtherLine.OTHER)
        if not graphs.any():
            return line
        steps = np.sort(events.start_ns[self.host.named(STEP)])
        rows = np.unique(launches[graphs])
        step = np.searchsorted(steps, events.start_ns[rows], side="right")
        order = np.lexsort((events.start_ns[rows], step))
        first = np.r_[True, np.diff(step[order]) != 0]
        position = places_since(first)
        number = np.empty(len(rows), dtype=np.int64)
        number[order] = position
        codes = np.array([self.lines.code(Module(f"CUDA graph {k}", "CUDA graph")) for k in range(position.max() + 1)])
        return np.where(graphs, values_at(codes, values_at(number, find(rows, launches))), line)


class _Lines:
    """Lines by number, those that are no layers first."""

    def __init__(self) -> None:
        self._codes = {line: code for code, line in enumerate(OWN_LINES)}

    def code(self, line: Module) -> int:
        """Return the number for a line, which may be new."""
        return self._codes.setdefault(line, len(self._codes))

    @property
    def known(self) -> tuple[Module, ...]:
        """Return all lines by number."""
        return tuple(self._codes)


def _passes(events: Events, tops: Int64, gradient_ns: Int64) -> tuple[Int64, Int64, Int64]:
    """Return when each forward pass began, parameter-owning operators by start, and each one's number by name.

    A pass is a stretch of such operators in which no gradient is taken. Numbers begin anew with each pass.
    """
    owners = sorted_set(tops[tops >= 0])
    owners = owners[np.argsort(events.start_ns[owners], kind="stable")]
    start = events.start_ns[owners]
    taken = np.searchsorted(np.sort(gradient_ns), start)
    is_first = begins(taken)
    alike = distinct(np.cumsum(is_first), events.name[owners]).index
    order = np.argsort(alike, kind="stable")
    number = np.empty(len(owners), dtype=np.int64)
    number[order] = places_since(begins(alike[order]))
    return start[is_first], owners, number
