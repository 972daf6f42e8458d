"""Host rows of one rank: what ran around a launch.

`host_threads` looks at rows by thread, `autograd_nodes` joins autograd's nodes to their forward operators, and
`module_ranges` finds the forwards of modules.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.host.autograd_nodes import Autograd, autograd
from analyzers.rank.host.host_threads import Host, Labelled, Places, Spans, innermost
from analyzers.rank.host.module_ranges import COMPILED, REGION, LayerSource, forwards
