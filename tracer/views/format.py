"""Formatting of milliseconds, GB/s, sizes, counts and untrusted text."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

from analyzers.redaction import redacted
from analyzers.units import NS_PER_MS, NS_PER_S, SIZES, percent, size


def plain(text: str) -> str:
    """Replace what would steer a terminal in text from a trace or a path: each such character becomes U+FFFD."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def plain_lines(text: str) -> list[str]:
    """Return a text's lines as stderr shows them, which others may read: plain, and without secrets."""
    return [plain(line) for line in redacted(text).split("\n")]


def sentence(clause: str) -> str:
    """Make a sentence from a clause."""
    return f"{clause[:1].upper()}{clause[1:]}."


def rounded_up(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... and of 0.5, 0.2, 0.1, ... that is no less than a positive figure."""
    decade: float = 10.0 ** floor(log10(value))
    return min(decade * step for step in (1, 2, 5, 10) if decade * step >= value or step == 10)


def one_unit(most: float) -> tuple[str, Callable[[float], str]]:
    """Return the unit of an axis of sizes that ends at so many bytes, ten of it at least, and what writes a decade."""
    unit, name = next((each for each in SIZES if most >= 10 * each[0]), (1.0, "B"))

    def written(nbytes: float) -> str:
        power = round(log10(nbytes / unit))
        return f"{10.0**power:,.{max(0, -power)}f}"

    return name, written


def milliseconds(ns: float | None) -> str:
    """Write milliseconds to the microsecond, `-` for what is unknown."""
    return "-" if ns is None else f"{ns / NS_PER_MS:,.3f}"


def seconds(ns: float | None) -> str:
    """Write seconds with the digits that matter, `-` for what is unknown."""
    if ns is None:
        return "-"
    value = ns / NS_PER_S
    return f"{value:,.1f}" if value >= 100 else f"{value:.3f}" if value >= 0.1 or not value else f"{value:.5f}"


def gbps(value: float | None) -> str:
    """Write GB/s with the digits that matter, `-` for what is unknown."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if value >= 100 else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def of_limit(share: float | None, limit_gbps: float | None) -> str:
    """Write a bandwidth as a share of a limit, with the limit."""
    return percent(share) + ("" if limit_gbps is None else f" of {gbps(limit_gbps)}")


# Words by which a figure's name says that it is a share.
_SHARES = ("share", "overlap", "efficiency", "utilization", "accuracy")


def figure(name: str, value: float | None) -> str:
    """Write a figure in the unit that its name says. Raises ValueError for a name that says none, as a count's."""
    if name.endswith("_ns"):
        return milliseconds(value)
    if name.endswith("bytes"):
        return size(None if value is None else int(value))
    if name.endswith("_gbps"):
        return gbps(value)
    if any(word in name for word in _SHARES):
        return percent(value)
    raise ValueError(f"{name}: a figure without a unit; give its column a cell that writes it")
