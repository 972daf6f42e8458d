"""Copies of a run's folder: ranks numbered otherwise, one on a machine whose clock is off, clocks that are coarse."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_RANK, _BASE = re.compile(rb'("rank": )(\d+)\b'), re.compile(rb'("baseTimeNanoseconds": )(\d+)')


def relabelled(run: Path, folder: Path, number: Mapping[int, int]) -> Path:
    """A copy whose rank k has the number `number[k]`; all groups have to hold all ranks."""

    def renamed(rank: int, data: bytes) -> bytes:
        return _RANK.sub(rb"\g<1>%d" % number[rank], data, count=1)

    for where in (Path(), Path("light")):
        for rank, other in number.items():
            _copied(run / where / f"rank{rank}.json.gz", folder / where / f"rank{other}.json.gz", renamed, rank)
    _write_manifest(folder, _by_rank(_manifest(run), {str(rank): str(other) for rank, other in number.items()}))
    return folder


def on_another_machine(run: Path, folder: Path, moved: int, offset_ns: int) -> Path:
    """A copy in which one rank's clock, on a machine of its own, shows so much too much."""

    def shifted(rank: int, data: bytes) -> bytes:
        by = offset_ns * (rank == moved)
        return _BASE.sub(lambda found: found[1] + b"%d" % (int(found[2]) + by), data, count=1)

    for file in run.rglob("rank*.json.gz"):
        _copied(file, folder / file.relative_to(run), shifted, int(file.name[4:].partition(".")[0]))
    manifest = _manifest(run)
    ranks = range(manifest["world_size"])
    hosts = {str(rank): "elsewhere" if rank == moved else "here" for rank in ranks}
    _write_manifest(folder, manifest | {"hosts": ["here", "elsewhere"], "host_of_rank": hosts})
    return folder


def coarse(run: Path, folder: Path, unit_us: int) -> Path:
    """A copy of the full windows alone, in which all rows begin and end at whole units."""
    for file in run.glob("rank*.json.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        for row in document["traceEvents"]:
            if "dur" in row:
                end = (float(row["ts"]) + float(row["dur"])) // unit_us * unit_us
                row["ts"] = float(row["ts"]) // unit_us * unit_us
                row["dur"] = end - row["ts"]
        (folder / file.name).write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))
    return folder


def _manifest(run: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((run / "run.json").read_text())
    return manifest


def _write_manifest(folder: Path, manifest: Any) -> None:
    (folder / "run.json").write_text(json.dumps(manifest))


def _copied(source: Path, target: Path, changed: Callable[[int, bytes], bytes], rank: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(changed(rank, gzip.decompress(source.read_bytes())), compresslevel=1))


def _by_rank(value: Any, number: Mapping[str, str]) -> Any:
    """The same with the keys of what is listed by rank renamed."""
    if isinstance(value, dict):
        is_by_rank = bool(value) and value.keys() <= number.keys()
        return {number[key] if is_by_rank else key: _by_rank(each, number) for key, each in value.items()}
    return [_by_rank(each, number) for each in value] if isinstance(value, list) else value
