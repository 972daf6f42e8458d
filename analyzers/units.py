"""Units: nanoseconds, bytes, GB/s, and how they print.

Time inside the program is integer nanoseconds; 1 GB is 1e9 bytes, so that bytes per nanosecond is GB/s.
"""

from __future__ import annotations

NS_PER_US = 1_000
# A thousand times what any link, bucket or message has, and less than it: what is asked of predictions is between.
SMALLEST, LARGEST = 1e-6, 1e9
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
# Beyond this a difference is written as a factor.
MOST_SHARE = 10


def ms(ns: float) -> str:
    """Format milliseconds with the digits that matter: `0.045 ms`, `6.93 ms`, `1,204 ms`."""
    value = ns / NS_PER_MS
    if abs(value) >= 1000:
        return f"{value:,.0f} ms"
    if abs(value) >= 100:
        return f"{value:.1f} ms"
    return f"{value:.2f} ms" if abs(value) >= 1 else f"{value:.3f} ms"


def between_ms(limits: tuple[float, float]) -> str:
    """Format what a time lies between: `between 7.35 and 9.80 ms`."""
    low, high = map(ms, limits)
    return f"between {low.removesuffix(' ms')} and {high}"


def us(ns: float) -> str:
    """Format microseconds: `3.3 us`, `812 us`; milliseconds from 10,000 us on."""
    value = ns / NS_PER_US
    if abs(value) >= 10_000:
        return ms(ns)
    return f"{value:,.0f} us" if abs(value) >= 100 else f"{value:.3g} us"


def duration(ns: float) -> str:
    """Format milliseconds from one on, below it microseconds."""
    return ms(ns) if ns >= NS_PER_MS else us(ns)


def rough_time(seconds: float) -> str:
    """Format a time as people say it: `40 s`, `3 min`, `2 h`."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def percent(share: float | None) -> str:
    """Format a share as a percentage with one decimal, `-` where there is none."""
    return "-" if share is None else f"{100 * share:.1f} %"


def count(number: int, noun: str) -> str:
    """Write `1 rank`, `4 ranks`, `1,024 ranks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def rounded_percent(share: float) -> str:
    """Format a share as one says it: `63 %`, and below 10 % with one decimal, `5.5 %`."""
    return f"{100 * share:.0f} %" if round(1000 * share) >= 100 else f"{100 * share:.1f} %"


def relative_change(share: float) -> str:
    """Format a difference as a share of what it is from: `+12.5 %`; beyond 1,000 % as a factor, `1,119 times`."""
    return f"{100 * share:+.1f} %" if share <= MOST_SHARE else times(1 + share)


def times(factor: float) -> str:
    """Format a factor: `12.5 times`, `1,119 times`."""
    return f"{factor:,.0f} times" if factor >= 100 else f"{factor:.1f} times"


def megabytes(nbytes: float) -> str:
    """Format megabytes, 1e6 bytes, with the digits that matter: `0.4 MB`, `12,000 MB`."""
    value = nbytes / 1e6
    return f"{value:,.0f} MB" if value >= 100 else f"{value:.3g} MB"


def binary_size(nbytes: int) -> str:
    """Format bytes exactly: `4 KiB`, `1 GiB` where they are whole, `4,098 B` where not."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit:,} {name}"
    return f"{nbytes:,} B"


SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(nbytes: int | None) -> str:
    """Format bytes as `512 B`, `38.4 kB`, `28.87 MB`; 1 MB is 1e6 bytes."""
    if nbytes is None:
        return "-"
    for unit, name in SIZES:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}" if nbytes < 1e15 else f"{nbytes / unit:,.0f} {name}"
    return f"{nbytes} B"
