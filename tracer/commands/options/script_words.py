"""SCRIPT's words, told apart from the options before them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


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
