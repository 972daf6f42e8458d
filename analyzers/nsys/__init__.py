"""An export of Nsight Systems becomes the `Events` of its processes.

In order: `database` opens the file, trusts nothing in it, and reads its tables as columns; `columns` puts these under
Kineto's names, for the room `analyzers.trace` to assemble; `collectives` finds the calls of collectives; `reader` does
it for each process.

Decisions: docs/dev/decisions/nsys.md
"""

from analyzers.nsys.reader import NSYS
