"""Waits of streams for one another and for collectives.

thread       |conv|all_reduce|conv|............|wait|optimizer|
stream 7      ####            ####                   ########      the optimizer waits for the all-reduce
stream 17         ############################################     the all-reduce waits for the first convolution
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, rows_by, values_at
from analyzers.rank.dependencies.device_order import Device
from analyzers.rank.dependencies.points import EdgeKind, Edges
from analyzers.rank.host import Host
from analyzers.trace import C10D, Category, Kind

# A stream that goes on so soon after another's work has ended has nearly always waited for it.
SOON_NS = 8_000
# One stream's event reaches another in so much; times of two streams are right to so much.
HAND_OVER_NS = 3_000
_RECORDED = "record_param_comms"


def stream_waits(device: Device, host: Host) -> Edges:
    """Return edges from what streams waited for to what went on then."""
    return Edges.joined([_callers(device), _waits(device, host)])


def _callers(device: Device) -> Edges:
    """Return edges to collectives from what was launched last on the stream that their caller launches on.

    Whoever launched that: the main thread sends what autograd's has computed.
    """
    ran, calls = device.ran, device.calls
    comm = np.flatnonzero((ran.kind == Kind.COMM) & (ran.call >= 0))
    others = np.flatnonzero((ran.kind != Kind.COMM) & (ran.call >= 0))
    others = others[np.lexsort((others, ran.call[others]))]
    source = np.full(len(comm), UNKNOWN)
    thread = calls.thread[ran.call]
    of_thread = rows_by(thread[others])
    for number, asked in rows_by(thread[comm]).items():
        own = others[of_thread.get(number, others[:0])]
        source[asked] = values_at(own, np.searchsorted(ran.call[own], ran.call[comm[asked]]) - 1)
    lane = ran.device * (int(ran.stream.max(initial=0)) + 1) + ran.stream
    on_lane = rows_by(lane[others])
    for number, asked in rows_by(np.where(source >= 0, lane[source], UNKNOWN)).items():
        own = others[on_lane.get(number, others[:0])]
        source[asked] = values_at(own, np.searchsorted(ran.call[own], ran.call[comm[asked]]) - 1)
    known = (source >= 0) & ((ran.stream[source] != ran.stream[comm]) | (ran.device[source] != ran.device[comm]))
    known &= ran.device[source] == ran.device[comm]
    return _edges(device, source[known], comm[known])


def _edges(device: Device, source: Int64, target: Int64) -> Edges:
    gap_ns = device.ran.start_ns[target] - device.ran.stop_ns[source]
    return Edges.of(device.stop[source], device.start[target], np.minimum(gap_ns, HAND_OVER_NS), EdgeKind.WAIT).take(
        gap_ns >= -HAND_OVER_NS
    )


def _waits(device: Device, host: Host) -> Edges:
    """Return edges for the calls that let a stream wait for an event, but those around launches of collectives.

    What such a call waits for is the last work that each other stream had been given by then and had ended when the
    waiting one went on; of a collective's `wait`, the last collective.
    """
    events, ran, calls = device.events, device.ran, device.calls
    rows = events.rows_named("cudaStreamWaitEvent", "hipStreamWaitEvent", "cuStreamWaitEvent")
    rows = rows[(events.category[rows] == Category.LAUNCH)]
    recorded = host.named(_RECORDED)
    around = host.around(rows, recorded)
    is_wait = (around >= 0) & (events.call[around] < 0)
    inside_c10d = (around < 0) & (host.around(rows, host.named(C10D)) >= 0)
    kept = ((around < 0) | is_wait) & ~inside_c10d
    rows, is_wait = rows[kept], is_wait[kept]
    # What the thread, or the one that takes over, launches next on a stream that does not only communicate.
    goes_on = np.flatnonzero((ran.kind != Kind.COMM) & (ran.call >= 0))
    goes_on = goes_on[np.lexsort((goes_on, ran.call[goes_on]))]
    at = np.searchsorted(calls.begin_ns[ran.call[goes_on]], events.end_ns[rows])
    target = values_at(goes_on, np.where(at < len(goes_on), at, UNKNOWN))
    asked = np.flatnonzero(target >= 0)
    return _from_other_streams(device, events.start_ns[rows[asked]], target[asked], is_wait[asked])


def _from_other_streams(device: Device, waited_ns: Int64, target: Int64, only_comm: Mask) -> Edges:
    ran, calls = device.ran, device.calls
    found = [Edges.of(target[:0], target[:0], target[:0], EdgeKind.WAIT)]
    with_call = np.flatnonzero(ran.call >= 0)
    lane = ran.device * (int(ran.stream.max(initial=0)) + 1) + ran.stream
    for stream, own in rows_by(lane[with_call]).items():
        on_stream = with_call[own]
        on_stream = on_stream[np.lexsort((on_stream, ran.call[on_stream]))]
        communicates = bool((ran.kind[on_stream] == Kind.COMM).any())
        asked = (lane[target] != stream) & (communicates | ~only_comm)
        given = np.searchsorted(calls.begin_ns[ran.call[on_stream]], waited_ns[asked])
        ended = np.searchsorted(
            np.maximum.accumulate(ran.stop_ns[on_stream]), ran.start_ns[target[asked]] + HAND_OVER_NS, "right"
        )
        source = values_at(on_stream, np.minimum(given, ended) - 1)
        found.append(_edges(device, source[source >= 0], target[asked][source >= 0]))
    return _once(Edges.joined(found))


def _once(edges: Edges) -> Edges:
    """Return each edge once."""
    order = np.lexsort((edges.source, edges.target))
    same = (np.diff(edges.source[order]) == 0) & (np.diff(edges.target[order]) == 0)
    return edges.take(order[np.r_[True, ~same][: len(order)]])


def soon_after(device: Device, starts: Int64) -> Edges:
    """Return edges to activities (by number) that nothing explains, from what ended on another stream just before."""
    ran = device.ran
    order = np.argsort(ran.stop_ns, kind="stable")
    at = np.searchsorted(ran.stop_ns[order], ran.start_ns[starts], side="right") - 1
    source = values_at(order, at)
    near = (source >= 0) & (source != starts) & (ran.start_ns[starts] - values_at(ran.stop_ns, source) <= SOON_NS)
    return _edges(device, source[near], starts[near])
