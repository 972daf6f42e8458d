"""Kinds of collectives, and the words that name them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzers.arrays import Labelled


class Collective(Labelled):
    """A kind of collective or point-to-point operation."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BARRIER = 5
    BROADCAST = 6
    REDUCE = 7
    GATHER = 8
    SCATTER = 9
    SEND_RECV = 10
    DISPATCH = 11  # tokens on their way to experts
    COMBINE = 12  # and back


# Words in lower case without anything but letters, tried in order, and the kind that each stands for.
Words = Sequence[tuple[str, Collective]]

# PyTorch's calls have these words, and so have the kernels of most libraries.
COMMON_WORDS: Words = (
    ("barrier", Collective.BARRIER),
    ("reducescatter", Collective.REDUCE_SCATTER),
    ("allreduce", Collective.ALL_REDUCE),
    ("allgather", Collective.ALL_GATHER),
    ("alltoall", Collective.ALL_TO_ALL),
    ("sendrecv", Collective.SEND_RECV),
    ("broadcast", Collective.BROADCAST),
    ("gather", Collective.GATHER),
    ("scatter", Collective.SCATTER),
    ("reduce", Collective.REDUCE),
)


def letters_of(name: str) -> str:
    """Return a name in lower case without anything but letters, as words are compared."""
    return re.sub("[^a-z]", "", name.lower())


def kind_by_words(name: str, words: Words) -> Collective:
    """Return the kind that the first of `words` in a name stands for, OTHER where it has none of them."""
    letters = letters_of(name)
    return next((kind for word, kind in words if word in letters), Collective.OTHER)
