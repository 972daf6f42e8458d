"""Writer of tracks as Perfetto's protobuf, in pieces.

In a ZIP beside the raw traces both are one timeline: Kineto's times count from its trace's baseTimeNanoseconds.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from analyzers.errors import install_hint
from analyzers.paths import Place, open_file
from analyzers.rank import RunSummary
from analyzers.reporting import Lanes, Report
from analyzers.texts import encodable
from tracer.errors import TracerError
from tracer.views.perfetto.tracks import Counter, Slice, TrackGroup, groups

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protocol

LANES = "lanes.pftrace"
_SEQUENCE = 1
_TRACKS_OF_GROUP = 2**16
# A megabyte or less: a builder of one packet takes three times as long.
_PACKETS_AT_ONCE = 10_000


def write_trace(file: IO[bytes], track_groups: Iterable[TrackGroup]) -> None:
    """Write tracks as a Perfetto trace. Raises TracerError where what writes it is not installed."""
    writer = _Writer(file)
    for number, group in enumerate(track_groups, 1):
        writer.group(group, number * _TRACKS_OF_GROUP)
    writer.flush()


def write_archive(file: IO[bytes], run: RunSummary, drawn: Sequence[Lanes], report: Report) -> None:
    """Write a ZIP of the lanes and the run's raw traces, as they are.

    `drawn` and `report` are of the full windows, whose traces these are. Each rank's lanes are put on the clock of its
    own trace, in which nothing is moved.
    """
    base_ns = {summary.rank: summary.header.base_time_ns for summary in run.ranks}
    later_ns: dict[int, int] = {lane.rank: lane.shift_ns - base_ns[lane.rank] for lane in drawn}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        try:
            with archive.open(LANES, "w") as lanes_file:
                write_trace(lanes_file, groups(drawn, report, later_ns))
        except RuntimeError as error:  # Perfetto reads no ZIP64, without which a part has 2 GiB at most
            raise TracerError(f"the timeline is too large for a ZIP ({error}): export it alone, as .pftrace") from error
        for name, path in archived(run).items():
            _copy(path, archive, name)


def _copy(path: Place, archive: zipfile.ZipFile, name: str) -> None:
    if isinstance(path, Path):
        entry = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
    else:
        entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_STORED if path.suffix == ".gz" else zipfile.ZIP_DEFLATED
    try:
        raw = open_file(path)
    except OSError as error:
        why = f"{path}: cannot be read once more ({error.strerror or error})"
        raise TracerError(f"{why}: export the timeline alone, as .pftrace") from error
    with raw, archive.open(entry, "w") as copy:
        shutil.copyfileobj(raw, copy)


def archived(run: RunSummary) -> dict[str, Place]:
    """Return the raw traces by their names in the ZIP: those of a run over several hosts may be called alike."""
    # A file may hold several ranks.
    first_of = {summary.path: summary.rank for summary in reversed(run.ranks)}
    names = {path: encodable(path.name) for path in sorted(first_of, key=first_of.__getitem__)}
    plain = len(set(names.values())) == len(names)
    return {name if plain else f"{first_of[path]}-{name}": path for path, name in names.items()}


class _Writer:
    """Packets into a file, as many at once as one builder holds: messages that follow one another are one message."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.events, self.new_builder = _library()
        self.builder, self.count = self.new_builder(), 0

    def group(self, group: TrackGroup, uuid: int) -> None:
        """Write a device and its tracks, in their order."""
        descriptor = self._descriptor(uuid, group.name)
        descriptor.child_ordering = self.events.TrackDescriptor.EXPLICIT
        descriptor.sibling_order_rank = uuid // _TRACKS_OF_GROUP
        for rank, track in enumerate(group.tracks, 1):
            descriptor = self._descriptor(uuid + rank, track.name)
            descriptor.parent_uuid = uuid
            descriptor.sibling_order_rank = rank
            if isinstance(track, Counter):
                descriptor.counter.unit_name = track.unit
                self._values(track, uuid + rank, group.later_ns)
            else:
                for piece in track.slices:
                    self._slice(piece, uuid + rank, group.later_ns)

    def flush(self) -> None:
        """Write what the builder holds."""
        self.file.write(self.builder.serialize())
        self.builder, self.count = self.new_builder(), 0

    def _packet(self) -> protocol.TracePacket:
        if self.count == _PACKETS_AT_ONCE:
            self.flush()
        self.count += 1
        return self.builder.add_packet()

    def _descriptor(self, uuid: int, name: str) -> protocol.TrackDescriptor:
        descriptor = self._packet().track_descriptor
        descriptor.uuid = uuid
        descriptor.name = encodable(name)
        return descriptor

    def _slice(self, piece: Slice, track: int, later_ns: int) -> None:
        event = self._event(piece.start_ns + later_ns, track, self.events.TrackEvent.TYPE_SLICE_BEGIN)
        event.name = encodable(piece.name)
        event.categories.append(encodable(piece.category))
        event.flow_ids.extend(piece.arrows)
        if piece.color is not None:
            event.correlation_id_str = piece.color
        for name, value in piece.facts.items():
            _annotate(event.debug_annotations.add(), name, value)
        for inner in piece.inside:
            self._slice(inner, track, later_ns)
        self._event(piece.end_ns + later_ns, track, self.events.TrackEvent.TYPE_SLICE_END)

    def _values(self, counter: Counter, track: int, later_ns: int) -> None:
        for at, value in zip(counter.at_ns.tolist(), counter.value.tolist(), strict=True):
            event = self._event(at + later_ns, track, self.events.TrackEvent.TYPE_COUNTER)
            event.double_counter_value = value

    def _event(self, at_ns: int, track: int, kind: Any) -> protocol.TrackEvent:
        if at_ns < 0:
            raise TracerError("a ZIP shows no times before 1970, which a rank has: export a .pftrace")
        packet = self._packet()
        packet.timestamp = at_ns
        packet.trusted_packet_sequence_id = _SEQUENCE
        event = packet.track_event
        event.track_uuid = track
        event.type = kind
        return event


def check_perfetto() -> None:
    """Raise TracerError where what writes Perfetto's traces is not installed."""
    _library()


def _library() -> tuple[Any, Any]:
    """Return Perfetto's messages, and what builds a trace from them."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except Exception as error:  # protobuf has an error of its own for a version that does not fit
        why, *_ = str(error).splitlines() or [type(error).__name__]
        raise TracerError(f"Perfetto's traces cannot be written ({why}): {install_hint('perfetto')}") from error
    return perfetto_trace_pb2, TraceProtoBuilder


def _annotate(annotation: Any, name: str, value: str | int | float) -> None:
    annotation.name = name
    if isinstance(value, str):
        annotation.string_value = encodable(value)
    elif isinstance(value, int):
        annotation.int_value = value
    else:
        annotation.double_value = value
