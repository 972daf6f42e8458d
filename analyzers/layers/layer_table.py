"""Row types of layers: each module's compute and share of communication.

A bucket's reduction is shared out among the layers whose gradients it holds, by their elements, to the nanosecond; a
sharded module has its own collectives; what is for no layer (buffers, DataParallel's copies) is a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from operator import sub

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, none_if_negative
from analyzers.collectives import Exchange
from analyzers.layers.ddp_buckets import Buckets, taken
from analyzers.layers.strategies import PASSES
from analyzers.notices import Code, Notice
from analyzers.rank import (
    LayerSource,
    Measured,
    OtherLine,
    Parts,
    Purpose,
    RunSummary,
    device_label,
    is_layer,
    layer_name,
)
from analyzers.ranks import RankIndex, RankNumber
from analyzers.run import LISTED_RANKS, Manifest
from analyzers.statistics import Spread, row_columns, spreads
from analyzers.texts import listed
from analyzers.trace import Collective, Module, itemsize

# From this share (10 %) of the backward on, what belongs to no layer is worth a warning.
MUCH_LOST = 0.1

# What gradients take that belong to no layer.
GRADIENTS = f"({Purpose.GRADIENTS.label})"

Key = tuple[str, str, bool | None]  # kind, pass, prefetched


@dataclass
class _Sum:
    """Communication of one kind and pass, added up."""

    count: int = 0
    nbytes: int | None = 0
    dur_ns: int = 0
    exposed_ns: int = 0
    wait_ns: int | None = 0

    def add(self, nbytes: int | None, dur_ns: int, exposed_ns: int, wait_ns: int | None) -> None:
        self.count += 1
        self.nbytes = _plus(self.nbytes, nbytes)
        self.dur_ns += dur_ns
        self.exposed_ns += exposed_ns
        self.wait_ns = _plus(self.wait_ns, wait_ns)


def _plus(total: int | None, more: int | None) -> int | None:
    """Return a sum that is unknown where a part of it is."""
    return None if total is None or more is None else total + more


@dataclass
class _OpenLine:
    """One line of one window in the making."""

    type: str
    passes_ns: list[int] = field(default_factory=lambda: [0, 0])
    copy_ns: int = 0
    parameters: int = 0
    gradient_bytes: int | None = 0
    buckets: dict[int, int] = field(default_factory=dict)  # elements of the line's gradients in each
    comm: dict[Key, _Sum] = field(default_factory=dict)


Lines = dict[str, _OpenLine]
Windows = dict[tuple[int, int], Lines]  # by device and step


def layer_rows(exchanged: Exchange, buckets: Buckets) -> list[LayerRow]:
    """Return a row per line and window, by rank, device and step; layers in their forward's order, other lines last."""
    return [row for index, number, _ in exchanged.run.numbered() for row in _of_rank(exchanged, buckets, index, number)]


def _of_rank(exchanged: Exchange, buckets: Buckets, index: RankIndex, number: RankNumber) -> Iterator[LayerRow]:
    run = exchanged.run
    measured = run.measured[index]
    wait_ns = exchanged.wait_ns(index)
    windows = _compute(measured, buckets)
    _reductions(windows, measured, (buckets, buckets.number[index]), wait_ns)
    _gradients(windows, measured, buckets, run.manifest or Manifest())
    _other_communication(windows, measured, buckets, wait_ns, exchanged.nbytes(index))
    for device, step in zip(measured.windows.device.tolist(), measured.windows.step.tolist(), strict=True):
        for name, line in sorted(windows[device, step].items(), key=lambda item: not is_layer(item[0])):
            yield _row(number, device, step, name, line)


def _row(rank: RankNumber, device: int, step: int, name: str, line: _OpenLine) -> LayerRow:
    comm = [
        LayerComm(
            kind=kind,
            direction=direction,
            count=total.count,
            bytes=total.nbytes,
            dur_ns=total.dur_ns,
            wait_ns=total.wait_ns,
            overlapped_ns=total.dur_ns - total.exposed_ns,
            exposed_ns=total.exposed_ns,
            prefetched=ahead,
        )
        for (kind, direction, ahead), total in line.comm.items()
    ]
    return LayerRow(
        rank=rank,
        device=device_label(device),
        step=step,
        layer=name,
        type=line.type,
        forward_ns=line.passes_ns[0],
        backward_ns=line.passes_ns[1],
        copy_ns=line.copy_ns,
        parameters=line.parameters,
        gradient_bytes=line.gradient_bytes if line.parameters else None,
        bucket=max(line.buckets, key=lambda bucket: line.buckets[bucket], default=None),
        buckets=sorted(line.buckets),
        comm=comm,
        overlapped_ns=sum(each.overlapped_ns for each in comm),
        exposed_ns=sum(each.exposed_ns for each in comm),
    )


def _compute(measured: Measured, buckets: Buckets) -> Windows:
    """Return the lines that computed or copied, by window."""
    rows = measured.windows
    keys = list(zip(rows.device.tolist(), rows.step.tolist(), strict=True))
    windows: Windows = {key: {} for key in keys}
    modules = [(buckets.layer(module.name), module.type) for module in measured.work.lines]
    for window, code, backward, ns in _rows(measured.work.windows):
        _line(windows[keys[window]], *modules[code]).passes_ns[backward] += ns
    for window, code, _, ns in _rows(measured.work.copies):
        _line(windows[keys[window]], *modules[code]).copy_ns += ns
    return windows


def _rows(parts: Parts) -> Iterator[tuple[int, int, bool, int]]:
    return zip(parts.of.tolist(), parts.line.tolist(), parts.backward.tolist(), parts.ns.tolist(), strict=True)


def _line(lines: Lines, name: str, kind: str) -> _OpenLine:
    return lines.setdefault(name, _OpenLine(kind))


def _gradients(windows: Windows, measured: Measured, buckets: Buckets, manifest: Manifest) -> None:
    """Add parameters and gradients' bytes to each line, from a step's first pass: accumulated ones are the same."""
    gradients, lines = measured.gradients, measured.work.lines
    device = int(measured.windows.device[0]) if len(measured.windows) else UNKNOWN
    itemsizes, received = _itemsizes(manifest, measured), _received(measured, manifest)
    columns = (gradients.step.tolist(), gradients.pass_.tolist(), gradients.line.tolist(), gradients.shape.tolist())
    for step, pass_, code, shape, elements in zip(*columns, _elements(measured, buckets), strict=True):
        window = windows.get((device, step))
        if window is None or pass_ > 0 or shape in received:
            continue
        module = lines[code]
        if measured.work.source == LayerSource.NODES:
            module = Module(GRADIENTS, "gradients")  # of replicas together, which no layer stands for
        line = _line(window, buckets.layer(module.name), module.type)
        size = itemsizes.get(buckets.layer(module.name), itemsizes[""])
        line.parameters += 1
        is_known = elements != UNKNOWN and size and line.gradient_bytes is not None
        line.gradient_bytes = (line.gradient_bytes or 0) + elements * size if is_known else None


def _received(measured: Measured, manifest: Manifest) -> set[int]:
    """Return codes of gradients' shapes that are no parameters': those of what a stage of a pipeline received.

    Without parameters in run.json these have a dimension for the batch besides what messages have of elements.
    """
    sizes = {call.elements for call in measured.communication.calls if call.received_from}
    parameters = {tuple(parameter.shape) for parameter in manifest.parameters}
    return {
        code
        for code, shape in enumerate(measured.gradients.shapes)
        if prod(shape) in sizes and (shape not in parameters if parameters else len(shape) > 2)
    }


def _itemsizes(manifest: Manifest, measured: Measured) -> dict[str, int]:
    """Return bytes per element of each layer's gradients: as run.json says, else as they are reduced; "" for others."""
    sizes = {layer_name(parameter.module): itemsize(parameter.dtype) for parameter in manifest.parameters}
    comm = measured.communication
    calls = np.unique(comm.call[(comm.purpose == Purpose.GRADIENTS) & (comm.call >= 0)]).tolist()
    reduced = {itemsize(comm.calls[call].dtype) for call in calls}
    others = set(sizes.values()) or reduced
    return sizes | {"": next(iter(others)) if len(others) == 1 else 0}


def _reductions(windows: Windows, measured: Measured, numbered: tuple[Buckets, Int64], wait_ns: Int64) -> None:
    """Share each reduction out among the lines whose gradients went with it; the rest is for no layer."""
    reduced, comm, gradients = measured.reductions, measured.communication, measured.gradients
    buckets, number = numbered
    members = gradients.by_reduction(len(reduced))
    elements_of = _elements(measured, buckets)
    for index, kernel in enumerate(reduced.kernel.tolist()):
        lines = windows.get((int(comm.device[kernel]), int(reduced.step[index])))
        if lines is None:
            continue
        call = comm.calls[comm.call[kernel]] if comm.call[kernel] >= 0 else None
        elements = call.elements if call is not None else UNKNOWN
        size = itemsize(call.dtype) if call is not None else 0
        shares: dict[str, int] = {}
        types: dict[str, str] = {}
        for code, count in zip(
            gradients.line[members[index]].tolist(), [elements_of[k] for k in members[index]], strict=True
        ):
            name = buckets.layer(measured.work.lines[code].name)
            shares[name], types[name] = shares.get(name, 0) + count, measured.work.lines[code].type
        unknown = any(count < 0 for count in shares.values()) or sum(shares.values()) > elements
        shares = {} if unknown else shares
        rest = elements - sum(shares.values())
        if rest > 0 or not shares:
            name = GRADIENTS
            shares[name], types[name] = max(rest, 1), "gradients"
        lengths_ns = (int(comm.dur_ns[kernel]), int(comm.exposed_ns[kernel]), int(wait_ns[kernel]))
        _share_out(lines, shares, types, lengths_ns, size)
        bucket = int(number[index])
        for name, count in shares.items():
            if bucket >= 0 and name != GRADIENTS:
                lines[name].buckets[bucket] = lines[name].buckets.get(bucket, 0) + count


def _elements(measured: Measured, buckets: Buckets) -> list[int]:
    """Return each gradient's elements: from its shape, else from run.json's parameter; -1 unknown."""
    elements: list[int] = measured.gradients.elements.tolist()
    if UNKNOWN not in elements:
        return elements
    return [
        buckets.sizes.get(parameter, UNKNOWN) if count == UNKNOWN else count
        for parameter, count in zip(taken(measured), elements, strict=True)
    ]


def _share_out(
    lines: Lines, shares: Mapping[str, int], types: Mapping[str, str], lengths_ns: tuple[int, int, int], size: int
) -> None:
    """Split a kernel's length, its exposed and its waiting part by elements; edges are rounded, so that lines add up.

    A part's edge is moved, by a nanosecond, where rounding would give a line more of the part than of the length.
    """
    total, ends = sum(shares.values()), list(accumulate(shares.values()))
    whole_ns, *parts_ns = ([length * end // total for end in ends] for length in lengths_ns)
    # What is not of a part only grows from edge to edge.
    exposed_ns, wait_ns = (
        [all_ns - rest_ns for all_ns, rest_ns in zip(whole_ns, accumulate(map(sub, whole_ns, part), max), strict=True)]
        for part in parts_ns
    )
    widths = (np.diff(edges, prepend=0).tolist() for edges in (whole_ns, exposed_ns, wait_ns))
    for (name, count), dur, exposed, wait in zip(shares.items(), *widths, strict=True):
        comm = _line(lines, name, types[name]).comm
        is_known = size and name != GRADIENTS
        entry = comm.setdefault(("all_reduce", "backward", None), _Sum())
        entry.add(count * size if is_known else None, dur, exposed, None if lengths_ns[2] < 0 else wait)


def _other_communication(windows: Windows, measured: Measured, buckets: Buckets, wait_ns: Int64, nbytes: Int64) -> None:
    """Add what reduces no bucket: a sharded module's collectives, and what is for no layer, by its purpose."""
    comm, owned = measured.communication, measured.communication.owners
    types = {buckets.layer(line.name): line.type for line in measured.work.lines}
    reduced = set(measured.reductions.kernel.tolist())
    for row in range(len(comm)):
        if row in reduced:
            continue
        ahead = None if owned.prefetched[row] < 0 else bool(owned.prefetched[row])
        if owned.module[row] >= 0:
            name = layer_name(owned.modules[owned.module[row]])
            # What FSDP wraps may be no module of which the trace has a range.
            kind, backward = types.get(name, "FSDP"), bool(owned.backward[row])
        else:
            purpose = Purpose(int(comm.purpose[row]))
            # DDP broadcasts buffers, and DataParallel parameters and inputs, before the forward.
            name, kind, backward = f"({purpose.label})", purpose.label, purpose == Purpose.GRADIENTS
        key = (Collective(int(comm.kind[row])).label, PASSES[backward], ahead)
        size, waited_ns = none_if_negative(nbytes[row]), none_if_negative(wait_ns[row])
        # A copy between two devices is of both.
        for device, exposed_ns in ((comm.device, comm.exposed_ns), (comm.peer, comm.peer_exposed_ns)):
            lines = windows.get((int(device[row]), int(comm.window[row])))
            if lines is not None and (device is comm.device or device[row] != UNKNOWN):
                entry = _line(lines, name, kind).comm.setdefault(key, _Sum())
                entry.add(size, int(comm.dur_ns[row]), int(exposed_ns[row]), waited_ns)


_MIXED = " on some ranks, on others "
# Where layers come from, and whether a profile may bring the model's own modules.
_NO_RANGES = {
    LayerSource.NODES: (
        "no profile holds the operators of nn.DataParallel's replicas: their forward is one line, (replicas), and "
        "layers are autograd's nodes, numbered in the order of the forward",
        False,
    ),
    LayerSource.OPERATORS: (
        "the trace{of} has no ranges of modules: layers are forward operators, one for each that owns "
        "parameters{names}",
        True,
    ),
    LayerSource.FSDP: ("the trace{of} has no ranges of modules: layers are the modules that FSDP wraps", False),
}


def layer_warnings(run: RunSummary, buckets: Buckets) -> list[Notice]:
    """Say where layers come from, where that is not the model's own modules; and backwards that lead to none."""
    ranks: dict[str, list[int]] = {}
    for summary, measured in zip(run.ranks, run.measured, strict=True):
        ranks.setdefault(measured.work.source, []).append(summary.rank)
    names = " (named by run.json)" if buckets.layers else ""
    text = f"layers are {_MIXED.join(ranks)}: lines of both stand in one table"
    notices = [Notice(Code.LAYERS_OF_SEVERAL_SOURCES, text)] if len(ranks) > 1 else []
    notices += [
        Notice(
            Code.MODULES_NOT_TRACED,
            template.format(of=_of(ranks[source]) if len(ranks) > 1 else "", names=names),
            run.remedies.modules if has_remedy else None,
        )
        for source, (template, has_remedy) in _NO_RANGES.items()
        if source in ranks
    ]
    lost = [summary.rank for summary, measured in zip(run.ranks, run.measured, strict=True) if _is_lost(measured)]
    if lost:
        text = f"much of the backward{_of(lost)} belongs to no layer, and counts as (other): its nodes have no "
        text += "sequence numbers, or their forward is not in the trace"
        notices.append(Notice(Code.BACKWARD_WITHOUT_LAYER, text))
    return notices


def _of(ranks: Sequence[int]) -> str:
    return f" of rank {listed(ranks, LISTED_RANKS)}"


def _is_lost(measured: Measured) -> bool:
    """Whether a large part of the backward's compute has no line that tells whose it is."""
    parts = measured.work.windows
    backward_ns = parts.ns[parts.backward]
    other_ns = backward_ns[parts.line[parts.backward] == OtherLine.OTHER]
    return bool(other_ns.sum() > MUCH_LOST * backward_ns.sum())


class LayerComm(msgspec.Struct, frozen=True):
    """A layer's share of a bucket's communication, or a sharded module's own."""

    kind: str
    direction: str = msgspec.field(name="pass")
    count: int
    bytes: int | None
    dur_ns: int
    wait_ns: int | None
    overlapped_ns: int
    exposed_ns: int
    prefetched: bool | None = None


class LayerRow(msgspec.Struct, frozen=True):
    """One layer, or a line that is none (in brackets), in one window: docs/measuring.md, Layers.

    `forward_ns`: in brackets all but the backward. `bucket`: the one that holds most of it.
    """

    rank: int
    device: int | str
    step: int
    layer: str
    type: str
    forward_ns: int
    backward_ns: int
    copy_ns: int
    parameters: int
    gradient_bytes: int | None
    bucket: int | None
    buckets: list[int]
    comm: list[LayerComm]
    overlapped_ns: int
    exposed_ns: int


class LayerSummary(msgspec.Struct, frozen=True):
    """One layer or line over typical windows."""

    layer: str
    type: str
    parameters: int
    gradient_bytes: int | None
    bucket: int | None
    measures: dict[str, Spread]


_OF_LAYER = ("forward_ns", "backward_ns", "overlapped_ns", "exposed_ns")


def layer_summaries(rows: Sequence[LayerRow]) -> list[LayerSummary]:
    """Summarize each line over the windows on the devices where it appears, in the order in which lines come."""
    by_name: dict[str, list[LayerRow]] = {}
    steps: dict[tuple[int, int | str], set[int]] = {}
    for row in rows:
        by_name.setdefault(row.layer, []).append(row)
        steps.setdefault((row.rank, row.device), set()).add(row.step)
    counts = {device: len(device_steps) for device, device_steps in steps.items()}
    return [_layer(name, line_rows, counts) for name, line_rows in by_name.items()]


def _layer(name: str, rows: Sequence[LayerRow], counts: Mapping[tuple[int, int | str], int]) -> LayerSummary:
    # Parameters are known where their gradients are in the trace.
    most = max(rows, key=lambda row: row.parameters)
    # In the other windows of a device that has the line, it took no time.
    idle = sum(counts[device] for device in {(row.rank, row.device) for row in rows}) - len(rows)
    measures = {column: np.r_[values, np.zeros(idle)] for column, values in row_columns(rows, _OF_LAYER).items()}
    return LayerSummary(
        layer=name,
        type=most.type,
        parameters=most.parameters,
        gradient_bytes=most.gradient_bytes,
        bucket=most.bucket,
        measures=spreads(measures),
    )
