"""Launches behind device rows that say none, and copies recorded as kernels.

launch      External id 4, correlation 101      External id 5, correlation 102
device      External id 4, correlation 0        gemm, correlation 102
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, find, is_in
from analyzers.trace import Category, Events, Kind, launch_rows, launch_times, with_copy_collectives

# Calls behind one row of the device each, and those whose row is a copy or sets memory, whatever it is called there.
LAUNCH = re.compile(r"(?:cuda|cu|hip)\w*(?:Launch(?!HostFunc)|Memcpy|Memset)")
_BY_CALL = {
    Category.MEMCPY: re.compile(r"(?:cuda|cu|hip)\w*Memcpy"),
    Category.MEMSET: re.compile(r"(?:cuda|cu|hip)\w*Memset"),
}


def with_launches(events: Events) -> Events:
    """Return the same rows, each device row with its launch as far as the file tells, copies as copies."""
    correlation = _with_correlations(events)
    category = _by_call(events, correlation)
    if correlation is events.correlation and category is events.category:
        return events
    launched_ns = launch_times(category, correlation, events.start_ns)
    was_kernel = (category != events.category) & (events.kind != Kind.COMM)
    kind = np.where(was_kernel, Kind.COPY, events.kind).astype(events.kind.dtype)
    joined = replace(events, category=category, kind=kind, correlation=correlation, launched_ns=launched_ns)
    return with_copy_collectives(joined)


def _with_correlations(events: Events) -> Int64:
    """Return correlations in which device rows without one have that of the launch call of their External id.

    0 and -1 are none. Calls of an id whose rows have none are paired with these in order, where they are as many.
    """
    on_device, has_one = events.on_device, events.correlation > 0
    if not (on_device & ~has_one).any():
        return events.correlation
    correlation = np.where(has_one, events.correlation, UNKNOWN)
    used = np.isin(correlation, correlation[on_device & has_one])
    launches = events.called(Category.LAUNCH, LAUNCH.match)
    bare, calls = (_by_id(events, rows) for rows in (np.flatnonzero(on_device & ~has_one), launches[~used[launches]]))
    ids, index, wanted = np.unique(events.external[bare], return_inverse=True, return_counts=True)
    of_call = find(ids, events.external[calls])
    is_whole = np.bincount(of_call[of_call >= 0], minlength=len(ids)) == wanted
    bare, calls = bare[is_whole[index]], calls[(of_call >= 0) & np.r_[is_whole, False][of_call]]
    # A call without a correlation of its own gets one that is nobody's.
    fresh = correlation.max(initial=0) + 1 + np.arange(len(calls))
    correlation[calls] = np.where(has_one[calls], correlation[calls], fresh)
    correlation[bare] = correlation[calls]
    return correlation


def _by_id(events: Events, rows: Int64) -> Int64:
    """Return those of some rows that have an External id, by it and by start."""
    rows = rows[events.external[rows] > 0]
    ordered: Int64 = rows[np.lexsort((events.start_ns[rows], events.external[rows]))]
    return ordered


def _by_call(events: Events, correlation: Int64) -> NDArray[np.int8]:
    """Return the category of every row, of kernels that a call launched which copies or sets memory what it does."""
    calls = events.called(Category.LAUNCH, lambda name: any(of.match(name) for of in _BY_CALL.values()))
    kernels = np.flatnonzero((events.category == Category.KERNEL) & (correlation > 0))
    kernels = kernels[is_in(correlation[kernels], correlation[calls])]
    if not len(kernels):
        return events.category
    launch = launch_rows(events.category, correlation, events.start_ns, correlation[kernels])
    category = events.category.copy()
    for done, pattern in _BY_CALL.items():
        category[kernels[is_in(launch, events.called(Category.LAUNCH, pattern.match))]] = done
    return category
