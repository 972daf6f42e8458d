"""One large file decoded by several processes, piece by piece.

    file       |head |piece |piece |piece |piece |piece |piece |piece |piece |end  |
    here        ....                ......               ......               ....
    helpers           ...... ......        ...... ......        ...... ......

A piece is some blocks of the file, between the same two cuts that one process makes, so that its chunks are the same.
What is not sound, or not certain to come out as in one process, is not split: then all of the file is read by one.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import NoReturn

from analyzers.errors import TooLarge
from analyzers.memory import Budget
from analyzers.trace.columns import TEXT_BYTES, Decoded, EventColumns
from analyzers.trace.decoding import BLOCK
from analyzers.trace.event_stream import EventStream
from analyzers.trace.kernel_names import Category

# So many blocks are a piece: enough to be worth handing over, few enough that all are done at about the same time.
BLOCKS = 16
# A chunk of a piece is no longer, so that the memory it takes to decode is known.
_LONGEST_CHUNK = 4 * BLOCK


@dataclass(frozen=True)
class Helpers:
    """Other processes that decode pieces of a file: who starts them, and how many there are."""

    executor: Executor
    count: int


class Split(Enum):
    """From where on a file is split."""

    EARLY = "from its first events on"
    TYPED = "once arguments are decoded that few files need"
    NOWHERE = "not at all"


class CannotSplit(Exception):
    """A file cannot be split as it was tried; `instead` says what to try next."""

    def __init__(self, instead: Split) -> None:
        self.instead = instead


@dataclass(frozen=True)
class _Terms:
    """All that a process needs to know to decode pieces as another one does that has read the file up to there."""

    budget: Budget
    categories: frozenset[Category]
    separator: bytes
    needs_more: bool
    has_calls: bool


@dataclass(frozen=True)
class _Piece:
    """Blocks of a file, the text before them that belongs to their first event, and how long the rest behind is."""

    front: bytes
    blocks: tuple[bytes, ...]
    rest: int


def take_pieces(stream: EventStream, text: bytearray, columns: EventColumns, helpers: Helpers, split: Split) -> None:
    """Take a stream's events with others' help, all but the last ones, before which its text ends then.

    Raises CannotSplit, and BrokenProcessPool where a helper is lost.
    """
    while not (stream.is_sound and (columns.needs_more or split is Split.EARLY)):
        block = None if stream.is_over else next(stream.blocks, None)
        if block is None:
            return
        stream.go_on(text, [block])
    separator = stream.separator or b""
    queue = _Queue(columns, separator, helpers)
    front, blocks = bytes(text[1:]), tuple(islice(stream.blocks, BLOCKS))
    while len(blocks) == BLOCKS:
        rest = _behind_last(separator, blocks)
        queue.put(_Piece(front, blocks, len(rest)))
        front, blocks = rest, tuple(islice(stream.blocks, BLOCKS))
    queue.drain()
    text[1:] = front
    # The list may end amidst them: what is behind it is counted, too.
    stream.blocks = chain(blocks, stream.blocks)


def _behind_last(separator: bytes, blocks: tuple[bytes, ...]) -> bytes:
    """The text behind the last separator, from the beginning of the event that is not whole yet."""
    end = blocks[-2][-len(separator) :] + blocks[-1]
    cut = end.rfind(separator)
    if cut < 0:
        raise CannotSplit(Split.NOWHERE)
    return end[cut + len(separator) - 1 :]


class _Queue:
    """Pieces that are decoded at the same time, and added to columns in their order."""

    def __init__(self, columns: EventColumns, separator: bytes, helpers: Helpers) -> None:
        self._columns, self._separator, self._helpers = columns, separator, helpers
        self._pending: deque[Future[Decoded | Split]] = deque()

    def put(self, piece: _Piece) -> None:
        """Have a piece decoded, by this process where the others have enough to do."""
        columns = self._columns
        terms = _Terms(columns.budget, columns.categories, self._separator, columns.needs_more, columns.has_calls)
        while self._pending and self._pending[0].done():
            self._add(self._pending.popleft().result())
        # Two wait for whoever is ready first, since handing over takes a moment.
        if sum(not future.done() for future in self._pending) <= self._helpers.count + 1:
            self._pending.append(self._helpers.executor.submit(decode, piece, terms))
            return
        here: Future[Decoded | Split] = Future()
        here.set_result(decode(piece, terms))
        self._pending.append(here)

    def drain(self) -> None:
        """Wait for all pieces."""
        while self._pending:
            self._add(self._pending.popleft().result())

    def _add(self, result: Decoded | Split) -> None:
        if isinstance(result, Decoded):
            self._columns.add(result)
        # One process counts no more than this; near the limit it has to count for itself, and say what is too much.
        budget = self._columns.budget
        budget.peak = max(budget.peak, self._columns.nbytes + _LONGEST_CHUNK * TEXT_BYTES)
        is_over = budget.peak > budget.limit
        if isinstance(result, Split) or is_over:
            for future in self._pending:
                future.cancel()
            raise CannotSplit(Split.NOWHERE if is_over or not isinstance(result, Split) else result)


class _Unsound(Exception):
    """A text from amidst the list is not as it has to be."""


class _SoundColumns(EventColumns):
    """Takes what is whole and decodes strictly, in chunks as short as one process's; raises _Unsound for all else."""

    def take(self, text: memoryview, lenient: bool) -> None:
        if lenient or len(text) > _LONGEST_CHUNK:
            raise _Unsound
        super().take(text, lenient)

    def take_one(self, text: str, begin: int) -> NoReturn:
        raise _Unsound

    def repair(self, text: str) -> NoReturn:
        raise _Unsound


def decode(piece: _Piece, terms: _Terms) -> Decoded | Split:
    """Return what stands in a piece, or from where on its file can be split instead."""
    columns = _SoundColumns(terms.categories, terms.budget, needs_more=terms.needs_more, has_calls=terms.has_calls)
    stream = EventStream.amidst(terms.separator, columns)
    text = bytearray(b"[") + piece.front
    try:
        stream.go_on(text, piece.blocks)
    except (_Unsound, TooLarge):
        return Split.NOWHERE
    if not stream.is_sound or len(text) - 1 != piece.rest:
        return Split.NOWHERE
    return columns.decoded() if columns.needs_more == terms.needs_more else Split.TYPED
