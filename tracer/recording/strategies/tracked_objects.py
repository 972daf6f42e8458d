"""Objects of this process, as the garbage collector tracks them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any


def all_objects() -> list[Any]:
    """Return all objects that the garbage collector tracks; where a script froze some, those its frames lead to.

    The collector does not tell which it has frozen, and to unfreeze them would be felt by the training.
    """
    if not gc.get_freeze_count():
        return gc.get_objects()
    tracked = {id(candidate): candidate for candidate in gc.get_objects()}
    frame: FrameType | None = sys._getframe()
    ahead: list[Any] = []
    while frame is not None:
        ahead += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    reached: set[int] = set()
    while ahead:
        new = {
            id(candidate): candidate for candidate in ahead if id(candidate) not in reached and gc.is_tracked(candidate)
        }
        reached |= new.keys()
        tracked |= new
        ahead = gc.get_referents(*new.values())
    return list(tracked.values())


def objects_of(kinds: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return all objects of classes that are named `name: module`; none of a module that was never imported."""
    classes = {name: imported(module, name) for name, module in kinds.items()}
    wanted = {name: kind for name, kind in classes.items() if isinstance(kind, type)}
    found: dict[str, list[Any]] = {name: [] for name in kinds}
    by_type: dict[type, str | None] = {}
    for candidate in all_objects() if wanted else ():
        # The type alone decides: isinstance would ask objects for `__class__`, which proxies answer by loading things.
        kind = type(candidate)
        if kind not in by_type:
            by_type[kind] = next((name for name, base in wanted.items() if issubclass(kind, base)), None)
        if (name := by_type[kind]) is not None:
            found[name].append(candidate)
    return found


def imported(module: str, name: str) -> Any:
    """Return what a module has under a name if the program has imported that module, else None."""
    return getattr(sys.modules.get(module), name, None)
