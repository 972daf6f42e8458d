"""Characters that UTF-8 can encode, in place of bytes in names.

A byte of a file's name, an argument or a variable that is no UTF-8 is half a surrogate pair to Python, which nothing
can encode. The program keeps it, so that the file is found. In whatever is written each becomes U+FFFD, as bytes of a
trace do where it is read, and as what would steer a terminal does where it is shown.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def utf8(text: str) -> bytes:
    """Return a text as it is written to files."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return encodable(text).encode()
