"""Names of stack frames: function, file and line, without where files lie.

    /home/me/job/train.py, def in line 12, now in 15       augment (train.py:12)              train.py:15 augment
    .../site-packages/transformers/trainer.py              Trainer.log (transformers/...)     ...
    .../site-packages/torch/nn/modules/module.py           a library's: who called it is told of

Traces are sent to others: files are named from where Python finds their package, or from the working folder on.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType

import msgspec
import torch

from analyzers.texts import encodable

# Where torch.compile leaves the code that it generates, once it has generated any.
GENERATED = "TORCHINDUCTOR_CACHE_DIR"
# They are part of the function around them.
NAMELESS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")


class Frame(msgspec.Struct, frozen=True):
    """A function as `name (file:line)` of its definition, and its line just then; `is_own`: named, and no library's."""

    function: str
    line: str
    is_own: bool


class StackNames:
    """Names frames, each place in code once. Libraries are Python's own, torch, and what torch.compile generates."""

    def __init__(self) -> None:
        # Whoever keeps a stack keeps its code, so that no other gets its id.
        self._known: dict[tuple[int, int], Frame | None] = {}
        self._python = _folders(map(sysconfig.get_path, ("stdlib", "platstdlib")))
        packages = (*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages())
        # Packages lie below Python's own modules, and a program's folder may hold both.
        installed = [*_folders([*packages, site.getusersitepackages()]), *self._python]
        self._roots = [*installed, Path.cwd(), *_folders(sys.path)]
        self._libraries = [Path(torch.__file__).parent, *_folders([os.environ.get(GENERATED, "")])]
        self._tracer = Path(__file__).parents[2]

    def frames(self, codes: Sequence[CodeType], instructions: Sequence[int]) -> list[Frame]:
        """Return a stack's frames but for tracer's own, in the order of their code and the instruction each is at."""
        frames = [self._frame(code, at) for code, at in zip(codes, instructions, strict=True)]
        return [frame for frame in frames if frame is not None]

    def _frame(self, code: CodeType, at: int) -> Frame | None:
        key = id(code), at
        if key not in self._known:
            self._known[key] = self._named(code, at)
        return self._known[key]

    def _named(self, code: CodeType, at: int) -> Frame | None:
        # Names such as `<string>` are no files.
        file = Path(code.co_filename) if code.co_filename.startswith("<") else Path(code.co_filename).absolute()
        # Of tracer the built-in workload is a program as any other.
        if file.is_relative_to(self._tracer) and not file.is_relative_to(self._tracer / "workload"):
            return None
        root = next((folder for folder in self._roots if file.is_relative_to(folder)), None)
        shown = encodable(str(file.relative_to(root)) if root is not None else file.name)
        is_frozen, is_named = shown.startswith("<frozen "), code.co_name not in NAMELESS
        is_library = is_frozen or root in self._python or any(map(file.is_relative_to, self._libraries))
        line = next((line for begin, end, line in code.co_lines() if begin <= at < end and line), code.co_firstlineno)
        name = code.co_qualname.rpartition("<locals>.")[2]
        return Frame(f"{name} ({shown}:{code.co_firstlineno})", f"{shown}:{line} {name}", is_named and not is_library)


def _folders(paths: Iterable[str]) -> list[Path]:
    """Return those that have a name, the deepest first; the root is no folder that tells files apart."""
    found = {Path(path).absolute() for path in paths if path}
    return sorted(found - {Path("/")}, key=lambda folder: (-len(folder.parts), folder))
