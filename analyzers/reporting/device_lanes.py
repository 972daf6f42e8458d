"""Lanes of each device, to the nanosecond: steps, time, layers, collectives.

    step              |3              |4
    compute           ####..##........###
    communication     ..######..####.....
    exposed waiting   ....##....#........   exposed communication is waiting,
    exposed transfer  ..........##.......   transfer, or
    unresolved        ............#......   neither can be told
    idle              ........##...##....
    idle by cause     ........ol...pp....   operator, launch latency, python; adds up to idle
    layers            aabb..cc........dde   an instant covered by two belongs to the earlier-started
    kernels           ab.d..ee........fgh   kernels and copies by name, which may overlap
    host              lolollpppppppp.olol   what the launching threads do, where that is the run's main problem

In each window a lane is as long as the report says. What ran before the first window and after the last is here too,
except that only windows have idle time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Int64, labels, values_at
from analyzers.causes import PathLane, RecordedPaths
from analyzers.collectives import Exchange, Lines, exchange, lines_of
from analyzers.errors import AnalysisError
from analyzers.intervals import Intervals, union_of
from analyzers.layers import PASSES, Buckets, buckets
from analyzers.rank import (
    Cause,
    DeviceTrack,
    HostTrack,
    IdleTrack,
    Phase,
    Purpose,
    RunSummary,
    device_label,
    host_track,
)
from analyzers.rank.kernels import KernelTrack
from analyzers.ranks import MANY, RankIndex, RankNumber
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import Report
from analyzers.reporting.step_timeline import LaneName, lanes_of
from analyzers.run import hosts
from analyzers.step_parts import BY_CAUSE, COMPUTE, COPY, EXPOSED, IDLE, IDLE_PARTS
from analyzers.texts import brief
from analyzers.trace import Collective

if TYPE_CHECKING:
    import pandas as pd

# Lanes that are nothing but time, by the field that holds them and the window's figure that they add up to.
TIMES = {
    COMPUTE.lane: COMPUTE.field,
    "communication": "comm_ns",
    **{part.lane: part.field for part in EXPOSED},
    "copies": "copy_ns",
    **{part.lane: part.field for part in (COPY, IDLE)},
}


@dataclass(frozen=True, eq=False)
class StepLane:
    """Windows in order: the numbers of their steps."""

    start_ns: Int64
    end_ns: Int64
    step: Int64


@dataclass(frozen=True, eq=False)
class LayerLane:
    """Compute in disjoint stretches by start: `layer` indexes `names`, `backward` is the pass."""

    start_ns: Int64
    end_ns: Int64
    layer: Int64
    backward: NDArray[np.bool_]
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CollectiveLane:
    """The communication of a device by start, which may overlap: a kernel, copy or (gloo) span each.

    `index` is its place in the report's collectives, -1 where it is in none; `bucket` is -1 for none, `wait_ns` -1
    where unknown, `stream` -1 where there is none. `name` is the kernel's, indexing `names`. `kind` and `purpose` are
    spelled as in the report. `lane` indexes `lanes`: each group's communication on each stream.
    """

    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    exposed_ns: Int64
    stream: Int64
    index: Int64
    bucket: Int64
    name: NDArray[np.int32]
    names: tuple[str, ...]
    kind: tuple[str, ...]
    purpose: tuple[str, ...]
    lane: Int64
    lanes: tuple[LaneName, ...]


@dataclass(frozen=True, eq=False)
class Lanes:
    """One device of one rank, in ns from the run's earliest event on the common clock.

    `shift_ns` leads back to the rank's own clock: added to an instant, it gives the epoch of the rank's trace.
    `host_track` is there on the first device of ranks whose CPU is the report's main problem.
    """

    rank: RankNumber
    device: int | str
    host: str | None
    shift_ns: int
    compute: Intervals
    communication: Intervals
    exposed_wait: Intervals
    exposed_transfer: Intervals
    exposed_unresolved: Intervals
    copies: Intervals
    exposed_copies: Intervals
    idle: Intervals
    idle_causes: IdleTrack
    steps: StepLane
    layers: LayerLane
    kernels: KernelTrack
    collectives: CollectiveLane
    host_track: HostTrack | None = None

    __repr__ = brief

    @property
    def times(self) -> dict[str, Intervals]:
        """Return the lanes that are nothing but time, by their names in TIMES."""
        return {name: getattr(self, name) for name in TIMES}

    def to_frame(self) -> pd.DataFrame:
        """Return a row per stretch: its lane, time and name.

        Causes of idle time, steps, layers, kernels and collectives have lanes of their own.
        """
        import pandas as pd

        parts = [pd.DataFrame({"lane": "step", **_span(self.steps), "step": self.steps.step})]
        parts += [
            pd.DataFrame({"lane": name, "start_ns": time.start, "dur_ns": time.end - time.start})
            for name, time in self.times.items()
        ]
        parts.append(_causes_frame(self.idle_causes))
        if self.host_track is not None:
            parts.append(_host_frame(self.host_track))
        layers, marks = self.layers, self.collectives
        names = [layers.names[code] for code in layers.layer.tolist()]
        passes = [PASSES[backward] for backward in layers.backward.tolist()]
        parts.append(pd.DataFrame({"lane": "layer", **_span(layers), "layer": names, "pass": passes}))
        parts.append(_kernels_frame(self.kernels, layers.names))
        mark_columns = {name: getattr(marks, name) for name in ("wait_ns", "exposed_ns", "stream", "bucket")}
        numbers = {"collective": marks.index, **mark_columns}
        groups = [marks.lanes[code].group or None for code in marks.lane.tolist()]
        kernels = [marks.names[code] for code in marks.name.tolist()]
        labels = {"kernel": kernels, "kind": list(marks.kind), "purpose": list(marks.purpose), "group": groups}
        parts.append(pd.DataFrame({"lane": "collective", **_span(marks), **numbers, **labels}))
        frame = pd.concat([part for part in parts if len(part)], ignore_index=True)
        for name in {"step", *numbers} & set(frame.columns):
            frame[name] = frame[name].where(frame[name] >= 0).astype("Int64")
        frame.insert(0, "rank", self.rank)
        frame.insert(1, "device", self.device)
        return frame


def _span(lane: StepLane | LayerLane | KernelTrack | CollectiveLane | IdleTrack | HostTrack) -> dict[str, Int64]:
    return {"start_ns": lane.start_ns, "dur_ns": lane.end_ns - lane.start_ns}


def _causes_frame(lane: IdleTrack) -> pd.DataFrame:
    import pandas as pd

    names = [*lane.names, None]
    columns = {
        "cause": labels(Cause, lane.cause),
        "phase": labels(Phase, lane.phase),
        "name": [names[code] for code in lane.name.tolist()],
        "call": [names[code] for code in lane.call.tolist()],
    }
    return pd.DataFrame({"lane": "idle_cause", **_span(lane), **columns})


def _host_frame(lane: HostTrack) -> pd.DataFrame:
    import pandas as pd

    names = [*lane.names, None]
    columns = {"cause": labels(Cause, lane.cause), "name": [names[code] for code in lane.name.tolist()]}
    return pd.DataFrame({"lane": "host", **_span(lane), **columns})


def _kernels_frame(lane: KernelTrack, layers: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    names = [*lane.names, None]
    columns = {
        "kernel": [names[code] for code in lane.name.tolist()],
        "operator": [names[code] for code in lane.operator.tolist()],
        "layer": [layers[code] for code in lane.layer.tolist()],
    }
    return pd.DataFrame({"lane": "kernel", **_span(lane), **columns})


_Sources = tuple[Exchange, Buckets, Report, Lines]


def lanes(run: RunSummary, report: Report) -> tuple[Lanes, ...]:
    """Return the lanes for a run, by rank and device: those ranks that were summarized with `lanes=True`.

    Raises AnalysisError where none was, or where `report` is of another run.
    """
    exchanged = exchange(run)
    run = exchanged.run
    if report.run.origin_ns != str(exchanged.origin_ns):
        raise AnalysisError(f"{run.name}: the report is of another run, or of another window of it")
    if all(measured.tracks is None for measured in run.measured):
        raise AnalysisError(f"{run.name}: summarized without lanes; ask for them: summarize(path, lanes=True)")
    sources = exchanged, buckets(run), report, lines_of(exchanged.matching.table)
    return tuple(
        _of_device(sources, index, device, track)
        for index, _, measured in run.numbered()
        for device, track in (measured.tracks or {}).items()
    )


def path_lanes(run: RunSummary, report: Report) -> dict[int, PathLane]:
    """Return the critical path of each recorded step, by its number: the lane of all ranks together.

    Empty for a run that was summarized without `causes=True`, or that does not tell what waited for what. Raises
    AnalysisError where `report` is of another run.
    """
    analyses = Analyses(run, None)
    if report.run.origin_ns != str(analyses.exchanged.origin_ns):
        raise AnalysisError(f"{run.name}: the report is of another run, or of another window of it")
    if analyses.causes is None:
        return {}
    paths = RecordedPaths(analyses.causes, analyses.in_full, analyses.exchanged)
    steps = np.unique(analyses.rows.step).tolist()
    return {step: lane for step in steps if (lane := paths.lane(step)) is not None}


def _of_device(sources: _Sources, index: RankIndex, device: int, track: DeviceTrack) -> Lanes:
    exchanged, named, *_ = sources
    summary, measured = exchanged.run.ranks[index], exchanged.run.measured[index]
    shift_ns = exchanged.origin_ns + exchanged.clocks.shift_of(summary.rank)
    windows = measured.windows.take(measured.windows.device == device)
    begin, end = windows.start_ns, windows.start_ns + windows.span_ns
    table, rows = exchanged.matching.table, exchanged.rows_of(index, device)
    compute = union_of(track.compute.start, track.compute.end)
    comm, copy = union_of(table.start_ns[rows], table.end_ns[rows]), track.copy
    exposed = exchanged.exposed(index, device)
    names = tuple(named.layer(module.name) for module in measured.work.lines)
    parts = track.compute
    return Lanes(
        rank=summary.rank,
        device=device_label(device),
        host=hosts(exchanged.run.manifest, exchanged.run.ranks).get(summary.rank),
        shift_ns=shift_ns,
        compute=compute.moved(-shift_ns),
        communication=comm.moved(-shift_ns),
        exposed_wait=exposed.waiting.moved(-shift_ns),
        exposed_transfer=exposed.transfer.moved(-shift_ns),
        exposed_unresolved=exposed.unresolved.moved(-shift_ns),
        copies=copy.moved(-shift_ns),
        exposed_copies=(copy - (compute | comm)).moved(-shift_ns),
        idle=(union_of(begin, end) - (compute | comm | copy)).moved(-shift_ns),
        idle_causes=track.idle.moved(-shift_ns),
        steps=StepLane(begin - shift_ns, end - shift_ns, windows.step),
        layers=LayerLane(parts.start - shift_ns, parts.end - shift_ns, parts.line, parts.backward, names),
        kernels=track.kernels.moved(-shift_ns),
        collectives=_collectives(sources, index, device, shift_ns),
        host_track=_host_track(sources, index, device, shift_ns),
    )


# What a headline is about where the CPU launches late, or is held up; each is idle time of these causes above all.
_OF_HOSTS = {"idle", "graph", "input", "synchronize", "copies", "allocator", "gc", "optimizer"}
_BY_HOSTS = ("input", "synchronize", "operator", "python", "launch_latency", "allocator", "gc")


def drawn_hosts(report: Report) -> list[int]:
    """Return the ranks whose CPU is the main problem: those that are late, or the representative of all; none else."""
    summary = report.summary
    late = [marked.rank for marked in summary.headline.marked if marked.mark == "late"]
    if late:
        return late
    longest = max(IDLE_PARTS, key=lambda part: summary.shares[part.field] or 0.0)
    is_host = summary.headline.code in _OF_HOSTS and longest in [BY_CAUSE[cause] for cause in _BY_HOSTS]
    return [summary.representative.rank] if is_host else []


def _host_track(sources: _Sources, index: RankIndex, device: int, shift_ns: int) -> HostTrack | None:
    exchanged, _, report, _ = sources
    run, graph = exchanged.run, exchanged.run.in_full[index].graph
    is_first = device == min(run.measured[index].tracks or ())
    if graph is None or graph.on_host or not is_first or run.ranks[index].rank not in drawn_hosts(report):
        return None
    track = host_track(graph, is_light=run.is_light)
    return track.moved(-shift_ns) if track is not None else None


def _collectives(sources: _Sources, index: RankIndex, device: int, shift_ns: int) -> CollectiveLane:
    """Return the communication on a device; what is matched is what the report says about its collective."""
    exchanged, named, report, lines = sources
    measured = exchanged.run.measured[index]
    comm, rows = measured.communication, exchanged.rows_of(index, device)
    kernels = rows - exchanged.first_row[index]
    collective = values_at(exchanged.index, exchanged.matching.instance[rows])
    bucket = np.full(len(comm), -1, dtype=np.int64)
    bucket[measured.reductions.kernel] = named.number[index]
    matched = [report.collectives[number] if number >= 0 else None for number in collective.tolist()]
    alone = zip(bucket[kernels].tolist(), comm.kind[kernels].tolist(), comm.purpose[kernels].tolist(), strict=True)
    marks = [
        (row.bucket if row.bucket is not None else -1, row.kind, row.purpose)
        if row is not None
        else (number, Collective(kind).label, Purpose(purpose).label)
        for row, (number, kind, purpose) in zip(matched, alone, strict=True)
    ]
    lane, names = lanes_of(lines, rows, comm.stream[kernels], is_cpu=device < 0)
    return CollectiveLane(
        start_ns=comm.start_ns[kernels] - shift_ns,
        end_ns=comm.end_ns[kernels] - shift_ns,
        wait_ns=exchanged.wait_ns(index)[kernels],
        exposed_ns=np.where(comm.device[kernels] == device, comm.exposed_ns[kernels], comm.peer_exposed_ns[kernels]),
        stream=comm.stream[kernels],
        index=collective,
        bucket=np.array([number for number, _, _ in marks], dtype=np.int64),
        name=comm.name[kernels],
        names=comm.names,
        kind=tuple(kind for _, kind, _ in marks),
        purpose=tuple(purpose for _, _, purpose in marks),
        lane=lane,
        lanes=names,
    )


# How many of the worst outliers, and of those that made others wait most, are drawn beside slowest, median and fastest.
DRAWN = 4


def drawn_ranks(report: Report) -> list[int]:
    """Return the ranks that stand for all where these are many (few: all), in the order in which they were chosen."""
    spread = report.summary.over_devices
    if spread is None or len(report.run.ranks) <= MANY:
        return list(report.run.ranks)
    caused: dict[int, int] = {}
    for row in report.waiting:
        caused[row.rank] = caused.get(row.rank, 0) + row.caused_ns
    waited_for = sorted((rank for rank in caused if caused[rank]), key=lambda rank: -caused[rank])
    outliers = list(dict.fromkeys(outlier.rank for outlier in spread.outliers))
    chosen = (report.summary.representative, spread.slowest, spread.median, spread.fastest)
    return list(dict.fromkeys([*(each.rank for each in chosen), *outliers[:DRAWN], *waited_for[:DRAWN]]))
