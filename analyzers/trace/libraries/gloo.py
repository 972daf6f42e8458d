"""gloo, whose collectives are spans on worker threads of the host."""

from __future__ import annotations

from analyzers.trace.libraries.library import Library

# torch.distributed's name of the backend.
GLOO_BACKEND = "gloo"
# What its worker threads do: `gloo:all_reduce`, with the tensors' shapes.
GLOO = "gloo:"

LIBRARY = Library(name=GLOO_BACKEND, spans=(GLOO,))
