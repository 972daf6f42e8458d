"""The keys of documents, as docs/formats.md has them, and the codes of notices, as docs/dev/notices.md has them."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import groupby
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from analyzers.comparison.document import Comparison, SweepComparison
from analyzers.comparison.scaling_document import Scaling
from analyzers.notices import Code, Notices, Weight
from analyzers.prediction import WhatIf
from analyzers.reporting.document import Digest, Report
from analyzers.run.calibration import Calibration
from analyzers.run.manifest import Manifest
from analyzers.run.sweep import Sweep

# Each document's heading, and its type, below which stand the types that it holds.
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "run.json": Manifest,
    "The report": Report,
    "The digest": Digest,
    "The predictions": WhatIf,
    "The comparison": Comparison,
    "The comparison of sweeps": SweepComparison,
    "sweep.json": Sweep,
    "The scaling study": Scaling,
    "The calibration": Calibration,
}
# Where codes are explained, from the page of formats on.
CODES = "dev/notices.md"
# What a key's name may end in that says what kind of number it is.
UNITS = re.compile(r"(.*_)?(ns|us|n?bytes|mb|gbps|mhz|w|c|per_s)")
# Keys that are whole numbers, or a device's index or `cpu`, in whatever holds them: the page says so once.
WHOLE = (
    *("rank", "world_size", "step", "steps", "rounds", "launches", "gpus", "batch", "batch_per_gpu", "samples"),
    *("bucket", "stage", "microbatches", "parameters", "collective", "group_size", "count", "calls"),
)
# A type that adds at most so many keys where it stands, and of which no more than they is explained, is written there.
MOST_FOLDED = 9
# A first line such as `One thing: docs/measuring.md, Its heading.`
LEADING = re.compile(r"^(.+): docs/((?:\w+/)*\w+\.md), ([^.;()]+)")
# A sentence such as "`queued_ns`, `late_ns`: what they are."
OF_KEYS = re.compile(r"((?:`\w+`(?:, )?)+): (.*)\.")
NAMES: dict[Any, str] = {str: "text", Notices: "text", int: "int", float: "number", bool: "bool", Any: "any"}


def reference() -> str:
    """Everything that docs/formats.md says of keys: a section for each document, each type once."""
    return "\n\n".join(_documents())


def _documents() -> Iterator[str]:
    seen: dict[str, type] = {}
    for heading, root in DOCUMENTS.items():
        for kind in held(root):
            if kind.__name__ not in seen and not is_folded(kind):
                yield f"## {heading}\n\n{section(kind)}" if kind is root else f"### {kind.__name__}\n\n{section(kind)}"
            if seen.setdefault(kind.__name__, kind) is not kind:
                raise ValueError(f"two types are called {kind.__name__}")


def held(root: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return a type and all that it holds, in the order of keys, each behind what it first stands in."""
    found: list[type[msgspec.Struct]] = []
    left: list[Any] = [root]
    while left:
        hint = left.pop(0)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
            found.append(hint)
            left[:0] = [*_bases(hint), *get_type_hints(hint).values()]
        else:
            left[:0] = get_args(hint)
    return found


@cache
def is_folded(kind: type[msgspec.Struct]) -> bool:
    """Tell whether a type's keys stand wherever it is held: few, with all that is said of them."""
    if kind in DOCUMENTS.values() or LEADING.match(inspect.getdoc(kind) or ""):
        return False
    # Neighbors of one type are written together.
    places = sum(_mentions(hint, kind) for other in _all() for hint, _ in groupby(_own(other).values()))
    return places * _count_keys(kind) <= MOST_FOLDED and all(names for names, _ in _sentences(kind))


def _count_keys(kind: type[msgspec.Struct]) -> int:
    inside = [other for other in held(kind) if other is not kind and is_folded(other)]
    return sum(len(_own(each)) for each in (kind, *inside))


@cache
def _all() -> set[type[msgspec.Struct]]:
    return {kind for root in DOCUMENTS.values() for kind in held(root)}


def _own(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a type's own keys."""
    inherited = [field for base in _bases(kind) for field in base.__struct_fields__]
    return {name: hint for name, hint in get_type_hints(kind).items() if name not in inherited}


def _mentions(hint: Any, kind: type[msgspec.Struct]) -> bool:
    return hint is kind or any(_mentions(part, kind) for part in get_args(hint))


def _bases(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return the type whose keys this one has as well, if any."""
    return [base for base in kind.__bases__ if issubclass(base, msgspec.Struct) and base.__struct_fields__]


def section(kind: type[msgspec.Struct]) -> str:
    """Return a type's docstring and its keys; what it says of a key stands behind that key."""
    first, *rest = said(kind).split("\n\n")
    left = " ".join(text for names, text in _sentences(kind) if not names)
    return "\n\n".join([first, *([left] if rest and left else []), f"{keys(kind)}."])


def _sentences(kind: type[msgspec.Struct | Weight]) -> Iterator[tuple[list[str], str]]:
    """Yield what stands behind a docstring's first line: a sentence, or neighboring keys and what is said of them."""
    own = [*kind] if issubclass(kind, Enum) else [field.encode_name for field in msgspec.structs.fields(kind)]
    _, *rest = said(kind).split("\n\n")
    for sentence in re.split(r"(?<=\.) (?=[`A-Z])", " ".join(" ".join(rest).split())):
        found = OF_KEYS.fullmatch(sentence)
        names = re.findall(r"`(\w+)`", found[1]) if found else []
        first = own.index(names[0]) if names and names[0] in own else 0
        if found and names == own[first : first + len(names)]:
            yield names, found[2]
        elif sentence:
            yield [], sentence


def said(kind: type) -> str:
    """Return a docstring; what names a heading in docs/ leads to it."""
    return LEADING.sub(_link, inspect.cleandoc(kind.__doc__ or ""))


def _link(found: re.Match[str]) -> str:
    words, page, heading = found.groups()
    return f"[{words}]({page}#{anchor(heading)})"


def anchor(heading: str) -> str:
    """Return what a link to a heading ends with, as GitHub names it."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


def keys(kind: type[msgspec.Struct]) -> str:
    """Return a type's keys as its JSON has them, neighbors of one type together."""
    hints = _own(kind)
    behind = {names[-1]: f" ({text})" for names, text in _sentences(kind) if names}
    typed = [
        _typed(field.encode_name, hints[field.name], behind)
        for field in msgspec.structs.fields(kind)
        if field.name in hints
    ]
    alike = [(name, ", ".join(key for key, _ in run)) for name, run in groupby(typed, lambda key: key[1])]
    runs = [f"{run}: {name}" if name else run for name, run in alike]
    return "; ".join([*(f"all of {spelled(base)}" for base in _bases(kind)), *runs])


def _typed(key: str, hint: Any, behind: dict[str, str]) -> tuple[str, str]:
    """Return a key, with `?` where it may be null, and its type, empty where its name or the page's rule says it."""
    name, null = re.fullmatch(r"(.*?)(\??)", spelled(hint)).groups()
    return f"`{key}`{null}{behind.get(key, '')}", "" if _is_told(key, name) else name


def _is_told(key: str, name: str) -> bool:
    """Tell whether a key's name or the page's rules say its type."""
    if UNITS.fullmatch(key):
        return name in ("int", "number")
    return name == "text" or (key, name) == ("device", "int|text") or (key in WHOLE and name == "int")


def spelled(hint: Any) -> str:
    """Return a type as the page writes it: `[]` behind it is a list, `{}` an object, `?` where it may be null."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        known = "|".join(spelled(part) for part in parts if part is not types.NoneType)
        return f"{known}?" if types.NoneType in parts else known
    if origin is Annotated:
        return spelled(parts[0])
    if origin is Literal:
        return "|".join(f'"{part}"' for part in parts)
    if origin in (list, tuple):
        return f"{spelled(parts[0])}[]"
    if origin is dict:
        return f"{spelled(parts[1])}{{}}"
    if hint is Code:
        return f"[code]({CODES})"
    if hint in NAMES:
        return NAMES[hint]
    if issubclass(hint, Enum):
        return "text"
    return f"{{{keys(hint)}}}" if is_folded(hint) else f"[{hint.__name__}](#{anchor(hint.__name__)})"


def codes() -> str:
    """Return all codes by weight, with when each is given, and what to do then."""
    means = {name: text for names, text in _sentences(Weight) for name in names}
    return "\n\n".join(f"## {weight}: {means[weight]}\n\n{_codes(weight)}" for weight in Weight)


def _codes(weight: Weight) -> str:
    of_weight = [code for code in Code if code.facts.weight is weight]
    return "\n".join(f"* `{code}`: {'; '.join(filter(None, (code.facts.when, code.facts.do)))}" for code in of_weight)
