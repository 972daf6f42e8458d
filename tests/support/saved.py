"""Documents as their JSON has them: notices as sentences."""

from __future__ import annotations

from typing import Any

import msgspec

from analyzers.notices import Notice, Notices


def saved(value: Any) -> Any:
    """Return a document with each notice as it comes back from JSON."""
    if isinstance(value, Notice | Notices):
        return value.saved(str(value))
    if isinstance(value, list):
        return [saved(each) for each in value]
    if isinstance(value, msgspec.Struct):
        fields = {name: saved(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**fields)
    return value
