"""Where two values differ, in type, dtype, shape or content, however deep: `differences(a, b)` names the places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np


def differences(a: Any, b: Any, where: str = "") -> Iterator[str]:
    if type(a) is not type(b):
        yield f"{where}: {type(a).__name__}, {type(b).__name__}"
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            yield f"{where}: {a.dtype}{a.shape}, {b.dtype}{b.shape}"
    elif is_dataclass(a) or isinstance(a, msgspec.Struct):
        names = [field.name for field in fields(a)] if is_dataclass(a) else a.__struct_fields__
        for name in names:
            yield from differences(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, tuple | list | dict):
        if len(a) != len(b) or (isinstance(a, dict) and list(a) != list(b)):
            yield f"{where}: {len(a)}, {len(b)} of them, or other keys"
            return
        pairs = [(a[key], b[key], key) for key in a] if isinstance(a, dict) else zip(a, b, range(len(a)), strict=True)
        for one, other, key in pairs:
            yield from differences(one, other, f"{where}[{key!r}]")
    elif a != b and not (a != a and b != b):
        yield f"{where}: {a!r}, {b!r}"
