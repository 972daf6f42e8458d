"""The list of communication libraries."""

from __future__ import annotations

from analyzers.trace.libraries import device_reductions, experts, gloo, nccl, symmetric_memory, userbuffers, vendors
from analyzers.trace.libraries.library import Library

# A kernel belongs to the first of these that knows it.
LISTED: tuple[Library, ...] = (
    nccl.LIBRARY,
    gloo.LIBRARY,
    experts.LIBRARY,
    symmetric_memory.LIBRARY,
    device_reductions.LIBRARY,
    userbuffers.LIBRARY,
    vendors.LIBRARY,
)
