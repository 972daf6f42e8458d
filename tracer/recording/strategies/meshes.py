"""DeviceMeshes of a program, without slices of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzers.run import MOST_MESH_RANKS, RecordedMesh


def recorded_meshes(meshes: Sequence[Any], rank: int) -> list[RecordedMesh]:
    """Return each mesh once, those of most dimensions first; a slice of another is none of its own."""
    rows: list[RecordedMesh] = []
    # Each `mesh["tp"]` is an object of its own.
    alike = {_key(mesh): mesh for mesh in meshes}
    for mesh in sorted(alike.values(), key=lambda mesh: -len(mesh.shape)):
        row = _row(mesh, rank)
        if row is not None and row not in rows and not any(_is_slice(row, larger) for larger in rows):
            rows.append(row)
    return rows


def dims_of(mesh: Any) -> list[str]:
    """Return the names of a mesh's dimensions; one without a name is called by its number."""
    names = mesh.mesh_dim_names or (None,) * len(mesh.shape)
    return [str(number) if name is None else str(name) for number, name in enumerate(names)]


def _row(mesh: Any, rank: int) -> RecordedMesh | None:
    try:
        ranks = [int(member) for member in mesh.mesh.flatten().tolist()]
    except RuntimeError:
        return None  # a slice that this rank is not in
    names = mesh.mesh_dim_names or (None,) * len(mesh.shape)
    groups = _groups(mesh)
    return RecordedMesh(
        dims=list(names),
        shape=[int(size) for size in mesh.shape],
        ranks=ranks if len(ranks) <= MOST_MESH_RANKS else None,
        device_type=str(mesh.device_type),
        groups={str(rank): groups} if groups else {},
    )


def _key(mesh: Any) -> tuple[Any, ...]:
    """Meshes of this rank that are the same: over the same groups, or without any, the same object."""
    groups = _groups(mesh)
    return mesh.mesh_dim_names, tuple(mesh.shape), tuple(groups) if groups else id(mesh)


def _groups(mesh: Any) -> list[str | None]:
    """This rank's group along each dimension; made with the mesh, so that nothing is set up by reading them."""
    names = getattr(mesh, "_dim_group_names", None)
    if names is None:
        # Before torch 2.8 a tag and the ranks of each group stand before its name.
        names = [name for *_, name in getattr(mesh, "_dim_group_infos", ())]
    return [None if name is None else str(name) for name in names]


def _is_slice(row: RecordedMesh, larger: RecordedMesh) -> bool:
    return len(row.dims) < len(larger.dims) and _dimensions(row) <= _dimensions(larger)


def _dimensions(row: RecordedMesh) -> set[tuple[str | None, int, str | None]]:
    """A mesh's dimensions, each with its name, size and group; a dimension without a name is like no other."""
    groups = next(iter(row.groups.values()), [None] * len(row.dims))
    return set(zip(row.dims, row.shape, groups, strict=False))
