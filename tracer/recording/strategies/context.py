"""Context parallelism: tensors split along the sequence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch import Tensor

from analyzers.run import RecordedContext, SequenceBuffer, StyledModules
from tracer.recording.strategies.meshes import dims_of
from tracer.recording.strategies.parallel_styles import styled_modules
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy

_ATTENTION = "torch.distributed.tensor.experimental._context_parallel._attention"
_SPLIT = "_context_parallel_buffers"
# Of buffers as long as the model's rotary embeddings there are few.
_MOST_BUFFERS = 16


class Context(RecordedStrategy):
    """Sequences split over ranks, keys and values passed on in a ring or gathered."""

    name = "context"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return what was seen of a sequence that was split, else of modules in torch's style for attention."""
        if program.splits:
            return {"context": program.splits[0]}
        row = next(filter(is_of_context, styled_modules(program)), None)
        return None if row is None else {"context": RecordedContext(dims=row.dims, rotate_method=_rotate_method())}


def is_of_context(row: StyledModules) -> bool:
    """Whether a style is torch's for attention over split sequences."""
    return any("ContextParallel" in style for style in row.styles)


@contextmanager
def watched_splits(program: Program) -> Iterator[None]:
    """Note the first split of sequences while this is entered; afterwards torch is as it was.

    The context manager that programs enter has left no trace when a step has ended, and programs have it under names of
    their own; the function that it calls is looked up anew each time.
    """
    module = sys.modules.get(_ATTENTION)
    split = getattr(module, _SPLIT, None)
    if module is None or split is None:
        yield
        return

    @wraps(split)
    def noting(mesh: Any, buffers: Any, *arguments: Any, **options: Any) -> Any:
        setattr(module, _SPLIT, split)
        _note(program, mesh, buffers, *arguments, **options)
        return split(mesh, buffers, *arguments, **options)

    setattr(module, _SPLIT, noting)
    try:
        yield
    finally:
        if getattr(module, _SPLIT) is noting:
            setattr(module, _SPLIT, split)


def _note(program: Program, mesh: Any, buffers: Any, *arguments: Any, **options: Any) -> None:
    """Never raises: this runs inside of the program's step."""
    try:
        names = ("buffer_seq_dims", "load_balancer")
        given = dict(zip(names, arguments, strict=False)) | options
        balancer = given.get("load_balancer")
        # Masks in blocks are split, too, and have no shape of a tensor.
        split = [
            (buffer, dim)
            for buffer, dim in zip(buffers, given.get("buffer_seq_dims", ()), strict=False)
            if isinstance(buffer, Tensor)
        ]
        found = RecordedContext(
            dims=dims_of(mesh),
            ranks=int(mesh.size()),
            buffers=[SequenceBuffer([*map(int, buffer.shape)], int(dim)) for buffer, dim in split][:_MOST_BUFFERS],
            balanced=balancer is not None,
            load_balancer=None if balancer is None else type(balancer).__name__,
            rotate_method=_rotate_method(),
        )
    except Exception:  # names are private, and may be others in another torch
        return
    program.splits.append(found)


def _rotate_method() -> str | None:
    options = getattr(sys.modules.get(_ATTENTION), "_cp_options", None)
    return getattr(getattr(options, "rotate_method", None), "name", None)
