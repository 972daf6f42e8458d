"""Section on layers: compute, gradients, hidden communication."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from analyzers.layers import LayerComm, LayerRow, LayerSummary, ShardedCollective, ShardedModule
from analyzers.rank import is_layer
from analyzers.reporting import Report
from analyzers.units import ms
from tracer.views import (
    Block,
    Column,
    Heading,
    Paragraph,
    Place,
    Row,
    Section,
    Table,
    milliseconds,
    numbers,
    size,
    texts,
)
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
_MEASURES = ("forward_ns", "backward_ns", "overlapped_ns", "exposed_ns")
SHARDING = ("all_gather", "reduce_scatter")
# The column of the module in tables of its collectives, after their kind and pass.
_MODULE = 2


def by_layer(report: Report, wide: bool) -> Section:
    """List every layer, medians over windows; one step where they add up; sharded modules' collectives or buckets."""
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
        Heading("Layers: medians over windows (one profiled step on one device each), ms"),
        Paragraph(source),
        _table(report),
        Paragraph(" ".join([*share, _BRACKETS]), is_faint=True),
        *_representative(report),
        *sharded,
        *_causes(report),
        *_packed(report),
        *_activations(report),
    ]


def _table(report: Report) -> Table:
    communicate = {row.layer for row in report.layers if row.comm}
    heads: list[Column] = [*texts("layer"), *texts("type", wide=True), *numbers("forward", "backward", "gradients")]
    heads += numbers("bucket") if report.summary.buckets else []
    heads += numbers("hidden", "exposed") if communicate else []
    buckets = _buckets(report.layers)
    lines = [
        (layer, _cells(layer, buckets.get(layer.layer) or "-", layer.layer in communicate))
        for layer in report.summary.layers
    ]
    groups = [
        [[cells[column.head] for column in heads] for layer, cells in lines if is_layer(layer.layer) == in_layer]
        for in_layer in (True, False)
    ]
    # Layers are the first group; the others are lines without a place of their own.
    places = [Place(layer=layer.layer) for layer, _ in lines if is_layer(layer.layer)]
    return Table(heads, groups, places=places)


def _buckets(rows: Sequence[LayerRow]) -> dict[str, str]:
    """Name the buckets that hold each layer's gradients: `2`, `2,3`."""
    buckets: dict[str, set[int]] = {}
    for row in rows:
        buckets.setdefault(row.layer, set()).update(row.buckets)
    return {layer: ",".join(map(str, sorted(numbers))) for layer, numbers in buckets.items()}


def _cells(layer: LayerSummary, bucket: str, communicates: bool) -> dict[str, str]:
    """Return a line's cells by column."""
    forward, backward, hidden, exposed = (milliseconds(layer.measures[name].median) for name in _MEASURES)
    return {
        "layer": layer.layer,
        "type": layer.type if is_layer(layer.layer) else "",
        "forward": forward,
        "backward": backward,
        "gradients": size(layer.gradient_bytes),
        "bucket": bucket,
        "hidden": hidden if communicates else "-",
        "exposed": exposed if communicates else "-",
    }


def _representative(report: Report) -> Section:
    """Show the one step in which lines add up: all layers in one, every other line with its own."""
    chosen = report.summary.representative
    step_key = (chosen.rank, chosen.device, chosen.step)
    rows = [row for row in report.layers if (row.rank, row.device, row.step) == step_key]
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
    calls = [(comm, row.layer) for row in report.layers if is_layer(row.layer) for comm in row.comm]
    if not any(comm.kind in SHARDING for comm, _ in calls):
        return []
    order = {layer.layer: position for position, layer in enumerate(report.summary.layers)}
    passes = ("forward", "backward")

    def key(item: tuple[LayerComm, str]) -> tuple[str, int, int]:
        return item[0].kind, passes.index(item[0].direction), order[item[1]]

    heads: list[Column] = [*texts("kind", "pass", "module", "prefetched"), *numbers("size", "length")]
    heads += [*numbers("waiting", wide=True), *numbers("exposed")]
    groups = [
        [
            _collectives(module, [comm for comm, _ in module_calls])
            for module, module_calls in groupby(group, key=lambda item: item[1])
        ]
        for _, group in groupby(sorted(calls, key=key), key=lambda item: key(item)[:2])
    ]
    table = Table(heads, groups, places=_modules(groups), subject=_MODULE)
    return [Heading("Collectives of sharded modules: medians over windows, ms"), table]


def _modules(groups: Sequence[Sequence[Row]]) -> list[Place | None]:
    """Return the module of each row; none where it is not known."""
    names = [row[_MODULE] for group in groups for row in group]
    return [None if name == "-" else Place(layer=name) for name in names]


def _collectives(module: str, calls: Sequence[LayerComm]) -> list[str]:
    waits = [comm.wait_ns for comm in calls if comm.wait_ns is not None]
    sizes = [comm.bytes for comm in calls if comm.bytes is not None]
    return [
        *(calls[0].kind, calls[0].direction, module, _prefetched([comm.prefetched for comm in calls])),
        size(max(sizes, default=None)),
        milliseconds(_median([comm.dur_ns for comm in calls])),
        milliseconds(_median(waits)),
        milliseconds(_median([comm.exposed_ns for comm in calls])),
    ]


def _median(values: Sequence[int]) -> float | None:
    return float(np.median(values)) if values else None


def _prefetched(flags: Sequence[bool | None]) -> str:
    known_flags = [flag for flag in flags if flag is not None]
    if not known_flags:
        return "-"
    return "yes" if all(known_flags) else f"{sum(known_flags)} of {len(known_flags)}" if any(known_flags) else "no"


# Why a sharded module's communication is exposed, by column.
_CAUSES = {
    "waiting": "exposed_wait_ns",
    "queued": "exposed_queued_ns",
    "late": "exposed_late_ns",
    "slow": "exposed_slow_ns",
    "unknown": "exposed_unknown_ns",
}
_MEANT = (
    "waiting: for other ranks. queued: behind another collective. late: launched when the device had run out of "
    "compute. slow: the transfer's own length."
)
_PACKED = {"copy in": "copy_in_ns", "copy out": "copy_out_ns", "reduction": "reduce_ns", "other": "other_ns"}


def _causes(report: Report) -> Section:
    """List why sharded modules' collectives are exposed, means over windows, so that causes add up."""
    rows = [row for row in report.sharded.collectives if row.step is not None]
    if not any(row.exposed_ns for row in rows):
        return []
    shown = [name for name, key in _CAUSES.items() if any(getattr(row, key) for row in rows)]
    order = {layer.layer: position for position, layer in enumerate(report.summary.layers)}

    def key(row: ShardedCollective) -> tuple[str, int, int, str]:
        place = order.get(row.module or "", len(order))
        return row.kind, ("forward", "backward").index(row.direction), place, row.module or ""

    ordered = sorted(rows, key=key)
    windows = len({(row.rank, row.device, row.step) for row in rows})
    groups = [
        [_cause_cells(list(calls), shown, windows) for _, calls in groupby(group, key=lambda row: row.module)]
        for _, group in groupby(ordered, key=lambda row: (row.kind, row.direction))
    ]
    heads = [*texts("kind", "pass", "module"), *numbers("exposed", *shown)]
    return [
        Heading("Why sharded modules' collectives are exposed: means over windows, ms"),
        Table(heads, groups, places=_modules(groups), subject=_MODULE),
        Paragraph(_MEANT, is_faint=True),
    ]


def _cause_cells(calls: Sequence[ShardedCollective], shown: Sequence[str], windows: int) -> list[str]:
    sums = [sum(getattr(call, key) for call in calls) for key in ("exposed_ns", *(_CAUSES[name] for name in shown))]
    return [calls[0].kind, calls[0].direction, calls[0].module or "-", *(milliseconds(ns / windows) for ns in sums)]


def _packed(report: Report) -> Section:
    """List what is packed for each sharded module, means over windows, and whether it was resharded."""
    by_module: dict[str | None, list[ShardedModule]] = {}
    for row in report.sharded.modules:
        by_module.setdefault(row.module, []).append(row)
    if not by_module:
        return []
    windows = len({(row.rank, row.device, row.step) for row in report.sharded.modules})
    shown = {head: key for head, key in _PACKED.items() if any(getattr(row, key) for row in report.sharded.modules)}
    lines = [
        [
            module or "-",
            _prefetched([row.reshard_after_forward for row in rows]),
            *(milliseconds(sum(getattr(row, key) for row in rows) / windows) for key in shown.values()),
        ]
        for module, rows in by_module.items()
    ]
    return [
        Heading("Packing for sharded modules: means over windows, ms"),
        Table([*texts("module", "resharded after forward"), *numbers(*shown)], [lines]),
    ]


def _activations(report: Report) -> Section:
    """Say what tensor parallelism's collectives leave exposed, and what asynchronous TP could hide of it at most."""
    rows = [row for row in report.tensor if row.collectives]
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
        Heading("Collectives of activations: means over windows, ms"),
        Paragraph(f"exposed {exposed}, of which transfer {moved}; {said}{library}"),
    ]
