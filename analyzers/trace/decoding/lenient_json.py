"""Lenient JSON: NaN, inf, control characters, lone surrogates, bare quotes.

What is read here and is no JSON is always said: by `Oddity` where its value is certain, as damage where it is not.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import Any

from analyzers.trace.decoding.number_columns import NO_TIME

# An unescaped quote or backslash in a name, as Kineto wrote those of some kernels and of Windows' files: it ends where
# the next key of an event begins. Other texts (a call stack) end where any key begins, or an object or list ends.
_NAME = re.compile(r'"name":\s*"')
_NAME_END = re.compile(r'"\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|\}\s*$)')
_TEXT = re.compile(r'"[^"\\]{1,80}"\s{0,80}:\s{0,80}"')
_TEXT_END = re.compile(r'"(?=\s{0,80}(?:,\s{0,80}"[^"\\]{1,80}"\s{0,80}:|\}\s{0,80}(?:[,}\]]|$)))')
_UNESCAPED = re.compile(r'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})(?!$))|\\|"')
_LONGEST_REPAIRED = 1 << 16
# JSON as a name may hold keys of events itself: so many places are tried as its end.
_MOST_ENDS = 8
# How much of a damaged text is looked at for one event: json's errors count the lines before them, so that each would
# cost the whole text. Nearly all events fit into the first window; from the second on, more is looked at where parsing
# came far.
_WINDOWS = (1 << 12, 1 << 18, 1 << 22, 1 << 25)


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except ArithmeticError:
        return Decimal(NO_TIME)  # an exponent beyond all bounds


# Every digit of their numbers is kept.
_LENIENT = json.JSONDecoder(strict=False, parse_float=_decimal)


class Oddity(Enum):
    """What is no JSON, and costs nothing: it is clear what was meant."""

    BYTES = "bytes that are no UTF-8"
    NUMBERS = "numbers written inf or nan"  # in any spelling: Python's json writes and reads Infinity and NaN
    CHARACTERS = "control characters in texts"
    QUOTES = "quotes or backslashes that are not escaped"


# What C++ writes of floats that are no numbers (Kineto: a bandwidth of no time); bytes that are no UTF-8, as Python
# decodes them, and halves of surrogate pairs: no characters, nor to be written.
_FOREIGN = re.compile(r"[:\[,]\s*-?(?:inf|nan)\b|\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_NO_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:inf|nan)\b', re.DOTALL)
_HALF = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
    r"|(?P<byte>[\ud800-\udfff])",
    re.DOTALL,
)


def clean(text: str) -> str:
    """Return the text as valid JSON, equally long: NaN for what C++ writes, a replacement for what is no character."""
    return _with_characters(_with_numbers(text)) if _FOREIGN.search(text) else text


def _with_numbers(text: str) -> str:
    return _NO_NUMBER.sub(_blank_number, text)


def _with_characters(text: str) -> str:
    return _HALF.sub(_replace_character, text)


def _blank_number(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f"{'NaN':>{len(match[0])}}"


def _replace_character(match: re.Match[str]) -> str:
    if match["byte"]:
        return "\N{REPLACEMENT CHARACTER}"
    return r"\ufffd" if match["half"] else match[0]


def is_utf8(text: bytes) -> bool:
    """Whether bytes are text: decoders of JSON do not look into what they skip."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def make_readable(data: bytes) -> tuple[str, set[Oddity]]:
    """Return bytes as text that is as valid as it can be, and what had to be replaced in it."""
    oddities = set() if is_utf8(data) else {Oddity.BYTES}
    text = data.decode(errors="replace")
    if _FOREIGN.search(text):
        text = _with_characters(_with_numbers(text))
    return text, oddities


def raw_decode(
    text: str, oddities: set[Oddity], parse_float: Callable[[str], Any] = float
) -> tuple[Any, int, set[Oddity]]:
    """Parse the value at the front of a readable text: it, its end, and what of it is no JSON besides.

    Raises ValueError, RecursionError.
    """
    found = set(oddities)

    def constant(word: str) -> float:
        found.add(Oddity.NUMBERS)
        return float(word)

    try:
        value, end = json.JSONDecoder(parse_float=parse_float, parse_constant=constant).raw_decode(text)
    except json.JSONDecodeError:
        found = oddities | {Oddity.CHARACTERS}
        decoder = json.JSONDecoder(strict=False, parse_float=parse_float, parse_constant=constant)
        value, end = decoder.raw_decode(text)
    return value, end, found


def loads(data: bytes) -> tuple[Any, set[Oddity]]:
    """Parse a whole text, and say what of it is no JSON. Raises ValueError, RecursionError."""
    text, oddities = make_readable(data)
    value, end, oddities = raw_decode(text, oddities, _decimal)
    if text[end:].strip(" \t\r\n"):
        raise ValueError("text behind the value")
    return value, oddities


def first_at(text: str, begin: int) -> tuple[Any, int] | None:
    """Parse the value that begins at a place in a cleaned text, and find its end; None where it is not JSON."""
    for size in _WINDOWS:
        window = text[begin : begin + size]
        try:
            value, end = _LENIENT.raw_decode(window)
        except json.JSONDecodeError as error:
            # An error at a quote may be a text that the first window cuts off.
            is_cut_off = size == _WINDOWS[0] and window[error.pos : error.pos + 1] == '"'
            if len(window) < size or (error.pos < size // 2 and not is_cut_off):
                return None
        except (ValueError, RecursionError):
            return None
        else:
            return value, begin + end
    return None


def with_escaped_texts(text: str) -> tuple[Any, int] | None:
    """Escape quotes and backslashes in the name and arguments of an event that is no JSON; None where it still is none.

    Returns the event, and how many quotes were not escaped.
    """
    if len(text) > _LONGEST_REPAIRED:
        return None
    named, tried = [*_with_name(text)], {text}
    for candidate in chain(named, map(_with_texts, dict.fromkeys((text, *named)))):
        if candidate in tried:
            continue
        tried.add(candidate)
        try:
            return _LENIENT.decode(candidate), candidate.count('\\"') - text.count('\\"')
        except (ValueError, RecursionError):
            continue
    return None


def _with_name(text: str) -> Iterator[str]:
    """Yield an event with its name escaped, for each place where that may end, the first first."""
    name = _NAME.search(text)
    if name is None:
        return
    begin = name.end()
    for end in islice(_NAME_END.finditer(text, begin), _MOST_ENDS):
        yield text[:begin] + _escape_name(text[begin : end.start()]) + text[end.start() :]


def _with_texts(text: str) -> str:
    """Return an event with all texts behind a key escaped, each of which ends as early as it may."""
    ends = [end.start() for end in _TEXT_END.finditer(text)]
    parts, done = [], 0
    for begin in (found.end() for found in _TEXT.finditer(text)):
        at = bisect_left(ends, begin)
        if begin >= done and at < len(ends):
            parts += [text[done:begin], _escape_name(text[begin : ends[at]])]
            done = ends[at]
    return "".join([*parts, text[done:]])


def _escape_name(text: str) -> str:
    """Return a text with those quotes and backslashes escaped that are not, and valid escapes left alone."""
    return _UNESCAPED.sub(lambda found: found[0] if found[1] else "\\" + found[0], text)
