"""Autograd nodes, joined to their forward operators by sequence number.

    forward thread    |conv 7|  |norm 8|  |relu 9|
    backward thread                                 |relu 9|  |norm 8|gradient|  |conv 7|gradient|

Where a node's number is not said (hooks take it away), its own function inside of it may have it, which is called like
the node; else it is found from the nodes around it. A gradient's node
(AccumulateGrad) has none: it runs right after the node that made the gradient, since autograd gives it the highest
priority, and so belongs to the same forward operator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct, values_at
from analyzers.rank.host.host_threads import Host, Places, Spans
from analyzers.texts import keep_short_answers
from analyzers.trace import NODE, TAKES_GRADIENT, Category


@dataclass(frozen=True, eq=False)
class Autograd:
    """Nodes by start: `row` of each among the events, `maker` the row of its forward operator, -1 for none.

    `operators` are the rows of all operators that are no nodes; `is_gradient` marks nodes that take a parameter's
    gradient.
    """

    host: Host
    row: Int64
    maker: Int64
    is_gradient: Mask
    operators: Int64

    @cached_property
    def spans(self) -> Spans:
        """Return when nodes ran."""
        return self.host.spans(self.row)

    @cached_property
    def _operator_spans(self) -> Spans:
        return self.host.spans(self.operators)

    @property
    def is_outermost(self) -> Mask:
        """Return which of `operators` take time and lie in no other."""
        outermost = np.zeros(len(self.operators), dtype=bool)
        for spans in self._operator_spans.tops.values():
            outermost[spans.label[spans.end_ns > spans.start_ns]] = True
        return outermost

    def top_operators(self, places: Places) -> Int64:
        """Return the row of the outermost operator around each place, -1 for none."""
        return values_at(self.operators, self._operator_spans.outermost(places))


def autograd(host: Host) -> Autograd:
    """Return the nodes that one rank ran."""
    events = host.events
    is_operator = events.category == Category.OPERATOR
    is_node = is_operator & events.named(NODE)
    rows = np.flatnonzero(is_node)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    is_gradient = events.named(TAKES_GRADIENT)[rows]
    makes = ~is_gradient
    number, operators = _find_numbers(host, rows)
    maker = np.full(len(rows), UNKNOWN, dtype=np.int64)
    maker[makes] = _find_makers(host, rows[makes], number, operators)
    unsaid = makes & (number[rows] < 0)
    maker[unsaid] = _find_below(host, (rows[unsaid], rows[makes & ~unsaid]), number, operators)
    by_row = np.full(len(events) + 1, UNKNOWN, dtype=np.int64)
    by_row[rows] = maker
    maker[is_gradient] = by_row[host.before(rows[is_gradient], rows[makes])]
    return Autograd(host, rows, maker, is_gradient, np.flatnonzero(is_operator & ~is_node))


def _find_numbers(host: Host, nodes: Int64) -> tuple[Int64, Int64]:
    """Return every row's number, for nodes without one their function's; and the operators in the forward.

    These have a number and are no nodes, nor a node's own function, which carries its number too.
    """
    events = host.events
    operators = np.flatnonzero((events.category == Category.OPERATOR) & (events.forward >= 0))
    is_node = np.zeros(len(events), dtype=bool)
    is_node[nodes] = True
    operators = operators[~is_node[operators]]
    within = host.around(operators, nodes)
    short = {name.removeprefix(NODE): code for code, name in enumerate(events.names) if name.startswith(NODE)}
    node_of_name = np.array([short.get(name, UNKNOWN) for name in events.names], dtype=np.int64)
    is_function = (within >= 0) & (node_of_name[events.name[operators]] == events.name[within])
    number = events.forward.copy()
    functions, holders = operators[is_function], within[is_function]
    number[holders] = np.where(number[holders] >= 0, number[holders], events.forward[functions])
    return number, operators[~is_function & ((within < 0) | (number[within] != number[operators]))]


def _find_makers(host: Host, nodes: Int64, number: Int64, operators: Int64) -> Int64:
    """Return the last operator with the node's number that began before it, if possible one with its name."""
    events = host.events
    alike = _last_before(host, nodes, operators, number, _encode_names(events.names)[events.name])
    any_name = _last_before(host, nodes, operators, number)
    return np.where(number[nodes] >= 0, np.where(alike >= 0, alike, any_name), UNKNOWN)


def _find_below(host: Host, nodes_and_numbered: tuple[Int64, Int64], number: Int64, operators: Int64) -> Int64:
    """Return for unnumbered nodes the operator with their name and highest number below the previous numbered node's.

    Nodes run in falling order of their numbers, so that it is the next one of its name.
    """
    events = host.events
    nodes, numbered = nodes_and_numbered
    if not len(nodes) or not len(operators):
        return np.full(len(nodes), UNKNOWN, dtype=np.int64)
    word = _encode_names(events.names)[events.name]
    order = operators[np.lexsort((number[operators], word[operators]))]
    before = host.before(nodes, numbered)
    limit = np.where(before >= 0, number[before], np.iinfo(np.int64).max)
    width = int(number[operators].max()) + 2
    keys = word[order] * width + number[order]
    position = np.searchsorted(keys, word[nodes] * width + np.minimum(limit, width - 1)) - 1
    fits = (position >= 0) & (word[order[position]] == word[nodes])
    fits &= events.start_ns[order[position]] < events.start_ns[nodes]
    return np.where(fits, order[position], UNKNOWN)


def _encode_names(names: tuple[str, ...]) -> Int64:
    """Return a code for each name, equal for an operator and its node: `aten::_to_copy`, `NODE ToCopyBackward0`."""
    words = [*map(_word_of, names)]
    codes = {word: code for code, word in enumerate(dict.fromkeys(words))}
    return np.array([codes[word] for word in words], dtype=np.int64)


@keep_short_answers
def _word_of(name: str) -> str:
    return re.sub(r"[^a-z]", "", re.sub(r"Backward\d*.*$", "", name.rpartition(":")[2]).lower())


def _last_before(host: Host, nodes: Int64, operators: Int64, *keys: Int64) -> Int64:
    """Return for each node the last operator before it that has the same keys, columns of all rows."""
    events = host.events
    last_operator = np.full(len(nodes), UNKNOWN, dtype=np.int64)
    if not len(operators) or not len(nodes):
        return last_operator
    both = np.r_[operators, nodes]
    key = distinct(*(column[both] for column in keys)).index
    # Sorted together, the operator that stands before a node is the one.
    is_node = np.r_[np.zeros(len(operators), dtype=np.int64), np.ones(len(nodes), dtype=np.int64)]
    order = np.lexsort((is_node, events.start_ns[both], key))
    last = np.maximum.accumulate(np.where(is_node[order] == 0, np.arange(len(both)), -1))
    node_entries = is_node[order] == 1
    at = last[node_entries]
    same = (at >= 0) & (key[order][at] == key[order][node_entries])
    last_operator[order[node_entries] - len(operators)] = np.where(same, both[order[at]], UNKNOWN)
    return last_operator
