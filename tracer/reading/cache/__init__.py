"""Cache of what ranks say, in a folder of the user's.

`store` looks ranks up and keeps them in entries, `identity` tells a file from another, `packing` turns a summary into
bytes and back, `report_packing` a report, `folder` is the place of all entries, with its bound.

Decisions: docs/dev/decisions/reading.md
"""

from tracer.reading.cache.folder import why_unusable
from tracer.reading.cache.identity import Identity, identity_of
from tracer.reading.cache.report_packing import Fields
from tracer.reading.cache.store import Cache, open_cache, wanted
