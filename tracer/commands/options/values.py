"""Parse values of options, and tell a SCRIPT's words from them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from tracer.environment import LONGEST_SHOWN, MOST_PROCESSES

# Beyond what any count or size can be; what is computed from them stays within 64 bits.
TOO_LARGE = 2**62
_SCHEDULER = re.compile(r"(?:tcp|tls)://\S+:\d{1,5}")


def refusal(text: str, remedy: str) -> argparse.ArgumentTypeError:
    """Build the error for a value that an option does not take; `remedy` says what to give."""
    return argparse.ArgumentTypeError(f"{text[:LONGEST_SHOWN] or repr(text)}: {remedy}")


def positive(text: str) -> int:
    """Parse a whole number from 1 up."""
    value = _whole(text)
    if value is None or not 1 <= value < TOO_LARGE:
        raise refusal(text, "give a whole number, 1 or more")
    return value


def not_negative(text: str) -> int:
    """Parse a whole number from 0 up."""
    value = _whole(text)
    if value is None or not 0 <= value < TOO_LARGE:
        raise refusal(text, "give a whole number, 0 or more")
    return value


def positive_number(text: str) -> float:
    """Parse a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise refusal(text, "give a number above 0")
    return value


def processes(text: str) -> int:
    """Parse a number of processes."""
    if not text.isdecimal() or not 1 <= int(text[:LONGEST_SHOWN]) <= MOST_PROCESSES:
        raise refusal(text, "give a number of processes, 1 or more")
    return int(text)


def message_size(text: str) -> int:
    """Parse a message's size in bytes: `4096`, or `4K`, `16M`, `1G` in powers of 1024, as nccl-tests takes them."""
    match = re.fullmatch(r"(\d{1,18})([KMG]?)", text.upper())
    value = int(match[1]) * 1024 ** " KMG".index(match[2] or " ") if match else 0
    if not 1 <= value < TOO_LARGE:
        raise refusal(text, "give a size such as 4096, 4K, 16M or 1G")
    return value


def port_number(text: str) -> int:
    """Parse a port."""
    if not text.isdecimal() or not 1 <= int(text[:LONGEST_SHOWN]) <= 65535:
        raise refusal(text, "give a port from 1 to 65535")
    return int(text)


def scheduler_address(text: str) -> str:
    """Parse the address of a Dask scheduler."""
    if not _SCHEDULER.fullmatch(text):
        raise refusal(text, "give its address as tcp://HOST:PORT, or tls://HOST:PORT")
    return text


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def script_apart(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the words for the parser, and the SCRIPT's, None where there is none.

    A SCRIPT begins behind `--`, else at the first word that is neither an option nor an option's value; `-m` is the
    beginning of `-m MODULE`. From there on every word is the SCRIPT's, also one that looks like an option of ours.
    """
    own = list(words)
    place = 0
    while place < len(own):
        word = own[place]
        if word == "--":
            return own[:place], own[place + 1 :]
        if word == "-m" or not word.startswith("-"):
            return own[:place], own[place:]
        # An option that lacks its value is for the parser to refuse.
        has_value = _takes_next(parser, word) and own[place + 1 : place + 2] != ["--"]
        place += 2 if has_value else 1
    return own, None


def _takes_next(parser: argparse.ArgumentParser, word: str) -> bool:
    """Whether an option's value is the next word: that of `--gpus=4` and `-oDIR` is in the word itself."""
    action = parser._option_string_actions.get(word)
    return action is not None and action.nargs is None
