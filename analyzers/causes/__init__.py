"""One graph of all ranks: critical path, charges, gains.

In order: `joining` makes one graph of the ranks' (the room `analyzers.rank.dependencies`), `order` an order of its
points, `pace` and `replay` let its typical steps go again and again; `light_times`, `hosts` and `calibrated` bring it
to the step that people train; `critical_path` walks back over what binds, and `charges` says what that is; `changes`
and `likes` are what scenarios (the room `analyzers.scenarios`) change. `model` puts them together, `rows` are what a
report says, `lane` is the path of a recorded step to draw, `device_parts` what the replayed step is
made of.

Decisions: docs/dev/decisions/causes.md
"""

from analyzers.causes.calibrated import KEPT
from analyzers.causes.changes import Common, Facts, Lags, is_memcpy
from analyzers.causes.charges import Charge
from analyzers.causes.device_parts import replayed_parts
from analyzers.causes.lane import PathLane, RecordedPaths
from analyzers.causes.likes import Likes
from analyzers.causes.model import Model, why_none
from analyzers.causes.order import NoOrder
from analyzers.causes.pace import Course, CourseEdges
from analyzers.causes.replay import DROPPED
from analyzers.causes.rows import ChargeRow, ChargesSummary, charge_rows, charges_summary
