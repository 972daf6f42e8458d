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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from analyzers.trace.categories import guess_format
from analyzers.trace.decoding import (
    EVENT,
    KEYS,
    SEEMS_EVENT,
    CannotDecode,
    Damage,
    NoEvents,
    Rows,
    Walk,
    brackets,
    scan,
)

# More than this without the boundary of an event is no trace: it is given up before it fills the memory.
LONGEST = 1 << 25
# So many bytes tell what a file is that holds no JSON.
_FIRST = 64
_SPACE = b" \t\r\n"
_EVENTS_KEY = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_BEHIND = re.compile(rb"[ \t\r\n,]*")
# A file that ends whole ends so, whatever stands before.
_WHOLE = re.compile(rb"\][^\[\]{}]*\}[ \t\r\n]*\Z")
# A bracket and a brace that end the document, if not for the event behind them; and what may become that.
_STRAY_END = re.compile(rf"\][ \t\r\n]*\}}[ \t\r\n]*,[ \t\r\n]*{SEEMS_EVENT.pattern}".encode())
_PERHAPS_STRAY = re.compile(rb'\][ \t\r\n]*(?:\}[ \t\r\n]*(?:,[ \t\r\n]*(?:\{\s*(?:"[a-z]{0,4}"?\s*)?)?)?)?')
_EVENT_BYTES = re.compile(EVENT.pattern.encode())
_LIKELY_EVENTS = re.compile(rf'"traceEvents"\s*:\s*\[\s*\{{\s*"(?:{KEYS})"'.encode())
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class EventStream:
    """Runs through a document once, and gives `rows` its events; `header`, `tail` and `damage` are complete then."""

    blocks: Iterator[bytes]
    rows: Rows
    header: bytes = b""
    tail: bytes = b""
    damage: Damage = field(init=False)
    # The text between two events, from the end of one to the beginning of the next.
    separator: bytes | None = None
    _is_walked: bool = False
    _ended: bool = False
    _is_given_up: bool = False
    # So long is the text before it is looked at again.
    _patience: int = 0

    def __post_init__(self) -> None:
        self.damage = Damage(self.rows)

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
            self.rows.hold(len(text))
            if len(text) < self._patience:
                continue
            taken = self._take_front(text)
            if not taken and len(text) > LONGEST:
                taken = self._walk(text, is_all=False)
            self._patience = 0 if taken else _patience(text)
            del text[1 : 1 + taken]
            self.damage.check_sense()
            if not self._ended and len(text) > LONGEST:
                nbytes = len(text) - 1 + sum(map(len, self.blocks))
                self.damage.lost.append(f"the last {nbytes:,} bytes, in whose first {len(text) >> 20} MB no event ends")
                self.damage.unread += nbytes
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
            self.damage.lost.append(_explain_end(bytes(text[1:])))
            self.damage.unread += len(text) - 1
            del text[1:]
        if self._is_walked and not self.damage:
            self.damage.places = 1
        events = self._read_tail(bytes(text[1:]))
        if events is not None:
            # The list did not end there.
            text[1:] = events
            self._ended, self._patience = False, 0
            self.damage.begin_amidst()
            self.go_on(text, self.blocks)
            self.end(text)

    @property
    def is_over(self) -> bool:
        """Whether there are no more events to take."""
        return self._ended or self._is_given_up

    @property
    def is_sound(self) -> bool:
        """Whether nothing was damaged so far, and the text begins with the next event: one may be cut off before it."""
        is_whole = not (self.is_over or self._is_walked or self.damage.places)
        return is_whole and self.separator is not None and not self._patience and self.damage.is_amidst

    @classmethod
    def amidst(cls, separator: bytes, rows: Rows) -> EventStream:
        """Return a stream for a text from amidst the list, which begins with an event. Blocks are given to `go_on`."""
        stream = cls(iter(()), rows, separator=separator)
        stream.damage.begin_amidst()
        return stream

    def _head(self) -> bytes:
        """Read up to the list of events; what follows its bracket."""
        text, patience, is_front = b"", 0, True
        for block in self.blocks:
            if not text and (other := guess_format(block[:_FIRST])):
                raise NoEvents(f"it looks like {other}")
            # White space in front is let go as it comes, however much there is of it.
            text += block
            self.rows.hold(len(text))
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
            self.damage.places += 1
        if body is None and len(text) > LONGEST:
            raise NoEvents(f"no traceEvents in its first {LONGEST >> 20} MB")
        if body is None:
            raise NoEvents("JSON without a list of traceEvents" if _is_json(text) else _why_no_json(text))
        return body

    def _without_mark(self, text: bytes, is_front: bool) -> bytes:
        """The text without white space and byte-order mark; behind its front, no JSON has such a mark."""
        text = (text.removeprefix(_BYTE_ORDER_MARK) if is_front else text).lstrip(_SPACE)
        while text.startswith(_BYTE_ORDER_MARK):
            self.damage.places += 1
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
                self.damage.begin_amidst()
                return cut + len(self.separator) - 2
        structure = scan(text)
        if self.separator is None:
            self.separator = structure.separator(text)
        is_last = structure.list_end is not None and self._is_list_end(text, structure.list_end, is_all)
        goes_on = structure.list_end is not None and _STRAY_END.match(text, structure.list_end) is not None
        end = structure.list_end if is_last else structure.last_event_end
        if end is not None and (self._take(text, end) or self._take(text, end, lenient=True)):
            self._ended = is_last
            self.damage.end_event()
            return end - 1
        if end is None and not structure.is_broken and not goes_on and not is_all:
            return 0
        return self._walk(text, is_all)

    def _skip_gap(self, text: bytearray) -> None:
        """Let go of what stands before the next event, where a cut or a block ended before it: one comma, or damage."""
        if text[1:2] != b"{" and (gap := _BEHIND.match(text, 1)):
            self.damage.commas += text.count(b",", 1, gap.end())
            del text[1 : gap.end()]
        if len(text) > 1:
            self.damage.check_commas(0 if text[1:2] == b"]" else self.damage.due)

    def _walk(self, text: bytearray, is_all: bool) -> int:
        """Take the events of a damaged text one by one; how many bytes are done with."""
        self._is_walked = True
        walk = Walk(text[1:], self.damage, self.separator, is_all)
        done = walk.take()
        self._ended = self._ended or walk.is_over
        return done

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
                self.rows.take(array, lenient)
        except CannotDecode:
            return False
        finally:
            text[end : end + 1] = behind
        return True

    def _read_tail(self, text: bytes) -> bytes | None:
        """What follows the list of events: the rest of the document, with nothing behind it.

        Where more events follow that are of no other list, these: what ended theirs was no end, and is lost.
        """
        looked_at = 0
        for block in chain((b"",), self.blocks):
            if len(text) > LONGEST:
                nbytes = len(text) + len(block) + sum(map(len, self.blocks))
                self.damage.lost.append(f"what follows the events ({nbytes:,} bytes{explain_behind(text)})")
                self.tail = b"}"
                return None
            text += block
            self.rows.hold(len(text))
            # The head of an event may be in one block and the rest of it in the next.
            event = _EVENT_BYTES.search(text, max(0, looked_at - _FIRST))
            looked_at = len(text)
            if event is not None and _EVENTS_KEY.search(text, 0, event.start()) is None:
                self.damage.places += 1
                self.damage.lost_bytes += event.start()
                return text[event.start() :]
        self.tail = text.lstrip(_SPACE).removeprefix(b"]").strip(_SPACE)
        return None


def _patience(text: bytes | bytearray) -> int:
    """So long a text has to be before it is looked at once more: twice as long, that looking stays linear."""
    return min(2 * len(text), LONGEST + 1)


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
