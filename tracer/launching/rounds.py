"""Rounds of a sweep's cell, joined into one run.

    DIR/rounds/ddp2-batch32/1/    one round's recording     ->   DIR/ddp2-batch32/   run.json of all rounds so far,
    DIR/rounds/ddp2-batch32/2/    the next one's                                     traces of the typical one

So a cell can be reported after any round. When it has all of them, they are removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from analyzers.json_documents import encoded
from analyzers.paths import read_file
from analyzers.run import LIGHT, LINKS, MANIFEST, Manifest, join_launches, read_manifest
from tracer.atomic_files import hidden_folder, put_in_place, write_text
from tracer.errors import TracerError
from tracer.recording import FULL, typical_round

ROUNDS = "rounds"


def round_folders(folder: Path, cell: str) -> list[Path]:
    """Return the recordings that there are of a cell's rounds, the first one first."""
    found = (file.parent for file in (folder / ROUNDS / cell).glob(f"*/{MANIFEST}"))
    return sorted((place for place in found if place.name.isdecimal()), key=lambda place: int(place.name))


def next_round(folder: Path, cell: str) -> Path:
    """Return where a cell's next round goes."""
    places = (folder / ROUNDS / cell / str(number) for number in count(1))
    return next(place for place in places if not place.exists())


def join_rounds(folder: Path, cell: str) -> int:
    """Make a cell's recording of its rounds so far, if there are any, and return how many there are.

    Raises TracerError where one cannot be read, or nothing can be written.
    """
    recordings = round_folders(folder, cell)
    if not recordings:
        return 0
    launches = [_manifest(recording) for recording in recordings]
    kept = _typical(launches)
    with hidden_folder(folder / cell) as hidden:
        joined = hidden / cell
        for file in recordings[kept].rglob("*"):
            _link(file, joined / file.relative_to(recordings[kept]))
        # They are measured in the first round alone.
        for links in [file for recording in recordings if (file := recording / LINKS).is_file()][:1]:
            _link(links, joined / LINKS)
        manifest = replace(join_launches(launches, kept), name=cell)
        write_text(joined / MANIFEST, encoded(manifest) + "\n", force=True)
        put_in_place(joined, folder / cell, True, MANIFEST)
    return len(recordings)


def remove_rounds(folder: Path, cell: str) -> None:
    """Remove a cell's rounds, of which it is made."""
    shutil.rmtree(folder / ROUNDS / cell, ignore_errors=True)
    with suppress(OSError):  # other cells' rounds are still there
        (folder / ROUNDS).rmdir()


def _manifest(recording: Path) -> Manifest:
    manifest, notices = read_manifest(recording)
    if manifest is None:
        raise TracerError(
            f"{recording / MANIFEST}: {notices[0].text}: remove this folder, and its round is recorded again"
        )
    return manifest


def _typical(launches: Sequence[Manifest]) -> int:
    """Return the place of the launch whose profiled step is nearest to the median over all: its traces are kept."""
    for window in (LIGHT, FULL):
        controls = {place: getattr(launch.controls, window) for place, launch in enumerate(launches)}
        blocks_ns = {
            place: [steps for blocks in control.by_rank().values() for steps in blocks if steps]
            for place, control in controls.items()
            if control is not None and control.median_ns is not None
        }
        if blocks_ns:
            return typical_round(blocks_ns)
    return 0


def _link(file: Path, target: Path) -> None:
    """Give a file a second name, since nobody writes into it; copy it where the file system has no such names."""
    if file.is_dir() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(file)
    except OSError:
        target.write_bytes(read_file(file))
