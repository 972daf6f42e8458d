"""Health of one rank's rows, each in relation to the others.

No row is trusted singly.

In order: `corrupt_times` leaves out rows whose times are lost, `launch_joins` finds the calls behind device rows that
say none, `step_marks` tells cycles and doubled numbers of steps apart. Then `relations` has each device row's call and
each stream's order, by which `corrupt_times` finds rows at impossible times, `stream_order` rows that last too long or
are out of their order, and `lost_launches` what never reached the device. `examination` does all of it, once a file.

Decisions: docs/dev/decisions/run.md
"""

from analyzers.run.health.examination import healthy
from analyzers.run.health.lost_launches import launched_calls, launches_without_kernels
