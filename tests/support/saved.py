"""Documents as their JSON has them: several notices in one place are a sentence."""

from __future__ import annotations

from typing import Any

import msgspec

from analyzers.notices import Notices


def saved(value: Any) -> Any:
    """Return a document with notices as they come back from JSON."""
    if isinstance(value, Notices):
        return value.saved(str(value))
    if isinstance(value, list):
        return [saved(each) for each in value]
    if isinstance(value, msgspec.Struct):
        fields = {name: saved(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**fields)
    return value
