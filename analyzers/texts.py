"""Texts of values: encodable characters, patterns in names, short reprs.

A byte of a file's name, an argument or a variable that is no UTF-8 is half a surrogate pair to Python, which nothing
can encode. The program keeps it, so that the file is found. In whatever is written each becomes U+FFFD, as bytes of a
trace do where it is read, and as what would steer a terminal does where it is shown.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache, partial, wraps
from itertools import islice
from typing import Any, TypeVar

import msgspec

_HALF = re.compile("[\ud800-\udfff]")
# So many texts of at most so many characters each function keeps, with what they were found to be: 70 MB at most.
_MOST_KEPT = 1 << 13
_LONGEST_KEPT = 1 << 11
# What Windows takes for a device, whatever stands behind a dot.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\xb9\xb2\xb3])(?:\..*)?", re.IGNORECASE)
T = TypeVar("T")


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def utf8(text: str) -> bytes:
    """Return a text as it is written to files."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return encodable(text).encode()


def file_name(text: str) -> str:
    """Return a text as a file's name on every system: Windows keeps names of devices, and ends no name with a dot."""
    name = re.sub(r"[^\w.+=-]|^\.|\.$", "_", text)
    return f"_{name}" if _DEVICE.fullmatch(name) else name


def typed(*words: str) -> str:
    """Return words as they are typed in this system's shell."""
    if sys.platform != "win32":
        return shlex.join(words)
    from subprocess import list2cmdline  # cmd.exe takes no single quotes

    return list2cmdline(words)


def keep_answers(look_up: Callable[..., T], longest: int = _LONGEST_KEPT) -> Callable[..., T]:
    """Keep what was found of texts: ranks of a run have the same names. Longer ones, which are few, are not kept."""
    kept = lru_cache(maxsize=_MOST_KEPT)(look_up)

    @wraps(look_up)
    def looked_up(*texts: str) -> T:
        return (kept if sum(map(len, texts)) < longest else look_up)(*texts)

    return looked_up


# For what is asked often of names: 8 MB at most for each question.
keep_short_answers = partial(keep_answers, longest=1 << 8)


@cache
def finder(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function that says whether a pattern of the program's own is found in a text, and keeps its answers."""
    return keep_short_answers(lambda text: pattern.search(text) is not None)


def listed(items: Collection[object], most: int, rest: str = ", ...", joint: str = ", ") -> str:
    """Join the first of some items; `rest` stands for the others, `{}` in it for how many there are."""
    more = len(items) - most
    return joint.join(map(str, islice(items, most))) + (rest.format(more) if more > 0 else "")


AND_MORE = " and {} more"

# Longer texts are cut: a prompt or a notebook's cell is read at a glance.
LONGEST = 60


def brief(value: Any) -> str:
    """Return `Kind(name='text', rows=<8 Window>, ...)`: plain values as they are, of the others how many there are."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else value.__struct_fields__
    return f"{type(value).__name__}({', '.join(f'{name}={_shown(getattr(value, name))}' for name in names)})"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}...")
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, msgspec.Struct) or not isinstance(value, Collection):
        return f"<{type(value).__name__}>"
    kind = f" {type(value[0]).__name__}" if isinstance(value, list | tuple) and value else ""
    return f"<{len(value)}{kind}>"
