"""DDP's buckets: the layout, from run.json or from the traces alone, and each reduction as one of its buckets.

    gradients taken    a b c | d e | f g h      in this order on the host, each followed by its bucket's all-reduce
    all_reduce             0     1       2      verified by size: its elements are its gradients' elements

Where sizes do not fit the order (a parameter that was not used, one that came late), a bucket is known by its size if
no other has it; else it is unknown, and said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from analyzers.events import UNKNOWN
from analyzers.forwards import Source
from analyzers.manifest import Manifest
from analyzers.summary import Measured, RunSummary

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Taken:
    """A parameter as a trace tells it apart: the line its gradient belongs to, its shape, and which of its like."""

    line: str
    shape: tuple[int, ...] | None
    place: int


@dataclass(frozen=True)
class Bucket:
    """One bucket: elements, and the parameters it holds as far as they are known (None: not at all)."""

    elements: int
    parameters: tuple[Taken, ...] | None


@dataclass(frozen=True)
class Reduced:
    """The reductions of one backward pass of one rank: their rows, sizes, and the gradients that went with each."""

    rank: int
    step: int
    pass_: int
    rows: tuple[int, ...]
    elements: tuple[int, ...]
    gradients: tuple[tuple[Taken, ...], ...]
    gradient_elements: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Buckets:
    """The buckets of a run.

    `layout` lists them all; `source` is `run.json` or `trace`. `number` gives, for each rank, the bucket of each of its
    reductions, -1 for unknown. `names` are parameters' names in the model, `layers` the modules of operators' lines,
    both from run.json and as far as they are known.
    """

    source: str
    layout: tuple[Bucket, ...]
    number: tuple[Int64, ...]
    names: dict[Taken, str]
    layers: dict[str, str]

    def parameter(self, taken: Taken) -> str:
        """A parameter's name, made from its layer and shape where the run does not say it."""
        return (
            self.names.get(taken)
            or f"{taken.line}.{taken.place} {list(taken.shape) if taken.shape is not None else '?'}"
        )

    def layer(self, line: str) -> str:
        """A line's name: the module's, where run.json tells which module an operator is."""
        return self.layers.get(line, line)


def buckets(run: RunSummary) -> Buckets:
    """The buckets of a run."""
    passes = [each for rank, measured in enumerate(run.measured) for each in _passes(rank, measured)]
    layout, offsets = _traced_layout(passes)
    source = "trace"
    manifest = run.manifest or Manifest()
    recorded = _recorded_sizes(manifest)
    if recorded and layout and [bucket.elements for bucket in layout] == recorded:
        source = "run.json"
    number = tuple(np.full(len(measured.reductions), UNKNOWN, dtype=np.int64) for measured in run.measured)
    for each in passes:
        number[each.rank][list(each.rows)] = _numbers(each, layout, offsets)
    names = _names(manifest, run, layout) if manifest.parameters else {}
    return Buckets(source, layout, number, names, _modules(manifest, run, names))


def taken(measured: Measured) -> list[Taken]:
    """Each gradient of a rank as a parameter: alike in every step and pass."""
    gradients, lines = measured.gradients, measured.work.lines
    counted: Counter[tuple[int, ...]] = Counter()
    found = []
    for step, pass_, line, shape in zip(
        gradients.step.tolist(),
        gradients.pass_.tolist(),
        gradients.line.tolist(),
        gradients.shape.tolist(),
        strict=True,
    ):
        key = (step, pass_, line, shape)
        found.append(Taken(lines[line].name, gradients.shapes[shape] if shape >= 0 else None, counted[key]))
        counted[key] += 1
    return found


def _passes(rank: int, measured: Measured) -> Iterator[Reduced]:
    """The reductions of a rank by backward pass, in order."""
    reduced, gradients, comm = measured.reductions, measured.gradients, measured.communication
    if not len(reduced):
        return
    parameters = taken(measured)
    with_them = gradients.by_reduction(len(reduced))
    calls = comm.call[reduced.kernel]
    elements = [comm.calls[call].elements if call >= 0 else UNKNOWN for call in calls.tolist()]
    begins = np.flatnonzero(reduced.place == 0).tolist()
    for begin, end in zip(begins, [*begins[1:], len(reduced)], strict=True):
        own = range(begin, end)
        yield Reduced(
            rank=rank,
            step=int(reduced.step[begin]),
            pass_=int(reduced.pass_[begin]),
            rows=tuple(own),
            elements=tuple(elements[row] for row in own),
            gradients=tuple(tuple(parameters[index] for index in with_them[row]) for row in own),
            gradient_elements=tuple(_total(gradients.elements[with_them[row]]) for row in own),
        )


def _total(elements: Int64) -> int:
    return int(elements.sum()) if (elements >= 0).all() else UNKNOWN


def _traced_layout(passes: Sequence[Reduced]) -> tuple[tuple[Bucket, ...], dict[int, tuple[int, tuple[int, ...]]]]:
    """The layout as the passes show it; of each pass of a step the number of its first bucket, and its sizes.

    Passes of the same sizes (gradient accumulation) share buckets, other ones (a second model) have their own.
    """
    layout: list[Bucket] = []
    known: dict[tuple[int, ...], int] = {}
    offsets: dict[int, tuple[int, tuple[int, ...]]] = {}
    for pass_ in sorted({each.pass_ for each in passes}):
        alike = [each for each in passes if each.pass_ == pass_]
        sizes = Counter(each.elements for each in alike).most_common(1)[0][0]
        if sizes not in known:
            known[sizes] = len(layout)
            layout += _buckets_of([each for each in passes if each.elements == sizes], sizes)
        offsets[pass_] = known[sizes], sizes
    return tuple(layout), offsets


def _buckets_of(alike: Sequence[Reduced], sizes: Sequence[int]) -> Iterator[Bucket]:
    """The buckets of passes that agree in sizes; parameters from those whose gradients fill the bucket best."""
    for place, elements in enumerate(sizes):
        seen = [(each.gradient_elements[place], each.gradients[place]) for each in alike]
        filled, best = max(seen, key=lambda item: item[0])
        # Where shapes were not recorded, the order must do, if all passes agree in it.
        agreed = filled == UNKNOWN and len({gradients for _, gradients in seen}) == 1
        # More gradients than the bucket holds in any pass: they do not come in the buckets' order.
        yield Bucket(elements, best if best and (agreed or 0 < filled <= elements) else None)


def _recorded_sizes(manifest: Manifest) -> list[int]:
    sizes = [prod(parameter.shape) for parameter in manifest.parameters]
    try:
        return [sum(sizes[index] for index in bucket.parameters) for bucket in manifest.buckets or []]
    except IndexError:
        return []


def _numbers(each: Reduced, layout: Sequence[Bucket], offsets: dict[int, tuple[int, tuple[int, ...]]]) -> list[int]:
    """The bucket of each reduction of a pass: by order where sizes fit, else by a size that is one bucket's alone."""
    first, sizes = offsets[each.pass_]
    if len(each.elements) == len(sizes) and all(map(_fits, each.elements, sizes)):
        return list(range(first, first + len(sizes)))
    alone = {size: first + place for place, size in enumerate(sizes) if sizes.count(size) == 1}
    return [alone.get(size, UNKNOWN) for size in each.elements]


def _fits(elements: int, size: int) -> bool:
    """Whether a reduction may be of a bucket: of its size, or of one that its kernel does not say."""
    return elements in (size, UNKNOWN)


def _names(manifest: Manifest, run: RunSummary, layout: Sequence[Bucket]) -> dict[Taken, str]:
    """Parameters' names: of each bucket, or of each module, those of equal shape in the order of their gradients."""
    if run.measured[0].work.source == Source.OPERATORS:
        return _names_by_bucket(manifest, layout)
    # DDP lists buckets' parameters as their gradients came; the model's own order says less of it.
    order = [index for bucket in manifest.buckets or [] for index in bucket.parameters]
    order += [index for index in range(len(manifest.parameters)) if index not in set(order)]
    named: dict[Taken, str] = {}
    lines = {line.name for measured in run.measured for line in measured.work.lines}
    counted: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for index in order:
        if index >= len(manifest.parameters):
            continue
        parameter = manifest.parameters[index]
        line = _line_of(parameter.module, lines)
        shape = tuple(parameter.shape)
        named[Taken(line, shape, counted[line, shape])] = parameter.name
        counted[line, shape] += 1
    return named


def _line_of(module: str, lines: set[str]) -> str:
    """The innermost module around a parameter's own whose forward ran."""
    while module not in lines and "." in module:
        module = module.rpartition(".")[0]
    return module if module in lines else "(model)"


def _names_by_bucket(manifest: Manifest, layout: Sequence[Bucket]) -> dict[Taken, str]:
    named: dict[Taken, str] = {}
    for bucket, recorded in zip(layout, manifest.buckets or [], strict=False):
        known = [manifest.parameters[index] for index in recorded.parameters if index < len(manifest.parameters)]
        for shape in {tuple(parameter.shape) for parameter in known}:
            mine = [each for each in bucket.parameters or () if each.shape == shape]
            theirs = [parameter for parameter in known if tuple(parameter.shape) == shape]
            if len(mine) == len(theirs):
                named |= {each: parameter.name for each, parameter in zip(mine, theirs, strict=True)}
    return named


def _modules(manifest: Manifest, run: RunSummary, names: dict[Taken, str]) -> dict[str, str]:
    """The module that each operator's line is, where all its parameters are of one module."""
    if not names or run.measured[0].work.source != Source.OPERATORS:
        return {}
    module = {parameter.name: parameter.module for parameter in manifest.parameters}
    of_line: dict[str, set[str]] = {}
    for each, name in names.items():
        of_line.setdefault(each.line, set()).add(module[name])
    return {line: next(iter(modules)) for line, modules in of_line.items() if len(modules) == 1}
