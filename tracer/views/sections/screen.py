"""First screen of a report in 35 lines, and its bar."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.notices import Weight
from analyzers.reporting import Bar, DeviceSummary, Headline, MarkedRank, Report, odd_words
from analyzers.texts import typed
from analyzers.units import count, ms, percent
from tracer.views import (
    BAR_PARTS,
    COMM,
    COMPUTE,
    COPY,
    EXPOSED_PARTS,
    IDLE,
    IDLE_OR_WAIT,
    Drawing,
    Section,
    Span,
    StepPart,
    plain,
    rendered,
)
from tracer.views.sections.advice import ListedAdvice, further_words, gains_remark, listed_advice
from tracer.views.sections.overview import run_title
from tracer.views.sections.ranks import Standing, bar, communicates, device_name, named, shares_of

MOST_LINES = 35
WIDEST = 100
NARROWEST = 52
MOST_ADVICE = 4
MOST_DEVICES = 8
MOST_WARNINGS = 3
# A device's bar, and what is said behind it, are at most so long.
MOST_CELLS = 50
_BY_OWN = "slowest and fastest by the step less its waiting"
# Labels stand left of all else.
_LABEL = 15
_BOLD, _FAINT = "bold", "dim"
_OF_TRUST = {"high": "green", "fair": "yellow", "low": "bold red"}

Line = list[Span]


def first_screen_text(report: Report, path: str = "RUN", width: int | None = None, color: bool = False) -> str:
    """Write the first screen, at most 100 columns wide; `path` is the run as one types it."""
    return rendered(first_screen(report, path, width), width, color)


def first_screen(report: Report, path: str = "RUN", width: int | None = None) -> list[Section]:
    """Return the first screen's parts; where they need more lines than there are, devices and warnings are fewer."""
    columns = max(min(width or WIDEST, WIDEST), NARROWEST)
    fitting = (
        (MOST_ADVICE, MOST_DEVICES, MOST_WARNINGS, True),
        (4, 6, 3, True),
        (4, 4, 2, True),
        (3, 4, 2, True),
        (3, 3, 1, False),
        (2, 3, 1, False),
        (1, 2, 1, False),
    )
    for most_advice, most_devices, most_warnings, says_why in fitting:
        layout = _Layout(report, path, columns, most_advice, most_devices, most_warnings, says_why)
        parts = [part for part in layout.parts() if part]
        if sum(map(len, parts)) + len(parts) <= MOST_LINES:
            break
    return [[Drawing(part)] for part in parts]


@dataclass(frozen=True)
class _Layout:
    """The screen's parts as lines, for so many columns and with at most so many of what there may be many of.

    `says_why`: what was measured stands below the first piece of advice.
    """

    report: Report
    path: str
    columns: int
    most_advice: int
    most_devices: int
    most_warnings: int
    says_why: bool

    def parts(self) -> list[list[Line]]:
        """Return the groups of lines between which a line is empty."""
        advice = self._advice()
        ends = [*self._communication(), *self._trust()]
        return [self._title(), self._step(), self._problem(), advice, self._ranks(), ends, self._next()]

    def _title(self) -> list[Line]:
        return [[Span(line, _BOLD)] for line in textwrap.wrap(plain(run_title(self.report.run)), self.columns)]

    def _step(self) -> list[Line]:
        parts = drawn_shares(bar_shares(self.report))
        drawn = bar(parts, self.columns)
        words = [f"{part.glyph} {part.label} {percent(share)}" for part, share in parts if share or part is not COMM]
        lines = self._wrapped("", step_words(self.report), style=_BOLD, indent=0)
        return [*lines, drawn, *self._legend(words), *self._exposed(), *self._odd()]

    def _legend(self, words: Sequence[str]) -> list[Line]:
        lines, line = [], ""
        for word in words:
            if line and len(line) + len(word) + 3 > self.columns:
                lines.append(line)
                line = ""
            line += f"{'   ' if line else ''}{word}"
        return [[Span(each)] for each in (*lines, line)]

    def _exposed(self) -> list[Line]:
        """Say what exposed communication is made of, where there is some."""
        words = exposed_words(self.report)
        return self._wrapped("", words, indent=0, style=_FAINT) if words else []

    def _odd(self) -> list[Line]:
        """Say which steps these shares are not of, where there are some."""
        words = " ".join(odd_words(self.report.summary.steps))
        return self._wrapped("", words, indent=0, style=_FAINT) if words else []

    def _problem(self) -> list[Line]:
        sentence = self.report.summary.headline.sentence
        return self._wrapped("MAIN PROBLEM", sentence[:1].upper() + sentence[1:], style=_BOLD)

    def _advice(self) -> list[Line]:
        pieces = listed_advice(self.report)
        if not pieces:
            word = self.report.summary.headline.step_word
            nothing = f"nothing that tracer knows of would save 1 % of a {word}"
            return [*self._wrapped("WHAT TO DO", nothing), *self._more()]
        shown = pieces[: self.most_advice]
        gains = max(len(piece.gain) for piece in shown) + 2
        lines = [line for place, piece in enumerate(shown) for line in self._piece(piece, gains, is_first=place == 0)]
        more = f" ({len(pieces) - len(shown)} more: --full)" if len(pieces) > len(shown) else ""
        return [*lines, *self._more(), *self._wrapped("", f"{gains_remark(self.report, shown)}{more}", style=_FAINT)]

    def _piece(self, piece: ListedAdvice, gains: int, *, is_first: bool) -> list[Line]:
        """Return a piece of advice; of the first also what was measured."""
        label, hang = "WHAT TO DO" if is_first else "", gains if piece.gain else 0
        if 2 * hang > self.columns - _LABEL:
            # On a narrow screen a gain has a line of its own.
            hang = 2
            lines = [*self._wrapped(label, piece.gain, style=_BOLD), *self._wrapped("", piece.text, "", hang=hang)]
        else:
            lines = self._wrapped(label, piece.text, piece.gain.ljust(gains) if piece.gain else "", hang=hang)
        if not is_first or not piece.because or not self.says_why:
            return lines
        return [*lines, *self._wrapped("", piece.because, " " * hang, style=_FAINT, hang=hang, most=3)]

    def _more(self) -> list[Line]:
        """Say what would come on top, and what all advice brings together."""
        words = further_words(self.report, self.most_advice)
        return self._wrapped("", words) if words else []

    def _ranks(self) -> list[Line]:
        devices = self.report.summary.by_device
        if len(devices) < 2:
            return []
        shown = _shown(self.report, self.most_devices)
        names = {id(device): device_name(device, devices) for device, _ in shown}
        wide = max(map(len, names.values()))
        marks = {mark.rank: mark for mark in self.report.summary.headline.marked}
        said = [_mark_words(marks.get(device.rank), standing) for device, standing in shown]
        room = min(max(map(len, said)) + 1, MOST_CELLS)
        lines = []
        for place, (device, _) in enumerate(shown):
            step = ms(device.windows["span_ns"].median or 0).rjust(9)
            head = f"{'RANKS' if place == 0 else ''}".ljust(_LABEL) + f"{names[id(device)].rjust(wide)}  {step}  "
            cells = min(max(self.columns - len(head) - room, MOST_CELLS // 5), MOST_CELLS)
            words = _fitting(said[place], self.columns - len(head) - cells - 1)
            lines.append([Span(head), *bar(shares_of(device.windows), cells), Span(f" {words}" if words else "")])
        left = len(devices) - len(shown)
        by = f"; {_BY_OWN}" if any(standing.places for _, standing in shown) else ""
        return [*lines, *(self._wrapped("", f"and {left:,} more: --full{by}", style=_FAINT) if left else [])]

    def _communication(self) -> list[Line]:
        words = self.report.summary.headline.communication
        return self._wrapped("COMMUNICATION", words) if words and communicates(self.report) else []

    def _trust(self) -> list[Line]:
        run, headline = self.report.run, self.report.summary.headline
        counted = [count(len(found), noun) for found, noun in ((run.warnings, "warning"), (run.notes, "note")) if found]
        notices = f" ({', '.join(counted)}: add --notes)" if counted else ""
        lines = self._wrapped("TRUST", f"{trust_words(headline)}{notices}", style=_OF_TRUST[headline.trust])
        warnings = [one for one in run.warnings if one.code.facts.weight is not Weight.GRADED]
        for warning in warnings[: self.most_warnings]:
            lines += self._wrapped("", f"warning: {warning.text}", most=2)
        return lines

    def _next(self) -> list[Line]:
        path, room = typed(self.path), self.columns - _LABEL
        path = path if len(f"tracer report {path} --html run.html") <= room else "RUN"
        next_commands = {
            f"tracer report {path} --full": "all tables",
            f"tracer report {path} --html run.html": "a page with a timeline",
        }
        if self.report.summary.advice_together_ns is not None:
            next_commands[f"tracer whatif {path}"] = "other settings, predicted"
        wide = max(map(len, next_commands)) + 2
        return [
            [
                Span(("NEXT" if place == 0 else "").ljust(_LABEL), _BOLD),
                Span(command.ljust(wide)),
                Span(words if wide + len(words) <= room else "", _FAINT),
            ]
            for place, (command, words) in enumerate(next_commands.items())
        ]

    def _wrapped(
        self,
        label: str,
        words: str,
        lead: str = "",
        *,
        style: str = "",
        indent: int = _LABEL,
        hang: int = 0,
        most: int = 0,
    ) -> list[Line]:
        """Wrap words right of a label and a lead; of more than `most` lines, the rest is cut off."""
        room = max(self.columns - indent - hang, 15)
        lines = textwrap.wrap(plain(words), room, max_lines=most or None, placeholder=" ...") or [""]
        heads = [Span(label.ljust(indent), _BOLD), Span(lead, _BOLD)]
        rest = [Span(" " * (indent + hang))]
        return [[*(heads if place == 0 else rest), Span(line, style)] for place, line in enumerate(lines)]


def step_words(report: Report) -> str:
    """Say what a step takes, as the head of the profiled step's parts."""
    headline = report.summary.headline
    is_told = headline.step_word == "step" and headline.step_ns is not None
    which = "profiled step" if bar_is_of_profiled(report) else "unprofiled step"
    which = "device's part" if headline.is_of_part else which
    return f"{step_sentence(report)}{f'. Of the {which}:' if is_told or headline.is_of_part else ''}"


def step_sentence(report: Report) -> str:
    """Say what a step takes as people train it, and what it takes while it is profiled."""
    headline, controls = report.summary.headline, report.run.controls
    if headline.step_word != "step":
        return f"{ms(headline.profiled_step_ns)} for the whole trace, in which no step is marked"
    if headline.step_ns is None:
        profiled = ms(profiled_ns(report))
        words = (
            f"{profiled} per step while profiled" if headline.mark_ns is None else profiled_words(headline, " per step")
        )
        return f"{words}; how long it takes without the profiler is not known"
    limits = controls.interval("unprofiled_step_ns")
    is_wide = limits is not None and limits[1] - limits[0] > 0.05 * headline.step_ns
    known = controls.known("unprofiled_step_ns") if is_wide else ""
    told = (f"{ms(headline.step_ns)} per step{known}", controls.on_average(), profiled_words(headline))
    return ", ".join(filter(None, told))


def profiled_ns(report: Report) -> float:
    """Return the profiled step that the bar is of: the mean, as the sentence has it; else the median one."""
    whole = report.summary.bar
    return (
        float(whole.step_ns)
        if whole is not None and whole.of == "profiled"
        else report.summary.headline.profiled_step_ns
    )


def profiled_words(headline: Headline, per: str = "") -> str:
    """Say what a step takes while it is profiled, and what of it windows cover where that is but a part."""
    if headline.mark_ns is None:
        return f"{ms(headline.profiled_step_ns)}{per} while profiled"
    return f"{ms(headline.mark_ns)}{per} while profiled, of which the device's part is {ms(headline.profiled_step_ns)}"


def _shown(report: Report, most: int) -> list[tuple[DeviceSummary, Standing]]:
    """Return the devices to show: all, or those that represent the others and those that are marked."""
    shown = named(report, most)
    places = {mark.rank: place for place, mark in enumerate(report.summary.headline.marked)}
    keys = {(device.rank, device.device) for device, _ in shown}
    more = [
        (device, Standing([], []))
        for device in report.summary.by_device
        if device.rank in places and (device.rank, device.device) not in keys
    ]
    if not more and len(shown) <= most:
        return shown
    # The worst first, so that it is there however few are shown.
    return sorted([*more, *shown], key=lambda chosen: places.get(chosen[0].rank, len(places)))[:most]


def trust_words(headline: Headline) -> str:
    """Say how far to trust the figures, and why no further."""
    return f"{headline.trust}{f': {headline.why}' if headline.why else ''}"


def _fitting(words: str, room: int) -> str:
    """Return what is said of a device as far as there is room: without its reason, or not at all."""
    brief = words.partition(": ")[0]
    return next((said for said in (words, brief) if len(said) <= room), "")


def _mark_words(mark: MarkedRank | None, standing: Standing) -> str:
    """Say how a device stands out; words, not colors alone."""
    if mark is not None:
        return plain(f"<- {mark.mark}{f': {mark.why}' if mark.why else ''}")
    return standing.word


# Smaller shares would be printed as 0.0 %.
SHOWN = 0.0005


def bar_shares(report: Report) -> list[tuple[StepPart, float]]:
    """Return the parts of the step and their shares; of older documents, which have no bar, those of profiled steps."""
    bar = report.summary.bar
    if bar is None:
        return [(part, share) for part in BAR_PARTS if (share := report.summary.shares.get(part.field) or 0.0)]
    return shares_of_bar(bar)


def shares_of_bar(bar: Bar) -> list[tuple[StepPart, float]]:
    """Return the parts of a bar and their shares."""
    return [(part, ns / bar.step_ns) for part in BAR_PARTS if bar.step_ns and (ns := getattr(bar, part.field) or 0)]


def drawn_shares(shares: Sequence[tuple[StepPart, float]]) -> list[tuple[StepPart, float]]:
    """Return the same in as few parts as a line of text shows: exposed communication as one."""
    of = dict(shares)
    exposed = sum(of.get(part, 0.0) for part in EXPOSED_PARTS)
    idle = IDLE_OR_WAIT if IDLE_OR_WAIT in of else IDLE
    return [(COMPUTE, of.get(COMPUTE, 0.0)), (COMM, exposed), (COPY, of.get(COPY, 0.0)), (idle, of.get(idle, 0.0))]


def bar_is_of_profiled(report: Report) -> bool:
    """Whether the bar is of the profiled step, although a step was timed without the profiler."""
    bar = report.summary.bar
    return bar is None or bar.of == "profiled"


def exposed_words(report: Report) -> str:
    """Say what exposed communication is made of; nothing where none is exposed."""
    of = {part.field: share for part, share in bar_shares(report)}
    waiting, transfer, unresolved = (of.get(part.field, 0.0) for part in (_WAITING, _TRANSFER, _UNRESOLVED))
    if not waiting + transfer + unresolved:
        return ""
    least = "at least " if len(report.run.ranks) < report.run.world_size else ""
    most = "at most " if report.summary.transfer_is_bound else ""
    parts = [f"{least}{percent(waiting)} waiting"] if waiting else []
    parts += [f"{most}{percent(transfer)} transfer"] if transfer else []
    parts += [f"{percent(unresolved)} waiting or transfer, not known which"] if unresolved >= SHOWN else []
    return f"{COMM.label} (not hidden behind compute): {', '.join(parts)}"


_WAITING, _TRANSFER, _UNRESOLVED = EXPOSED_PARTS
