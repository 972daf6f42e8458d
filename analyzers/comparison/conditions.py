"""Parser and evaluator of `--fail-on` conditions, such as `exposed_share > 10%`.

    condition  = all { "or" all }
    all        = simple { "and" simple }
    simple     = "not" simple | sum comparison sum | "changed" "(" name ")" | "(" condition ")"
    comparison = "<" | "<=" | ">" | ">=" | "==" | "!="
    sum        = product { ( "+" | "-" ) product }
    product    = factor { ( "*" | "/" ) factor }
    factor     = "-" factor | number [ "%" | "ns" | "us" | "ms" | "s" ] | figure | "(" sum ")"
               | "baseline" [ "(" figure ")" ]
    figure     = name | ( "max" | "min" | "mean" | "median" | "sum" | "count" ) "(" list "." column ")"

Nothing is run that is written in a condition: it is parsed into the nodes below, and these are looked up and computed.
A figure that is null makes what is computed from it null; `and` and `or` are Kleene's, so that a condition is null
unless what is known decides it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from analyzers.errors import BadExpression

# No sensible condition is longer or deeper, and Python's stack has an end.
MOST_WORDS = 200
DEEPEST = 20
WORD = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(<=|>=|==|!=|[-+*/()<>.%]))"
)
UNITS = {"%": 0.01, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
COMPUTED: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
OVER = ("max", "min", "mean", "median", "sum", "count")
KEYWORDS = ("and", "or", "not", "baseline", "changed", *OVER)

Of = Literal["run", "baseline", "change"]


@dataclass(frozen=True)
class Figure:
    """A figure to look up: a name, or `over` a column (`name`) of a list's rows; of the run, baseline or change."""

    name: str
    rows: str | None = None
    over: str | None = None
    of: Of = "run"

    def __str__(self) -> str:
        column = self.name if self.rows is None else f"{self.over}({self.rows}.{self.name})"
        return column if self.of == "run" else f"{'baseline' if self.of == 'baseline' else 'changed'}({column})"


@dataclass(frozen=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True)
class LoneBaseline:
    """`baseline` alone, before it is known of which figure."""


@dataclass(frozen=True)
class Operation:
    """Two operands, or with `not` and unary minus (`neg`) one that stands on the right."""

    sign: str
    left: Node | None
    right: Node


Node = Figure | Number | LoneBaseline | Operation


@dataclass(frozen=True)
class Names:
    """What a condition may name: figures, columns by list, and of a comparison figures that have a marked change."""

    figures: Collection[str]
    columns: Mapping[str, Collection[str]]
    changing: Collection[str] = ()
    has_baseline: bool = False


@dataclass(frozen=True)
class Condition:
    """A condition as it was written, and as it is computed."""

    text: str
    node: Node

    def figures(self) -> list[Figure]:
        """Return every figure that it looks up, in order, each once."""
        return list(dict.fromkeys(_figures(self.node)))

    def holds(self, look_up: Callable[[Figure], float | None]) -> bool | None:
        """Whether it holds; None where a null figure (or a division by zero) leaves that open."""
        value = _value(self.node, look_up)
        return None if value is None else bool(value)


def parse(text: str, names: Names) -> Condition:
    """Parse a condition. Raises BadExpression, which names the place, or names near an unknown one."""
    words = _words(text)
    if not words:
        raise BadExpression("the condition is empty; give one such as 'exposed_share > 0.1'")
    reader = _Reader(text, words, names)
    node = reader.condition()
    if reader.place < len(words):
        raise reader.wrong("expected `and`, `or`, or the end")
    if not _is_condition(node):
        raise BadExpression(f"{text!r} is a number, not a condition: compare it, as in '{text.strip()} > 0'")
    return Condition(text, node)


def _words(text: str) -> list[str]:
    words, offset = [], 0
    text = text.rstrip()
    while offset < len(text):
        match = WORD.match(text, offset)
        if match is None:
            raise BadExpression(f"{text!r}: {text[offset:].strip()[0]!r} at character {offset + 1} means nothing here")
        words.append(match.group().strip())
        offset = match.end()
    if len(words) > MOST_WORDS:
        raise BadExpression(
            f"a condition has at most {MOST_WORDS} words, this one {len(words)}; give several --fail-on"
        )
    return words


class _Reader:
    """Reads words from left to right, by the grammar above: a function for each of its rules."""

    def __init__(self, text: str, words: list[str], names: Names) -> None:
        self.text, self.words, self.names, self.place, self.depth = text, words, names, 0, 0

    def condition(self) -> Node:
        return self._chain(self._all, ("or",), of_conditions=True)

    def _all(self) -> Node:
        return self._chain(self._simple, ("and",), of_conditions=True)

    def _simple(self) -> Node:
        if self._take("not"):
            return Operation("not", None, self._checked(self._deeper(self._simple), "not", is_condition=True))
        left = self._sum()
        sign = self._next()
        if sign not in COMPARED:
            return left
        self.place += 1
        right = self._sum()
        for side in (left, right):
            self._checked(side, sign, is_condition=False)
        if self._next() in COMPARED:
            raise self.wrong("comparisons cannot be chained; join two with `and`")
        return self._with_baseline(Operation(sign, left, right))

    def _sum(self) -> Node:
        return self._chain(self._product, ("+", "-"), of_conditions=False)

    def _product(self) -> Node:
        return self._chain(self._factor, ("*", "/"), of_conditions=False)

    def _factor(self) -> Node:
        if self._take("-"):
            return Operation("neg", None, self._checked(self._deeper(self._factor), "-", is_condition=False))
        if self._take("("):
            inner = self._deeper(self.condition)
            self._expect(")")
            return inner
        word = self._next()
        if word is None:
            raise self.wrong("expected a figure or a number")
        self.place += 1
        if word[0].isdigit() or word[0] == ".":
            return self._number(word)
        if word == "baseline":
            return self._baseline()
        if word == "changed":
            return self._changed()
        self.place -= 1
        return self._figure()

    def _number(self, word: str) -> Number:
        if not any(sign.isdigit() for sign in word):
            self.place -= 1
            raise self.wrong("expected a figure or a number")
        value = float(word) * UNITS.get(self._next() or "", 1.0)
        if self._next() in UNITS:
            self.place += 1
        if value == float("inf"):
            raise BadExpression(f"{self.text!r}: {word} is too large a number")
        return Number(value)

    def _baseline(self) -> Node:
        if not self.names.has_baseline:
            raise BadExpression(f"{self.text!r}: only `tracer compare A B` has a baseline, which is A")
        if not self._take("("):
            return LoneBaseline()
        figure = replace(self._figure(), of="baseline")
        self._expect(")")
        return figure

    def _changed(self) -> Figure:
        if not self.names.has_baseline:
            raise BadExpression(f"{self.text!r}: only `tracer compare A B` knows what changed")
        self._expect("(")
        name = self._name(self.names.changing, "a figure whose change is judged")
        self._expect(")")
        return Figure(name, of="change")

    def _figure(self) -> Figure:
        word = self._next()
        if word not in OVER:
            return Figure(self._name(self.names.figures, "a figure"))
        self.place += 1
        self._expect("(")
        rows = self._name(self.names.columns, "a list")
        self._expect(".")
        figure = Figure(self._name(self.names.columns[rows], f"a column of {rows}"), rows, word)
        self._expect(")")
        return figure

    def _name(self, choices: Collection[str], expected: str) -> str:
        word = self._next()
        if word is None or not (word[0].isalpha() or word[0] == "_") or word in KEYWORDS:
            raise self.wrong(f"expected {expected}")
        if word not in choices:
            near = get_close_matches(word, sorted(choices), 4, 0.5)
            raise BadExpression(f"{self.text!r}: {word!r} is not {expected}; {_listed(near, choices)}")
        self.place += 1
        return word

    def _chain(self, part: Callable[[], Node], signs: Collection[str], of_conditions: bool) -> Node:
        """Parse parts joined by any of these signs, from the left."""
        node = part()
        while (sign := self._next()) in signs and sign is not None:
            self.place += 1
            right = part()
            for side in (node, right):
                self._checked(side, sign, is_condition=of_conditions)
            node = Operation(sign, node, right)
        return node

    def _with_baseline(self, node: Operation) -> Operation:
        """Resolve a comparison's lone `baseline` to that of its one figure."""
        figures = {figure for figure in _figures(node) if figure.of == "run"}
        if not _has_lone_baseline(node):
            return node
        if len(figures) != 1:
            raise BadExpression(f"{self.text!r}: `baseline` of which figure? Write it as in baseline(step_ns)")
        return _replaced(node, replace(figures.pop(), of="baseline"))

    def _deeper(self, part: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadExpression(f"{self.text!r} is nested more than {DEEPEST} deep; give several --fail-on")
        node = part()
        self.depth -= 1
        return node

    def _checked(self, node: Node, sign: str, *, is_condition: bool) -> Node:
        if _is_condition(node) != is_condition:
            has, needs = ("a number", "a condition") if is_condition else ("a condition", "a number")
            raise BadExpression(f"{self.text!r}: beside `{sign}` stands {has}, where {needs} is needed")
        return node

    def _next(self) -> str | None:
        return self.words[self.place] if self.place < len(self.words) else None

    def _take(self, word: str) -> bool:
        taken = self._next() == word
        self.place += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self.wrong(f"expected `{word}`")

    def wrong(self, problem: str) -> BadExpression:
        """Return an error that says what is wrong, and where."""
        word = self._next()
        return BadExpression(f"{self.text!r}: {problem}, found {'the end' if word is None else f'{word!r}'}")


def _listed(near: list[str], choices: Collection[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(choices))}"


def _is_condition(node: Node) -> bool:
    if isinstance(node, Figure):
        return node.of == "change"
    return isinstance(node, Operation) and (node.sign in COMPARED or node.sign in ("and", "or", "not"))


def _figures(node: Node | None) -> Iterator[Figure]:
    if isinstance(node, Figure):
        yield node
    elif isinstance(node, Operation):
        yield from _figures(node.left)
        yield from _figures(node.right)


def _has_lone_baseline(node: Node | None) -> bool:
    if isinstance(node, Operation):
        return _has_lone_baseline(node.left) or _has_lone_baseline(node.right)
    return isinstance(node, LoneBaseline)


def _replaced(node: Operation, baseline: Figure) -> Operation:
    sides = [
        baseline
        if isinstance(side, LoneBaseline)
        else _replaced(side, baseline)
        if isinstance(side, Operation)
        else side
        for side in (node.left, node.right)
    ]
    assert sides[1] is not None
    return Operation(node.sign, sides[0], sides[1])


def _finite(value: float | bool | None) -> float | bool | None:
    """Return a number that can be computed with; None for what is beyond any."""
    if value is None or isinstance(value, bool):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _value(node: Node | None, look_up: Callable[[Figure], float | None]) -> float | bool | None:
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Figure):
        return _finite(look_up(node))
    assert isinstance(node, Operation)
    right = _value(node.right, look_up)
    if node.sign in ("not", "neg"):
        return None if right is None else not right if node.sign == "not" else -right
    left = _value(node.left, look_up)
    if node.sign in ("and", "or"):
        decisive = node.sign == "or"
        return decisive if decisive in (left, right) else None if None in (left, right) else not decisive
    if left is None or right is None or (node.sign == "/" and right == 0):
        return None
    if node.sign in COMPARED:
        return COMPARED[node.sign](left, right)
    return _finite(COMPUTED[node.sign](left, right))
