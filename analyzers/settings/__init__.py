"""Steps with other settings, links, or another number of GPUs.

    graph of causes -> places where gradients may be reduced -> replays of several layouts side by side

In order: `bucket_rule` is DDP's own, `link_model` says how long collectives take, and took in the run; `places` are
where gradients may be reduced, `rebucketed` replays them in other buckets; `ddp` and `sharded` (FSDP2) answer for a
strategy. `assumption` is what they rest on.

Decisions: docs/dev/decisions/prediction.md
"""

from analyzers.settings.assumption import MEASURED_ON, Assumption
from analyzers.settings.ddp import USUAL_MB, DdpSettings, OfDdp, Setting, best_cap
from analyzers.settings.link_model import Affine, Hosts, LinkModel
from analyzers.settings.sharded import FSDP2, FsdpSettings, Sharding
