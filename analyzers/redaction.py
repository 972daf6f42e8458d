"""Redaction of secrets in texts, URLs and settings.

What is hidden goes by names and shapes (`analyzers.secrecy`) and by the places where secrets stand: before a URL's
host, in its query, in headers. It is no proof that nothing is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

from analyzers.secrecy import HIDDEN, SHAPES, Sort, is_random, is_secret, sort_of

# A shorter value would be found in ordinary words.
_LEAST_SECRET = 6

# What may hold a URL; two slashes tell one, or one, which is what a Path leaves of them, or more.
_RUN = re.compile(r"[^\s'\"<>]+")
_QUERY = re.compile(r"[?#]")
_SLASHES = re.compile(r":/+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+$", re.IGNORECASE)
_LONGEST_SCHEME = 40
# A colon that is not a port's tells a password, in which a slash may stand.
_USER = re.compile(r"[^/:]*:(?!\d{1,5}(?:[/,;):]|$))")

# Each begins where nothing of a name stands before it, so that no part of a long text is looked at twice.
_PAIR = re.compile(
    r"(?<![\w.-])-{0,2}(?P<name>\w(?:[\w.-]*\w)?)(?P<quote>\\*['\"])?\]?"
    r"(?:=(?!=)|[^\S\n]+=[^\S\n]+|(?P<colon>\s*:(?![:/\\=])[^\S\n]*))"
)
_OPTION = re.compile(r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)(?:[^\S\n]|\\\n)+(?=[^\s=-])")
_QUOTED = {
    quote: re.compile(rf"(\\*){quote}(?P<value>[^{quote}\\]*(?:\\.[^{quote}\\]*)*?)(?:\1{quote}|\Z)", re.DOTALL)
    for quote in "'\""
}
# A comma ends a value where another pair follows, a bracket where no more of the value does.
_BARE = re.compile(
    r"(?P<value>(?:[^\s&;,'\"<>()\[\]{}\\]|\\[^'\"n]|,(?![\w.+-]*[\w\]][^\S\n]*[=:]|\s|\Z)|[()\[\]{}](?=\w))+)",
    re.DOTALL,
)
_MARK = re.compile(r"(?P<value><[^\s<>]*>|\[\w+\]|\$\{[^\s{}]*\}|\{\{[\w. ]*\}\}|\$\([^()]*\))")
# How a header's secret is meant, which is none itself.
SCHEME_WORD = re.compile(r"(?:apikey|basic|bearer|digest|negotiate|oauth|token)[^\S\n]+(?=\S)", re.IGNORECASE)
_ANY_SCHEME_WORD = re.compile(r"[\w-]+[^\S\n]+(?=[^\s'\"])")
_BEARER = re.compile(r"\b(bearer[^\S\n]+)(?!\*\*\*)[\w.~+/=-]{8,}", re.IGNORECASE)
_COOKIE = re.compile(r"\b((?:set-)?cookie:[^\S\n]*)(?![\s*])[^\n'\"]+", re.IGNORECASE)


def redacted(text: str, url: str = "") -> str:
    """Return a text without what only its owner should know, as far as it can be told; and without that of a URL."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _RUN.sub(_without_users_and_queries, SHAPES.sub(HIDDEN, text))
    text = _COOKIE.sub(rf"\1{HIDDEN}", text)
    text = _without_values(_without_values(text, _PAIR), _OPTION)
    return _BEARER.sub(rf"\1{HIDDEN}", text)


def redacted_url(url: str) -> str:
    """Return one URL, which ends where the text does, without who asks and without its query, whatever is in that."""
    path, mark, query = url.partition("?")
    return redacted(path) + mark + HIDDEN if query else redacted(url)


def redacted_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings or an environment without the secrets that their keys and their texts tell, however deep."""
    return {key: _redacted_value(sort_of(key), value) for key, value in values.items()}


def _redacted_value(sort: Sort, value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted_values(value)
    if isinstance(value, list):
        return [_redacted_value(sort, part) for part in value]
    if value is None or isinstance(value, bool):
        return value
    if is_secret(sort, str(value)):
        return HIDDEN
    return redacted(value) if isinstance(value, str) else value


def _without_users_and_queries(run: re.Match[str]) -> str:
    """Hide who asks, before the host, and what is asked, which may end at a bracket around the URL."""
    text = run[0]
    if ":/" not in text:
        return text
    shown, at, last_pair = "", 0, text.rfind("=")
    while at < len(text):
        query = _QUERY.search(text, at)
        if query is None:
            return shown + _without_users(text[at:])
        segment, at = text[at : query.start()], query.end()
        shown += _without_users(segment) + query[0]
        # A fragment without pairs is a place in the page.
        if _is_url(segment) and text[at : at + 1] not in ("", ")") and (query[0] == "?" or last_pair >= at):
            shown += HIDDEN
            end = text.find(")", at)
            at = end if end >= 0 else len(text)
    return shown


def _is_url(segment: str) -> bool:
    return any(_SCHEME.search(_before(segment, slashes)) for slashes in _SLASHES.finditer(segment))


def _without_users(segment: str) -> str:
    shown, at = "", 0
    for start, end in _users(segment):
        shown += segment[at:start] + HIDDEN
        at = end
    return shown + segment[at:]


def _users(segment: str) -> Iterator[tuple[int, int]]:
    """Yield where it stands who asks: USER:PASSWORD, or a token alone."""
    done, last = 0, segment.rfind("@")
    for slashes in _SLASHES.finditer(segment):
        start = slashes.end()
        if start > last:
            return
        if start < done or not _begins_url(segment, slashes):
            continue
        host = segment.find("/", start)
        end = segment.rfind("@", start, host if host >= 0 else len(segment))
        if end < 0 and _USER.match(segment, start):
            end = last
        if end >= 0:
            done = end
            yield start, end


def _begins_url(segment: str, slashes: re.Match[str]) -> bool:
    before, count = _before(segment, slashes), len(slashes[0]) - 1
    if count == 1:
        return _SCHEME.search(before) is not None
    return count == 2 or not before.lower().endswith("file")


def _before(segment: str, slashes: re.Match[str]) -> str:
    return segment[max(slashes.start() - _LONGEST_SCHEME, 0) : slashes.start()]


def _secrets(url: str) -> Iterator[str]:
    """Yield the values in a URL's query and before its host, as they stand and decoded."""
    path, *query = re.split(r"[?#]", url, maxsplit=1)
    who = next((path[start:end] for start, end in _users(path)), "")
    if ":" in who:
        yield who
    values = [value for pair in re.split(r"[&;#]", query[0] if query else "") for value in pair.split("=", 1)[1:]]
    values += [*query, *who.split(":")]
    for value in values:
        yield from {each for each in (value, unquote(value), unquote_plus(value)) if len(each) >= _LEAST_SECRET}


def _without_values(text: str, keys: re.Pattern[str]) -> str:
    """Hide the values that follow names of secrets."""
    shown, at, has_braces = [], 0, "{" in text
    for key in keys.finditer(text):
        sort = sort_of(key["name"])
        if sort is Sort.OPEN or key.start() < at:
            continue
        value = _value(text, key)
        if value is None or not is_secret(sort, text[slice(*value)]):
            continue
        begins = has_braces and text[max(key.start() - 2, 0) : key.start()].strip()[-1:] in ("{", ",")
        if _is_prose(key, text[slice(*value)], sort, begins or text[value[0] - 1] in "'\""):
            continue
        shown += [text[at : value[0]], HIDDEN]
        at = value[1]
    return "".join([*shown, text[at:]])


def _is_prose(key: re.Match[str], value: str, sort: Sort, is_marked: bool) -> bool:
    """Whether a word may follow another by chance: `unexpected token: end of file`, `--token is missing`."""
    if key.re is _PAIR and (key["quote"] or not key["colon"] or sort is Sort.SECRET):
        return False
    return not is_marked and not is_random(value)


def _value(text: str, key: re.Match[str]) -> tuple[int, int] | None:
    """Return where the value of a key begins and ends, without its quotes and how it is meant; None without any."""
    start = key.end()
    quote = text[start : start + 8].lstrip("\\")[:1]
    if quote in _QUOTED and (quoted := _QUOTED[quote].match(text, start)):
        start, end = quoted.span("value")
    else:
        start, end = _unquoted_from(text, start, key["name"])
        if start == end:
            return None
    meant = SCHEME_WORD.match(text, start, end)
    return (meant.end() if meant else start), end


def _unquoted_from(text: str, start: int, name: str) -> tuple[int, int]:
    words = _ANY_SCHEME_WORD if name.lower().endswith("authorization") else SCHEME_WORD
    meant = words.match(text, start)
    start = meant.end() if meant else start
    ends = [match.end() for match in (_BARE.match(text, start), _MARK.match(text, start)) if match]
    return start, max(ends, default=start)
