"""DDP's bucket layout, from run.json or the traces, and each reduction's bucket.

    gradients taken    a b c | d e | f g h      in this order on the host, each followed by its bucket's all-reduce
    all_reduce             0     1       2      verified by size: its elements are its gradients' elements

Where sizes do not fit the order (a parameter that was not used, one that came late), a bucket is known by its size if
no other has it; else it is unknown, and said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.rank import LayerSource, Measured, RunSummary, is_layer, layer_name
from analyzers.ranks import RankIndex
from analyzers.run import Manifest, Parameter
from analyzers.trace import ROOT


@dataclass(frozen=True)
class TakenParameter:
    """A parameter as a trace tells it apart: the line its gradient belongs to, its shape, and which of its like."""

    line: str
    shape: tuple[int, ...] | None
    place: int

    @property
    def elements(self) -> int:
        """Return how many elements its shape has, -1 where that was not recorded."""
        return UNKNOWN if self.shape is None else prod(self.shape)


@dataclass(frozen=True)
class NamedBucket:
    """One bucket: elements, the parameters that traces show in it (None: not known), and its names in run.json."""

    elements: int
    parameters: tuple[TakenParameter, ...] | None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Reduced:
    """The reductions of one backward pass of one rank: their rows, sizes, and the gradients that went with each."""

    index: RankIndex
    step: int
    pass_: int
    rows: tuple[int, ...]
    elements: tuple[int, ...]
    gradients: tuple[tuple[TakenParameter, ...], ...]
    gradient_elements: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Buckets:
    """The buckets of a run.

    `layout` lists them all; `source` is `run.json` or `trace`, and `mismatch` says why run.json's is left aside.
    `number` gives, for each rank, the bucket of each of its reductions, -1 for unknown. `names` and `sizes` are what
    parameters are called and how many elements they have, `layers` the modules of operators' lines: from run.json, as
    far as they are known.
    """

    source: str
    layout: tuple[NamedBucket, ...]
    number: tuple[Int64, ...]
    names: dict[TakenParameter, str]
    sizes: dict[TakenParameter, int]
    layers: dict[str, str]
    mismatch: str | None

    def parameter(self, traced: TakenParameter) -> str:
        """Return a parameter's name, made from its layer and shape where the run does not say it."""
        shape = "" if traced.shape is None else f" {list(traced.shape)}"
        return self.names.get(traced) or f"{traced.line}.{traced.place}{shape}"

    def layer(self, line: str) -> str:
        """Return a line's name: the module's, where run.json tells which module an operator is."""
        return self.layers.get(line, line)


@dataclass(frozen=True)
class _Recorded:
    """One bucket of run.json."""

    parameters: tuple[Parameter, ...]

    @property
    def elements(self) -> int:
        return sum(prod(parameter.shape) for parameter in self.parameters)


def buckets(run: RunSummary) -> Buckets:
    """Name the buckets in a run, and each reduction's bucket."""
    manifest = run.manifest or Manifest()
    passes = _all_passes(run)
    recorded = _recorded(manifest)
    sizes = tuple(bucket.elements for bucket in recorded)
    fits = bool(recorded) and _is_within(sizes, _common_sizes(passes))
    plan = {reduced.pass_: (0, sizes) for reduced in passes} if fits else _traced_plan(passes)
    numbers = [_numbers(reduced, *plan[reduced.pass_]) for reduced in passes]
    number = tuple(np.full(len(measured.reductions), UNKNOWN, dtype=np.int64) for measured in run.measured)
    for reduced, bucket_numbers in zip(passes, numbers, strict=True):
        number[reduced.index][list(reduced.rows)] = bucket_numbers
    layout = _layout(plan, passes, numbers, recorded if fits else ())
    named = _named(layout, recorded) if fits else {}
    operators = _operators(run)
    if any(measured.work.source != LayerSource.OPERATORS for measured in run.measured):
        by_layout = {traced: name for traced, name in named.items() if traced.shape is None or traced.line in operators}
        named = _named_by_module(manifest, run) | by_layout
    names = {traced: parameter.name for traced, parameter in named.items()}
    elements = {traced: prod(parameter.shape) for traced, parameter in named.items()}
    mismatch = None if fits or not manifest.buckets or not passes else _why_not(recorded)
    return Buckets(
        "run.json" if fits else "trace", layout, number, names, elements, _modules(operators, named), mismatch
    )


def _recorded(manifest: Manifest) -> list[_Recorded]:
    """Return run.json's buckets; none where they do not hold its own parameters, each once."""
    parameters = manifest.parameters
    indices = [index for bucket in manifest.buckets or [] for index in bucket.parameters]
    if len(set(indices)) < len(indices) or not all(0 <= index < len(parameters) for index in indices):
        return []
    return [_Recorded(tuple(parameters[index] for index in bucket.parameters)) for bucket in manifest.buckets or []]


def _why_not(recorded: Sequence[_Recorded]) -> str:
    sizes = "their sizes are not those of the all-reduces"
    return sizes if recorded else "they do not hold its own parameters, each once"


def _common_sizes(passes: Sequence[Reduced]) -> list[tuple[int, ...]]:
    """Return the sizes of most passes, by the pass's number in its step."""
    return [
        Counter(reduced.elements for reduced in passes if reduced.pass_ == pass_).most_common(1)[0][0]
        for pass_ in sorted({reduced.pass_ for reduced in passes})
    ]


def _is_within(sizes: Sequence[int], observed: Sequence[tuple[int, ...]]) -> bool:
    """Whether buckets of these sizes are reduced in this order in every pass; others may be reduced between them."""
    return bool(observed) and all(_in_order(elements, sizes) is not None for elements in observed)


def taken(measured: Measured) -> list[TakenParameter]:
    """Return each gradient on a rank as a parameter: alike in every step and pass."""
    gradients, lines = measured.gradients, measured.work.lines
    counted: Counter[tuple[int, ...]] = Counter()
    parameters = []
    columns = (gradients.step, gradients.pass_, gradients.line, gradients.shape)
    for key in zip(*(column.tolist() for column in columns), strict=True):
        _, _, line, shape = key
        parameters.append(
            TakenParameter(lines[line].name, gradients.shapes[shape] if shape >= 0 else None, counted[key])
        )
        counted[key] += 1
    return parameters


def _all_passes(run: RunSummary) -> list[Reduced]:
    """Return the reductions of all ranks by backward pass; ranks that reduced the same share what is said of it."""
    known: dict[tuple[object, ...], list[Reduced]] = {}
    passes: list[Reduced] = []
    for index, _, measured in run.numbered():
        if len(measured.reductions):
            elements = _reduced_elements(measured)
            of_rank = known.setdefault(_said(measured, elements), [])
            of_rank.extend(_passes(index, measured, elements) if not of_rank else ())
            passes += of_rank if of_rank[0].index == index else [replace(one, index=index) for one in of_rank]
    return passes


def _reduced_elements(measured: Measured) -> list[int]:
    """Return what each reduction of a rank holds, -1 unknown."""
    comm = measured.communication
    calls = comm.call[measured.reductions.kernel]
    return [comm.calls[call].elements if call >= 0 else UNKNOWN for call in calls.tolist()]


def _said(measured: Measured, elements: list[int]) -> tuple[object, ...]:
    """Return all that a rank's passes are made from."""
    reduced, gradients = measured.reductions, measured.gradients
    columns = (reduced.step, reduced.pass_, reduced.place, gradients.step, gradients.pass_, gradients.line)
    more = (gradients.elements, gradients.shape, gradients.reduction)
    lines = tuple(line.name for line in measured.work.lines)
    return (*(column.tobytes() for column in (*columns, *more)), tuple(elements), gradients.shapes, lines)


def _passes(index: RankIndex, measured: Measured, elements: Sequence[int]) -> Iterator[Reduced]:
    """Yield the reductions on a rank by backward pass, in order."""
    reduced, gradients = measured.reductions, measured.gradients
    parameters = taken(measured)
    gradients_of = gradients.by_reduction(len(reduced))
    begins = np.flatnonzero(reduced.place == 0).tolist()
    for begin, end in zip(begins, [*begins[1:], len(reduced)], strict=True):
        rows = range(begin, end)
        yield Reduced(
            index=index,
            step=int(reduced.step[begin]),
            pass_=int(reduced.pass_[begin]),
            rows=tuple(rows),
            elements=tuple(elements[row] for row in rows),
            gradients=tuple(tuple(parameters[gradient] for gradient in gradients_of[row]) for row in rows),
            gradient_elements=tuple(_total(gradients.elements[gradients_of[row]]) for row in rows),
        )


def _total(elements: Int64) -> int:
    return int(elements.sum()) if (elements >= 0).all() else UNKNOWN


Plan = dict[int, tuple[int, tuple[int, ...]]]


def _traced_plan(passes: Sequence[Reduced]) -> Plan:
    """Return for each pass in a step the number of its first bucket, and the sizes of its buckets.

    Passes of the same sizes (gradient accumulation) share buckets, other ones (a second model) have their own.
    """
    first_bucket: dict[tuple[int, ...], int] = {}
    plan: Plan = {}
    for pass_, sizes in zip(sorted({reduced.pass_ for reduced in passes}), _common_sizes(passes), strict=True):
        plan[pass_] = first_bucket.setdefault(sizes, sum(map(len, first_bucket))), sizes
    return plan


def _numbers(reduced: Reduced, first: int, sizes: Sequence[int]) -> list[int]:
    """Return each reduction's bucket in a pass: by order where sizes fit, else by a size that only one bucket has."""
    in_order = _in_order(reduced.elements, sizes)
    if in_order is not None:
        return [position if position == UNKNOWN else first + position for position in in_order]
    alone = {size: first + position for position, size in enumerate(sizes) if sizes.count(size) == 1}
    return [alone.get(size, UNKNOWN) for size in reduced.elements]


def _in_order(elements: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """Return each reduction's position among the sizes, -1 for none of them; None where they are not all there."""
    positions: list[int] = []
    position = 0
    for size in elements:
        # What its kernel does not say may be of the size that comes next.
        fits = position < len(sizes) and size in (sizes[position], UNKNOWN)
        positions.append(position if fits else UNKNOWN)
        position += fits
    return positions if position == len(sizes) else None


def _layout(
    plan: Plan, passes: Sequence[Reduced], numbers: Sequence[Sequence[int]], recorded: Sequence[_Recorded]
) -> tuple[NamedBucket, ...]:
    """Return all buckets; the parameters of each as the passes show them."""
    sizes = {first + position: size for first, of_pass in plan.values() for position, size in enumerate(of_pass)}
    seen: dict[int, list[tuple[int, tuple[TakenParameter, ...]]]] = {number: [] for number in sizes}
    # Ranks that reduced the same say nothing new.
    distinct = {
        (id(reduced.gradients), *bucket_numbers): reduced
        for reduced, bucket_numbers in zip(passes, numbers, strict=True)
    }
    for (_, *bucket_numbers), reduced in distinct.items():
        for position, number in enumerate(bucket_numbers):
            if number != UNKNOWN:
                seen[number].append((reduced.gradient_elements[position], reduced.gradients[position]))
    names = [tuple(parameter.name for parameter in bucket.parameters) for bucket in recorded]
    return tuple(
        NamedBucket(sizes[number], _parameters(sizes[number], seen[number]), names[number] if names else None)
        for number in sorted(sizes)
    )


def _parameters(
    elements: int, seen: Sequence[tuple[int, tuple[TakenParameter, ...]]]
) -> tuple[TakenParameter, ...] | None:
    """Return a bucket's parameters: among what passes show, what fills it best and belongs to known layers."""
    if not seen:
        return None
    filled, best = max(seen, key=lambda item: (item[0], sum(is_layer(parameter.line) for parameter in item[1])))
    # Where shapes were not recorded, the order must do, if all passes agree in it.
    agreed = filled == UNKNOWN and len({gradients for _, gradients in seen}) == 1
    # More gradients than the bucket holds in any pass: they do not come in the buckets' order.
    return best if best and (agreed or 0 < filled <= elements) else None


def _named(layout: Sequence[NamedBucket], recorded: Sequence[_Recorded]) -> dict[TakenParameter, Parameter]:
    """Match run.json's parameters by bucket: by the order of gradients, if it is run.json's; else by lone shapes."""
    named: dict[TakenParameter, Parameter] = {}
    for bucket, recorded_bucket in zip(layout, recorded, strict=True):
        mine, theirs = bucket.parameters or (), recorded_bucket.parameters
        shapes = [tuple(parameter.shape) for parameter in theirs]
        if len(mine) == len(theirs) and all(a.shape in (b, None) for a, b in zip(mine, shapes, strict=True)):
            named |= dict(zip(mine, theirs, strict=True))
            continue
        of_mine = Counter(traced.shape for traced in mine)
        for traced in mine:
            if traced.shape is not None and of_mine[traced.shape] == shapes.count(traced.shape) == 1:
                named[traced] = theirs[shapes.index(traced.shape)]
    return named


def _named_by_module(manifest: Manifest, run: RunSummary) -> dict[TakenParameter, Parameter]:
    """Match run.json's parameters by module: those with equal shapes in the order of their gradients."""
    # DDP lists buckets' parameters as their gradients came; the model's own order says less of it.
    listed = [parameter for bucket in _recorded(manifest) for parameter in bucket.parameters]
    first = {parameter.name for parameter in listed}
    lines = {line.name for measured in run.measured for line in measured.work.lines}
    named: dict[TakenParameter, Parameter] = {}
    counted: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for parameter in [*listed, *(each for each in manifest.parameters if each.name not in first)]:
        line, shape = _line_of(parameter.module, lines), tuple(parameter.shape)
        named[TakenParameter(line, shape, counted[line, shape])] = parameter
        counted[line, shape] += 1
    return named


def _line_of(module: str, lines: set[str]) -> str:
    """Return the innermost module around a parameter's own whose forward ran."""
    while layer_name(module) not in lines and "." in module:
        module = module.rpartition(".")[0]
    return layer_name(module) if layer_name(module) in lines else ROOT


def _operators(run: RunSummary) -> set[str]:
    """Return the operators' lines: those that only ranks without modules in their traces have."""
    lines: dict[bool, set[str]] = {True: set(), False: set()}
    for measured in run.measured:
        lines[measured.work.source == LayerSource.OPERATORS] |= {line.name for line in measured.work.lines}
    return lines[True] - lines[False]


def _modules(operators: set[str], named: dict[TakenParameter, Parameter]) -> dict[str, str]:
    """Return the module that each operator's line is, where all its parameters belong to one module."""
    of_line: dict[str, set[str]] = {}
    for traced, parameter in named.items():
        if traced.line in operators:
            of_line.setdefault(traced.line, set()).add(parameter.module)
    of_one_module = {line: modules for line, modules in of_line.items() if len(modules) == 1 and all(modules)}
    return {line: layer_name(next(iter(modules))) for line, modules in of_one_module.items()}
