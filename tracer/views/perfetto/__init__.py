"""Timelines for Perfetto, alone or beside the raw traces.

`tracks` turns a run's lanes into groups of tracks, and HTA's critical path into one; `writer` writes them as protobuf.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.perfetto.tracks import groups, path_group
from tracer.views.perfetto.writer import check_perfetto, write_archive, write_trace
