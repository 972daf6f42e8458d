r"""`FsdpSettings`: steps of FSDP2 with other options, links or GPUs.

communicator   G2 G1 R2 G0 R1 R0          G1 is asked for while 2 computes, and so before R2
no prefetch    G2 R2 G1 R1 G0 R0          each is asked for in its own turn, behind what 2 reduces
own group      G2 G1 G0  and  R2 R1 R0    two communicators, each in its own order
stay gathered  R2 R1 R0                   the backward gathers nothing again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, find, joint, keys_by_part, rows_by, values_at
from analyzers.causes import Course, CourseEdges, Lags, Model
from analyzers.errors import NotReplayable
from analyzers.notices import Code, Notice
from analyzers.rank import FSDP, STRATEGIES, EdgeKind, RunSummary, Section
from analyzers.run import Calibration, Manifest, world_size
from analyzers.scenarios import launched_in, relieved, share_in, transferring, without_activities, without_host_time
from analyzers.settings.assumption import Assumption
from analyzers.settings.ddp import link_doubts
from analyzers.settings.link_model import GATHERS, SCATTERS, Hosts, LinkModel, RunLinks, Traffic, links_of
from analyzers.trace import Collective, Kind, itemsize

HALF = 2
# What run.json calls dtypes of two bytes to which weights are cast, and a part of the names of kernels that cast.
HALVES, CASTS = ("bf16", "fp16"), "copy_kernel_cuda"
FSDP2 = STRATEGIES.index(FSDP)


@dataclass(frozen=True)
class Sharding:
    """What is changed of FSDP2, and on how many GPUs; None is as recorded. Itemsizes are bytes of what travels."""

    gpus: int
    prefetch: bool | None = None
    reshard_after_forward: bool | None = None
    separate_reduce_scatter_group: bool | None = None
    param_itemsize: int | None = None
    reduce_itemsize: int | None = None

    @property
    def words(self) -> str:
        """Say what is changed, in PyTorch's words; empty where nothing is."""
        parts = ["no prefetching in the backward"] if self.prefetch is False else []
        if self.reshard_after_forward is not None:
            parts.append(f"reshard_after_forward={self.reshard_after_forward}")
        if self.separate_reduce_scatter_group:
            parts.append("a process group for reduce-scatters")
        of_bytes: dict[int | None, list[str]] = {}
        for what, size in (("all-gathers", self.param_itemsize), ("reduce-scatters", self.reduce_itemsize)):
            of_bytes.setdefault(size, []).append(what)
        of_bytes.pop(None, None)
        parts += [f"{' and '.join(what)} of {size} bytes per element" for size, what in of_bytes.items()]
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class _Called(Columns):
    """FSDP2's collectives in typical steps, in the order of each rank's communicator.

    `activity` is each one's place among all ranks', `edge` that of its transfer; `ahead`: it is asked for before its
    turn. `called_ns` is when its host calls for it, `used_ns` when for what waits for it first (-1: nothing).
    """

    activity: Int64
    rank: Int64
    step: Int64
    kind: Int64
    module: Int64
    backward: Mask
    ahead: Mask
    edge: Int64
    nbytes: Int64
    communicator: Int64
    called_ns: Int64
    used_ns: Int64

    def of(self, kind: Collective) -> Mask:
        """Whether each is of a kind."""
        is_of: Mask = self.kind == kind
        return is_of

    def parts(self) -> list[Int64]:
        """Return the rows of each rank's steps."""
        return list(rows_by(joint(self.rank, self.step)).values())


@dataclass(frozen=True, eq=False)
class FsdpSettings:
    """What a run's steps of FSDP2 are predicted from; `gpus` is how many it had."""

    model: Model
    called: _Called
    gpus: int
    gathers: RunLinks
    scatters: RunLinks
    itemsizes: tuple[int, int]  # of what is gathered and reduced
    autocasts: bool  # weights to a dtype of two bytes

    @classmethod
    def of(cls, run: RunSummary, model: Model, given: LinkModel | Calibration | None) -> FsdpSettings:
        """Return them for a run. Raises NotReplayable where its traces do not name what it gathers and reduces."""
        manifest = run.manifest or Manifest()
        gpus = world_size(manifest, run.ranks)
        called = _called(model)
        if not called.of(Collective.ALL_GATHER).any() or not called.of(Collective.REDUCE_SCATTER).any():
            raise NotReplayable("FSDP's ranges do not name what its typical steps gather and reduce")
        gathers, scatters = (links_of(run, model.exchanged, gpus, given, each) for each in (GATHERS, SCATTERS))
        sizes = tuple(_itemsize(model, called, traffic) for traffic in (GATHERS, SCATTERS))
        autocasts = manifest.settings.get("amp") in HALVES
        return cls(model, called, gpus, gathers, scatters, (sizes[0], sizes[1]), autocasts)

    def usual(self) -> list[Sharding]:
        """Return what people try: each for itself."""
        found = []
        lags = self.model.lags
        if launched_in(lags.facts, Section.GATHERED_AGAIN).any():
            found.append(Sharding(self.gpus, reshard_after_forward=False))
        if not self.has_own_group:
            found.append(Sharding(self.gpus, separate_reduce_scatter_group=True))
        gathered, reduced = self.itemsizes
        if reduced > HALF:
            found.append(Sharding(self.gpus, reduce_itemsize=HALF))
        if gathered > HALF:
            found.append(Sharding(self.gpus, param_itemsize=HALF, reduce_itemsize=HALF if reduced > HALF else None))
        return found

    @cached_property
    def has_own_group(self) -> bool:
        """Whether reduce-scatters run over another communicator than all-gathers."""
        of, communicator = self.called.of, self.called.communicator
        return not np.isin(communicator[of(Collective.REDUCE_SCATTER)], communicator[of(Collective.ALL_GATHER)]).any()

    def doubts(self, asked: Sharding, hosts: Hosts | None) -> list[Notice]:
        """Say what makes a prediction doubtful."""
        found = []
        if asked.separate_reduce_scatter_group and not self.has_own_group:
            found.append(Notice(Code.SHARED_LINKS, "how two communicators share the links is not measured"))
        if asked.param_itemsize and not self.autocasts:
            found.append(Notice(Code.CASTS_NOT_COUNTED, "what compute in another dtype takes is not counted"))
        elif asked.reduce_itemsize:
            found.append(Notice(Code.CASTS_NOT_COUNTED, "what the casts of gradients take is not counted"))
        return [*found, *link_doubts(self.gathers.asked, asked.gpus, hosts, "collectives")]

    def assumed(self, asked: Sequence[Sharding]) -> list[Assumption]:
        """Return what predictions rest on."""
        found = [*self.gathers.assumptions, *self.scatters.assumptions]
        if any(each.separate_reduce_scatter_group for each in asked) and not self.has_own_group:
            found.append(Assumption("transfers of two communicators beside one another take as long as alone"))
        if any(each.gpus != self.gpus for each in asked):
            text = "the optimizer takes what it took, though each GPU's share of the parameters is another"
            found.append(Assumption(text))
        return found

    def reduced_bytes(self, asked: Sharding) -> list[int]:
        """Return the bytes of each of a step's reduce-scatters."""
        called = self.called
        rows = called.of(Collective.REDUCE_SCATTER) & (called.rank == 0) & (called.step == called.step[0])
        share = (asked.reduce_itemsize or self.itemsizes[1]) / self.itemsizes[1]
        return [round(nbytes * share) for nbytes in called.nbytes[rows].tolist()]

    def step_lengths(self, asked: Sequence[Sharding], hosts: Hosts | None = None) -> Float64:
        """Return how long typical steps take under each setting: by step, setting and variant."""
        # Orders may contradict one another: each has a course of its own.
        by_order: dict[tuple[bool, bool], list[int]] = {}
        for place, each in enumerate(asked):
            apart = bool(each.separate_reduce_scatter_group) and not self.has_own_group
            by_order.setdefault((each.prefetch is False, apart), []).append(place)
        steps, variants = self.model.step_lengths.shape
        lengths = np.empty((steps, len(asked), variants))
        for (in_turn, apart), places in by_order.items():
            course = self._course(in_turn=in_turn, apart=apart)
            columns = []
            for place in places:
                lags = self._changed(asked[place], hosts).ns
                # One collective follows another at once.
                more = np.zeros((len(self.called), variants))
                columns.append(course.contracted.sums(np.concatenate([lags, more])[course.edges.edge]))
            lengths[:, places] = course.step_lengths(np.concatenate(columns, axis=1)).reshape(steps, len(places), -1)
        return lengths

    def _course(self, *, in_turn: bool, apart: bool) -> Course:
        """Return the course with FSDP2's collectives in another order: in their own turn, on two communicators."""
        course, start = self.model.calibrated.course, self.model.facts.start_of_activity
        if not in_turn and not apart:
            return course
        chains = []
        for rows in self.called.parts():
            order = _in_turn(self.called, rows) if in_turn else rows
            is_gather = self.called.of(Collective.ALL_GATHER)[order]
            chains += [order[is_gather], order[~is_gather]] if apart or self.has_own_group else [order]
        before, after = (np.concatenate([chain[part] for chain in chains]) for part in (slice(-1), slice(1, None)))
        source, target = start[self.called.activity[before]] + 1, start[self.called.activity[after]]
        number = len(self.model.graph.edges) + np.arange(len(source))
        edges = CourseEdges(number, source, target, np.zeros(len(number), dtype=bool), self.called.step[after])
        return course.reordered(self._order_edges, edges)

    def _changed(self, asked: Sharding, hosts: Hosts | None) -> Lags:
        lags, facts = self.model.lags, self.model.facts
        lags = self._retimed(lags, asked, hosts)
        if self._spares_casts(asked):
            lags = lags.at(self._casts, lags.ns[self._casts] * (1 - self._cast_of_weights))
        if asked.reshard_after_forward is False:
            gone = launched_in(facts, Section.GATHERED_AGAIN)
            lags = relieved(lags, transferring(facts, gone & (facts.of_activities("kind") == Kind.COMM)))
            lags = without_host_time(without_activities(lags, gone), share_in(facts, Section.GATHERED_AGAIN))
        return lags

    def _spares_casts(self, asked: Sharding) -> bool:
        """Whether weights are gathered in the dtype to which autocast casts them."""
        return self.autocasts and self.itemsizes[0] > HALF and asked.param_itemsize == HALF

    @cached_property
    def _casts(self) -> Int64:
        """Return the edges of kernels that cast, weights or anything else."""
        facts = self.model.facts
        named = np.array([CASTS in name for name in facts.names], dtype=bool)
        return np.flatnonzero((facts.kind == Kind.COMPUTE) & values_at(named, facts.name, False))

    @cached_property
    def _cast_of_weights(self) -> float:
        """Return what share of the time of kernels that cast is autocast's, of weights and of their gradients.

        Each is read in one dtype and written in the other, as fast as gathered parameters are copied out.
        """
        facts, called = self.model.facts, self.called
        copied = (facts.activity >= 0) & (facts.kind != Kind.COMM)
        copied &= values_at(launched_in(facts, Section.GATHERED), facts.activity, False)
        gathers, ns = called.of(Collective.ALL_GATHER), self.model.lags.ns[:, 0]
        copied_ns, cast_ns = float(ns[copied].sum()), float(ns[self._casts].sum())
        nbytes, forward = float(called.nbytes[gathers].sum()), float(called.nbytes[gathers & ~called.backward].sum())
        weights_ns = 2 * (1 + HALF / self.itemsizes[0]) * forward * copied_ns / max(2 * nbytes, 1.0)
        return min(weights_ns / cast_ns, 1.0) if cast_ns > 0 else 0.0

    def _retimed(self, lags: Lags, asked: Sharding, hosts: Hosts | None) -> Lags:
        """Return the lags with transfers over the links and of the bytes that are asked for, and copies by bytes."""
        called, share = self.called, {}
        ns = lags.ns.copy()
        sizes = (asked.param_itemsize or self.itemsizes[0], asked.reduce_itemsize or self.itemsizes[1])
        for at, (kind, links) in enumerate(
            ((Collective.ALL_GATHER, self.gathers), (Collective.REDUCE_SCATTER, self.scatters))
        ):
            rows = called.of(kind) & (called.edge >= 0) & (called.nbytes > 0)
            share[kind] = sizes[at] / self.itemsizes[at]
            own_ns = links.own.collective_ns(called.nbytes[rows], self.gpus)
            over = replace(links.asked, hosts=hosts)
            asked_ns = over.collective_ns(called.nbytes[rows] * share[kind], asked.gpus)
            ns[called.edge[rows]] = np.maximum(ns[called.edge[rows]], 0) * (asked_ns / own_ns)[:, None]
        gathered, reduced = share[Collective.ALL_GATHER], share[Collective.REDUCE_SCATTER]
        facts = lags.facts
        copies = {
            Section.GATHERS: (1 + gathered) / 2,  # from shards that stay as they are
            Section.GATHERED: gathered,
            Section.REDUCES: (gathered + reduced) / 2,  # from gradients of what was gathered
        }
        for section, part in copies.items():
            runs = (facts.activity >= 0) & (facts.kind != Kind.COMM)
            runs &= values_at(launched_in(facts, section), facts.activity, False)
            ns[runs] *= part
        return replace(lags, ns=ns)

    # Orders of communicators.

    @cached_property
    def _step_of_activity(self) -> Int64:
        step = np.full(len(self.model.facts.rank_of_activity), UNKNOWN)
        step[self.called.activity] = self.called.step
        return step

    @cached_property
    def _order_edges(self) -> Mask:
        """Return which edges are the order in which FSDP2's collectives happened to run, and no need of theirs.

        One follows another; and what was only seen to follow: all that a reduce-scatter waits for beside its copies in,
        and all that waits for an all-gather beside its copies out.
        """
        graph, facts, called = self.model.graph, self.model.facts, self.called
        source, target = (facts.activity_of_point[of] for of in (graph.edges.source, graph.edges.target))

        def among(chosen: Mask, activity: Int64) -> Mask:
            return values_at(chosen, activity, False)

        kinds = np.full(len(facts.rank_of_activity), UNKNOWN)
        kinds[called.activity] = called.kind
        gathers, scatters = kinds == Collective.ALL_GATHER, kinds == Collective.REDUCE_SCATTER
        step = self._step_of_activity
        same = (values_at(step, source) >= 0) & (values_at(step, source) == values_at(step, target))
        waits = graph.edges.kind == EdgeKind.WAIT
        by_chance = among(gathers, source) & ~among(launched_in(facts, Section.GATHERED), target)
        by_chance |= among(gathers, target) & ~among(launched_in(facts, Section.GATHERS), source)
        by_chance |= among(scatters, target) & ~among(launched_in(facts, Section.REDUCES), source)
        ordered: Mask = (waits & by_chance) | (same & (waits | (graph.edges.kind == EdgeKind.STREAM)))
        return ordered


def _in_turn(called: _Called, rows: Int64) -> Int64:
    """Return a step's collectives with those of the backward that are asked for ahead where their turn comes.

    That is behind the reduce-scatters that the host has called for when it copies out what was gathered.
    """
    moved = called.ahead[rows] & called.backward[rows]
    called_ns = called.called_ns[rows]
    turn_ns = np.where(moved, np.maximum(called.used_ns[rows], called_ns), called_ns)
    return rows[np.lexsort((moved, turn_ns))]


def _called(model: Model) -> _Called:
    graph, facts, exchanged = model.graph, model.facts, model.exchanged
    steps = list(model.calibrated.course.steps)
    edge_of = np.full(len(facts.rank_of_activity), UNKNOWN)
    runs = np.flatnonzero(graph.edges.kind == EdgeKind.RUN)
    edge_of[facts.activity[runs]] = runs
    transfers = np.flatnonzero(graph.edges.kind == EdgeKind.TRANSFER)
    edge_of[facts.activity_of_point[graph.edges.target[transfers]]] = transfers
    called_ns, used_ns = _host_times(model)
    parts = []
    first_activity = np.cumsum([0, *(len(part.activities) for part in graph.parts)])
    for (index, _, measured), (place, part) in zip(exchanged.run.numbered(), enumerate(graph.parts), strict=True):
        comm, ran = measured.communication, part.activities
        rows = np.flatnonzero(
            (comm.strategy == FSDP2) & np.isin(comm.kind, (Collective.ALL_GATHER, Collective.REDUCE_SCATTER))
        )
        key, wanted = keys_by_part((ran.correlation, ran.start_ns), (comm.correlation[rows], comm.start_ns[rows]))
        order = np.argsort(key, kind="stable")
        activity = values_at(order, find(key[order], wanted))
        found = np.flatnonzero(activity >= 0)
        rows, activity = rows[found], activity[found] + first_activity[place]
        number = graph.points.step[facts.start_of_activity[activity]]
        kept = np.isin(number, steps)
        rows, activity, number = rows[kept], activity[kept], number[kept]
        row = int(exchanged.first_row[index]) + rows
        instance = exchanged.matching.instance[row]
        parts.append(
            _Called(
                activity=activity,
                rank=np.full(len(rows), place),
                step=np.array([steps.index(each) for each in number.tolist()], dtype=np.int64),
                kind=comm.kind[rows].astype(np.int64),
                module=comm.owners.module[rows].astype(np.int64),
                backward=comm.owners.backward[rows].astype(bool),
                ahead=comm.owners.prefetched[rows] == 1,
                edge=edge_of[activity],
                nbytes=values_at(exchanged.transfers.nbytes, instance),
                called_ns=called_ns[activity],
                used_ns=used_ns[activity],
                communicator=exchanged.matching.table.communicator[row].astype(np.int64),
            )
        )
    return _Called.joined(parts)


def _host_times(model: Model) -> tuple[Int64, Int64]:
    """Return when hosts call for each of all ranks' activities, and for what waits for it first; UNKNOWN for none."""
    graph, facts = model.graph, model.facts
    call = facts.of_activities("call")
    begin_ns = facts.of_calls("begin_ns")
    called_ns = np.where(call >= 0, begin_ns[np.maximum(call, 0) + facts.first_call[facts.rank_of_activity]], UNKNOWN)
    waits = np.flatnonzero(graph.edges.kind == EdgeKind.WAIT)
    source, target = (facts.activity_of_point[of[waits]] for of in (graph.edges.source, graph.edges.target))
    # Nothing but copies out of what was gathered truly waits for it.
    known = (source >= 0) & values_at(launched_in(facts, Section.GATHERED), target, False)
    used_ns = np.full(len(call), np.iinfo(np.int64).max)
    np.minimum.at(used_ns, source[known], called_ns[target[known]])
    return called_ns, np.where(used_ns == np.iinfo(np.int64).max, UNKNOWN, used_ns)


def _itemsize(model: Model, called: _Called, traffic: Traffic) -> int:
    """Return the bytes of an element of one kind of collective, 4 where nothing says its dtype."""
    graph, instances = model.graph, model.exchanged.matching.instances
    rows = called.edge[called.of(traffic.kind) & (called.edge >= 0)]
    numbers = graph.instance[rows]
    calls = [instances.call[number] for number in numbers[numbers >= 0].tolist()[:1]]
    return next((itemsize(call.dtype) for call in calls if call is not None and itemsize(call.dtype)), 2 * HALF)
