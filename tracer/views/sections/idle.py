"""Where idle time comes from: causes by phase, operators, launches."""

from __future__ import annotations

from collections import Counter
from statistics import median

from analyzers.rank import OTHERS
from analyzers.reporting import IDLE_CAUSES, IdleLine, Report
from analyzers.units import ms, percent
from tracer.views import Heading, Paragraph, Section, Table, count, milliseconds, numbers, texts

# What each cause means, for somebody who has not read docs/measuring.md.
MEANINGS = {
    "input": "the CPU is in the DataLoader",
    "synchronize": "the CPU waits for the device",
    "operator": "the CPU is in PyTorch's operators",
    "python": "the CPU is in Python around them",
    "launch_latency": "a launch is on its way",
    "kernel_gap": "short pauses between two kernels",
    "dependency": "work is queued, but waits for other work",
    "unknown": "no launch is recorded",
}
# What the host may change; the rest is the device's, or the launch's.
_HOSTS = ("input", "synchronize", "operator", "python")
_PHASES = ("forward", "backward", "optimizer", "between_steps")
_LINES = 8
_LONGEST_NAME = 44


def idle_section(report: Report) -> Section:
    """Show idle time by cause and phase, and what the host was in; means of all windows."""
    idle_ns = sum(window.idle_ns for window in report.windows)
    if not idle_ns:
        return []
    return [
        Heading("Where idle time comes from, ms per step (means over all windows)"),
        _by_cause(report, idle_ns),
        *_by_line(report),
        *_launches(report),
    ]


def _by_cause(report: Report, idle_ns: int) -> Table:
    total: Counter[str] = Counter()
    phases: Counter[tuple[str, str]] = Counter()
    for cause in IDLE_CAUSES:
        total[cause] = sum(getattr(window.idle, f"{cause}_ns") for window in report.windows)
        for row in report.idle.phases:
            phases[cause, row.phase] += getattr(row.idle, f"{cause}_ns")
    steps = len(report.windows)
    heads = [*texts(""), *numbers("ms", "of idle", "forward", "backward", "optimizer", "between steps")]
    rows = [
        [
            *(cause.replace("_", " "), milliseconds(ns / steps), percent(ns / idle_ns)),
            *(milliseconds(phases[cause, phase] / steps) for phase in _PHASES),
        ]
        for cause, ns in total.items()
        if ns
    ]
    return Table([*heads, *texts("", wide=True)], [[[*row, MEANINGS[row[0].replace(" ", "_")]] for row in rows]])


def _by_line(report: Report) -> Section:
    """List where the host was, the longest first; what is the device's own is not told apart."""
    ns: Counter[tuple[str, str, str]] = Counter()
    times: Counter[tuple[str, str, str]] = Counter()
    for line in report.idle.lines:
        if line.cause in _HOSTS and line.name != OTHERS:
            ns[_key(line)] += line.ns
            times[_key(line)] += line.count
    steps = len(report.windows)
    rows = [
        [
            where,
            cause,
            phase.replace("_", " "),
            milliseconds(total / steps),
            f"{times[where, cause, phase] / steps:.1f}",
        ]
        for (where, cause, phase), total in ns.most_common(_LINES)
    ]
    heads = [*texts("the CPU is in", "cause", "phase"), *numbers("ms", "times")]
    return [Heading("Where the CPU is while a device is idle, ms per step"), Table(heads, [rows])] if rows else []


def _words(key: tuple[str, str, str]) -> list[str]:
    return [key[0], *(word.replace("_", " ") for word in key[1:])]


def _key(line: IdleLine) -> tuple[str, str, str]:
    place = line.name or ("Python" if line.cause == "python" else "no operator")
    where = f"{line.call} of {place}" if line.call else place
    return where if len(where) <= _LONGEST_NAME else f"{where[: _LONGEST_NAME - 3]}...", line.cause, line.phase


def _launches(report: Report) -> Section:
    rows = [row for row in report.idle.launches if row.operations]
    if not rows:
        return []
    operations = sum(row.operations for row in rows)
    shorter = percent(sum(row.shorter for row in rows) / operations)
    launches = round(median(row.launches for row in rows))
    call_ns = median(row.call_ns or 0 for row in rows)
    line = (
        f"Launches: {count(launches, 'call')} per step, {ms(call_ns)} each; {shorter} of the device's operations are "
    )
    line += "shorter than their launch."
    waits = sum(call.count for call in report.idle.synchronizing)
    if waits:
        longest = max(report.idle.synchronizing, key=lambda call: call.count)
        who = f", most often {longest.call} of {longest.name}" if longest.name else f", most often {longest.call}"
        line += f" Calls that wait for the device: {waits} over all steps and ranks{who}."
    return [Paragraph(line)]
