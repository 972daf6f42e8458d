"""Where idle time comes from: causes by phase, operators, launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from analyzers.rank import OTHERS
from analyzers.reporting import IDLE_CAUSES, IdleLine, Report, Window, rows_of_typical, typical_of
from analyzers.trace import is_function
from analyzers.units import ms, percent
from tracer.views import Field, Heading, Paragraph, Section, Table, count, milliseconds, table

# What each cause means, for somebody who has not read docs/measuring.md.
MEANINGS = {
    "input": "the CPU is in the DataLoader",
    "synchronize": "the CPU waits for the device",
    "operator": "the CPU is in PyTorch's operators",
    "python": "the CPU is in Python around them",
    "launch_latency": "a launch is on its way",
    "kernel_gap": "short pauses between two kernels",
    "dependency": "work is queued, but waits for other work",
    "unknown": "no launch is recorded, kernels are lost, or windows differ",
    "profiler": "the profiler itself is at work",
    "allocator": "the CPU reserves or frees memory of the device",
    "gc": "the CPU collects Python's garbage",
}
# What the host may change; the rest is the device's, or the launch's.
_HOSTS = ("input", "synchronize", "allocator", "gc", "operator", "python")
_PHASES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
    "between_steps": "between two steps",
}
_MEAN = "Per step, the mean over typical windows."
_MEAN_OF_ALL = "Per step, the mean over all windows."
_WHERE = "The operator, Python function or module that the CPU ran while the device was idle."
_REVEALS = (
    "Functions, files and lines are of the program that was recorded: who is sent this sees them. tracer record "
    "--no-stacks leaves them out."
)
_LINES = 8
_LONGEST_NAME = 44


def idle_section(report: Report) -> Section:
    """Show idle time by cause and phase, means over typical windows; and over all, what the host was in."""
    windows = typical_of(report.windows)
    idle_ns = sum(window.idle_ns for window in windows)
    if not idle_ns:
        return []
    return [
        Heading("Where idle time comes from, ms per step (means over typical windows)"),
        _by_cause(report, windows, idle_ns),
        *_by_line(report),
        *_launches(report),
    ]


def _by_cause(report: Report, windows: Sequence[Window], idle_ns: int) -> Table:
    total: Counter[str] = Counter()
    phases: Counter[tuple[str, str]] = Counter()
    in_phases = rows_of_typical(report, report.idle.phases)
    for cause in IDLE_CAUSES:
        total[cause] = sum(getattr(window.idle, f"{cause}_ns") for window in windows)
        for row in in_phases:
            phases[cause, row.phase] += getattr(row.idle, f"{cause}_ns")
    steps = len(windows)
    fields: Sequence[Field[str]] = (
        Field("", True, cell=spaced),
        Field("ms", help=_MEAN, cell=lambda cause: milliseconds(total[cause] / steps)),
        Field("of idle", help="The share of all idle time.", cell=lambda cause: percent(total[cause] / idle_ns)),
        *(_phase(phase, phases, steps) for phase in _PHASES),
        Field("", True, True, cell=MEANINGS.__getitem__),
    )
    return table(fields, [cause for cause, ns in total.items() if ns])


def _phase(phase: str, ns: Mapping[tuple[str, str], int], steps: int) -> Field[str]:
    meaning = f"Idle time while the CPU was {_PHASES[phase]}."
    return Field(spaced(phase), help=meaning, cell=lambda cause: milliseconds(ns[cause, phase] / steps))


def spaced(word: str) -> str:
    """Return a name of the JSON as words."""
    return word.replace("_", " ")


def _by_line(report: Report) -> Section:
    """List where the host was, the longest first; what is the device's own is not told apart."""
    ns: Counter[tuple[str, str, str]] = Counter()
    times: Counter[tuple[str, str, str]] = Counter()
    for line in report.idle.lines:
        if line.cause in _HOSTS and line.name != OTHERS:
            ns[_key(line)] += line.ns
            times[_key(line)] += line.count
    steps = len(report.windows)
    fields: Sequence[Field[tuple[str, str, str]]] = (
        Field("the CPU is in", True, help=_WHERE, cell=lambda key: key[0]),
        Field("cause", True, help="Why the device was idle.", cell=lambda key: key[1]),
        Field("phase", True, help="The part of the step that the CPU was in.", cell=lambda key: spaced(key[2])),
        Field("ms", help=_MEAN_OF_ALL, cell=lambda key: milliseconds(ns[key] / steps)),
        Field("times", help="How often per step.", cell=lambda key: f"{times[key] / steps:.1f}"),
    )
    longest = [key for key, _ in ns.most_common(_LINES)]
    title = "Where the CPU is while a device is idle, ms per step (means over all windows)"
    reveals = [Paragraph(_REVEALS, is_faint=True)] if any(is_function(place) for place, _, _ in longest) else []
    return [Heading(title), table(fields, longest), *reveals] if longest else []


def _key(line: IdleLine) -> tuple[str, str, str]:
    place = line.name or ("Python" if line.cause == "python" else "no operator")
    where = f"{line.call} of {place}" if line.call else place
    return shortened(where), line.cause, line.phase


def shortened(name: str) -> str:
    """Return a name of a place where there is little room: of a Python function's file without its folder."""
    function, _, file = name.rpartition(" (")
    if len(name) > _LONGEST_NAME and is_function(name):
        name = f"{function} ({file.rpartition('/')[2]}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _launches(report: Report) -> Section:
    rows = [row for row in rows_of_typical(report, report.idle.launches) if row.operations]
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
