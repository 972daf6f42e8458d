"""Collection of what ranks left in a hidden folder into finished runs.

    .NAME.partial-x/run/     rank0.part round1/ ...    ->  NAME/             run.json rank0.json.gz light/ ...
    .NAME.partial-x/step10/  the same, of a long run   ->  NAME/step10/
    of 8 ranks, where only ranks 4 to 7 left parts     ->  NAME/ranks4-7/    a host's; put together, NAME is the run

A run appears by a rename, when all its ranks on this host have left all of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from analyzers.run import MANIFEST, read_manifest
from analyzers.units import count
from tracer.atomic_files import PART_OF_RUN, put_in_place, refuse_folder
from tracer.errors import TracerError
from tracer.recording.link_rates import nccl_logs, nccl_transport
from tracer.recording.rank_part import RUN, STEP, RankPart, read_parts, recordings, trained
from tracer.recording.rank_process import WORK
from tracer.recording.run_json import assemble

RANKS = "ranks{first}-{last}"


@dataclass
class Finisher:
    """Puts the recordings that ranks leave in `folder` into `output`; keeps the newest `keep` of a long run."""

    folder: Path
    output: Path
    force: bool = False
    keep: int = 1
    work: Path | None = None  # where NCCL's logs lie: the folder's own, unless several recordings share one
    placed: list[Path] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)  # what would fit a training that ended before its recording

    def take_complete(self) -> list[Path]:
        """Put every recording in its place that all its ranks have completed. Raises TracerError."""
        return [self._take(recording, parts) for recording, parts in self._unfinished() if _is_complete(parts)]

    def take_rest(self) -> list[Path]:
        """Put in its place what can be used, now that no rank goes on. Raises TracerError."""
        return [self._take(recording, parts) for recording, parts in self._unfinished() if _is_usable(parts)]

    def how_far(self) -> str | None:
        """Return how far the recording is that could not be used; None where no rank has begun one."""
        for _, parts in self._unfinished():
            if not _are_of_one(parts):
                return "ranks were started anew during the recording, and not all of them were recorded again"
            least = min(parts, key=lambda part: part.rounds)
            rounds = "the one round" if least.plan.rounds == 1 else f"the first of {least.plan.rounds} rounds"
            ended = f"training ended before rank {least.rank} had {rounds}"
            return "; ".join([ended, *(_what_fits(parts) or [f"a whole recording takes {least.of_steps} steps"])])
        return None

    def _unfinished(self) -> list[tuple[Path, list[RankPart]]]:
        by_recording = ((recording, read_parts(recording)) for recording in recordings(self.folder))
        return [(recording, parts) for recording, parts in by_recording if parts]

    def _take(self, recording: Path, parts: Sequence[RankPart]) -> Path:
        final = self._final(recording, parts)
        transport = nccl_transport(nccl_logs(self.work or self.folder / WORK))
        is_run = recording.name == RUN
        assemble(recording, self.output.name if is_run else f"{self.output.name}-{recording.name}", transport)
        if final != self.output and self.output.is_dir():
            self._make_room(parts[0].recording)
        put_in_place(recording, final, self.force, MANIFEST)
        self.placed.append(final)
        self.incomplete += _what_fits(parts)
        if not is_run:
            self._prune()
        return final

    def _final(self, recording: Path, parts: Sequence[RankPart]) -> Path:
        final = self.output if recording.name == RUN else self.output / recording.name
        if len(parts) < parts[0].world_size:
            final /= RANKS.format(first=parts[0].rank, last=parts[-1].rank)
        return final

    def _make_room(self, recording: str) -> None:
        """Remove what another recording left where only a part is put; other parts of this one may be there already.

        Hosts may do this at one time.
        """
        if not self.force and not (self.output / MANIFEST).is_file():
            return
        refuse_folder(self.output, self.force, MANIFEST)
        inside = sorted(self.output.iterdir(), key=lambda entry: entry.name == MANIFEST)
        for entry in inside:
            ids = _ids(entry) if PART_OF_RUN.fullmatch(entry.name) else {""}
            if ids and _job(recording) not in ids:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)

    def _prune(self) -> None:
        """Bound the disk that a long run takes: its oldest recordings go, and those that it replaces."""
        kept, newest = self.placed[-self.keep :], self.placed[-1]
        for step in self.output.glob(STEP.format(number="*")):
            # Of a step that several hosts recorded only this host's ranks are this one's to remove.
            removable = step if newest.parent == self.output else step / newest.name
            if removable not in kept and (removable / MANIFEST).is_file():
                shutil.rmtree(removable)
                if removable != step:
                    with suppress(OSError):  # another host's ranks are still there
                        step.rmdir()


@dataclass
class Taking:
    """Takes what is complete while ranks go on, from the thread that looks after them; what went wrong is kept."""

    finishers: tuple[Finisher, ...]
    on_taken: Callable[[Path], None] = lambda place: None
    errors: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Put in its place what is complete."""
        for finisher in self.finishers:
            self._try(finisher.take_complete)

    def look_last(self) -> None:
        """Put in its place what can be used, when all ranks have ended."""
        self.look()
        for finisher in self.finishers:
            self._try(finisher.take_rest)

    def _try(self, take: Callable[[], list[Path]]) -> None:
        if self.errors:
            return
        try:
            for run in take():
                self.on_taken(run)
        except (TracerError, OSError) as error:
            self.errors.append(str(error))


def _ids(folder: Path) -> set[str]:
    """The jobs whose recordings lie in a part of a run."""
    manifests = [
        read_manifest(part_folder)[0] for part_folder in (folder, *folder.glob(RANKS.format(first="*", last="*")))
    ]
    return {_job(manifest.id or "") for manifest in manifests if manifest is not None}


def _job(recording: str) -> str:
    """What the ids of all recordings of one job have in common."""
    return recording.partition("-")[0]


def _is_complete(parts: Sequence[RankPart]) -> bool:
    return all(part.ended for part in parts) and _are_of_one(parts)


def _is_usable(parts: Sequence[RankPart]) -> bool:
    has_any = all(part.rounds > 0 for part in parts) or all(part.has_early for part in parts)
    return has_any and _are_of_one(parts)


def _what_fits(parts: Sequence[RankPart]) -> list[str]:
    """Say how long a whole recording takes, and with which options it fits a training that was known to be shorter."""
    part, steps = parts[0], trained(parts)
    if steps is None or part.kept_rounds is not None:
        return []
    advice = part.plan.advice(steps, part.trains_on)
    return [f"the script took {count(steps, 'step')}; a whole recording takes {part.of_steps}, {advice}"]


def _are_of_one(parts: Sequence[RankPart]) -> bool:
    """Whether these ranks met: one may be left of an attempt before torchrun started all anew."""
    return len({part.recording for part in parts}) == 1
