"""Redaction of signatures, passwords and tokens in URLs and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"
# Two slashes; or one, which is what a Path leaves of them, or more.
_SCHEME = r"(?:://|(?<!file):/{3,}|[a-z][a-z0-9+.-]+:/(?!/))"
# Who asks, before the host; a colon that is not a port's tells a password, in which a slash may stand.
_USER = re.compile(
    rf"({_SCHEME})([^/\s?#'\"<>]*@|[^/\s:?#'\"<>]*:(?!\d{{1,5}}(?:[/?#\s'\",;):]|$))[^\s?#'\"<>]*@)", re.IGNORECASE
)
_QUERY = re.compile(r"([a-z][a-z0-9+.-]+:/[^\s?#'\"<>]*)(?:(\?)|(#)(?=[^\s'\"<>=]*=))[^\s'\"<>)]+", re.IGNORECASE)
_PAIR = re.compile(
    r"\b((?:x-(?:amz|goog|ms)-[\w-]+|sig|signature|AWSAccessKeyId|GoogleAccessId|AccountKey|SharedAccessSignature|"
    r"(?:access|auth|refresh|session|security|id)?[_-]?token|password|passwd|secret(?:[_-]?access)?(?:[_-]?key)?|"
    r"api[_-]?key|credential)=)[^\s&;'\"<>),]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(authorization:\s*\w+|bearer)\s+(?!\*\*\*)[\w.~+/=-]{8,}", re.IGNORECASE)
# A shorter value would be found in ordinary words.
_LEAST_SECRET = 6


def redacted(text: str, url: str = "") -> str:
    """Return a text without what only its owner should know, as far as it can be told; and without that of a URL."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _QUERY.sub(lambda match: f"{match[1]}{match[2] or match[3]}{HIDDEN}", text)
    text = _PAIR.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text)


def redacted_url(url: str) -> str:
    """Return one URL, which ends where the text does, without who asks and without its query, whatever is in that."""
    path, mark, query = url.partition("?")
    return redacted(path) + mark + HIDDEN if query else redacted(url)


def _secrets(url: str) -> Iterator[str]:
    """Yield the values in a URL's query and before its host, as they stand and decoded."""
    user = _USER.search(url)
    who = user[2].removesuffix("@") if user else ""
    if ":" in who:
        yield who
    query = re.split(r"[?#]", url, maxsplit=1)[1:]
    values = [value for pair in re.split(r"[&;#]", query[0] if query else "") for value in pair.split("=", 1)[1:]]
    values += [*query, *who.split(":")]
    for value in values:
        yield from {each for each in (value, unquote(value), unquote_plus(value)) if len(each) >= _LEAST_SECRET}
