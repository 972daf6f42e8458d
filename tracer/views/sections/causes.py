"""Sections on the critical path: its causes, and its largest charges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analyzers.causes import ChargeRow, ChargesSummary
from analyzers.reporting import Report
from analyzers.texts import listed
from analyzers.units import count, ms, percent, rounded_percent
from tracer.views import Field, Heading, Paragraph, Place, Section, Table, milliseconds, table
from tracer.views.sections.idle import MEANINGS as OF_IDLE
from tracer.views.sections.idle import shortened, spaced

# What each cause means, for somebody who has not read docs/measuring.md.
MEANINGS = {
    "compute": "kernels run that compute",
    "packing": "gradients and parameters are packed for communication, or unpacked",
    "copy": "memory is copied or filled",
    "transfer": "bytes are on their way, and all who take part have come",
    "kernel_gap": OF_IDLE["kernel_gap"],
    "launch": "the CPU launches, and the launch is on its way",
    "operator": OF_IDLE["operator"],
    "python": "the CPU is in Python, outside of operators",
    "gc": OF_IDLE["gc"],
    "input": OF_IDLE["input"],
    "allocator": OF_IDLE["allocator"],
    "synchronize": "a call that waits for the device: its own part alone",
    "profiler": OF_IDLE["profiler"],
    "unresolved": "communication of which not all members are known",
    "unknown": "nothing that the traces record explains it",
}
# The same in a sentence: so much of it is ...
_NOUNS = {
    "copy": "copies",
    "kernel_gap": "pauses between kernels",
    "launch": "launching",
    "operator": "PyTorch's operators on the CPU",
    "python": "Python on the CPU",
    "gc": "garbage collection",
    "input": "loading input",
    "allocator": "reserving memory",
    "synchronize": "calls that wait for the device",
    "profiler": "the profiler's own work",
    "unresolved": "unresolved communication",
    "unknown": "unexplained",
}
# The sentence names causes of a tenth of the path at least, no more than three.
_NAMED, _MOST_NAMED = 0.1, 3
# Ranks that have columns of their own, and those that are named with their share.
MOST_RANKS, _MOST_SHARES = 4, 8
MOST_GROUPS = 6
MOST_CHARGES = 20
# In front of a node of autograd's name, which the phase says.
_NODE = "autograd::engine::evaluate_function: "
_NEAR = "who came within a hundredth of the step of the last counts as well"
_READING = (
    "Back from the end of a step over what each thing waited for last, from rank to rank: what merely waited is not on "
    "it. A map of where time is, and no verdict on a rank."
)
# A replay that is further off says little of whose its parts are.
_FAR_OFF = 0.25
_CAUSE = "What the step waited for on the critical path."
_MEAN, _SHARE = "Per step: the mean over the typical steps.", "The share of the path."


def by_cause(report: Report) -> Section:
    """Show what the critical path consists of, by cause, rank, phase and group; without a model say why."""
    charges = report.summary.charges
    if charges is None:
        return [Heading(why_no_causes(report))]
    rows = report.charges
    return [
        Heading(causes_sentence(report, charges)),
        _causes(rows, charges),
        *map(Paragraph, _remarks(report, charges)),
        Paragraph(_READING, is_faint=True),
    ]


def causes_in_full(report: Report) -> Section:
    """Show the same where a report has a model, and nothing where it has none."""
    return by_cause(report) if report.summary.charges is not None else []


def by_charge(report: Report, most: int = MOST_CHARGES) -> Section:
    """List the largest charges, `most` of them; without a model say why there are none."""
    charges = report.summary.charges
    if charges is None:
        return [Heading(why_no_causes(report))]
    shown, left_out = report.charges[:most], report.charges[most:]
    rest_ns = sum(row.ns for row in left_out)
    fewer = (
        f"and {count(len(left_out), 'more charge')}, together {ms(rest_ns / charges.steps)} "
        f"({percent(_share(rest_ns, charges))}): --json, --csv"
    )
    title = "The critical path's largest charges, ms per step (means over typical steps)"
    return [Heading(title), _charges(report, shown, charges), *([Paragraph(fewer, is_faint=True)] if left_out else [])]


def causes_sentence(report: Report, charges: ChargesSummary) -> str:
    """Say how long the critical path of a step is, and what most of it consists of."""
    length = ms(charges.charged_ns / charges.steps)
    shares = [(cause, _share(ns, charges)) for cause, ns in charges.by_cause.items()]
    named = [(cause, share) for cause, share in shares if share >= _NAMED][:_MOST_NAMED] or shares[:1]
    parts = [f"{rounded_percent(share)} {_NOUNS.get(cause, cause)}" for cause, share in named]
    if not parts:
        return f"The critical path of {_step(report)} is {length}"
    first = parts[0].replace(" % ", " % of it is ", 1)
    made_of = first if len(parts) == 1 else f"{', '.join([first, *parts[1:-1]])} and {parts[-1]}"
    return f"The critical path of {_step(report)} is {length}; {made_of}"


def why_no_causes(report: Report) -> str:
    """Say in a line why a run has no critical path."""
    launches: Counter[int] = Counter()
    for row in report.idle.launches:
        launches[row.rank] += row.launches
    without = [rank for rank in report.run.ranks if not launches[rank]]
    if without:
        return (
            f"No critical path: no launches of kernels are recorded on rank {listed(without, _MOST_SHARES)}; record "
            "the CPU's activity together with the device's"
        )
    return "No critical path: the run was read without what it needs (analyzers.summarize with causes=True)"


def _share(ns: float, charges: ChargesSummary) -> float:
    return ns / charges.charged_ns if charges.charged_ns else 0.0


def _step(report: Report) -> str:
    controls = report.run.controls
    is_profiled = controls.unprofiled_step_ns is None and not controls.host_step_ns
    word = report.summary.headline.step_word
    return f"a profiled {word}" if is_profiled else f"a {word}"


def _causes(rows: Sequence[ChargeRow], charges: ChargesSummary) -> Table:
    of_rank: Counter[int] = Counter()
    of_cause: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row.rank is not None:
            of_rank[row.rank] += row.ns
            of_cause[row.cause, row.rank] += row.ns
    shown = sorted(rank for rank, _ in of_rank.most_common(MOST_RANKS))
    others = [rank for rank in of_rank if rank not in shown]

    def on(head: str, ranks: Sequence[int], meaning: str) -> Field[str]:
        def part(cause: str) -> str:
            ns = sum(of_cause[cause, rank] for rank in ranks)
            return milliseconds(ns / charges.steps) if ns else "-"

        return Field(head, help=meaning, cell=part)

    rest = [on("others", others, "What of it is on all other ranks.")] if others else []
    fields: Sequence[Field[str]] = (
        Field("cause", True, help=_CAUSE, cell=spaced),
        Field("ms", help=_MEAN, cell=lambda cause: milliseconds(charges.by_cause[cause] / charges.steps)),
        Field("share", help=_SHARE, cell=lambda cause: percent(_share(charges.by_cause[cause], charges))),
        *(on(f"rank {rank}", [rank], "What of it is on this rank.") for rank in shown),
        *rest,
        Field("", True, True, cell=MEANINGS.__getitem__),
    )
    return table(fields, list(charges.by_cause))


def _remarks(report: Report, charges: ChargesSummary) -> list[str]:
    def lengths(sums: dict[str, int]) -> str:
        parts = [f"{name} {ms(ns / charges.steps)}" for name, ns in list(sums.items())[:MOST_GROUPS]]
        return ", ".join([*parts, *(["..."] if len(sums) > MOST_GROUPS else [])])

    ranks = sorted(charges.by_rank.items(), key=lambda item: -item[1])
    shares = [f"rank {rank} {percent(share)}" for rank, share in ranks[:_MOST_SHARES]]
    more = f" and {count(len(ranks) - _MOST_SHARES, 'more rank')} less each" if len(ranks) > _MOST_SHARES else ""
    return [
        *([f"Shares of ranks ({_NEAR}): {', '.join(shares)}{more}."] if len(ranks) > 1 else []),
        f"By phase: {lengths({spaced(phase): ns for phase, ns in charges.by_phase.items()})}.",
        *([f"Transfers by group: {lengths(charges.by_group)}."] if charges.by_group else []),
        *_trust(report, charges),
    ]


def _trust(report: Report, charges: ChargesSummary) -> list[str]:
    """Say how near the replay comes to the step that people train, and what of the path nothing explains."""
    error = charges.replay_error
    if error is not None:
        apart = f"{rounded_percent(abs(error))} {'longer' if error > 0 else 'shorter'} than"
        doubtful = ": so far its parts are in doubt" if abs(error) > _FAR_OFF else ""
        lines = [f"Replayed from what was measured of its parts, a step is {apart} without the profiler{doubtful}."]
    elif report.run.controls.unprofiled_step_ns is None:
        lines = ["How far this is from a step without the profiler is not known: none was timed."]
    else:
        lines = []
    if charges.unknown_ns:
        unknown = f"{ms(charges.unknown_ns / charges.steps)} of it ({percent(_share(charges.unknown_ns, charges))})"
        lines.append(f"Nothing that the traces record explains {unknown}: a dependency was not found.")
    return lines


def _charges(report: Report, rows: Sequence[ChargeRow], charges: ChargesSummary) -> Table:
    device: Field[ChargeRow] = Field("device", cell=lambda row: "-" if row.device is None else str(row.device))
    several = len(report.summary.by_device) > len(report.run.ranks)
    fields: Sequence[Field[ChargeRow]] = (
        Field("ms", help=_MEAN, cell=lambda row: milliseconds(row.ns / charges.steps)),
        Field("share", help=_SHARE, cell=lambda row: percent(_share(row.ns, charges))),
        Field("rank or group", True, help="Transfers are a group's.", cell=_whose),
        *([device] if several else []),
        Field("cause", True, help=_CAUSE, cell=lambda row: spaced(row.cause)),
        Field("phase", True, help="The part of the step that it belongs to.", cell=lambda row: spaced(row.phase)),
        Field("where", True, help="The operator, Python function, module or range around it.", cell=_where),
    )

    def place(row: ChargeRow) -> Place | None:
        return None if row.rank is None else Place(rank=row.rank, device=row.device)

    return table(fields, rows, place=place, subject=2)


def _whose(row: ChargeRow) -> str:
    return f"rank {row.rank}" if row.rank is not None else row.group or "-"


def _where(row: ChargeRow) -> str:
    return shortened((row.at or "-").removeprefix(_NODE))
