"""Lenient JSON: NaN, inf, control characters, lone surrogates, bare quotes.

What is read here and is no JSON is always said: by `Oddity` where its value is certain, as damage where it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any

from analyzers.trace.decoding.timestamps import NO_TIME

# An unescaped quote or backslash in a name: Kineto wrote some kernels' so. The name ends where the next key begins.
_NAME = re.compile(r'("name":\s*")(.*?)("\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|\}))', re.DOTALL)
_UNESCAPED = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})|(?<!\\)"')
_LONGEST_REPAIRED = 1 << 16
# How much of a damaged text is looked at for one event: json's errors count the lines before them, so that each would
# cost the whole text. More is looked at where parsing came far.
_WINDOWS = (1 << 18, 1 << 22, 1 << 25)


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
            if len(window) < size or error.pos < size // 2:
                return None
        except (ValueError, RecursionError):
            return None
        else:
            return value, begin + end
    return None


def with_escaped_name(text: str) -> Any | None:
    """Escape the quotes and backslashes in an event's name; None where that does not make it JSON."""
    if len(text) > _LONGEST_REPAIRED:
        return None
    try:
        return _LENIENT.decode(_NAME.sub(_escape_name, text, count=1))
    except (ValueError, RecursionError):
        return None


def _escape_name(match: re.Match[str]) -> str:
    """The name with those quotes and backslashes escaped that are not, and valid escapes left alone."""
    return match[1] + _UNESCAPED.sub(lambda bad: "\\" + bad[0], match[2]) + match[3]
