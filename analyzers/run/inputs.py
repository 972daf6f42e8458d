"""List of inputs, the kinds of files that ranks are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from analyzers.errors import UnreadableTrace
from analyzers.nsys import NSYS
from analyzers.paths import Place, open_file
from analyzers.trace import KINETO, Helpers, Input, Trace

# Of a folder with files of several kinds, those of the first are its ranks. What no other is taken for is the first.
INPUTS: tuple[Input, ...] = (KINETO, NSYS)
_HEAD_BYTES = 4096


def read_input(
    path: Place,
    on_bytes: Callable[[int], None] | None = None,
    memory: int | None = None,
    helpers: Helpers | None = None,
    *,
    piped: bool = False,
) -> Trace:
    """Read a file by the reader of its kind, as `read_trace` does. Raises as that does."""
    remedy = advise([path.name])
    if remedy is not None:
        raise UnreadableTrace(f"{path}: {remedy}")
    # What is piped is read once; of what is elsewhere a look costs a request.
    head = _head(path) if isinstance(path, Path) and not piped else b""
    kind = kind_of(head)
    trace = kind.read(path, on_bytes=on_bytes, memory=memory, helpers=helpers, piped=piped)
    return replace(trace, header=replace(trace.header, remedies=kind.remedies))


def kind_of(head: bytes) -> Input:
    """Return the kind of file that begins so."""
    return next((each for each in INPUTS if each.begins.match(head)), INPUTS[0])


def looks_like_input(head: bytes) -> bool:
    """Whether a file that begins so is one that ranks are read from."""
    return any(each.begins.match(head) for each in INPUTS)


def advise(names: Iterable[str]) -> str | None:
    """Return what makes a file that is read of one with such a name, for the first that is not; None for none."""
    return next((remedy for name in names for each in INPUTS if (remedy := each.remedy(name)) is not None), None)


def _head(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(_HEAD_BYTES)
    except OSError:  # its reader says why
        return b""
