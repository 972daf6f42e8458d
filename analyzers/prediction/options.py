"""What is asked of `whatif`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analyzers.settings import Hosts, OfDdp, Sharding


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to predict; with none of it all that the run can have, and the usual settings of its strategy.

    `only` are kinds of scenarios. Bucket caps in MB (None: DDP's default) go with every number of GPUs (none: the run's
    own), and with what else is changed of DDP. `straggler` is a rank, `host_times` are shares of hosts' time (0: one
    CUDA graph), `accumulations` numbers of microbatches whose gradients a step adds up. What follows is FSDP2's.
    """

    only: Sequence[str] = ()
    bucket_mb: Sequence[float | None] = ()
    gpus: Sequence[int] = ()
    broadcast_buffers: bool = True
    bucket_views: bool = False  # gradients are views of their buckets
    gradient_itemsize: int | None = None  # bytes of each element that travels; None: as recorded
    hosts: Hosts | None = None  # those that settings run on; None: as the links have them
    straggler: int | None = None
    host_times: Sequence[float] = ()
    accumulations: Sequence[int] = ()
    prefetch: bool | None = None
    reshard_after_forward: bool | None = None
    separate_reduce_scatter_group: bool | None = None
    param_itemsize: int | None = None
    reduce_itemsize: int | None = None

    @property
    def changed(self) -> OfDdp:
        """Return what is changed of DDP beside caps."""
        return OfDdp(self.bucket_views, self.broadcast_buffers, self.gradient_itemsize, self.hosts)

    def sharding(self, gpus: int) -> Sharding:
        """Return what is changed of FSDP2, on so many GPUs."""
        return Sharding(
            gpus,
            self.prefetch,
            self.reshard_after_forward,
            self.separate_reduce_scatter_group,
            self.param_itemsize,
            self.reduce_itemsize,
        )

    @property
    def asks_of_ddp(self) -> bool:
        """Whether settings of DDP are asked for."""
        return bool(self.bucket_mb) or bool(self.changed.words)

    @property
    def asks_of_fsdp(self) -> bool:
        """Whether settings of FSDP2 are asked for."""
        return bool(self.sharding(1).words)

    @property
    def asks_of_settings(self) -> bool:
        """Whether other settings, links or numbers of GPUs are asked for."""
        return self.asks_of_ddp or self.asks_of_fsdp or bool(self.gpus) or self.hosts is not None

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked for by name."""
        asked = (self.straggler is not None, self.host_times, self.accumulations, self.only, self.asks_of_settings)
        return not any(asked)
