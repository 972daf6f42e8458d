"""HTA's critical path as tracks of a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.arrays import Int64
from analyzers.hta import DEPENDENCY, CriticalPath
from tracer.views import plain
from tracer.views.perfetto.tracks import Slice, Track, TrackGroup


def path_group(path: CriticalPath, origin_ns: int) -> TrackGroup:
    """Draw the path on one track, then per host and stream on others; instants count from `origin_ns`."""
    begin = np.maximum.accumulate(path.start_ns)
    drawn = np.flatnonzero((path.end_ns > begin) & (np.array(path.bound) != DEPENDENCY))
    lanes = sorted({path.place[row] for row in drawn.tolist()})
    tracks = [Track("critical path", _slices(path, begin - origin_ns, path.end_ns - origin_ns, drawn.tolist()))]
    for lane in lanes:
        rows = [row for row in drawn.tolist() if path.place[row] == lane]
        tracks.append(Track(lane, _slices(path, begin - origin_ns, path.end_ns - origin_ns, rows)))
    what = "whole trace" if path.step is None else f"step {path.step}"
    return TrackGroup(f"rank {path.rank}: critical path (HTA), {what}", tracks)


def _slices(path: CriticalPath, begin: Int64, end: Int64, rows: Sequence[int]) -> Iterator[Slice]:
    for row in rows:
        facts: dict[str, str | int | float] = {"weight_ns": int(path.weight_ns[row]), "place": path.place[row]}
        yield Slice(int(begin[row]), int(end[row]), plain(path.name[row]), path.bound[row], facts=facts)
