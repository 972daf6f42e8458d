"""Launches of a light window, estimated from the full one's.

And the steps of events that the light window alone holds.

full      launch ^     gemm ####            lead: from the launch to the start
light               ^     gemm ###          the same lead

CUPTI's records of kernels and copies, without runtime calls, say when each ran and not when it was launched.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, values_at
from analyzers.run.partners import Partners
from analyzers.trace import LIGHT_STEP, STEP, Category, Events


def estimated_launches(full: Events, light: Events, joined: Partners) -> Int64:
    """Return for each row of the light window when it was launched, by its partner's lead; UNKNOWN where none is known.

    An event without a partner has the lead of the one before it on its stream that has one.
    """
    launched = full.launched_ns[joined.full]
    lead = np.maximum(full.start_ns[joined.full] - launched, 0)
    lead_ns = np.full(len(light), UNKNOWN, dtype=np.int64)
    lead_ns[joined.light] = np.where(launched == UNKNOWN, UNKNOWN, lead)
    partner = _partner(light, joined)
    rows, before, _ = _neighbors(light, partner)
    alone = partner[rows] == UNKNOWN
    lead_ns[rows[alone]] = values_at(lead_ns, before[alone])
    return np.where(lead_ns == UNKNOWN, UNKNOWN, light.start_ns - lead_ns)


def launches_in_full(full: Events, light: Events, joined: Partners, launched_ns: Int64, rows: Int64) -> Int64:
    """Return when events without partners would have been launched in the full window, for their step's sake.

    They were launched after the event before them on their stream and before the one behind it, and have the launch of
    the former; of the latter where it is of a later step, which by the light window's marks had begun when they were
    launched there (`launched_ns`), or where none is before them. UNKNOWN on streams without partners.
    """
    partner = _partner(light, joined)
    ordered, before, behind = _neighbors(light, partner)
    earlier, later = (values_at(full.launched_ns, values_at(partner, neighbors)) for neighbors in (before, behind))
    begun = _begun(full, light, earlier, later, launched_ns[ordered])
    chosen = np.where((before == UNKNOWN) | begun, later, earlier)
    launches = np.full(len(light), UNKNOWN, dtype=np.int64)
    launches[ordered] = chosen
    return launches[rows]


def _begun(full: Events, light: Events, earlier: Int64, later: Int64, launched_ns: Int64) -> Mask:
    """Whether a later launch's step, which is not the earlier one's, had begun in the light window at an instant."""
    marks, in_light = _marks(full, STEP), _marks(light, LIGHT_STEP)
    if not len(marks) or len(marks) != len(in_light):
        return np.zeros(len(earlier), dtype=bool)
    step = np.searchsorted(marks, later, side="right") - 1
    another = (later != UNKNOWN) & (step > np.searchsorted(marks, earlier, side="right") - 1)
    begun: Mask = another & (launched_ns != UNKNOWN) & (launched_ns >= in_light[step])
    return begun


def _marks(events: Events, name: str) -> Int64:
    """Return when the steps began that are marked by a name, in order."""
    return np.sort(events.start_ns[(events.category == Category.ANNOTATION) & events.named(name)])


def _partner(light: Events, joined: Partners) -> Int64:
    """Return for each row of the light window its partner in the full one, UNKNOWN for none."""
    partner = np.full(len(light), UNKNOWN, dtype=np.int64)
    partner[joined.light] = joined.full
    return partner


def _neighbors(light: Events, partner: Int64) -> tuple[Int64, Int64, Int64]:
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
