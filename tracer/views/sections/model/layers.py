"""Section on layers: compute, gradients, hidden communication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from analyzers.layers import LayerComm, LayerRow, LayerSummary, ShardedCollective, ShardedModule
from analyzers.rank import is_layer
from analyzers.reporting import Report, rows_of_typical
from analyzers.units import ms
from tracer.views import HELP, Block, Field, Heading, Paragraph, Place, Section, Table, field, milliseconds, size, table
from tracer.views.sections.model.buckets import holdings

_SOURCES = {
    "modules": "Layers are the model's modules, each without those inside it.",
    "fsdp": "Layers are the modules that FSDP wraps, since the trace has no ranges of modules.",
    "operators": "Layers are forward operators, since the trace has no ranges of modules.",
    "nodes": "Layers are autograd's nodes, since no profile holds the forward of nn.DataParallel's replicas.",
}
_OWN = "hidden, exposed: the module's own collectives."
_SHARE = "hidden, exposed: the layer's share, by bytes, of its bucket's reduction."
_BRACKETS = "For lines in brackets, forward holds all that is launched outside of the backward."
SHARDING = ("all_gather", "reduce_scatter")


def by_layer(report: Report, wide: bool) -> Section:
    """List layers, medians over typical windows; a step where they add up; sharded modules' collectives or buckets."""
    held = holdings(report, wide) if report.summary.layers and report.summary.buckets else []
    return [*layers_section(report), *held]


def layers_section(report: Report) -> list[Block]:
    """Return the same without what buckets hold."""
    if not report.summary.layers:
        return [Heading("No layers: no compute is launched in a step.")]
    source = _SOURCES.get(report.summary.layers_from, report.summary.layers_from)
    sharded = _sharded(report)
    share = [_SHARE] if report.summary.buckets else [_OWN] if sharded else []
    return [
        Heading("Layers: medians over typical windows (one profiled step on one device each), ms"),
        Paragraph(source),
        _table(report),
        Paragraph(" ".join([*share, _BRACKETS]), is_faint=True),
        *_representative(report),
        *sharded,
        *_causes(report),
        *_packed(report),
        *_activations(report),
    ]


def _median(layer: LayerSummary, measure: str) -> float | None:
    return layer.measures[measure].median


# Their heads name them in a comparison, too.
LAYER_FIGURES = {
    "forward_ns": field("forward_ns", "forward", "Compute that its forward pass launched.", _median),
    "backward_ns": field("backward_ns", "backward", "Compute that its backward pass launched.", _median),
}


def _table(report: Report) -> Table:
    communicate = {row.layer for row in report.layers if row.comm}
    buckets = _buckets(report.layers)

    def of_communicating(layer: LayerSummary, measure: str) -> float | None:
        return _median(layer, measure) if layer.layer in communicate else None

    fields: list[Field[LayerSummary]] = [
        Field("layer", True, cell=lambda layer: layer.layer),
        Field("type", True, True, "The module's class.", lambda layer: layer.type if is_layer(layer.layer) else ""),
        *LAYER_FIGURES.values(),
        field("gradient_bytes", "gradients", "Bytes of its gradients."),
    ]
    if report.summary.buckets:
        fields.append(Field("bucket", help=HELP["bucket"], cell=lambda layer: buckets.get(layer.layer) or "-"))
    if communicate:
        fields.append(field("overlapped_ns", "hidden", of=of_communicating))
        fields.append(field("exposed_ns", "exposed", of=of_communicating))
    # Layers are the first group; the others are lines without a place of their own.
    groups = [
        [layer for layer in report.summary.layers if is_layer(layer.layer) == in_layer] for in_layer in (True, False)
    ]
    return table(fields, *groups, place=lambda layer: Place(layer=layer.layer) if is_layer(layer.layer) else None)


def _buckets(rows: Sequence[LayerRow]) -> dict[str, str]:
    """Name the buckets that hold each layer's gradients: `2`, `2,3`."""
    buckets: dict[str, set[int]] = {}
    for row in rows:
        buckets.setdefault(row.layer, set()).update(row.buckets)
    return {layer: ",".join(map(str, sorted(numbers))) for layer, numbers in buckets.items()}


def _representative(report: Report) -> Section:
    """Show the one step in which lines add up: all layers in one, every other line with its own."""
    chosen = report.summary.representative
    rows = [row for row in report.layers if (row.rank, row.device, row.step) == chosen.place]
    whole = sum(row.forward_ns + row.backward_ns for row in rows)
    layer_rows = [row for row in rows if is_layer(row.layer)]
    forward, backward = (sum(getattr(row, name) for row in layer_rows) for name in ("forward_ns", "backward_ns"))
    parts = [f"layers {milliseconds(forward + backward)} ({ms(forward)} forward, {ms(backward)} backward)"]
    others = sorted((row for row in rows if row not in layer_rows), key=lambda row: -row.forward_ns - row.backward_ns)
    for row in others:
        if computed := row.forward_ns + row.backward_ns:
            parts.append(f"{row.layer.strip('()')} {milliseconds(computed)}")
    where = f"The step of median length (rank {chosen.rank}, device {chosen.device}, step {chosen.step})"
    return [
        Heading(f"{where}, whose compute adds up"),
        Paragraph(f"compute {milliseconds(whole)} ms = {' + '.join(parts)}"),
    ]


def _sharded(report: Report) -> Section:
    """List the collectives of sharded modules, one kind and pass after the other, so that modules compare."""
    calls = [
        (comm, row.layer) for row in rows_of_typical(report, report.layers) if is_layer(row.layer) for comm in row.comm
    ]
    if not any(comm.kind in SHARDING for comm, _ in calls):
        return []
    order = {layer.layer: position for position, layer in enumerate(report.summary.layers)}
    passes = ("forward", "backward")

    def key(item: tuple[LayerComm, str]) -> tuple[str, int, int]:
        return item[0].kind, passes.index(item[0].direction), order[item[1]]

    groups = [
        [
            _LayerCalls(module, [comm for comm, _ in of_module])
            for module, of_module in groupby(group, key=lambda item: item[1])
        ]
        for _, group in groupby(sorted(calls, key=key), key=lambda item: key(item)[:2])
    ]
    fields: Sequence[Field[_LayerCalls]] = (
        *_MODULE_FIELDS,
        Field(
            "prefetched",
            is_text=True,
            help="Whether it was launched before the module's turn.",
            cell=lambda one: _prefetched([comm.prefetched for comm in one.calls]),
        ),
        Field("size", help=HELP["bytes"], cell=lambda one: _size(one.calls)),
        field("dur_ns", "length", of=_median_call),
        field("wait_ns", "waiting", of=_median_call, wide=True),
        field("exposed_ns", "exposed", of=_median_call),
    )
    title = "Collectives of sharded modules: medians over typical windows, ms"
    return [Heading(title), table(fields, *groups, place=_place, subject=_MODULE)]


class _LayerCalls(NamedTuple):
    """A module's collectives of one kind and pass, or its packing; no module where it is not known."""

    module: str | None
    calls: Sequence[Any]


_MODULE_FIELDS: Sequence[Field[_LayerCalls]] = (
    Field("kind", True, cell=lambda one: one.calls[0].kind),
    Field("pass", True, help=HELP["direction"], cell=lambda one: one.calls[0].direction),
    Field("module", True, cell=lambda one: one.module or "-"),
)
_MODULE = 2


def _place(one: _LayerCalls) -> Place | None:
    return None if one.module is None else Place(layer=one.module)


def _median_call(one: _LayerCalls, name: str) -> float | None:
    """Return the median of a figure over calls, from those that know it."""
    known = [value for call in one.calls if (value := getattr(call, name)) is not None]
    return float(np.median(known)) if known else None


def _size(comms: Sequence[LayerComm]) -> str:
    return size(max((comm.bytes for comm in comms if comm.bytes is not None), default=None))


def _prefetched(flags: Sequence[bool | None]) -> str:
    known_flags = [flag for flag in flags if flag is not None]
    if not known_flags:
        return "-"
    return "yes" if all(known_flags) else f"{sum(known_flags)} of {len(known_flags)}" if any(known_flags) else "no"


# Why a sharded module's communication is exposed: figures, heads, help.
_CAUSES = (
    ("exposed_wait_ns", "waiting", HELP["wait_ns"]),
    ("exposed_queued_ns", "queued", HELP["queued_ns"]),
    ("exposed_late_ns", "late", "Launched when the device had already run out of compute."),
    ("exposed_slow_ns", "slow", "The transfer's own length."),
    ("exposed_unknown_ns", "unknown", "The trace does not show why."),
)
_MEANT = (
    "waiting: for other ranks. queued: behind another collective. late: launched when the device had run out of "
    "compute. slow: the transfer's own length."
)
_PACKED = (
    ("copy_in_ns", "copy in", "Copies into the buffer that is communicated."),
    ("copy_out_ns", "copy out", "Copies out of the buffer that was communicated."),
    ("reduce_ns", "reduction", "Kernels that reduce gradients outside of the collective."),
    ("other_ns", "other", ""),
)


def _causes(report: Report) -> Section:
    """List why sharded modules' collectives are exposed, means over typical windows, so that causes add up."""
    rows = rows_of_typical(report, report.sharded.collectives)
    if not any(row.exposed_ns for row in rows):
        return []
    order = {layer.layer: position for position, layer in enumerate(report.summary.layers)}

    def key(row: ShardedCollective) -> tuple[str, int, int, str]:
        place = order.get(row.module or "", len(order))
        return row.kind, ("forward", "backward").index(row.direction), place, row.module or ""

    ordered = sorted(rows, key=key)
    windows = len({(row.rank, row.device, row.step) for row in rows})
    groups = [
        [_LayerCalls(module, list(calls)) for module, calls in groupby(group, key=lambda row: row.module)]
        for _, group in groupby(ordered, key=lambda row: (row.kind, row.direction))
    ]
    fields = [*_MODULE_FIELDS, *_means((("exposed_ns", "exposed", ""), *_CAUSES), rows, windows)]
    return [
        Heading("Why sharded modules' collectives are exposed: means over typical windows, ms"),
        table(fields, *groups, place=_place, subject=_MODULE),
        Paragraph(_MEANT, is_faint=True),
    ]


def _means(figures: Iterable[tuple[str, str, str]], rows: Sequence[object], windows: int) -> list[Field[_LayerCalls]]:
    """Build the columns of means over typical windows of what calls add up to: figures that any row has."""

    def mean(one: _LayerCalls, name: str) -> float:
        total: int = sum(getattr(call, name) for call in one.calls)
        return total / windows

    return [
        field(name, head, meaning, mean) for name, head, meaning in figures if any(getattr(row, name) for row in rows)
    ]


def _packed(report: Report) -> Section:
    """List what is packed for each sharded module, means over typical windows, and whether it was resharded."""
    by_module: dict[str | None, list[ShardedModule]] = {}
    modules = rows_of_typical(report, report.sharded.modules)
    for row in modules:
        by_module.setdefault(row.module, []).append(row)
    if not by_module:
        return []
    windows = len({(row.rank, row.device, row.step) for row in modules})
    fields: Sequence[Field[_LayerCalls]] = (
        _MODULE_FIELDS[_MODULE],
        Field(
            "resharded after forward",
            is_text=True,
            help="Whether the parameters were freed after the forward pass.",
            cell=lambda one: _prefetched([row.reshard_after_forward for row in one.calls]),
        ),
        *_means(_PACKED, modules, windows),
    )
    lines = [_LayerCalls(module, rows) for module, rows in by_module.items()]
    return [Heading("Packing for sharded modules: means over typical windows, ms"), table(fields, lines)]


def _activations(report: Report) -> Section:
    """Say what tensor parallelism's collectives leave exposed, and what asynchronous TP could hide of it at most."""
    rows = [row for row in rows_of_typical(report, report.tensor) if row.collectives]
    if not rows:
        return []
    exposed, moved, bound = (
        milliseconds(sum(getattr(row, name) for row in rows) / len(rows))
        for name in ("exposed_ns", "exposed_transfer_ns", "async_tp_bound_ns")
    )
    said = f"asynchronous TP could hide at most {bound}"
    if any(row.async_tp for row in rows):
        said = "asynchronous TP is on"
    separate = any(row.symmetric_memory for row in rows)
    library = "; some run on symmetric memory or in kernels of other libraries" if separate else ""
    return [
        Heading("Collectives of activations: means over typical windows, ms"),
        Paragraph(f"exposed {exposed}, of which transfer {moved}; {said}{library}"),
    ]
