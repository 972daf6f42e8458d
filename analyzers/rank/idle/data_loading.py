"""DataLoader time on the host, and each device's idle time for it.

    host       |step 3  |loader.......|step 4  |
    launches     ^  ^                   ^  ^
    device        aaa bbbbbb             cc dd
    idle             .      .............  .
    input                   ,,,,,,,,,,            idle while the thread that launches `c` is in the loader

The gap before `c` is the loader's only as far as the host is in it: what comes behind it is the host's way to the next
launch, which every step pays. Nor is the fetch waiting as long as the device still computes. Were the batch there at
once, at least this much of the idle time would go: that launch would come a whole fetch earlier, and the device is free
since `b` ended. On a CPU run the host is the device: idle there is the loader's time outside of operators, since those
in it (collating, a transform on tensors) are compute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.trace import STEP, Category, Events

# torch.utils.data: a DataLoader's `__next__` (of every kind of iterator, torchdata's too), a datapipe of torch 1.10 to
# 1.12 and, as it prints itself since, one that reads another: Batcher(batch_size=4, datapipe=Mapper, ...).
_LOADER = re.compile(r"enumerate\(Data(?:Loader|Pipe)\)#|\w+\((?:.*, )?(?:\w+_)?datapipes?=")


@dataclass(frozen=True, eq=False)
class Fetching:
    """A value for each window of a rank, ns: how long the host fetched input, and how long the device idled for it.

    UNKNOWN in a light window, whose device times are of other steps than the host's, and where a trace has no host
    rows. `seen`: the trace has fetches at all.
    """

    fetch_ns: Int64
    input_idle_ns: Int64
    seen: bool


def is_input(name: str) -> bool:
    """Whether a range of the host is one in which PyTorch fetches a batch."""
    return _LOADER.match(name) is not None


def fetches(events: Events) -> Intervals:
    """Return when the training thread fetched input: batches that another thread fetches keep nobody waiting."""
    is_input_name = np.array([is_input(name) for name in events.names], dtype=bool)
    if not is_input_name.any():
        return EMPTY
    ranges = _ranges(events)
    rows = ranges & is_input_name[events.name]
    steps = ranges & events.named(STEP)
    if steps.any():
        rows &= np.isin(events.thread, events.thread[steps])
    return union_of(events.start_ns[rows], events.end_ns[rows])


def _ranges(events: Events) -> Mask:
    return np.isin(events.category, (Category.OPERATOR, Category.ANNOTATION))


def fetching(events: Events, begin_ns: Int64, stop_ns: Int64, input_ns: Int64, *, is_light: bool) -> Fetching:
    """Return the fetches in windows [begin, stop), of whose idle time so much is for input."""
    fetched = fetches(events)
    if is_light or not _ranges(events).any():
        nothing = np.full(len(begin_ns), UNKNOWN, dtype=np.int64)
        return Fetching(nothing, nothing, len(fetched) > 0)
    return Fetching(fetched.length_within(begin_ns, stop_ns), input_ns, len(fetched) > 0)
