"""Pairing of a group's kernels across members, by order and by ends.

In order: `sequences` has the members' kernels and pairs by order alone, `candidates` what may be one collective,
`common_offset` the offset between two clocks that explains the ends, `pairing` the pairs at that offset, `offsets` what
groups learn from one another.

All of it runs where kernels are numbered in their group (`Seq`), too: numbers leave fewer candidates and settle pairs,
the offset and the ends decide as without them.

Decisions: docs/dev/decisions/collectives.md
"""

from analyzers.collectives.alignment.offsets import Offsets, Sides, align
from analyzers.collectives.alignment.sequences import Kernels, Offset
