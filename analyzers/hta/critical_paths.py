"""HTA's critical path of one step.

host        op a---launch                          path: op a, launch delay, kernel, all-reduce
stream 7         '..>kernel--.
stream 19                    '->all-reduce
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from analyzers.arrays import Int64
from analyzers.errors import NotAnalyzable
from analyzers.hta.adapter import to_hta, versions
from analyzers.hta.tables import Analysis, attempt, figures, one_rank, typical_step, why_no_path
from analyzers.run import RankTrace, Run

# Start and end, weight, name, place, bound.
_Edge = tuple[int, int, int, str, str, str]

HOST = "host"
DEPENDENCY = "dependency"  # edges without a weight: what came next had to wait, or simply came next
_STEPS = "ProfilerStep"
_DATA_LOADING = ("DataLoader",)  # what PyTorch's loaders are annotated as
_WHOLE_TRACE = ""
NO_SYNCS = (
    "the trace holds no synchronizations, so that HTA does not see which stream or call waited for which: record with "
    "torch.profiler's experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)"
)


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The path's edges in order; arrays and tuples of one length, instants in ns since the epoch.

    `weight_ns` is what an edge adds to the path: nothing for dependencies, and for calls that only wait. `bound` is
    HTA's word for what limits it (`dependency` for none), `place` the host or a stream.
    """

    rank: int
    step: int | None
    start_ns: Int64
    end_ns: Int64
    weight_ns: Int64
    name: tuple[str, ...]
    place: tuple[str, ...]
    bound: tuple[str, ...]
    origin_ns: int
    has_syncs: bool

    @property
    def length_ns(self) -> int:
        """Add up the weights."""
        return int(self.weight_ns.sum())

    @property
    def extent_ns(self) -> int:
        """Return the time from its first instant to its last."""
        return int(self.end_ns[-1] - self.start_ns[0])


def critical_path(run: Run, rank: int | None = None, step: int | None = None) -> CriticalPath:
    """Return the critical path of a step (default: the median) on a rank (the first); of all where no step is marked.

    Raises NotAnalyzable, NotInstalled.
    """
    chosen = one_rank(run, rank)
    reason = why_no_path(chosen)
    if reason is not None:
        raise NotAnalyzable(f"{chosen.path}: {reason}")
    number = typical_step(chosen, step)
    analysis = to_hta(replace(run, ranks=(chosen,)))
    return attempt("critical path", str(chosen.path), lambda: _path(analysis, chosen, number))


def path_tables(path: CriticalPath) -> Analysis:
    """Tabulate the path by what bounds it, by operator and kernel, and edge by edge."""
    total = path.length_ns
    bounds = [(key, *values) for (key,), values in _summed(path, ("bound",), total)]
    names = [(*key, *values) for key, values in _summed(path, ("bound", "place", "name"), total)]
    edges = zip(
        (path.start_ns - path.origin_ns).tolist(),
        (path.end_ns - path.origin_ns).tolist(),
        path.weight_ns.tolist(),
        path.bound,
        path.place,
        path.name,
        strict=True,
    )
    measures = ("time_ns", "share", "edges")
    tables = (
        figures("bounds", "Critical path, by what bounds it", ("bound", *measures), bounds),
        figures("operators", "By operator and kernel", ("bound", "place", "name", *measures), names),
        replace(
            figures("path", "Edge by edge", ("start_ns", "end_ns", "weight_ns", "bound", "place", "name"), edges),
            listed=False,
        ),
    )
    facts = {"rank": path.rank, "step": path.step, "path_ns": total, "extent_ns": path.extent_ns}
    notes = [] if path.has_syncs else [NO_SYNCS]
    if total > path.extent_ns:
        notes.append(
            "the path is longer than the time it covers: kernels that overlap on one stream follow one another"
        )
    return Analysis("critical-path", facts, tables, tuple(notes), versions())


def _path(analysis: Any, rank: RankTrace, step: int | None) -> CriticalPath:
    """Walk HTA's graph along its longest path. Raises NotAnalyzable."""
    frame = analysis.t.traces[rank.rank]
    annotation = _WHOLE_TRACE if step is None else _STEPS
    result = analysis.critical_path_analysis(
        rank.rank, annotation, _instance(analysis, frame, step), data_load_events=list(_DATA_LOADING)
    )
    if result is None or not result[1]:
        raise ValueError("its graph is not valid")
    graph = result[0]
    nodes = graph.critical_path_nodes
    rows = _rows(graph.trace_df, analysis.t.symbol_table.get_sym_table())
    edges = [_edge(graph, rows, begin, end) for begin, end in pairwise(nodes)]
    start, stop, weight, name, place, bound = zip(*edges, strict=True)
    origin_ns = int(analysis.t.min_ts)
    return CriticalPath(
        rank.rank,
        step,
        np.array(start, dtype=np.int64) + origin_ns,
        np.array(stop, dtype=np.int64) + origin_ns,
        np.array(weight, dtype=np.int64),
        name,
        place,
        bound,
        origin_ns,
        bool(len(rank.events.syncs)),
    )


def _instance(analysis: Any, frame: Any, step: int | None) -> int:
    """Return a step's place among all rows that HTA takes for steps."""
    if step is None:
        return 0
    symbols = analysis.t.symbol_table.get_sym_table()
    names = [symbols[code] for code in frame["name"].tolist() if _STEPS in symbols[code]]
    return names.index(f"{_STEPS}#{step}")


def _rows(frame: Any, symbols: list[str]) -> dict[int, tuple[str, int, str]]:
    """Return for each event its name, HTA's number for its stream, and where it ran."""
    columns = (frame[name].tolist() for name in ("index", "name", "stream", "device_stream", "pid"))
    return {
        index: (symbols[name], stream, _place(stream, device_stream, device))
        for index, name, stream, device_stream, device in zip(*columns, strict=True)
    }


def _place(stream: int, device_stream: int, device: int) -> str:
    """Return the host, or a stream as the trace has it, with its device where a rank has several."""
    if stream < 0:
        return HOST
    return f"stream {device_stream}" if stream == device_stream else f"cuda:{device} stream {device_stream}"


def _edge(graph: Any, rows: Mapping[int, tuple[str, int, str]], begin: int, end: int) -> _Edge:
    """Return one edge; its event is what it is a part of, or else what it leads to."""
    edge, first, last = graph.edges[begin, end], graph.node_list[begin], graph.node_list[end]
    event = graph.edge_to_event_map.get((begin, end), last.ev_idx)
    name, stream, place = rows[int(event)]
    kind = edge["object"].type.value
    bound = graph.bound_by({"type": kind, "s_name": name, "stream": stream}) or DEPENDENCY
    return int(first.ts), int(last.ts), int(edge["weight"]), name, place, bound


def _summed(path: CriticalPath, by: tuple[str, ...], total: int) -> list[tuple[tuple[str, ...], tuple[Any, ...]]]:
    """Sum weight, its share of the path and edges by columns, most first; nothing for what has no weight at all."""
    weights: dict[tuple[str, ...], int] = defaultdict(int)
    counts: dict[tuple[str, ...], int] = defaultdict(int)
    for *key, weight in zip(*(getattr(path, column) for column in by), path.weight_ns.tolist(), strict=True):
        weights[tuple(key)] += weight
        counts[tuple(key)] += 1
    ordered = sorted(weights, key=lambda key: (-weights[key], key))
    return [
        (key, (weights[key], weights[key] / total if total else None, counts[key])) for key in ordered if weights[key]
    ]
