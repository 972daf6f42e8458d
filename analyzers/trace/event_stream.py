"""Event stream: whole events cut from a JSON document, chunk by chunk.

    {"schemaVersion": 1, ... "traceEvents": [ {...}, {...} | {...}, {...} | {...} ], "traceName": ...}
     header                                    chunk          chunk          chunk   tail

A chunk is cut where the text between two events (learned from the first two) occurs last, and the cut is right exactly
if the chunk then decodes strictly. Where it does not, the structure of the bytes is looked at; where that fails too,
the chunk is damaged, and is walked from brace to brace. Nothing is scanned more than a bounded number of times.

Chunks that decode strictly, and have exactly one comma between them, are one list that decodes strictly: whatever else
was read was no JSON, and is counted in `damaged` or `lost_events`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NoReturn

import numpy as np

from analyzers.trace.categories import guess_format
from analyzers.trace.decoding import brackets, clean, scan

# More than this without the boundary of an event is no trace: it is given up before it fills the memory.
LONGEST = 1 << 25
# So many events that make no sense, and so many for each that does: what holds more is no trace, and is given up.
MOST_SENSELESS, SENSELESS_FOR_ONE = 1 << 17, 10
# So many bytes tell what a file is that holds no JSON.
_FIRST = 64
_SPACE = b" \t\r\n"
_EVENTS_KEY = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_GAP = " \t\r\n,"
_BEHIND = re.compile(rb"[ \t\r\n,]*")
# The list's end behind a damaged event: nothing but the rest of a flat document follows it.
_CLOSE = re.compile(r"\}\s*\](?=[^\[\]{}]*\}?\s*$)")
# A file that ends whole ends so, whatever stands before.
_WHOLE = re.compile(rb"\][^\[\]{}]*\}[ \t\r\n]*\Z")
_KEYS = "ph|cat|name|pid|tid|ts|dur|args|id|s|bp"
_SEEMS_EVENT = re.compile(rf'\{{\s*"(?:{_KEYS})"\s*:')
# A bracket and a brace that end the document, if not for the event behind them; and what may become that.
_STRAY_END = re.compile(rf"\][ \t\r\n]*\}}[ \t\r\n]*,[ \t\r\n]*{_SEEMS_EVENT.pattern}".encode())
_PERHAPS_STRAY = re.compile(rb'\][ \t\r\n]*(?:\}[ \t\r\n]*(?:,[ \t\r\n]*(?:\{\s*(?:"[a-z]{0,4}"?\s*)?)?)?)?')
# An event as Kineto begins it, which nothing else in a document does.
_EVENT = re.compile(r'\{\s*"ph"\s*:')
_EVENT_BYTES = re.compile(_EVENT.pattern.encode())
# Of rows of these kinds no figure is made; modules' forwards are Python's functions, too.
_UNUSED = re.compile(r'"cat"\s*:\s*"(?:python_function|ac2g|fwdbwd|cpu_instant_event)"(?!.*"nn\.Module: )', re.DOTALL)
_LIKELY_EVENTS = re.compile(rf'"traceEvents"\s*:\s*\[\s*\{{\s*"(?:{_KEYS})"'.encode())
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class NoEvents(Exception):
    """The document holds no list of events; the text says why."""


class CannotDecode(Exception):
    """A chunk does not decode strictly."""


class Unsound(Exception):
    """A text from amidst the list is not as it has to be."""


@dataclass
class EventStream:
    """Runs through a document once. `header`, `tail` and what was `lost` are complete afterwards.

    `damaged` counts the places where the text is no JSON and was read all the same: events may be missing there.
    `repaired` counts events whose texts were not escaped, and `unused` lost ones that no figure is made of;
    `lost_bytes` is the text of those that are lost.

    `take` gets a JSON array of whole events, to be read strictly or (where true is given) leniently; it raises
    CannotDecode, having taken none, where it is no such array. `take_one` reads the JSON value that begins at a place
    in a text, and says where it ends, None where it is none. `repair` gets the text of a damaged event, and says how
    many quotes in it were not escaped, None where it makes no sense even so. `taken` counts the events that were;
    `sense` counts those that are JSON, first what makes sense and then what does not. `hold` is told how many bytes of
    text wait to be read, and raises TooLarge.
    """

    blocks: Iterator[bytes]
    take: Callable[[memoryview, bool], None]
    take_one: Callable[[str, int], int | None]
    repair: Callable[[str], int | None]
    taken: Callable[[], int] = int
    sense: Callable[[], tuple[int, int]] = lambda: (0, 0)
    hold: Callable[[int], None] = lambda nbytes: None
    header: bytes = b""
    tail: bytes = b""
    lost: list[str] = field(default_factory=list)
    lost_events: int = 0
    damaged: int = 0
    repaired: int = 0
    unused: int = 0
    lost_bytes: int = 0
    # Bytes of what else was not read, and how many events were taken before each place where some may be missing.
    unread: int = 0
    breaks: list[int] = field(default_factory=list)
    # The text between two events, from the end of one to the beginning of the next.
    separator: bytes | None = None
    # Commas since the last event, and how many there have to be before the next one.
    _commas: int = 0
    _due: int = 0
    _is_walked: bool = False
    _ended: bool = False
    _is_given_up: bool = False
    # So long is the text before it is looked at again.
    _patience: int = 0
    # Where in a text that is walked the text between two events was found last; its end where there is no more.
    _cut: int = -1

    def run(self) -> None:
        """Read the document to its end. Raises NoEvents, TooLarge."""
        text = self.start()
        self.go_on(text, self.blocks)
        self.end(text)

    def start(self) -> bytearray:
        """Read up to the first events, and return the text that follows those. Raises NoEvents.

        All text not taken yet stands behind the bracket that makes an array of it: chunks are decoded where they lie.
        """
        text = bytearray(b"[") + self._head()
        self.go_on(text, [b""])
        return text

    def go_on(self, text: bytearray, blocks: Iterable[bytes]) -> None:
        """Take the events of more blocks, as long as the list goes on. Raises NoEvents, TooLarge."""
        for block in () if self.is_over else blocks:
            text += block
            self.hold(len(text))
            if len(text) < self._patience:
                continue
            taken = self._take_front(text)
            if not taken and len(text) > LONGEST:
                taken = self._walk(text, is_all=False)
            self._patience = 0 if taken else _patience(text)
            del text[1 : 1 + taken]
            self._check_sense()
            if not self._ended and len(text) > LONGEST:
                nbytes = len(text) - 1 + sum(map(len, self.blocks))
                self.lost.append(f"the last {nbytes:,} bytes, in whose first {len(text) >> 20} MB no event ends")
                self.unread += nbytes
                self._is_given_up = True
            if self.is_over:
                return

    def end(self, text: bytearray) -> None:
        """Take what is left once there are no more blocks of events."""
        if self._is_given_up:
            return
        while not self._ended and (taken := self._take_front(text, is_all=True)):
            del text[1 : 1 + taken]
        if not self._ended:
            self.lost.append(_explain_end(bytes(text[1:])))
            self.unread += len(text) - 1
            del text[1:]
        if self._is_walked and not any((self.damaged, self.repaired, self.unused, self.lost_events, self.lost)):
            self.damaged = 1
        events = self._read_tail(bytes(text[1:]))
        if events is not None:
            # The list did not end there.
            text[1:] = events
            self._ended, self._commas, self._due, self._patience = False, 1, 1, 0
            self.go_on(text, self.blocks)
            self.end(text)

    @property
    def is_over(self) -> bool:
        """Whether there are no more events to take."""
        return self._ended or self._is_given_up

    @property
    def is_sound(self) -> bool:
        """Whether nothing was damaged so far, and the text begins with the next event: one may be cut off before it."""
        is_whole = not (self.is_over or self._is_walked or self.damaged)
        return is_whole and self.separator is not None and not self._patience and self._commas == self._due == 1

    @classmethod
    def amidst(cls, separator: bytes, take: Callable[[memoryview, bool], None]) -> EventStream:
        """Return a stream for a text from amidst the list, which begins with an event and is sound; else `take` raises.

        Blocks are given to `go_on`.
        """

        def refuse(*_: object) -> NoReturn:
            raise Unsound

        return cls(iter(()), take, refuse, refuse, separator=separator, _commas=1, _due=1)

    def _head(self) -> bytes:
        """Read up to the list of events; what follows its bracket."""
        text, patience, is_front = b"", 0, True
        for block in self.blocks:
            if not text and (other := guess_format(block[:_FIRST])):
                raise NoEvents(f"it looks like {other}")
            # White space in front is let go as it comes, however much there is of it.
            text += block
            self.hold(len(text))
            if len(text) < max(patience, len(_BYTE_ORDER_MARK)):
                continue
            text, is_front = self._without_mark(text, is_front), False
            body = self._body(text)
            if body is not None:
                return body
            patience = _patience(text)
            if len(text) > LONGEST:
                break
        text = self._without_mark(text, is_front)
        body = self._body(text)
        if body is None and (likely := _LIKELY_EVENTS.search(text)) and not _is_json(text):
            # A damaged header hides the key from its brackets.
            self.header, body = text[: likely.start()], text[text.index(b"[", likely.start()) + 1 :]
            self.damaged += 1
        if body is None and len(text) > LONGEST:
            raise NoEvents(f"no traceEvents in its first {LONGEST >> 20} MB")
        if body is None:
            raise NoEvents("JSON without a list of traceEvents" if _is_json(text) else _why_no_json(text))
        return body

    def _without_mark(self, text: bytes, is_front: bool) -> bytes:
        """The text without white space and byte-order mark; behind its front, no JSON has such a mark."""
        text = (text.removeprefix(_BYTE_ORDER_MARK) if is_front else text).lstrip(_SPACE)
        while text.startswith(_BYTE_ORDER_MARK):
            self.damaged += 1
            text = text.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)
        return text

    def _body(self, text: bytes) -> bytes | None:
        """What follows the bracket of the list of events, and keep what precedes it; None where it is not there yet."""
        if text[:1] == b"[":
            return text[1:]
        if text and text[:1] != b"{":
            raise NoEvents(f"not JSON, which begins with {{ or [, not with {text[:20]!r}")
        bounds = _find_events(text)
        if bounds is None:
            return None
        self.header = text[: bounds[0]]
        return text[bounds[1] :]

    def _take_front(self, text: bytearray, is_all: bool = False) -> int:
        """Take the whole events at the front; how many bytes, behind the opening bracket, are done with.

        Where none is whole, more may come, unless the text is all there is.
        """
        self._skip_gap(text)
        if self.separator is not None:
            cut = text.rfind(self.separator)
            if cut > 0 and self._take(text, cut + 1):
                self._commas = self._due = 1
                return cut + len(self.separator) - 2
        structure = scan(text)
        if self.separator is None:
            self.separator = structure.separator(text)
        is_last = structure.list_end is not None and self._is_list_end(text, structure.list_end, is_all)
        goes_on = structure.list_end is not None and _STRAY_END.match(text, structure.list_end) is not None
        end = structure.list_end if is_last else structure.last_event_end
        if end is not None and (self._take(text, end) or self._take(text, end, lenient=True)):
            self._ended = is_last
            self._commas, self._due = 0, 1
            return end - 1
        if end is None and not structure.is_broken and not goes_on and not is_all:
            return 0
        return self._walk(text, is_all)

    def _skip_gap(self, text: bytearray) -> None:
        """Let go of what stands before the next event, where a cut or a block ended before it: one comma, or damage."""
        if text[1:2] != b"{" and (gap := _BEHIND.match(text, 1)):
            self._commas += text.count(b",", 1, gap.end())
            del text[1 : gap.end()]
        if len(text) > 1:
            self._check_commas(0 if text[1:2] == b"]" else self._due)

    def _check_sense(self) -> None:
        """Raise NoEvents where nearly nothing makes sense: to read on would take long, and show nothing."""
        sensible, senseless = self.sense()
        senseless += self.lost_events
        if senseless > max(MOST_SENSELESS, SENSELESS_FOR_ONE * sensible):
            raise NoEvents(f"of its first {sensible + senseless:,} events {senseless:,} make no sense")

    def _check_commas(self, due: int) -> None:
        if self._commas != due:
            self.damaged += 1
            self.breaks.append(self.taken())
        self._commas = due

    def _is_list_end(self, text: bytearray, bracket: int, is_all: bool) -> bool:
        """Whether a bracket ends the list: not if events follow it, nor before it is known what does."""
        behind = _BEHIND.match(text, bracket + 1)
        following = text[behind.end() : behind.end() + 1] if behind else b""
        if following == b"{" or _STRAY_END.match(text, bracket):
            return False
        return is_all or not _PERHAPS_STRAY.fullmatch(text, bracket)

    def _take(self, text: bytearray, end: int, lenient: bool = False) -> bool:
        """Take the array that a closing bracket at `end` makes of the text; False, and no change, if it is none."""
        behind = text[end : end + 1]
        text[end : end + 1] = b"]"
        try:
            with memoryview(text) as whole, whole[: end + 1] as array:
                self.take(array, lenient)
        except CannotDecode:
            return False
        finally:
            text[end : end + 1] = behind
        return True

    def _walk(self, text: bytearray, is_all: bool) -> int:
        """Take the events of a damaged text one by one, from brace to brace; how many bytes are done with.

        What stands between events and is no comma, and what is no event, is counted as lost.
        """
        self._is_walked = True
        written = text[1:].decode("utf-8", errors="surrogateescape")
        readable = clean(written)
        offset, self._cut = 0, -1
        while (begin := readable.find("{", offset)) >= 0:
            gap = readable[offset:begin]
            if "]" in gap and not _SEEMS_EVENT.match(readable, begin):
                resumed = _EVENT.search(readable, begin)
                if resumed is None:
                    break
                begin = resumed.start()
                gap = readable[offset:begin]
            if gap.strip(_GAP):
                self._lose(gap)
            self._commas += gap.count(",")
            self._check_commas(self._due)
            end = self.take_one(readable, begin)
            if end is None:
                end = self._past_damage(readable, begin, is_all)
            if end is None:
                offset = begin
                break
            self._commas, self._due, offset = 0, 1, end
        listed = readable.find("]", offset)
        if listed >= 0 and not readable[offset:listed].strip(_GAP):
            self._commas += readable.count(",", offset, listed)
            self._check_commas(0)
            self._ended = True
            offset = listed
        return len(written[:offset].encode("utf-8", errors="surrogateescape"))

    def _past_damage(self, readable: str, begin: int, is_all: bool) -> int | None:
        """Repair the damaged event that begins here, or count it; where it ends, None where more of it may come."""
        end = self._next_event(readable, begin)
        if end is None and not is_all:
            return None
        close = _CLOSE.search(readable, begin) if end is None else None
        stop = close.end() - 1 if close else len(readable) if end is None else end
        event = readable[begin:stop].rstrip(_GAP)
        quotes = self.repair(event)
        if quotes is not None:
            # One quote too many is the head of one event and the tail of another, with all between them gone.
            is_one = _keys_of_events(event) == 1 and quotes % 2 == 0
            self.repaired += is_one
            self.damaged += not is_one
            if not is_one:
                self.breaks.append(self.taken())
        elif end is not None or close is not None:
            self._lose(event)
        return begin + len(event)

    def _lose(self, text: str) -> None:
        """Count an event that cannot be read; where its text is of several, nobody knows of how many."""
        if _UNUSED.search(text) and _keys_of_events(text) == 1:
            self.unused += 1
            return
        self.lost_events += 1
        self._check_sense()
        self.lost_bytes += len(text.encode("utf-8", errors="surrogateescape"))
        self.damaged += _keys_of_events(text) > 1
        self.breaks.append(self.taken())

    def _next_event(self, readable: str, begin: int) -> int | None:
        """Where the event behind a damaged one seems to begin."""
        if self.separator is not None and self._cut < begin:
            cut = readable.find(self.separator.decode(), begin)
            # To look for it at each event would cost all of the text each time.
            self._cut = cut if cut >= 0 else len(readable)
        if self.separator is not None and self._cut < len(readable):
            return self._cut + 1
        match = _SEEMS_EVENT.search(readable, begin + 1)
        return match.start() if match else None

    def _read_tail(self, text: bytes) -> bytes | None:
        """What follows the list of events: the rest of the document, with nothing behind it.

        Where more events follow that are of no other list, these: what ended theirs was no end, and is lost.
        """
        looked_at = 0
        for block in chain((b"",), self.blocks):
            if len(text) > LONGEST:
                nbytes = len(text) + len(block) + sum(map(len, self.blocks))
                self.lost.append(f"what follows the events ({nbytes:,} bytes{explain_behind(text)})")
                self.tail = b"}"
                return None
            text += block
            self.hold(len(text))
            # The head of an event may be in one block and the rest of it in the next.
            event = _EVENT_BYTES.search(text, max(0, looked_at - _FIRST))
            looked_at = len(text)
            if event is not None and _EVENTS_KEY.search(text, 0, event.start()) is None:
                self.damaged += 1
                self.lost_bytes += event.start()
                return text[event.start() :]
        self.tail = text.lstrip(_SPACE).removeprefix(b"]").strip(_SPACE)
        return None


def _patience(text: bytes | bytearray) -> int:
    """So long a text has to be before it is looked at once more: twice as long, that looking stays linear."""
    return min(2 * len(text), LONGEST + 1)


def _keys_of_events(text: str) -> int:
    """Count the phases in a text, of which each event has one."""
    return len(re.findall(r'"ph"\s*:', text))


def _explain_end(text: bytes) -> str:
    """Say of a text behind the last event, where the list has no end that was found, why it is lost."""
    if _WHOLE.search(text):
        return f"the last {len(text):,} bytes: the file ends whole, but is damaged where they begin"
    what = f"the last {len(text):,} bytes" if text else "what is missing at the end"
    return f"{what} of the file, which ends early (cut short, or still being written)"


def explain_behind(text: bytes) -> str:
    """Say of a text behind a document whether it is another one, as of files that were written one behind the other."""
    return ", where another trace begins: give each a file of its own" if _EVENTS_KEY.search(text) else ""


def _find_events(text: bytes) -> tuple[int, int] | None:
    """Where the key of the list of events begins and its bracket ends, at the top of the document."""
    # Nothing behind the last such key decides, and nearly all of a document is.
    offsets, depth, _ = brackets(text[: max(1, text.rfind(b'"traceEvents"'))])
    for match in _EVENTS_KEY.finditer(text):
        before = int(np.searchsorted(offsets, match.start()))
        if before and depth[before - 1] == 1:
            return match.start(), match.end()
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _why_no_json(text: bytes) -> str:
    return "empty" if not text else "cut short before its list of traceEvents, or not JSON"
