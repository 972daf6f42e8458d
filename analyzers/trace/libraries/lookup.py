"""Lookup of kernels and host rows in all communication libraries.

A kernel is looked up by its path, its own name behind its namespaces (`a::b::kernel`), but for the number of ranks,
which stands behind that.
"""

from __future__ import annotations

import re

from analyzers.texts import keep_answers
from analyzers.trace.libraries.collective_kinds import COMMON_WORDS, Collective, Words, kind_by_words
from analyzers.trace.libraries.library import Library
from analyzers.trace.libraries.listed import LISTED

# So much of a name is looked at; the longest that were met have a tenth of it.
_LOOKED_AT = 1 << 16
# Inductor names its kernels after every operator that they fuse: triton_poi_fused_reduce_scatter_tensor_0.
_INDUCTOR = "triton_"
# Words for communication that no library has for itself.
_COMMON_HINTS = (*("all_?reduce", "all_?gather", "reduce_?scatter"), *("alltoall", "all_to_all", "sendrecv"))


def _join(*patterns: str) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


_KERNELS = [(library, re.compile(_join(*library.kernels))) for library in LISTED if library.kernels]
_POSTS = re.compile(_join(*(pattern for library in LISTED for pattern in library.posts)))
_SIGNALS = re.compile(_join(*(pattern for library in LISTED for pattern in library.signals)))
_RANKS = [re.compile(pattern) for library in LISTED for pattern in library.ranks]
_HINTS = re.compile(_join(*(hint for library in LISTED for hint in library.hints), *_COMMON_HINTS), re.IGNORECASE)
_WORDS: Words = (*(word for library in LISTED for word in library.words), *COMMON_WORDS)

# Beginnings of the host's rows, by what the libraries call them.
RANGES = tuple(prefix for library in LISTED for prefix in library.ranges)
OPERATORS = tuple(prefix for library in LISTED for prefix in library.operators)
SPANS = tuple(prefix for library in LISTED for prefix in library.spans)
# What names of operators begin with whose shapes say the size of a collective, as one pattern.
SIZED_BY = _join(*(pattern for library in LISTED for pattern in library.sized_by))


@keep_answers
def library_of(path: str) -> Library | None:
    """Return the library that a kernel belongs to, None for one that does not communicate."""
    if path.startswith(_INDUCTOR):
        return None
    return next((library for library, pattern in _KERNELS if pattern.search(path, 0, _LOOKED_AT)), None)


def has_hint(path: str, *texts: str) -> bool:
    """Whether a kernel that belongs to no library has a word for communication in one of `texts`, or in its path."""
    if path.startswith(_INDUCTOR):
        return False
    return any(_HINTS.search(text, 0, _LOOKED_AT) for text in (path, *texts))


def kind_in(path: str) -> Collective:
    """Return the kind in a kernel's name; SEND_RECV may be anything sent as messages, OTHER anything."""
    library = library_of(path)
    return kind_by_words(path, _WORDS if library is None else (*library.words, *COMMON_WORDS))


def kind_in_call(name: str) -> Collective:
    """Return the kind in the name of a call on the host, whatever library carries it out."""
    return kind_by_words(name, _WORDS)


def ranks_in_name(kernel: str) -> int:
    """Return the number of ranks that a kernel was compiled for, 0 where its name does not tell."""
    compiled = next((match for pattern in _RANKS if (match := pattern.search(kernel)) is not None), None)
    return int(compiled[1]) if compiled else 0


def only_signals(path: str) -> bool:
    """Whether a kernel that communicates moves nothing, and only waits for others and lets them go on."""
    return library_of(path) is not None and _SIGNALS.search(path, 0, _LOOKED_AT) is not None


def shows_transfer(path: str) -> bool:
    """Whether a kernel that communicates lasts until its transfer is done, rather than that it may only post it."""
    return library_of(path) is None or _POSTS.search(path, 0, _LOOKED_AT) is None
