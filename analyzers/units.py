"""Nanoseconds, bytes and GB/s: constants, and how they print.

Time inside the program is integer nanoseconds; 1 GB is 1e9 bytes, so that bytes per nanosecond is GB/s.
"""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000


def ms(ns: float) -> str:
    """Milliseconds with the digits that matter: `0.045 ms`, `6.93 ms`, `1,204 ms`."""
    value = ns / NS_PER_MS
    if abs(value) >= 1000:
        return f"{value:,.0f} ms"
    if abs(value) >= 100:
        return f"{value:.1f} ms"
    return f"{value:.2f} ms" if abs(value) >= 1 else f"{value:.3f} ms"


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal, `-` where there is none."""
    return "-" if share is None else f"{100 * share:.1f} %"
