"""Timelines for Perfetto, alone or beside the raw traces.

`tracks` turns a run's lanes into groups of tracks, `critical_path` HTA's path; `writer` writes them as protobuf.

Decisions: docs/dev/decisions/views.md
"""

from tracer.views.perfetto.critical_path import path_group
from tracer.views.perfetto.tracks import groups
from tracer.views.perfetto.writer import check_perfetto, write_archive, write_trace
