"""Light window: its device times joined onto the full window's rows.

A full profile (host operators, shapes, collectives' metadata) stretches the steps it watches; a light one (device
activity alone) hardly does, but knows neither steps nor operators. Recorded one after the other, they hold nearly the
same launches in the same order on every stream:

    full, stream 7     gemm    relu    topk    allreduce        launched in steps 3, 3, 3, 3
    light, stream 7    gemm  relu  sort  allreduce              these times, those steps; `topk` has no light time, and
                                                                of `sort` only its name is known

CUPTI's records of kernels and copies, without runtime calls, say when each ran and not when it was launched. That, and
the steps of events that the light window alone holds, are estimated by the lead of their partners or neighbors:

    full      launch ^     gemm ####            lead: from the launch to the start
    light               ^     gemm ###          the same lead
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, values_at
from analyzers.run.partners import Partners, SharedNames, find_partners, first_difference, shared_names
from analyzers.trace import LIGHT_STEP, STEP, Category, Events, Kind


@dataclass(frozen=True)
class Mismatch:
    """Why a light window could not be joined to the full one."""

    reason: str


@dataclass(frozen=True)
class Joining:
    """How many device events both windows hold, and each alone; whether the light one's launches are estimated."""

    both: int
    only_full: int
    only_light: int
    launches_are_estimated: bool


@dataclass(frozen=True, eq=False)
class Joined:
    """The same rows at the times of either window; a device event that one of them lacks is ABSENT there.

    The full window's rows come first, in their order. Behind them are the events that the light window alone holds, of
    which nothing is known but what they are called, when they ran, and about when they would have been launched.
    `launch_ends_ns` is when the light window's call returned that launched each row, UNKNOWN for none. `marks` are when
    its steps begin and end on the host, in order; none where it has no marks.
    """

    full: Events
    light: Events
    launch_ends_ns: Int64
    joining: Joining
    marks: tuple[Int64, Int64]


def retime(full: Events, light: Events, window: str = "light") -> Joined | Mismatch:
    """Give the full window's device rows the light window's times, or say why they do not correspond."""
    names = shared_names(full, light)
    joined = find_partners(full, light, names)
    if joined is None:
        return Mismatch(_explain_mismatch(full, light, names, window))
    rows = np.flatnonzero(light.on_device)
    is_estimated = bool(len(rows)) and bool((light.launched_ns[rows] == UNKNOWN).all())
    launched_ns = estimated_launches(full, light, joined) if is_estimated else light.launched_ns
    is_estimated &= bool((launched_ns[rows] != UNKNOWN).any())
    ends_ns = _launch_ends(light)
    if is_estimated:
        lengths_ns = values_at(_launch_ends(full) - full.launched_ns, _find_partners(light, joined))
        ends_ns = np.where((launched_ns == UNKNOWN) | (lengths_ns == UNKNOWN), UNKNOWN, launched_ns + lengths_ns)
    light = replace(light, launched_ns=launched_ns)
    only_full = np.setdiff1d(np.flatnonzero(full.on_device), joined.full)
    only_light = np.setdiff1d(rows, joined.light)
    timed = _blank_rows(_at_light_times(full, light, joined), only_full)
    joining = Joining(len(joined.full), len(only_full), len(only_light), is_estimated)
    marks = _find_marks(light, LIGHT_STEP)
    launch_ends_ns = np.full(len(full), UNKNOWN, dtype=np.int64)
    launch_ends_ns[joined.full] = ends_ns[joined.light]
    if not len(only_light):
        return Joined(full, timed, launch_ends_ns, joining, marks)
    launch_ends_ns = np.r_[launch_ends_ns, ends_ns[only_light]]
    behind = len(full) + np.arange(len(only_light))
    named = replace(full, names=names.names)
    more = _by_name_alone(named, light.take(only_light), names.light[only_light])
    more_in_full = replace(
        more,
        start_ns=np.full(len(more), full.start_ns.min()),
        launched_ns=launches_in_full(full, light, joined, launched_ns, only_light),
    )
    longer = Events.joined([named, more_in_full])
    timed = Events.joined([replace(timed, names=names.names), more])
    return Joined(_blank_rows(longer, behind), timed, launch_ends_ns, joining, marks)


def _launch_ends(events: Events) -> Int64:
    """Return when the call returned that launched each row, UNKNOWN for none."""
    calls = events.launched_by(events.correlation)
    return values_at(events.end_ns, calls)


def _explain_mismatch(full: Events, light: Events, names: SharedNames, window: str) -> str:
    ours, theirs = int(full.on_device.sum()), int(light.on_device.sum())
    if not ours or not theirs:
        return f"{theirs} device events in the {window} window, {ours} in the full one"
    counts = f"of {theirs} device events in the {window} window and {ours} in the full one"
    different = first_difference(full, light, names)
    first = f"; first {_describe_row(light, different[1])} for {_describe_row(full, different[0])}" if different else ""
    return f"{counts} less than nine tenths are the same in the same order{first}"


def _describe_row(events: Events, row: int) -> str:
    name = events.names[events.name[row]]
    return f"{name[:60]!r} (device {events.device[row]}, stream {events.stream[row]})"


def _at_light_times(full: Events, light: Events, joined: Partners) -> Events:
    def put(name: str) -> Any:
        column = getattr(full, name).copy()
        column[joined.full] = getattr(light, name)[joined.light]
        return column

    return replace(full, **{name: put(name) for name in ("start_ns", "dur_ns", "launched_ns", "health")})


def _blank_rows(events: Events, rows: Int64) -> Events:
    """Return the same rows, some of them as what did not run: no length, on no device, of no kind."""
    if not len(rows):
        return events
    values = {"category": Category.ABSENT, "kind": Kind.HOST, "dur_ns": 0, "health": 0}
    values |= dict.fromkeys(("device", "peer", "stream", "correlation", "external", "call", "sequence"), UNKNOWN)
    columns = {name: getattr(events, name).copy() for name in values}
    for name, value in values.items():
        columns[name][rows] = value
    return replace(events, **columns)


def _by_name_alone(full: Events, rows: Events, name: Int64) -> Events:
    """Return rows of the light window as rows of the full one's file, without what only their own file could tell."""
    nothing = np.full(len(rows), UNKNOWN, dtype=np.int64)
    told = ("thread", "correlation", "external", "sequence", "forward", "forward_thread", "grid", "position")
    columns: dict[str, Any] = dict.fromkeys(told, nothing)
    return replace(
        rows,
        **columns,
        name=name.astype(full.name.dtype),
        names=full.names,
        call=nothing.astype(full.call.dtype),
        calls=full.calls,
        inputs=nothing.astype(full.inputs.dtype),
        shapes=full.shapes,
        syncs=full.syncs,
    )


def estimated_launches(full: Events, light: Events, joined: Partners) -> Int64:
    """Return for each row of the light window when it was launched, by its partner's lead; UNKNOWN where none is known.

    An event without a partner has the lead of the one before it on its stream that has one.
    """
    launched = full.launched_ns[joined.full]
    lead = np.maximum(full.start_ns[joined.full] - launched, 0)
    lead_ns = np.full(len(light), UNKNOWN, dtype=np.int64)
    lead_ns[joined.light] = np.where(launched == UNKNOWN, UNKNOWN, lead)
    partner = _find_partners(light, joined)
    rows, before, _ = _find_neighbors(light, partner)
    alone = partner[rows] == UNKNOWN
    lead_ns[rows[alone]] = values_at(lead_ns, before[alone])
    return np.where(lead_ns == UNKNOWN, UNKNOWN, light.start_ns - lead_ns)


def launches_in_full(full: Events, light: Events, joined: Partners, launched_ns: Int64, rows: Int64) -> Int64:
    """Return when events without partners would have been launched in the full window, for their step's sake.

    They were launched after the event before them on their stream and before the one behind it, and have the launch of
    the former; of the latter where it is of a later step, which by the light window's marks had begun when they were
    launched there (`launched_ns`), or where none is before them. UNKNOWN on streams without partners.
    """
    partner = _find_partners(light, joined)
    ordered, before, behind = _find_neighbors(light, partner)
    earlier, later = (values_at(full.launched_ns, values_at(partner, neighbors)) for neighbors in (before, behind))
    begun = _has_begun(full, light, earlier, later, launched_ns[ordered])
    chosen = np.where((before == UNKNOWN) | begun, later, earlier)
    launches = np.full(len(light), UNKNOWN, dtype=np.int64)
    launches[ordered] = chosen
    return launches[rows]


def _has_begun(full: Events, light: Events, earlier: Int64, later: Int64, launched_ns: Int64) -> Mask:
    """Whether a later launch's step, which is not the earlier one's, had begun in the light window at an instant."""
    marks, in_light = _find_marks(full, STEP)[0], _find_marks(light, LIGHT_STEP)[0]
    if not len(marks) or len(marks) != len(in_light):
        return np.zeros(len(earlier), dtype=bool)
    step = np.searchsorted(marks, later, side="right") - 1
    another = (later != UNKNOWN) & (step > np.searchsorted(marks, earlier, side="right") - 1)
    begun: Mask = another & (launched_ns != UNKNOWN) & (launched_ns >= in_light[step])
    return begun


def _find_marks(events: Events, name: str) -> tuple[Int64, Int64]:
    """Return when the steps begin and end that are marked by a name, in order."""
    rows = np.flatnonzero((events.category == Category.ANNOTATION) & events.named(name))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return events.start_ns[rows], events.end_ns[rows]


def _find_partners(light: Events, joined: Partners) -> Int64:
    """Return for each row of the light window its partner in the full one, UNKNOWN for none."""
    partner = np.full(len(light), UNKNOWN, dtype=np.int64)
    partner[joined.light] = joined.full
    return partner


def _find_neighbors(light: Events, partner: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the device's rows by stream and launch, with the nearest before and behind each that have partners."""
    rows = np.flatnonzero(light.on_device)
    rows = rows[np.lexsort((light.start_ns[rows], light.correlation[rows], light.stream[rows], light.device[rows]))]
    places, stream, device = np.arange(len(rows)), light.stream[rows], light.device[rows]
    has = partner[rows] != UNKNOWN
    before = np.maximum.accumulate(np.where(has, places, UNKNOWN))
    behind = np.minimum.accumulate(np.where(has, places, len(rows))[::-1])[::-1]
    nearest = []
    for index, exists in ((before, before >= 0), (behind, behind < len(rows))):
        at = np.where(exists, index, 0)
        same = exists & (stream[at] == stream) & (device[at] == device) if len(rows) else exists
        nearest.append(values_at(rows, np.where(same, index, UNKNOWN)))
    return rows, nearest[0], nearest[1]
