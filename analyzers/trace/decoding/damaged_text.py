"""Damaged text: its events taken one by one, and losses counted.

    {...}, {... {...}, x {...} ]        taken, lost up to the next event, taken, lost, taken; then the list's end

What stands between events and is no comma, and what is no event, is counted; so is each place where events may be
missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from analyzers.trace.decoding.lenient_json import clean

# So many events that make no sense, and so many for each that does: what holds more is no trace, and is given up.
MOST_SENSELESS, SENSELESS_FOR_ONE = 1 << 17, 10
KEYS = "ph|cat|name|pid|tid|ts|dur|args|id|s|bp"
SEEMS_EVENT = re.compile(rf'\{{\s*"(?:{KEYS})"\s*:')
# An event as Kineto begins it, which nothing else in a document does.
EVENT = re.compile(r'\{\s*"ph"\s*:')
_GAP = " \t\r\n,"
# The list's end behind a damaged event: nothing but the rest of a flat document follows it.
_CLOSE = re.compile(r"\}\s*\](?=[^\[\]{}]*\}?\s*$)")
# Of rows of these kinds no figure is made; modules' forwards are Python's functions, too.
_UNUSED = re.compile(r'"cat"\s*:\s*"(?:python_function|ac2g|fwdbwd|cpu_instant_event)"(?!.*"nn\.Module: )', re.DOTALL)


class NoEvents(Exception):
    """The document holds no list of events; the text says why."""


class CannotDecode(Exception):
    """A chunk does not decode strictly."""


class Rows(Protocol):
    """Who takes a document's events."""

    def take(self, text: memoryview, lenient: bool) -> None:
        """Take the events of a JSON array, read strictly or leniently. Raises CannotDecode where it is none."""

    def take_one(self, text: str, begin: int) -> int | None:
        """Take the JSON value that begins at a place in a text; where it ends, None where it is none."""

    def repair(self, text: str) -> int | None:
        """Take a damaged event; how many quotes in it were not escaped, None where it makes no sense even so."""

    def taken(self) -> int:
        """Return how many events were taken."""

    def sense(self) -> tuple[int, int]:
        """Return how many of the events that are JSON make sense, and how many do not."""

    def hold(self, nbytes: int) -> None:
        """Raise TooLarge where so many bytes of text, which wait to be read, take too much."""


@dataclass
class Damage:
    """What was not read of a document, or was repaired.

    `places` counts those where the text is no JSON and was read all the same: events may be missing there. `repaired`
    counts events whose texts were not escaped, `unused` lost ones that no figure is made of; `lost_bytes` is the text
    of those that are lost, `unread` that of what else was not read. `breaks` has how many events were taken before each
    place where some may be missing. `commas` were seen since the last event, and `due` have to be before the next.
    """

    rows: Rows
    lost: list[str] = field(default_factory=list)
    lost_events: int = 0
    places: int = 0
    repaired: int = 0
    unused: int = 0
    lost_bytes: int = 0
    unread: int = 0
    breaks: list[int] = field(default_factory=list)
    commas: int = 0
    due: int = 0

    def __bool__(self) -> bool:
        return any((self.places, self.repaired, self.unused, self.lost_events, self.lost))

    @property
    def is_amidst(self) -> bool:
        """Whether the next thing due is an event, as behind the one comma that it needs."""
        return self.commas == self.due == 1

    def begin_amidst(self) -> None:
        """Go on before an event that has the one comma behind the last."""
        self.commas = self.due = 1

    def end_event(self) -> None:
        """Go on behind an event."""
        self.commas, self.due = 0, 1

    def check_commas(self, due: int) -> None:
        """Count a place where there are more or fewer commas than are due."""
        if self.commas != due:
            self.places += 1
            self._break()
        self.commas = due

    def check_sense(self) -> None:
        """Raise NoEvents where nearly nothing makes sense: to read on would take long, and show nothing."""
        sensible, senseless = self.rows.sense()
        senseless += self.lost_events
        if senseless > max(MOST_SENSELESS, SENSELESS_FOR_ONE * sensible):
            raise NoEvents(f"of its first {sensible + senseless:,} events {senseless:,} make no sense")

    def lose(self, text: str) -> None:
        """Count an event that cannot be read; where its text is of several, nobody knows of how many."""
        if _UNUSED.search(text) and _keys_of_events(text) == 1:
            self.unused += 1
            return
        self.lost_events += 1
        self.check_sense()
        self.lost_bytes += len(text.encode("utf-8", errors="surrogateescape"))
        self.places += _keys_of_events(text) > 1
        self._break()

    def repair(self, event: str) -> bool:
        """Take an event whose texts are not escaped; False where it makes no sense even so."""
        quotes = self.rows.repair(event)
        if quotes is None:
            return False
        # One quote too many is the head of one event and the tail of another, with all between them gone.
        is_one = _keys_of_events(event) == 1 and quotes % 2 == 0
        self.repaired += is_one
        self.places += not is_one
        if not is_one:
            self._break()
        return True

    def _break(self) -> None:
        self.breaks.append(self.rows.taken())


def _keys_of_events(text: str) -> int:
    """Count the phases in a text, of which each event has one."""
    return len(re.findall(r'"ph"\s*:', text))


class Walk:
    """Takes the events of a damaged text one by one, from brace to brace.

    More of the text may come unless it `is_all`; `separator` is what stands between two events, as far as that is
    known. `is_over` says whether the list ended in what was taken.
    """

    def __init__(self, text: bytes | bytearray, damage: Damage, separator: bytes | None, is_all: bool) -> None:
        written = text.decode("utf-8", errors="surrogateescape")
        self._written, self._text, self._damage, self._is_all = written, clean(written), damage, is_all
        self._separator = None if separator is None else separator.decode()
        # Where the separator was found last; the text's end where there is no more.
        self._cut = -1
        self.is_over = False

    def take(self) -> int:
        """Take its events; how many bytes are done with. Raises NoEvents where nearly nothing makes sense."""
        offset = self._take_events()
        end = self._text.find("]", offset)
        self.is_over = end >= 0 and not self._text[offset:end].strip(_GAP)
        if self.is_over:
            self._damage.commas += self._text.count(",", offset, end)
            self._damage.check_commas(0)
            offset = end
        return len(self._written[:offset].encode("utf-8", errors="surrogateescape"))

    def _take_events(self) -> int:
        """Take them; where the last one ends, or one that may not be whole yet begins."""
        offset, text, damage = 0, self._text, self._damage
        while (begin := text.find("{", offset)) >= 0:
            gap = text[offset:begin]
            if "]" in gap and not SEEMS_EVENT.match(text, begin):
                resumed = EVENT.search(text, begin)
                if resumed is None:
                    break
                begin = resumed.start()
                gap = text[offset:begin]
            if gap.strip(_GAP):
                damage.lose(gap)
            damage.commas += gap.count(",")
            damage.check_commas(damage.due)
            end = damage.rows.take_one(text, begin)
            if end is None:
                end = self._past_damage(begin)
            if end is None:
                return begin
            damage.end_event()
            offset = end
        return offset

    def _past_damage(self, begin: int) -> int | None:
        """Repair the damaged event that begins here, or count it; where it ends, None where more of it may come."""
        end = self._next_event(begin)
        if end is None and not self._is_all:
            return None
        close = _CLOSE.search(self._text, begin) if end is None else None
        stop = close.end() - 1 if close else len(self._text) if end is None else end
        event = self._text[begin:stop].rstrip(_GAP)
        if not self._damage.repair(event) and (end is not None or close is not None):
            self._damage.lose(event)
        return begin + len(event)

    def _next_event(self, begin: int) -> int | None:
        """Where the event behind a damaged one seems to begin."""
        if self._separator is not None and self._cut < begin:
            cut = self._text.find(self._separator, begin)
            # To look for it at each event would cost all of the text each time.
            self._cut = cut if cut >= 0 else len(self._text)
        if self._separator is not None and self._cut < len(self._text):
            return self._cut + 1
        match = SEEMS_EVENT.search(self._text, begin + 1)
        return match.start() if match else None
